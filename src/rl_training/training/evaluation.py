"""Evaluation: whole episodes on separate environments with their own seeds. It never touches the training.

Episode k always starts from the same seed and, if stochastic, draws from the same noise, however many environments
share the work. Environments are plain single ones, so every suite and every class of yours is evaluated the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.numerics.agents import POLICY_RETURN, TEAM_RETURN
from rl_training.numerics.stable import iqm
from rl_training.seeding import episode_noise, episode_seed, stream
from rl_training.types import REWARD, Array, Carry, JudgesEpisodes, Obs, Policy

MAX_SLOTS = 25
"""Default limit on the environments of an evaluation, which one call of the policy serves."""

EnvMaker = Callable[[int], "gym.Env[Any, Any]"]
"""Makes the i-th evaluation environment."""


@dataclass(frozen=True)
class EvalResult:
    """Returns, of raw rewards, and lengths of all episodes, in the order of their numbers."""

    returns: Array
    lengths: Array
    successes: Array
    """1, 0, or NaN where the environment does not say."""
    frames: list[Array] = field(default_factory=list)
    """Frames of the first episode, if it was recorded."""
    fps: float = 30.0
    """The environment's own frame rate."""
    judged: Mapping[str, Array] = field(default_factory=dict)
    """Further numbers of each episode, by name: what a policy that judges episodes itself says, whose scores are the
    returns, and the returns of teams and policies."""

    def followed_by(self, later: EvalResult) -> EvalResult:
        """These episodes and those of `later`, as one result."""
        returns = np.concatenate([self.returns, later.returns])
        lengths = np.concatenate([self.lengths, later.lengths])
        successes = np.concatenate([self.successes, later.successes])
        judged = {name: np.concatenate([values, later.judged[name]]) for name, values in self.judged.items()}
        return EvalResult(returns, lengths, successes, self.frames, self.fps, judged)

    def metrics(self) -> dict[str, float]:
        values = {
            "return_mean": float(self.returns.mean()),
            "return_std": float(self.returns.std()),
            "return_min": float(self.returns.min()),
            "return_max": float(self.returns.max()),
            "return_iqm": float(iqm(self.returns)),
            "length_mean": float(self.lengths.mean()),
        }
        if not np.isnan(self.successes).all():
            values["success_rate"] = float(np.nanmean(self.successes))
        known = {name: numbers for name, numbers in self.judged.items() if not np.isnan(numbers).all()}
        return values | {name: float(np.nanmean(numbers)) for name, numbers in known.items()}


class EpisodeSlot:
    """One environment that plays episodes i, i + n, i + 2n, ... one after the other."""

    def __init__(self, env: gym.Env[Any, Any], first: int, seed: int) -> None:
        self.env = env
        self.episode = first
        self.seed = seed
        self.obs: Any = None
        self.total, self.length = 0.0, 0
        self.reward = 0.0
        """What the latest step was rewarded with."""
        self.is_first = True

    def start(self) -> None:
        """Reset the environment to the beginning of the episode that is due."""
        self.obs, _ = self.env.reset(seed=episode_seed(self.seed, self.episode))
        self.total, self.length, self.is_first = 0.0, 0, True

    def step(self, action: Any) -> dict[str, Any] | None:
        """Take one step; returns the info of the last step where the episode has ended, else None."""
        self.obs, reward, terminated, truncated, info = self.env.step(action)
        self.reward = float(reward)
        self.total += self.reward
        self.length += 1
        self.is_first = False
        return info if terminated or truncated else None

    def move_on(self, stride: int, stop: int) -> bool:
        """Start the episode `stride` numbers further on; False where its number is not below `stop`."""
        self.episode += stride
        if self.episode >= stop:
            return False
        self.start()
        return True


def evaluate_policy(
    policy: Policy,
    make_env: EnvMaker,
    *,
    episodes: int,
    seed: int,
    first: int = 0,
    deterministic: bool = True,
    num_envs: int | None = None,
    record: bool = False,
) -> EvalResult:
    """Play `episodes` episodes from number `first` on and return what they gave; `record` keeps the frames of one."""
    count = min(episodes, num_envs or MAX_SLOTS)
    slots = [EpisodeSlot(make_env(i), first + i, seed) for i in range(count)]
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    successes = np.full(episodes, np.nan)
    frames: list[Array] = []
    verdicts = Verdicts(policy, episodes)
    actor = BatchActor(policy, count, seed) if deterministic else EpisodeActor(policy, count, seed)
    try:
        for slot in slots:
            slot.start()
        if record:
            frames.append(np.asarray(slots[0].env.render()))
        active = list(range(count))
        while active:
            actions = actor.act(slots, active)
            for index, action in zip(tuple(active), actions, strict=True):
                slot = slots[index]
                verdicts.watch(slot, action)
                final_info = slot.step(action)
                if record and slot.episode == first:
                    frames.append(np.asarray(slot.env.render()))
                if final_info is None:
                    continue
                row = slot.episode - first
                returns[row], lengths[row] = verdicts.score(slot, row), slot.length
                verdicts.add(team_numbers(final_info), row)
                success = final_info.get("is_success", final_info.get("success"))
                if success is not None:
                    successes[row] = float(success)
                if not slot.move_on(count, first + episodes):
                    active.remove(index)
    finally:
        for slot in slots:
            slot.env.close()
    fps = float(slots[0].env.metadata.get("render_fps", 30.0))
    return EvalResult(returns, lengths, successes, frames, fps, verdicts.numbers)


