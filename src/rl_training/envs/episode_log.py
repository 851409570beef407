"""Resume without pickle: every reset gets an explicit seed, and the actions since are logged and replayed.

`EpisodeLog` is the outermost wrapper of every environment the factory builds, so that replaying its log rebuilds time
limits, frame stacks and all other state of one episode. State that survives a reset (running statistics, a reused
physics world) is not rebuilt: keep it outside the environment; `suites.FreshWorld` repairs the known case.

Where seeding is expensive (ALE reloads its ROM, 0.1 s), a suite declares `reseed_steps`: resets go without a seed until
the log holds that many steps, and the log then reaches back over those resets to the last seeded one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.error import DependencyNotInstalled

from rl_training.envs.calls import Call, register
from rl_training.envs.suites import Env as Env
from rl_training.envs.suites import Strategy, render_error
from rl_training.seeding import reset_seed
from rl_training.types import Array, ConfigError, EnvError, StateDict

FIRST_CAPACITY = 64


@runtime_checkable
class HasEpisodeState(Protocol):
    """An environment whose open episode depends on more than its seed and the actions: a game, on its opponents."""

    def episode_state(self) -> StateDict: ...
    def resume_episode(self, state: StateDict) -> None:
        """The next reset begins that episode again; its actions follow."""


class EpisodeLog(gym.Wrapper[Any, Any, Any, Any]):
    """Seeds resets from the stream of (seed, index) and logs the actions executed since the last seeded one.

    `reset()` without a seed is reset number k of this environment and gets `reset_seed(seed, index, k)`, unless the log
    holds fewer than `reseed_steps` steps; an explicit seed (evaluation) is used as it is and does not count. After
    `load_state_dict` the next `reset()` continues the open episode.
    """

    def __init__(
        self, env: Env, *, seed: int = 0, index: int = 0, strategy: Strategy = "replay", reseed_steps: int = 0
    ) -> None:
        super().__init__(env)
        space = env.action_space
        if not isinstance(space, spaces.Discrete | spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
            raise EnvError(
                f"environment {index}: cannot log actions of {space}; wrap it in ConvertSpaces, as make_env does"
            )
        self.seed = seed
        self.index = index
        self.strategy: Strategy = strategy
        self.reseed_steps = reseed_steps
        self.reset_count = 0
        self._action_shape: tuple[int, ...] = space.shape or ()
        self._action_dtype = np.dtype(space.dtype)
        self._actions = self._empty_log(FIRST_CAPACITY)
        self._length = 0
        self._episode_start = 0
        self._unseeded: list[int] = []  # how long the log was at each reset without a seed
        self._open = False
        self._episode_seed: int | None = None
        self._options: dict[str, Any] | None = None
        self._obs: Any = None
        self._reward: Any = None
        self._pending: StateDict | None = None
        inner = env.unwrapped
        self._beside = inner if isinstance(inner, HasEpisodeState) else None
        self._doing: str | None = None
        """What the environment is being asked to do at this moment."""
        register(self)

    def _empty_log(self, capacity: int) -> Array:
        return np.empty((capacity, *self._action_shape), self._action_dtype)

    # -- for workers and error messages -------------------------------------------------------------------------------

    @property
    def exact(self) -> bool:
        """Whether a resumed run continues this environment bit for bit."""
        return self.strategy == "replay"

    @property
    def episode_seed(self) -> int | None:
        """The seed of the last seeded reset; None before the first."""
        return self._episode_seed

    @property
    def episode_steps(self) -> int:
        """Steps of the open episode, including the one being executed."""
        return self._length - self._episode_start

    @property
    def last_action(self) -> Array | None:
        """The action executed last in this episode; None before the first."""
        if self.episode_steps == 0 or not self.exact:
            return None
        return np.array(self._actions[self._length - 1])

    def call_under_way(self) -> Call | None:
        """What the environment is being asked to do at this moment; for other threads."""
        if (doing := self._doing) is None:
            return None
        inner = self.unwrapped
        name = inner.spec.id if inner.spec else type(inner).__name__
        return Call(self.index, name, doing, (id(self), self.reset_count, self._episode_seed, self._length))

    # -- the environment ----------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._doing = "reset()"
        try:
            return self._reset(seed, options)
        finally:
            self._doing = None

    def _reset(self, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        pending, self._pending = self._pending, None
        if pending is not None and seed is None and not options:
            return self._replay(pending)
        if seed is None:
            seed = reset_seed(self.seed, self.index, self.reset_count)
            self.reset_count += 1
            if self._length < self.reseed_steps and self._episode_seed is not None and not options:
                return self._go_on()
        return self._begin(seed, options)

    def _begin(self, seed: int, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """An episode from a seed; the log starts anew."""
        self._length = 0
        self._unseeded = []
        self._episode_seed = seed
        self._options = options
        return self._start(self.env.reset(seed=seed, options=options))

    def _go_on(self) -> tuple[Any, dict[str, Any]]:
        """An episode that continues from the state and the generator of the environment; the log continues too."""
        self._unseeded.append(self._length)
        return self._start(self.env.reset())

    def _start(self, first: tuple[Any, dict[str, Any]]) -> tuple[Any, dict[str, Any]]:
        self._episode_start = self._length
        self._reward = None
        self._obs = first[0]
        self._open = True
        return first

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if not self._open:
            raise EnvError(f"environment {self.index}: step() without an open episode; call reset() first")
        length = self._length
        self._length = length + 1
        if self.strategy == "replay":
            if length == len(self._actions):
                self._actions = np.concatenate([self._actions, self._empty_log(length)])
            if self._action_shape:
                # a copy: neither the caller's array nor the log changes when the environment writes into its action
                action = np.array(action, self._action_dtype)
                if action.shape != self._action_shape:
                    raise EnvError(
                        f"environment {self.index}: action of shape {action.shape}, expected {self._action_shape}"
                    )
                self._actions[length] = action
            else:
                self._actions[length] = action
                action = self._actions[length]
        self._doing = "step()"
        try:
            result = self.env.step(action)
        finally:
            self._doing = None
        self._obs = result[0]
        self._reward = result[1]
        if result[2] or result[3]:
            self._open = False
        return result

    def render(self) -> Any:
        try:
            return self.env.render()
        except DependencyNotInstalled as error:
            raise render_error(self.env, error) from error

    # -- resume -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> StateDict:
        """What an identical environment needs to replay the open episode: seed, actions, last observation, reward."""
        if self._pending is not None:
            return self._pending
        state: StateDict = {
            "strategy": self.strategy,
            "env": stack_text(self.env),
            "reset_count": self.reset_count,
            "open": self._open and self.exact,
        }
        if state["open"] or self._is_needed_later():
            state["seed"] = self._episode_seed
            state["actions"] = self._actions[: self._length].copy()
            state["obs"] = as_arrays(self._obs)
            state["reward"] = None if self._reward is None else float(self._reward)
            if self._options:
                state["options"] = self._options
            if self._unseeded:
                state["unseeded"] = list(self._unseeded)
            if self._beside is not None:
                state["episode"] = self._beside.episode_state()
        return state

    def _is_needed_later(self) -> bool:
        """Whether the next episode will follow from the log, although none is open."""
        return self.exact and self._episode_seed is not None and self._length < self.reseed_steps

    def load_state_dict(self, state: StateDict, /) -> None:
        """Takes effect at the next `reset()`, which replays the open episode and compares observation and reward."""
        stack = stack_text(self.env)
        if state["env"] != stack:
            raise EnvError(
                f"environment {self.index}: the saved state belongs to {state['env']}, this one is {stack}; "
                "resume with the wrappers and arguments of the run"
            )
        self.reset_count = int(state["reset_count"])
        self._open = False
        self._pending = dict(state) if "seed" in state and self.exact else None

    def _replay(self, state: StateDict) -> tuple[Any, dict[str, Any]]:
        if self._beside is not None:
            self._beside.resume_episode(state["episode"])
        obs, info = self._begin(int(state["seed"]), state.get("options"))
        resets = deque(state.get("unseeded", ()))
        for action in (*state["actions"], None):
            while resets and resets[0] == self._length:
                resets.popleft()
                obs, info = self._go_on()
            if action is None:
                break
            if not self._open:
                raise self._replay_error(f"the episode ended after {self._length} of {len(state['actions'])} steps")
            obs, _, _, _, info = self.step(action)
        if self._open and not state["open"]:
            raise self._replay_error("the episode did not end at the last step")
        if not self._open and state["open"]:
            raise self._replay_error("the episode ended at the last step")
        if not same_bits(as_arrays(obs), state["obs"]):
            raise self._replay_error("the observation differs")
        if self.episode_steps and not same_bits(np.float64(self._reward), np.float64(state["reward"])):
            raise self._replay_error(f"the last reward is {float(self._reward)}, it was {state['reward']}")
        return (obs, info) if self._open else self.reset()

    def _replay_error(self, why: str) -> EnvError:
        return EnvError(
            f"environment {self.index} ({stack_text(self.env)}) cannot continue its open episode exactly: replayed "
            f"from seed {self._episode_seed}, {why}. It is not deterministic, or its version changed; an environment "
            "that cannot replay declares `resume_strategy = 'restart'` on its class"
        )


def stack_text(env: Env) -> str:
    """The wrapper stack by class name, outermost first, and the id: "TimeLimit<CartPoleEnv> CartPole-v1"."""
    names, layer = [], env
    while isinstance(layer, gym.Wrapper):
        names.append(type(layer).__name__)
        layer = layer.env
    stack = "<".join([*names, type(layer).__name__]) + ">" * len(names)
    return f"{stack} {layer.spec.id}" if layer.spec else stack


def check_num_envs(state: StateDict, num_envs: int) -> None:
    """ConfigError if the saved state of a vector environment has another number of environments."""
    if int(state["num_envs"]) != num_envs:
        raise ConfigError(
            f"the saved run has {state['num_envs']} environments, this one {num_envs}; resume keeps env.num_envs"
        )


def as_arrays(obs: Any) -> Any:
    """A copy of an observation as nested dicts of arrays."""
    if isinstance(obs, Mapping):
        return {str(key): as_arrays(value) for key, value in obs.items()}
    if isinstance(obs, tuple):
        return {str(i): as_arrays(value) for i, value in enumerate(obs)}
    return np.array(obs)


def same_bits(left: Any, right: Any) -> bool:
    """Bitwise equality of two trees of arrays, so that NaN equals NaN."""
    if isinstance(left, dict) or isinstance(right, dict):
        return (
            isinstance(left, dict)
            and isinstance(right, dict)
            and left.keys() == right.keys()
            and all(same_bits(value, right[key]) for key, value in left.items())
        )
    left, right = np.asarray(left), np.asarray(right)
    return bool(left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes())
