"""Vector environments that a suite implements itself, such as Gymnasium's NumPy CartPole: one call steps all.

They keep their own autoreset mode (see `metadata`); the collector handles each. They take no per-environment wrappers
and share one random generator, seeded once from the run's stream ("env", 0). ALE's differs in both: see `atari_native`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector import VectorEnv, VectorWrapper

from rl_training.config.schema import EnvConfig
from rl_training.envs import suites
from rl_training.envs.episode_log import as_arrays, check_num_envs
from rl_training.envs.preprocessing.atari_native import NativeAtari, make_native_atari
from rl_training.envs.spaces import space_spec
from rl_training.registry import check_kwargs
from rl_training.seeding import generator_state, set_generator_state, stream
from rl_training.system.error_text import describe
from rl_training.types import ConfigError, EnvError, StateDict, Stateful

SNAPSHOTS: dict[str, tuple[str, ...]] = {
    "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv": ("state", "steps", "prev_done", "low", "high"),
}
"""Vector environment class to the attributes that, with its random generator, are its complete state."""


class NativeVectorEnv(VectorWrapper):
    """A suite's own vector environment, with the seeding and checkpoints of the other vector environments.

    Its state is a snapshot: of the attributes named in `SNAPSHOTS`, or its own `state_dict` if it has one. Any other
    environment restarts its episodes at resume, and `exact` is False.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], *, seed: int) -> None:
        super().__init__(env)
        self._seeds = stream(seed, "env", 0)
        self._attributes = SNAPSHOTS.get(f"{type(env).__module__}:{type(env).__qualname__}", ())
        self._seeded = False
        self._obs: Any = None
        self._pending = False

    @property
    def exact(self) -> bool:
        """Whether a resumed run continues bit for bit."""
        return bool(self._attributes) or isinstance(self.env, Stateful)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Without a seed, the first reset draws one from the run's stream; later ones continue the generator."""
        if self._pending and seed is None and not options:
            self._pending = False
            return self._obs, {}
        self._pending = False
        if seed is None and not self._seeded:
            seed = int(self._seeds.integers(2**31))
        self._seeded = True
        self._obs, info = self.env.reset(seed=seed, options=options)
        return self._obs, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        result = self.env.step(actions)
        self._obs = result[0]
        return result

    def state_dict(self) -> StateDict:
        state: StateDict = {
            "num_envs": self.num_envs,
            "strategy": "snapshot" if self.exact else "restart",
            "seeds": generator_state(self._seeds),
            "open": self._obs is not None and self.exact,
        }
        if not state["open"]:
            return state
        state["obs"] = as_arrays(self._obs)
        if self._attributes:
            values = {name: getattr(self.env, name) for name in self._attributes}
            state["attributes"] = {name: np.array(value) for name, value in values.items()}
            state["generator"] = generator_state(self.env.np_random)
        else:
            state["snapshot"] = self.env.state_dict()  # type: ignore[attr-defined]
        return state

    def load_state_dict(self, state: StateDict, /) -> None:
        """Restore a state; the next `reset()` returns the saved observation and the episodes continue."""
        check_num_envs(state, self.num_envs)
        set_generator_state(self._seeds, state["seeds"])
        if not state["open"]:
            return
        self._seeded = self._pending = True
        self._obs = as_arrays(state["obs"])
        if self._attributes:
            for name in self._attributes:
                value = np.array(state["attributes"][name])
                setattr(self.env, name, value if value.ndim else value.item())
            generator = np.random.default_rng()
            set_generator_state(generator, state["generator"])
            self.env.np_random = generator
        else:
            self.env.load_state_dict(state["snapshot"])  # type: ignore[attr-defined]


def make_native(
    source: suites.Source, cfg: EnvConfig, num_envs: int, seed: int, render_mode: str | None = None
) -> NativeVectorEnv | NativeAtari:
    """The suite's own vector environment, or a ConfigError that says what to use instead."""
    cure = "set env.vectorization to sync or async"
    suite = suites.suite_of(source) if isinstance(source, EnvSpec) else None
    if isinstance(source, EnvSpec) and suite is not None and suite.name == "atari":
        return make_native_atari(source, cfg, num_envs, seed)
    if not isinstance(source, EnvSpec) or source.vector_entry_point is None:
        raise ConfigError(f"environment '{suites.name_of(source)}' has no native vector environment; {cure}")
    if cfg.wrappers or cfg.frame_stack > 1:
        what = "env.wrappers" if cfg.wrappers else "env.frame_stack"
        raise ConfigError(f"{what}: a native vector environment takes no wrappers per environment; {cure}")
    kwargs = dict(cfg.kwargs)
    if cfg.max_episode_steps is not None:
        kwargs["max_episode_steps"] = cfg.max_episode_steps
    if render_mode is not None:
        kwargs["render_mode"] = render_mode
    try:
        _check(source, {**source.kwargs, **kwargs})
        env = gym.make_vec(source, num_envs, vectorization_mode="vector_entry_point", **kwargs)
    except (DependencyNotInstalled, ImportError) as error:
        raise suites.missing_extra(source.id, suite.extra if suite else None, error) from error
    except gym.error.Error as error:
        raise EnvError(f"environment '{source.id}' failed while it was built: {describe(error)}") from error
    space_spec(env.single_observation_space)
    space_spec(env.single_action_space)
    return NativeVectorEnv(env, seed=seed)


def _check(source: EnvSpec, kwargs: dict[str, Any]) -> None:
    entry_point = source.vector_entry_point
    creator: Callable[..., Any] | None = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    check_kwargs(creator, kwargs, f"environment '{source.id}'", "env.kwargs")
