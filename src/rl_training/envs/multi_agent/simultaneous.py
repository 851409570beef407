"""What an environment of several agents must have, and how those of other kinds are brought to it.

`Simultaneous` is PettingZoo's ParallelEnv; a class of yours needs its methods and no base class. AEC environments that
only move when all agents have acted are converted, and joint Gymnasium environments (level-based foraging, RWARE) too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import gymnasium as gym
from gymnasium import spaces

from rl_training.envs.spaces import Space
from rl_training.types import EnvError

Results = tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]
"""Observations, rewards, terminated, truncated and infos by agent."""
GIVEN = {"reset": "(observations, infos)", "step": "(observations, rewards, terminated, truncated, infos)"}
"""What each method gives, for messages."""


class Simultaneous(Protocol):
    """Agents that act at the same time. `agents` shrinks as agents end; nobody comes back within an episode."""

    @property
    def possible_agents(self) -> Sequence[str]: ...
    @property
    def agents(self) -> Sequence[str]: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    def observation_space(self, agent: str, /) -> Space: ...
    def action_space(self, agent: str, /) -> Space: ...
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]: ...
    def step(self, actions: dict[str, Any], /) -> Results: ...


def is_parallel(env: Any) -> bool:
    """Whether an object looks like PettingZoo's ParallelEnv."""
    methods = ("observation_space", "action_space", "reset", "step")
    return (
        hasattr(env, "possible_agents")
        and not is_turn_based(env)
        and all(callable(getattr(env, m, 0)) for m in methods)
    )


def is_turn_based(env: Any) -> bool:
    """Whether an object looks like PettingZoo's AECEnv, where one agent acts at a time."""
    return hasattr(env, "possible_agents") and callable(getattr(env, "last", None))


def is_joint_gym(env: Any) -> bool:
    """Whether a Gymnasium environment takes one action of each agent at once: Tuple spaces as long as `n_agents`."""
    if not isinstance(env, gym.Env):
        return False
    observed, acted = getattr(env, "observation_space", None), getattr(env, "action_space", None)
    if not (isinstance(observed, spaces.Tuple) and isinstance(acted, spaces.Tuple)):
        return False
    return len(observed.spaces) == len(acted.spaces) == getattr(env.unwrapped, "n_agents", None)


def given(result: Any, parts: int, method: str, name: str) -> Any:
    """What a method of an environment gave; EnvError where that is not a tuple of so many parts."""
    if isinstance(result, tuple) and len(result) == parts:
        return result
    found = f"a tuple of {len(result)}" if isinstance(result, tuple) else f"a {type(result).__name__}"
    raise EnvError(f"{method}() of environment '{name}' gave {found}; it must give {GIVEN[method]}, each by agent")


def as_simultaneous(env: Any, name: str) -> Simultaneous | None:
    """The environment with agents that act at the same time; None for one that has a single agent."""
    if is_turn_based(env):
        if not env.metadata.get("is_parallelizable", False):
            raise EnvError(
                f"environment '{name}' takes turns (its metadata does not say is_parallelizable), while the agents of "
                "a team act at the same time; give one whose agents do, or its parallel_env"
            )
        if not hasattr(env, "agent_iter"):
            raise EnvError(
                f"environment '{name}' has PettingZoo's AEC interface without its base class AECEnv, so its parallel "
                "form cannot be made of it; give a class whose reset() gives (observations, infos) and whose step() "
                "takes the actions of all agents"
            )
        from pettingzoo.utils.conversions import aec_to_parallel

        converted: Simultaneous = aec_to_parallel(env)
        return converted
    if is_parallel(env):
        return env  # type: ignore[no-any-return]
    return GymTeam(env) if is_joint_gym(env) else None


class GymTeam:
    """A joint Gymnasium environment: Tuple observations and actions, a list of rewards, one end for all agents."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.env = env
        self.spaces = tuple(zip(env.observation_space.spaces, env.action_space.spaces, strict=True))  # type: ignore[attr-defined]
        self.possible_agents = [f"agent_{i}" for i in range(len(self.spaces))]
        self.agents: Sequence[str] = []
        self.metadata = env.metadata

    @property
    def render_mode(self) -> str | None:
        return self.env.render_mode

    def observation_space(self, agent: str, /) -> Space:
        space: Space = self.spaces[self.possible_agents.index(agent)][0]
        return space

    def action_space(self, agent: str, /) -> Space:
        space: Space = self.spaces[self.possible_agents.index(agent)][1]
        return space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        obs, info = self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return self._by_agent(obs), dict.fromkeys(self.agents, info)

    def step(self, actions: dict[str, Any], /) -> Results:
        agents = self.agents
        obs, rewards, terminated, truncated, info = self.env.step(tuple(actions[agent] for agent in agents))
        if terminated or truncated:
            self.agents = []
        ends = dict.fromkeys(agents, bool(terminated)), dict.fromkeys(agents, bool(truncated))
        return self._by_agent(obs), self._by_agent(rewards), *ends, dict.fromkeys(agents, info)

    def _by_agent(self, values: Any) -> dict[str, Any]:
        return dict(zip(self.possible_agents, values, strict=True))

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()
