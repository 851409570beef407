"""A JAX environment as a Gymnasium environment, for evaluation and for training in the host lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rl_training.jax.types import Array, EnvState, JaxEnv
from rl_training.types import BoxSpec, DictSpec, DiscreteSpec, MultiDiscreteSpec, SpaceSpec

FRAMES_PER_SECOND = 10


def gymnasium_space(spec: SpaceSpec) -> spaces.Space[Any]:
    """The Gymnasium space of a space record."""
    if isinstance(spec, DictSpec):
        return spaces.Dict({key: gymnasium_space(leaf) for key, leaf in spec.spaces.items()})
    if isinstance(spec, DiscreteSpec):
        return spaces.Discrete(spec.n)
    if isinstance(spec, BoxSpec):
        return spaces.Box(spec.low, spec.high, dtype=spec.dtype.type)
    if isinstance(spec, MultiDiscreteSpec):
        return spaces.MultiDiscrete(list(spec.nvec))
    return spaces.MultiBinary(spec.n)


class CompiledEnv(NamedTuple):
    """The jitted functions of one environment."""

    env: JaxEnv
    first: Callable[..., Any]
    step: Callable[..., Any]


_compiled: dict[tuple[Any, str], CompiledEnv] = {}
"""Cache by creator and arguments: ten copies of an environment compile once."""


def compiled_env(creator: Callable[..., JaxEnv], kwargs: Mapping[str, Any]) -> CompiledEnv:
    """The functions that reset and step one copy of `creator(**kwargs)`."""
    recipe = (creator, repr(sorted(kwargs.items())))
    if recipe not in _compiled:
        _compiled[recipe] = _compile(creator(**kwargs))
    return _compiled[recipe]


def _compile(env: JaxEnv) -> CompiledEnv:
    # keys are passed as their two words: typed keys are off the fast path of jitted calls

    def first(seed: Array) -> tuple[Array, EnvState, Any]:
        init_key, step_key = jax.random.split(jax.random.key(seed))
        state = env.init(init_key, 1)
        return jax.random.key_data(step_key), state, env.obs(state)

    def step(state: EnvState, action: Array, words: Array, time: Array) -> tuple[EnvState, Any, Array]:
        key = jax.random.fold_in(jax.random.wrap_key_data(words), time)
        state, *outcome = env.step(state, action[None], key)
        return state, env.obs(state), jnp.stack([value[0].astype(jnp.float32) for value in outcome])

    return CompiledEnv(env, jax.jit(first), jax.jit(step))


class GymEnv(gym.Env[Any, Any]):
    """One copy of a JAX environment. Gymnasium adds the time limit.

    Step t of an episode uses `fold_in(key, t)` with the key of its reset, so an episode depends only on its seed and
    its actions and can be replayed. Environments with a method `render(state)`, which receives the state of one copy in
    NumPy and returns (height, width, 3) bytes, can be rendered.
    """

    def __init__(
        self, creator: Callable[..., JaxEnv], kwargs: Mapping[str, Any], render_mode: str | None = None
    ) -> None:
        self.program = compiled_env(creator, kwargs)
        modes = ["rgb_array"] if hasattr(self.program.env, "render") else []
        self.metadata = {"render_modes": modes, "render_fps": FRAMES_PER_SECOND}
        self.render_mode = render_mode if render_mode in modes else None
        self.observation_space = gymnasium_space(self.program.env.observation_space)
        self.action_space = gymnasium_space(self.program.env.action_space)
        self._action_dtype = np.float32 if isinstance(self.action_space, spaces.Box) else np.int32

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._time = 0
        self._key, self._state, obs = self.program.first(np.uint32(self.np_random.integers(2**32)))
        return self._single(obs), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        action = np.asarray(action, self._action_dtype)
        self._state, obs, outcome = self.program.step(self._state, action, self._key, np.uint32(self._time % 2**32))
        self._time += 1
        reward, terminated, truncated = np.asarray(outcome).tolist()
        return self._single(obs), reward, bool(terminated), bool(truncated), {}

    def render(self) -> Any:
        env: Any = self.program.env
        return env.render(jax.tree.map(lambda leaf: np.asarray(leaf)[0], self._state))

    def _single(self, obs: Any) -> Any:
        """The single row of (1, ...) arrays, in the dtypes of the space."""
        space = self.observation_space
        if isinstance(space, spaces.Dict):
            return {key: np.array(obs[key], leaf.dtype)[0] for key, leaf in space.spaces.items()}
        return np.array(obs, space.dtype)[0]