class Verdicts:
    """Scores of episodes: their returns, or what a policy that judges episodes itself makes of them."""

    def __init__(self, policy: Policy, episodes: int) -> None:
        self.judge = policy if isinstance(policy, JudgesEpisodes) else None
        self.episodes = episodes
        self.numbers: dict[str, Array] = {}
        self.seen: dict[int, list[Any]] = {}
        """Observations of the episodes in progress, by their numbers, and what was done there."""
        self.done: dict[int, list[Any]] = {}

    def watch(self, slot: EpisodeSlot, action: Any) -> None:
        """Remember an observation and what is done there, where the episode is judged."""
        if self.judge is not None:
            self.seen.setdefault(slot.episode, []).append(copied(slot.obs))
            self.done.setdefault(slot.episode, []).append(np.array(action))

    def score(self, slot: EpisodeSlot, row: int) -> float:
        """The score of an episode that has ended; `row` is its place among all."""
        if self.judge is None:
            return slot.total
        seen, done = self.seen.pop(slot.episode), self.done.pop(slot.episode)
        verdict = self.judge.judge(stack_obs([*seen, slot.obs]), np.array(done))
        self.add({name: number for name, number in verdict.items() if name != "score"}, row)
        return verdict["score"]

    def add(self, numbers: Mapping[str, float], row: int) -> None:
        """Keep numbers of an episode that has ended."""
        for name, number in numbers.items():
            self.numbers.setdefault(name, np.full(self.episodes, np.nan))[row] = number


def team_numbers(info: Mapping[str, Any]) -> dict[str, float]:
    """Returns of the team and of its policies, where several agents played."""
    found = {} if TEAM_RETURN not in info else {TEAM_RETURN: float(info[TEAM_RETURN])}
    policies = {name.removeprefix(POLICY_RETURN): info[name] for name in info if name.startswith(POLICY_RETURN)}
    named = {f"{name}/return_mean": float(value) for name, value in policies.items()}
    return {**found, **(named if len(named) > 1 else {})}


class BatchActor:
    """Greedy actions for all slots at once."""

    def __init__(self, policy: Policy, count: int, seed: int) -> None:
        self.policy = policy
        self.carry = policy.initial_carry(count)
        self.rng = stream(seed, "eval")

    def act(self, slots: list[EpisodeSlot], active: list[int]) -> Array:
        obs = stack_obs([slots[i].obs for i in active])
        is_first = np.array([slots[i].is_first for i in active])
        carry: Carry = {name: rows[active] for name, rows in self.carry.items()}
        if REWARD in carry:
            carry[REWARD] = np.array([slots[i].reward for i in active], np.float32)
        result = self.policy.act(obs, carry, is_first, self.rng, deterministic=True)
        for name, rows in result.carry.items():
            self.carry[name][active] = rows
        return result.env_actions


class EpisodeActor:
    """Sampled actions, slot by slot, each episode with its own noise."""

    def __init__(self, policy: Policy, count: int, seed: int) -> None:
        self.policy = policy
        self.seed = seed
        self.carries = [policy.initial_carry(1) for _ in range(count)]
        self.generators: dict[int, np.random.Generator] = {}

    def act(self, slots: list[EpisodeSlot], active: list[int]) -> list[Any]:
        actions = []
        for index in active:
            slot = slots[index]
            if slot.is_first:
                self.generators[index] = episode_noise(self.seed, slot.episode)
            if REWARD in self.carries[index]:
                self.carries[index][REWARD] = np.array([slot.reward], np.float32)
            result = self.policy.act(
                stack_obs([slot.obs]), self.carries[index], np.array([slot.is_first]), self.generators[index]
            )
            self.carries[index] = result.carry
            actions.append(result.env_actions[0])
        return actions


def copied(obs: Any) -> Any:
    """An observation that the environment cannot change any more."""
    return {name: np.array(part) for name, part in obs.items()} if isinstance(obs, dict) else np.array(obs)


def stack_obs(rows: list[Any]) -> Obs:
    """Stack single observations (arrays, numbers or dicts of them) to a batch."""
    if isinstance(rows[0], dict):
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return np.array(rows)
