"""A JAX environment of several agents with the methods of PettingZoo's ParallelEnv, for the host lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from gymnasium import spaces

from rl_training.envs.multi_agent.simultaneous import Results
from rl_training.jax.checks import check_team
from rl_training.jax.envs.gym_adapter import FRAMES_PER_SECOND, gymnasium_space
from rl_training.jax.types import Array, EnvState, JaxTeamEnv
from rl_training.types import Array as HostArray


class CompiledTeam(NamedTuple):
    """The jitted functions of one environment."""

    env: JaxTeamEnv
    first: Callable[..., Any]
    step: Callable[..., Any]


_compiled: dict[tuple[Any, str], CompiledTeam] = {}
"""Cache by creator and arguments: ten copies of an environment compile once."""


def compiled_team(creator: Callable[..., JaxTeamEnv], kwargs: Mapping[str, Any], what: str) -> CompiledTeam:
    """The functions that reset and step one copy of `creator(**kwargs)`; ConfigError where it is not consistent."""
    recipe = (creator, repr(sorted(kwargs.items())))
    if recipe not in _compiled:
        env = creator(**kwargs)
        check_team(env, what)
        _compiled[recipe] = _compile(env)
    return _compiled[recipe]


def _compile(env: JaxTeamEnv) -> CompiledTeam:
    # keys are passed as their two words: typed keys are off the fast path of jitted calls

    def first(seed: Array) -> tuple[Array, EnvState, Any]:
        init_key, step_key = jax.random.split(jax.random.key(seed))
        state = env.init(init_key, 1)
        return jax.random.key_data(step_key), state, (env.obs(state), env.critic_state(state))

    def step(state: EnvState, actions: Array, words: Array, time: Array) -> tuple[EnvState, Any, Any]:
        key = jax.random.fold_in(jax.random.wrap_key_data(words), time)
        state, *outcome = env.step(state, actions[None], key)
        return state, (env.obs(state), env.critic_state(state)), outcome

    return CompiledTeam(env, jax.jit(first), jax.jit(step))


class HostTeam:
    """One copy of a JAX environment of several agents.

    Step t of an episode uses `fold_in(key, t)` with the key of its reset, so an episode depends only on its seed and
    its actions and can be replayed; a compiled evaluation plays the same episodes. Environments with a method
    `render(state)`, which receives the state of one copy in NumPy and returns (height, width, 3) bytes, can be
    rendered.
    """

    def __init__(
        self,
        creator: Callable[..., JaxTeamEnv],
        kwargs: Mapping[str, Any],
        name: str,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        """`max_episode_steps` replaces the time limit of the environment."""
        self.program = compiled_team(creator, kwargs, f"environment '{name}'")
        env = self.program.env
        modes = ["rgb_array"] if hasattr(env, "render") else []
        self.metadata = {"render_modes": modes, "render_fps": FRAMES_PER_SECOND}
        self.render_mode = render_mode if render_mode in modes else None
        self.possible_agents = list(env.agents)
        self.agents: list[str] = []
        self.observed, self.acted = gymnasium_space(env.observation_space), gymnasium_space(env.action_space)
        self.state_space = gymnasium_space(env.state_space)
        self.limit = env.max_episode_steps if max_episode_steps is None else max_episode_steps
        self._action_dtype = np.float32 if isinstance(self.acted, spaces.Box) else np.int32
        self._rng = np.random.default_rng()
        self._critic_state: HostArray = np.zeros(env.state_space.shape, np.float32)

    def observation_space(self, agent: str, /) -> spaces.Space[Any]:
        return self.observed

    def action_space(self, agent: str, /) -> spaces.Space[Any]:
        return self.acted

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._time = 0
        self.agents = list(self.possible_agents)
        self._key, self._state, shown = self.program.first(np.uint32(self._rng.integers(2**32)))
        return self._seen(shown), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any], /) -> Results:
        joint = np.array([actions[agent] for agent in self.possible_agents], self._action_dtype)
        self._state, shown, outcome = self.program.step(self._state, joint, self._key, np.uint32(self._time % 2**32))
        self._time += 1
        rewards, terminated, truncated = (np.asarray(column)[0].tolist() for column in outcome)
        truncated = truncated or (self.limit is not None and self._time >= self.limit)
        agents = self.possible_agents
        self.agents = [] if terminated or truncated else list(agents)
        ends = dict.fromkeys(agents, terminated), dict.fromkeys(agents, truncated)
        return self._seen(shown), dict(zip(agents, rewards, strict=True)), *ends, {agent: {} for agent in agents}

    def _seen(self, shown: tuple[Any, Any]) -> dict[str, HostArray]:
        """What each agent sees; the state for critics is kept for `state`."""
        obs, state = (np.array(part, np.float32)[0] for part in shown)
        self._critic_state = state
        return dict(zip(self.possible_agents, obs, strict=True))

    def state(self) -> HostArray:
        """What centralised critics see."""
        return self._critic_state

    def render(self) -> Any:
        env: Any = self.program.env
        return env.render(jax.tree.map(lambda leaf: np.asarray(leaf)[0], self._state))
