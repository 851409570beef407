"""Wrappers that replace Gymnasium's where those are wrong, stack differently or take other arguments.

`registry.wrappers` lists every name that `env.wrappers` knows.

`NormalizeObservations` and `NormalizeRewards` are for use by hand: their statistics survive a reset, so an environment
wrapped in one cannot be resumed exactly (`exact` is False). `env.normalize_obs` and `env.normalize_reward` do the same
work in the policy and the algorithm, and resume.
"""

from __future__ import annotations

from functools import partial
from operator import mul
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import ClipReward, TransformReward
from gymnasium.wrappers import RescaleAction as GymnasiumRescaleAction

from rl_training.envs.spaces import Space
from rl_training.envs.suites import Env, Strategy
from rl_training.numerics.encoding import within
from rl_training.numerics.normalization import CLIP, EPS, RunningMeanStd
from rl_training.types import ACTION_MASK, Array, BoxSpec, EnvError, StateDict


class NormalizeObservations(gym.Wrapper[Any, Any, Any, Any]):
    """Box observations to running mean 0 and standard deviation 1, as float32 within +-clip.

    Every observation is counted once, before it is scaled. `update = False` freezes the statistics, for evaluation.
    """

    resume_strategy: Strategy = "restart"

    def __init__(self, env: Env, *, clip: float = CLIP, epsilon: float = EPS, update: bool = True) -> None:
        super().__init__(env)
        if not isinstance(env.observation_space, spaces.Box):
            raise EnvError(f"NormalizeObservations needs Box observations, not {env.observation_space}")
        self.clip = clip
        self.epsilon = epsilon
        self.update = update
        self.statistics = RunningMeanStd(env.observation_space.shape)
        self.observation_space = spaces.Box(-clip, clip, env.observation_space.shape, np.float32)

    def _normalize(self, obs: Any) -> Array:
        if self.update:
            self.statistics.update(np.asarray(obs)[None])
        return self.statistics.normalize(obs, self.clip, self.epsilon).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return self._normalize(obs), info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._normalize(obs), reward, terminated, truncated, info

    def state_dict(self) -> StateDict:
        return {"statistics": self.statistics.state_dict()}

    def load_state_dict(self, state: StateDict, /) -> None:
        self.statistics.load_state_dict(state["statistics"])


class NormalizeRewards(gym.Wrapper[Any, Any, Any, Any]):
    """Rewards divided by the running standard deviation of the discounted return, within +-clip.

    The running return starts at 0 with every episode, whether the one before it was terminated or truncated. The mean
    is not subtracted: that would change which policy is best.
    """

    resume_strategy: Strategy = "restart"

    def __init__(
        self, env: Env, *, gamma: float = 0.99, clip: float = CLIP, epsilon: float = EPS, update: bool = True
    ) -> None:
        super().__init__(env)
        self.gamma = gamma
        self.clip = clip
        self.epsilon = epsilon
        self.update = update
        self.statistics = RunningMeanStd()
        self.discounted_return = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.discounted_return = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.discounted_return = self.gamma * self.discounted_return + float(reward)
        if self.update:
            self.statistics.update([self.discounted_return])
        _, inverse_std = self.statistics.affine(self.epsilon)
        scaled = min(max(float(reward) * float(inverse_std), -self.clip), self.clip)
        return obs, scaled, terminated, truncated, info

    def state_dict(self) -> StateDict:
        return {"statistics": self.statistics.state_dict(), "discounted_return": self.discounted_return}

    def load_state_dict(self, state: StateDict, /) -> None:
        self.statistics.load_state_dict(state["statistics"])
        self.discounted_return = float(state["discounted_return"])


class FrameStack(gym.Wrapper[Any, Any, Any, Any]):
    """The last `num_frames` observations along a new first axis, oldest first.

    An episode starts with copies of its first observation. Dict observations are stacked key by key, except the
    action mask, of which only the current one counts. Every stack is a new array.
    """

    def __init__(self, env: Env, num_frames: int) -> None:
        super().__init__(env)
        if num_frames < 1:
            raise EnvError(f"FrameStack needs at least 1 frame, not {num_frames}")
        self.num_frames = num_frames
        self._stack: Any = None
        space = env.observation_space
        self._is_dict = isinstance(space, spaces.Dict)
        if isinstance(space, spaces.Dict):
            self.observation_space = spaces.Dict(
                {key: leaf if key == ACTION_MASK else self._stacked(leaf) for key, leaf in space.spaces.items()}
            )
        else:
            self.observation_space = self._stacked(space)

    def _stacked(self, space: Space) -> spaces.Box:
        if not isinstance(space, spaces.Box):
            raise EnvError(f"FrameStack needs Box observations, not {space}")
        low, high = (np.repeat(bound[None], self.num_frames, axis=0) for bound in (space.low, space.high))
        return spaces.Box(low, high, dtype=np.dtype(space.dtype).type)

    def _first(self, frame: Any) -> Array:
        return np.repeat(np.asarray(frame)[None], self.num_frames, axis=0)

    @staticmethod
    def _push(stack: Array, frame: Any) -> Array:
        pushed = np.empty_like(stack)
        pushed[:-1] = stack[1:]
        pushed[-1] = frame
        return pushed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        if self._is_dict:
            self._stack = {key: frame if key == ACTION_MASK else self._first(frame) for key, frame in obs.items()}
        else:
            self._stack = self._first(obs)
        return self._stack, info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if self._is_dict:
            stack = self._stack
            self._stack = {
                key: frame if key == ACTION_MASK else self._push(stack[key], frame) for key, frame in obs.items()
            }
        else:
            self._stack = self._push(self._stack, obs)
        return self._stack, reward, terminated, truncated, info


class RescaleAction(GymnasiumRescaleAction[Any, Any, Any]):
    """Gymnasium's RescaleAction, whose rounding can leave the environment's bounds; here the result is clipped."""

    def action(self, action: Any) -> Array:
        space = self.env.action_space
        assert isinstance(space, spaces.Box)
        return within(BoxSpec(space.low, space.high, np.dtype(space.dtype)), super().action(action))


def rescale_action(env: Env, min_action: float = -1.0, max_action: float = 1.0) -> Env:
    """Rescale actions from [min_action, max_action] to the environment's own bounds."""
    dtype = np.result_type(env.action_space.dtype or np.float32, np.float32).type
    return RescaleAction(env, dtype(min_action), dtype(max_action))


def clip_reward(env: Env, min_reward: float = -1.0, max_reward: float = 1.0) -> Env:
    """Clip rewards to [min_reward, max_reward]."""
    return ClipReward(env, min_reward, max_reward)


def scale_reward(env: Env, factor: float) -> Env:
    """Multiply rewards by a constant, so that values are numbers of about 1, which networks reach quickly."""
    return TransformReward(env, partial(mul, factor))
