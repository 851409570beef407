"""Action masks: taken from info, a method or a Dict key of the environment and put into the observation.

From there the mask reaches next observations, buffers and evaluation without further code. The observation becomes
`{"obs": ..., "action_mask": ...}`, or keeps its own keys beside the mask if it is a Dict. The mask is a MultiBinary
with one entry per choice: n for Discrete(n), sum(nvec) for MultiDiscrete, concatenated.
"""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.envs.spaces import Space
from rl_training.envs.suites import Env
from rl_training.types import ACTION_MASK, Array, EnvError


def mask_size(space: Space) -> int:
    """Length of a mask for this action space."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    raise EnvError(f"action masks need Discrete or MultiDiscrete actions, not {space}")


class ActionMask(gym.Wrapper[Any, Any, Any, Any]):
    """Puts the mask into the observation, from `info["action_mask"]` or from the environment's `action_masks()`.

    `source` "auto" prefers the method if there is one.
    """

    def __init__(self, env: Env, source: Literal["auto", "info", "method"] = "auto", key: str = ACTION_MASK) -> None:
        super().__init__(env)
        if source not in ("auto", "info", "method"):
            raise EnvError(f"wrapper 'action_mask': source must be auto, info or method, not {source!r}")
        has_method = env.has_wrapper_attr("action_masks")
        if source == "method" and not has_method:
            raise EnvError(f"wrapper 'action_mask': {env} has no method action_masks()")
        self._method = env.get_wrapper_attr("action_masks") if has_method and source != "info" else None
        self._key = key
        self._size = mask_size(env.action_space)
        space = env.observation_space
        self._is_dict = isinstance(space, spaces.Dict)
        if has_mask(space):
            raise EnvError(f"wrapper 'action_mask': the observations of {env} hold '{ACTION_MASK}' already")
        inner = dict(space.spaces) if isinstance(space, spaces.Dict) else {"obs": space}
        self.observation_space = spaces.Dict({**inner, ACTION_MASK: spaces.MultiBinary(self._size)})

    def _with_mask(self, obs: Any, info: dict[str, Any]) -> dict[str, Any]:
        return {**(obs if self._is_dict else {"obs": obs}), ACTION_MASK: self._mask(info)}

    def _mask(self, info: dict[str, Any]) -> Array:
        if self._method is None and self._key not in info:
            raise EnvError(
                f"wrapper 'action_mask': no '{self._key}' in the info of {self.unwrapped}; every reset and step must "
                f"give one (info has: {', '.join(map(str, info)) or 'nothing'})"
            )
        mask = np.array(self._method() if self._method is not None else info[self._key], np.int8).reshape(-1)
        if mask.size != self._size:
            raise EnvError(f"wrapper 'action_mask': a mask of {mask.size} entries for {self._size} choices of action")
        return mask

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return self._with_mask(obs, info), info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._with_mask(obs, info), reward, terminated, truncated, info


def has_mask(space: Space) -> bool:
    return isinstance(space, spaces.Dict) and ACTION_MASK in space.spaces


def with_action_mask(env: Env) -> Env:
    """Wrap `env` if it has `action_masks()`; otherwise return it, with any mask in its observation space checked."""
    space = env.observation_space
    if isinstance(space, spaces.Dict) and has_mask(space):
        size, mask = mask_size(env.action_space), space[ACTION_MASK]
        if mask.shape != (size,):
            raise EnvError(f"the '{ACTION_MASK}' of {env} has shape {mask.shape} for {size} choices of action")
        return env
    return ActionMask(env, "method") if env.has_wrapper_attr("action_masks") else env
