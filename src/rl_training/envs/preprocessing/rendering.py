"""Drawing: which OpenGL library MuJoCo uses where there is no screen, and how many images make a second of a film."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import gymnasium as gym

LIBRARIES = {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8"}
"""What `MUJOCO_GL` may name, and the library behind it; on Debian in the packages libegl1 and libosmesa6."""


def has_screen() -> bool:
    """Whether a window can be opened."""
    return sys.platform != "linux" or any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def prepare_rendering() -> None:
    """Choose a library that draws into memory, where nothing is chosen, there is no screen and one is installed."""
    if sys.platform != "linux" or any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL")):
        return
    for name, library in LIBRARIES.items():
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        os.environ["MUJOCO_GL"] = name
        return


def with_real_frame_rate(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """The environment with as many `render_fps` as it takes steps in a second of its own time.

    Shimmy says 10 for every task of dm_control; most take 100 steps in a second, and films of them would crawl.
    """
    kind = type(env.unwrapped)
    if kind.__module__ == "shimmy.dm_control_compatibility":
        task: Any = env.unwrapped
        env.metadata = {**env.metadata, "render_fps": 1.0 / task.control_timestep()}
    return env


def slower(metadata: dict[str, Any], times: int) -> dict[str, Any]:
    """The metadata of an environment of which only every `times`-th image is seen.

    >>> slower({"render_fps": 100, "render_modes": []}, 4)
    {'render_fps': 25.0, 'render_modes': []}
    """
    return {**metadata, "render_fps": metadata["render_fps"] / times} if "render_fps" in metadata else metadata
