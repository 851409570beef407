"""Collector: the only code that steps an environment in training, and the only one that knows about autoreset.

Whatever the vector environment does at an episode's end (SAME_STEP, NEXT_STEP, DISABLED), the sink sees the same
transitions: true next observations, `terminated` and `truncated` apart, reset steps marked invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, cast

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from rl_training.envs.preprocessing.step_infos import frames_of, learner_view
from rl_training.guards import Guard
from rl_training.numerics.gsde import carry_like
from rl_training.seeding import generator_state, set_generator_state
from rl_training.types import RESTART_INFO, Array, Carry, Metrics, Obs, Policy, StateDict, TransitionSink, VectorStep


@dataclass(frozen=True, slots=True)
class Episode:
    """A finished training episode, with raw rewards."""

    env_index: int
    episode_return: float
    length: int
    terminated: bool
    info: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class CollectStats:
    """What one call of `collect`, or several of them, did."""

    env_steps: int = 0
    episodes: list[Episode] = field(default_factory=list)
    acting_seconds: float = 0.0
    env_seconds: float = 0.0
    agent_steps: int = 0
    """Steps of single agents since the run began; 0 where the environment has one agent."""
    env_frames: int = 0
    """Emulator frames or physics steps since the run began; 0 where the environment does not report them."""
    metrics: Metrics = field(default_factory=dict)
    """What else is logged of the latest call, by its full name."""

    @property
    def returns(self) -> list[float]:
        return [episode.episode_return for episode in self.episodes]

    def add(self, later: CollectStats) -> None:
        """Count what a later call did too."""
        self.env_steps += later.env_steps
        self.env_frames = later.env_frames  # counted since the run began
        self.agent_steps = later.agent_steps
        self.episodes += later.episodes
        self.acting_seconds += later.acting_seconds
        self.env_seconds += later.env_seconds
        self.metrics.update(later.metrics)


class Collector:
    """Steps N environments with a policy. Owns the generator that training actions are drawn with."""

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        policy: Policy,
        rng: np.random.Generator,
        *,
        info_keys: Sequence[str] = (),
        guard: Guard | None = None,
        count_agents: Callable[[Any, Array], int] | None = None,
    ) -> None:
        """`count_agents` says how many agents act, given observations and which environments take a step; None where
        there is one in each."""
        self.env = env
        self.policy = policy
        self.rng = rng
        self.info_keys = ("is_success", "success", *info_keys)
        self.watchers: list[Callable[[VectorStep], None]] = []
        self.guard = Guard("off") if guard is None else guard
        self.num_envs = int(env.num_envs)
        self.autoreset = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self.carry: Carry = policy.initial_carry(self.num_envs)
        self.is_first = np.ones(self.num_envs, bool)
        self.all_valid = np.ones(self.num_envs, bool)
        self.resetting = np.zeros(self.num_envs, bool)  # NEXT_STEP: the coming step only resets this row
        self.returns = np.zeros(self.num_envs)
        self.lengths = np.zeros(self.num_envs, np.int64)
        self.env_frames = 0
        self.count_agents = count_agents
        self.agent_steps = 0
        self.obs: Obs | None = None

    def watch(self, look: Callable[[VectorStep], None]) -> None:
        """Show every step to `look` from now on, after it was stored."""
        self.watchers.append(look)

    def start_from(self, obs: Obs) -> None:
        """Begin with these observations of environments that were already reset."""
        self.obs = obs

    def collect(self, num_steps: int, sink: TransitionSink, policy: Policy | None = None) -> CollectStats:
        """Take `num_steps` steps in every environment and store them in `sink`.

        `policy` acts in place of the collector's own, for instance before learning starts.
        """
        policy = self.policy if policy is None else policy
        stats = CollectStats()
        if self.obs is None:  # a new run, or a resumed one: the environment then continues its open episodes
            self.obs = copy_obs(self.env.reset()[0])
        sink.begin(self.obs, self.carry)
        for t in range(num_steps):
            self._step(t, sink, policy, stats)
        return stats

    def _step(self, t: int, sink: TransitionSink, policy: Policy, stats: CollectStats) -> None:
        assert self.obs is not None
        started = perf_counter()
        result = policy.act(self.obs, self.carry, self.is_first, self.rng)
        if result.actions.dtype.kind == "f":
            self.guard.check_actions(result.actions, t, self.obs, self.carry, policy)
        acted = perf_counter()
        raw_obs, rewards, terminated, truncated, infos = self.env.step(result.env_actions)
        stats.env_seconds += perf_counter() - acted
        stats.acting_seconds += acted - started

        obs = copy_obs(raw_obs)  # an environment may hand out the same array every step
        valid = self.all_valid
        if self.autoreset is AutoresetMode.NEXT_STEP or RESTART_INFO in infos:
            lost = np.asarray(infos.get(RESTART_INFO, False))  # rows whose worker died: the step has no result
            valid = ~(self.resetting | lost)
            terminated, truncated = terminated & valid, (truncated & valid) | lost
        ended = terminated | truncated
        next_obs, obs = self._undo_autoreset(obs, ended, infos)
        # what the learner sees may differ from the score and the end of the task, which are counted below
        seen = learner_view(rewards, terminated, infos)
        given, sent = (self.obs, result.actions), result.env_actions
        step = VectorStep(*given, *seen, truncated, self.is_first, valid, next_obs, result.extras, sent)
        sink.store(step)
        for look in self.watchers:
            look(step)
        self._count(rewards, terminated, ended, valid, infos, stats)

        self.obs, self.carry = obs, result.carry
        if self.autoreset is AutoresetMode.NEXT_STEP:
            self.is_first, self.resetting = self.resetting, ended
        else:
            self.is_first = ended

    def _undo_autoreset(self, obs: Obs, ended: Array, infos: dict[str, Any]) -> tuple[Obs, Obs]:
        """(true next observations, observations to act on)."""
        if not np.count_nonzero(ended) or self.autoreset is AutoresetMode.NEXT_STEP:
            return obs, obs
        if self.autoreset is AutoresetMode.DISABLED:
            return obs, copy_obs(self.env.reset(options={"reset_mask": ended})[0])
        true_next = copy_obs(obs)
        for i in np.flatnonzero(ended):
            set_row(true_next, int(i), infos["final_obs"][i])
        return true_next, obs

    def _count(
        self, rewards: Array, terminated: Array, ended: Array, valid: Array, infos: dict[str, Any], stats: CollectStats
    ) -> None:
        """Episode returns and lengths are counted here, from raw rewards, never taken from an environment's infos."""
        self.env_frames += frames_of(infos)
        if self.count_agents is not None:
            self.agent_steps += self.count_agents(self.obs, valid)
            stats.agent_steps = self.agent_steps
        if valid is self.all_valid:
            self.returns += rewards
            self.lengths += 1
            stats.env_steps += self.num_envs
        else:
            self.returns += np.where(valid, rewards, 0.0)
            self.lengths += valid
            stats.env_steps += int(np.count_nonzero(valid))
        stats.env_frames = self.env_frames
        if not np.count_nonzero(ended):
            return
        final = infos.get("final_info", infos) if self.autoreset is AutoresetMode.SAME_STEP else infos
        for i in np.flatnonzero(ended & valid):
            stats.episodes.append(
                Episode(
                    env_index=int(i),
                    episode_return=float(self.returns[i]),
                    length=int(self.lengths[i]),
                    terminated=bool(terminated[i]),
                    info=numbers_of(final, int(i), self.info_keys),
                )
            )
        self.returns[ended] = 0.0
        self.lengths[ended] = 0

    def state_dict(self) -> StateDict:
        """Everything but the observation, which a restored environment returns again at its first reset."""
        frames = {"env_frames": self.env_frames} if self.env_frames else {}
        agents = {"agent_steps": self.agent_steps} if self.count_agents is not None else {}
        return {
            **frames,
            **agents,
            "rng": generator_state(self.rng),
            "carry": self.carry,
            "is_first": self.is_first,
            "resetting": self.resetting,
            "returns": self.returns.copy(),
            "lengths": self.lengths.copy(),
        }

    def load_state_dict(self, state: StateDict, /) -> None:
        set_generator_state(self.rng, state["rng"])
        self.carry = carry_like(self.carry, state["carry"])
        self.is_first, self.resetting = np.array(state["is_first"]), np.array(state["resetting"])
        self.returns, self.lengths = np.array(state["returns"]), np.array(state["lengths"])
        self.env_frames = int(state.get("env_frames", 0))
        self.agent_steps = int(state.get("agent_steps", 0))
        self.obs = None

    def drop_open_episodes(self) -> None:
        """Every environment starts a new episode with the next step; counts of the episodes in progress are dropped."""
        self.is_first, self.resetting = np.ones(self.num_envs, bool), np.zeros(self.num_envs, bool)
        self.returns, self.lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)
        self.obs = None


def copy_obs(obs: Any) -> Obs:
    """A copy of an observation: array or dict of arrays."""
    if isinstance(obs, dict):
        return {name: np.array(value) for name, value in obs.items()}
    return np.array(obs)


def set_row(obs: Obs, row: int, value: Any) -> None:
    """Overwrite one environment's row."""
    if isinstance(obs, dict):
        for name, column in obs.items():
            column[row] = value[name]
    else:
        obs[row] = value


def numbers_of(infos: dict[str, Any], row: int, keys: Sequence[str]) -> dict[str, float]:
    """Numbers of one environment from Gymnasium's vector infos ({key: column, _key: present}), for the given keys."""
    found: dict[str, float] = {}
    for key in keys:
        column, present = infos.get(key), infos.get(f"_{key}")
        if column is None or (present is not None and not present[row]):
            continue
        try:
            found["success" if key == "is_success" else key] = float(cast(Any, column)[row])
        except (TypeError, ValueError):
            continue  # requested by the user, but not a number that could be averaged
    return found
