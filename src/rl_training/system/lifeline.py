"""Lifeline: a pipe by which a process notices that the one that started it is gone.

The parent holds the writing end and never writes. The kernel closes it when the parent ends, whatever the cause; the
child then reads end-of-file and stops as after SIGTERM: it saves, and no process is left working unattended.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from contextlib import suppress

from rl_training.system.signals import EXIT_CODES

LIFELINE_VARIABLE = "RL_TRAINING_LIFELINE"
"""Environment variable of a child: descriptor of the pipe's reading end."""


class Lifeline:
    """The parent's side of the pipe: children run as long as it is open."""

    def __init__(self) -> None:
        self.descriptor, self._held = os.pipe()

    def variables(self) -> dict[str, str]:
        """Environment variables for a child, which must also inherit `descriptor`."""
        return {LIFELINE_VARIABLE: str(self.descriptor)}

    def close(self) -> None:
        """Let go: the children stop. May be called twice."""
        for descriptor in (self.descriptor, self._held):
            if descriptor >= 0:
                os.close(descriptor)
        self.descriptor = self._held = -1


def follow_parent() -> None:
    """The child's side, called once at the start; nothing happens in a process that was started without a lifeline.

    The variable is removed, so that processes started by this one do not follow.
    """
    number = os.environ.pop(LIFELINE_VARIABLE, "")
    if not number:
        return
    descriptor = int(number)
    os.set_inheritable(descriptor, False)
    if select.select([descriptor], [], [], 0)[0]:  # the parent died before this process started
        sys.exit(EXIT_CODES[signal.SIGTERM])
    threading.Thread(target=_stop_with_parent, args=(descriptor,), name="lifeline", daemon=True).start()


def _stop_with_parent(descriptor: int) -> None:
    with suppress(OSError):
        os.read(descriptor, 1)
    os.write(2, b"the parent of this run is gone: stopping\n")
    os.kill(os.getpid(), signal.SIGTERM)
