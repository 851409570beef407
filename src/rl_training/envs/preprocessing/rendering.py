"""Lets MuJoCo draw without a screen: which OpenGL library it uses is decided when it is imported."""

from __future__ import annotations

import ctypes
import os
import sys

LIBRARIES = {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8"}
"""What `MUJOCO_GL` may name, and the library behind it; on Debian in the packages libegl1 and libosmesa6."""


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
