"""An environment that misbehaves when it is told to; otherwise it is CartPole."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from gymnasium.envs.classic_control import CartPoleEnv

from rl_training import Callback

STUCK_AT = 100
SLOW_SECONDS = 0.02

LOUD = "far too much " * 4_000_000
"""52 MB."""


class Loud(CartPoleEnv):
    """Has a lot to say in its 100th step."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == STUCK_AT:
            raise ValueError(LOUD)
        return super().step(action)


class LoudCallback(Callback):
    """The same, after the first train step."""

    def on_step(self, trainer: Any, report: Any) -> None:
        raise ValueError(LOUD)


class Sticky(CartPoleEnv):
    """Blocks for ever in its 100th step if the variable STICKY says how; it then makes the file STICKY_FILE.

    "sleep" can be interrupted by Python; "hang" is a call into C that never returns and to which signals mean nothing.
    "slow" does not block: the steps from there on take longer.
    """

    steps = 0

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)
        if os.environ.get("STICKY") == "built":
            Path(os.environ["STICKY_FILE"]).touch()
            time.sleep(600)

    def step(self, action: Any) -> Any:
        self.steps += 1
        how = os.environ.get("STICKY")
        if how == "slow":
            time.sleep(SLOW_SECONDS if self.steps >= STUCK_AT else 0.0)
        elif how and self.steps == STUCK_AT:
            Path(os.environ["STICKY_FILE"]).touch()
            if how == "sleep":
                time.sleep(600)
            mutex = ctypes.create_string_buffer(64)
            for _ in range(2):  # the second time it waits for itself
                ctypes.CDLL(None).pthread_mutex_lock(mutex)
        return super().step(action)


class Forker(Sticky):
    """Starts a program, a daemon in a session of its own and a forked copy of itself, and never looks after them.

    Their pids are lines of the file FORK_FILE.
    """

    def __init__(self, render_mode: str | None = None) -> None:
        program = subprocess.Popen(["sleep", "1000"]).pid
        daemon = int(subprocess.check_output(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"]))
        if (copy := os.fork()) == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(1000)
            os._exit(0)
        with open(os.environ["FORK_FILE"], "a") as file:
            file.write("".join(f"{pid}\n" for pid in (program, daemon, copy)))
        super().__init__(render_mode=render_mode)
