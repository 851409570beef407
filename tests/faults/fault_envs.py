"""An environment that misbehaves when it is told to; otherwise it is CartPole."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Any

from gymnasium.envs.classic_control import CartPoleEnv

STUCK_AT = 100


class Sticky(CartPoleEnv):
    """Blocks for ever in its 100th step if the variable STICKY says how; it then makes the file STICKY_FILE.

    "sleep" can be interrupted by Python; "hang" is a call into C that never returns and to which signals mean nothing.
    """

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        how = os.environ.get("STICKY")
        if how and self.steps == STUCK_AT:
            Path(os.environ["STICKY_FILE"]).touch()
            if how == "sleep":
                time.sleep(600)
            mutex = ctypes.create_string_buffer(64)
            for _ in range(2):  # the second time it waits for itself
                ctypes.CDLL(None).pthread_mutex_lock(mutex)
        return super().step(action)
