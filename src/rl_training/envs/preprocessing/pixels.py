"""Observations as rendered images: the wrapper `pixels` of `env.wrappers`, for dm_control, MuJoCo and others.

Rendering is done in software where there is no GPU: 64 x 64 pixels of a MuJoCo scene take some 30 ms. `rendering`
chooses the library that MuJoCo draws with.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rl_training.envs.suites import Env
from rl_training.types import Array, EnvError


class Pixels(gym.Wrapper[Any, Any, Any, Any]):
    """`size` x `size` images (height, width, 3) in place of the observation, or beside it with `state: true`.

    The environment must be built to draw into memory: the factory asks it for `render_mode="rgb_array"`.
    """

    wants_render_mode = "rgb_array"

    def __init__(self, env: Env, *, size: int = 84, state: bool = False) -> None:
        super().__init__(env)
        if size < 1:
            raise EnvError(f"wrapper 'pixels' needs a size of at least 1, not {size}")
        if env.render_mode != "rgb_array":
            raise EnvError(f"wrapper 'pixels' needs an environment that draws (render_mode='rgb_array'), not {env}")
        self.size, self.state = size, state
        image = spaces.Box(0, 255, (size, size, 3), np.uint8)
        if not state:
            self.observation_space = image
        elif isinstance(env.observation_space, spaces.Dict):
            self.observation_space = spaces.Dict({**env.observation_space.spaces, "pixels": image})
        else:
            self.observation_space = spaces.Dict({"state": env.observation_space, "pixels": image})

    def observe(self, obs: Any) -> Any:
        image = resized(np.asarray(self.env.render()), self.size)
        if not self.state:
            return image
        return {**obs, "pixels": image} if isinstance(obs, dict) else {"state": obs, "pixels": image}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return self.observe(obs), info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self.observe(obs), reward, terminated, truncated, info


def resized(image: Array, size: int) -> Array:
    """An image (height, width, 3) of bytes at `size` x `size`; each pixel is the mean of the area it covers."""
    if image.shape[:2] == (size, size):
        return image.copy()
    import cv2

    return np.asarray(cv2.resize(image, (size, size), interpolation=cv2.INTER_AREA))
