"""`check_multi_agent`: finds every problem of an environment of several agents, and says for each what to change."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from gymnasium import spaces

from rl_training.config.schema import EnvConfig
from rl_training.envs.check_env import EnvReport
from rl_training.envs.episode_log import as_arrays, same_bits
from rl_training.envs.factory import EnvThunk
from rl_training.envs.multi_agent.build import host_team, make_joint
from rl_training.envs.multi_agent.joint import JointEnv
from rl_training.envs.multi_agent.repairs import repaired
from rl_training.envs.multi_agent.simultaneous import Simultaneous, as_simultaneous
from rl_training.envs.replay_check import replay_difference
from rl_training.envs.spaces import Space
from rl_training.envs.suites import find, name_of
from rl_training.registry import is_jax_team
from rl_training.system.error_text import describe
from rl_training.types import ACTION_MASK, RLTrainingError

STEPS = 200
"""Joint steps of one pass over an environment."""


class _TooBrokenError(Exception):
    """Ends the check early; the report says why."""


def check_multi_agent(
    env: str | Callable[..., Any], cfg: EnvConfig | None = None, *, seed: int = 0, steps: int = STEPS
) -> EnvReport:
    """Check an environment of several agents: a name, or a class or function that makes one.

    Checks the names of the agents and their spaces, that every dict has the agents that were there before the step, the
    values in it, who leaves and that nobody comes back, state and masks, determinism under a seed, and the exactness of
    a replay. `print(check_multi_agent("my_package.my_module:MyEnv"))`, or `.raise_for_errors()` in a test.
    """
    report, cfg = EnvReport(), cfg or EnvConfig()
    name = name_of(env)
    with suppress(_TooBrokenError):
        team = _attempt(report, lambda: as_simultaneous(_made(env, cfg), name))
        if team is None:
            report.error(f"'{name}' has a single agent; check it with check_env")
            raise _TooBrokenError
        _attempt(report, lambda: _check_agents(team, report))
        _attempt(report, lambda: make_joint(_made(env, cfg), cfg, name=name))
        first = _attempt(report, lambda: Play(team, report, seed).run(steps))
        again = _attempt(report, lambda: Play(_attempt_team(env, cfg, name), EnvReport(), seed).run(steps))
        if not same_bits(first, again):
            report.error("two copies differ under the same seed and actions; draw everything from the seed of reset")
        if report.ok:
            difference = replay_difference(EnvThunk(find(env), cfg, seed), steps=min(steps, 50), seed=seed)
            if difference is not None:
                report.error(f"a replay is not exact: {difference}; state must not survive a reset")
    return report


def _made(env: str | Callable[..., Any], cfg: EnvConfig) -> Any:
    source: Any = find(env)
    if callable(source):
        built = source(**cfg.kwargs)
        if is_jax_team(built):
            return host_team(source, cfg.kwargs, name_of(env), max_episode_steps=cfg.max_episode_steps)
        return repaired(built)
    made: Any = EnvThunk(source, cfg)().unwrapped
    return made.env if isinstance(made, JointEnv) else made


def _attempt_team(env: str | Callable[..., Any], cfg: EnvConfig, name: str) -> Simultaneous:
    team = as_simultaneous(_made(env, cfg), name)
    assert team is not None
    return team


def _attempt(report: EnvReport, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except _TooBrokenError:
        raise
    except RLTrainingError as error:
        report.error(str(error))
    except Exception as error:
        report.error(f"it raised {describe(error)}")
    raise _TooBrokenError


def _check_agents(team: Simultaneous, report: EnvReport) -> None:
    agents = list(team.possible_agents)
    if not agents or len(set(agents)) != len(agents) or not all(isinstance(agent, str) for agent in agents):
        report.error(f"possible_agents must be different names, at least one; it is {agents!r}")
        raise _TooBrokenError
    for agent in agents:
        for what in ("observation_space", "action_space"):
            space = getattr(team, what)(agent)
            if not isinstance(space, spaces.Space):
                report.error(f"{what}('{agent}') is a {type(space).__name__}, not a Gymnasium space")
                raise _TooBrokenError
            if getattr(team, what)(agent) != space:
                report.error(f"{what}('{agent}') is another one each time; it must not change")


class Play:
    """One pass of random actions, with every result looked at."""

    def __init__(self, team: Simultaneous, report: EnvReport, seed: int) -> None:
        self.team = team
        self.report = report
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.obs: dict[str, Any] = {}
        self.infos: dict[str, Any] = {}
        self.left: set[str] = set()

    def run(self, steps: int) -> dict[str, Any]:
        """What was observed and earned, as arrays."""
        seen: list[Any] = []
        self._reset(self.seed)
        ended = 0
        for step in range(steps):
            if not self.team.agents:
                ended += 1
                self._reset(self.seed + ended)
            seen.append(self._step(step))
        if not ended:
            self.report.warn(f"no episode ended within {steps} steps; give it a time limit (env.max_episode_steps)")
        return {str(i): as_arrays(values) for i, values in enumerate(seen)}

    def _reset(self, seed: int) -> None:
        result = self.team.reset(seed=seed)
        if not (isinstance(result, tuple) and len(result) == 2 and all(isinstance(part, dict) for part in result)):
            self.report.error("reset must return (observations, infos), two dicts by agent")
            raise _TooBrokenError
        self.obs, self.infos = result
        self.left = set()
        agents = set(self.team.agents)
        if not agents:
            self.report.error("no agent is there after reset; `agents` lists those that are to act")
            raise _TooBrokenError
        self._same_keys("reset: observations", self.obs, agents)
        self._look(self.obs, agents)

    def _step(self, step: int) -> dict[str, Any]:
        before = set(self.team.agents)
        actions = {agent: self._action(agent) for agent in self.team.agents}
        results = self.team.step(actions)
        if not (isinstance(results, tuple) and len(results) == 5 and all(isinstance(part, dict) for part in results)):
            self.report.error("step must return observations, rewards, terminated, truncated and infos, dicts by agent")
            raise _TooBrokenError
        self.obs, rewards, terminated, truncated, self.infos = results
        names = ("observations", "rewards", "terminated", "truncated")
        for name, part in zip(names, results[:4], strict=True):
            self._same_keys(f"step: {name}", part, before)
        self._look(self.obs, before)
        for agent, reward in rewards.items():
            if not isinstance(reward, int | float | np.number) or not math.isfinite(float(reward)):
                self.report.error(f"the reward of {agent} is {reward!r}; it must be a finite number")
        ended = {agent for agent in before if terminated.get(agent) or truncated.get(agent)}
        self._check_leaving(before, ended, step)
        state = {"state": self._state()} if self._has_state() and self.team.agents else {}
        return {"obs": self.obs, "rewards": {a: float(r) for a, r in rewards.items()}, **state}

    def _check_leaving(self, before: set[str], ended: set[str], step: int) -> None:
        after = set(self.team.agents)
        if back := after & self.left:
            self.report.error(f"{sorted(back)[0]} came back within an episode, after it had ended")
        self.left |= before - after
        if stayed := sorted(ended & after):
            self.report.error(f"{stayed[0]} is still in `agents` after its end; remove agents that have ended")
        if vanished := sorted(before - after - ended):
            self.report.error(f"{vanished[0]} left `agents` without being terminated or truncated (step {step + 1})")

    def _action(self, agent: str) -> Any:
        space = self.team.action_space(agent)
        mask = self._mask(agent)
        if mask is None or not isinstance(space, spaces.Discrete):
            space.seed(int(self.rng.integers(2**31)))
            return space.sample()
        allowed = np.flatnonzero(mask)
        if len(mask) != space.n:
            self.report.error(f"the mask of {agent} has {len(mask)} entries for {space.n} actions")
        if not len(allowed):
            self.report.error(f"the mask of {agent} allows no action")
            raise _TooBrokenError
        return space.dtype.type(space.start + self.rng.choice(allowed))

    def _mask(self, agent: str) -> Any:
        seen = self.obs.get(agent)
        if isinstance(seen, dict) and ACTION_MASK in seen:
            return np.asarray(seen[ACTION_MASK]).reshape(-1)
        info = self.infos.get(agent, {})
        return np.asarray(info[ACTION_MASK]).reshape(-1) if ACTION_MASK in info else None

    def _same_keys(self, what: str, part: dict[str, Any], agents: set[str]) -> None:
        if missing := sorted(agents - part.keys()):
            self.report.error(f"{what} lack {missing[0]}, which was there before the step")
            raise _TooBrokenError

    def _look(self, obs: dict[str, Any], agents: set[str]) -> None:
        for agent in sorted(agents):
            space: Space = self.team.observation_space(agent)
            if not space.contains(obs[agent]):
                self.report.error(f"an observation of {agent} is not in its space {space}{_kind(obs[agent])}")

    def _has_state(self) -> bool:
        return isinstance(getattr(self.team, "state_space", None), spaces.Box)

    def _state(self) -> Any:
        state, space = np.asarray(self.team.state()), self.team.state_space  # type: ignore[attr-defined]
        if state.shape != space.shape:
            self.report.error(f"state() has shape {state.shape}, its state_space {space.shape}")
        return state


def _kind(value: Any) -> str:
    return f" (it has dtype {value.dtype} and shape {value.shape})" if isinstance(value, np.ndarray) else ""
