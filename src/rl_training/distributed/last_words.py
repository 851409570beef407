"""A message for the case that this process is ended without being able to say anything, as by a library that gives up.

A shell waits at the end of a pipe. It prints the message on stderr if the pipe closes before `close` was called, which
an interpreter that ends by itself does too.
"""

from __future__ import annotations

import atexit
import subprocess
from contextlib import suppress

SCRIPT = 'read -r farewell || printf "%s\\n" "$0" >&2'
FAREWELL_SECONDS = 5.0


class LastWords:
    """Printed unless the interpreter comes to its end, or `close` is called before the process ends."""

    def __init__(self, text: str) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, text],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C and signals to the group are not meant for it
        )
        atexit.register(self.close)

    def close(self) -> None:
        """Nothing is to be said any more. May be called twice."""
        atexit.unregister(self.close)
        assert self._shell.stdin is not None
        with suppress(OSError, ValueError):
            self._shell.stdin.write(b"\n")
            self._shell.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._shell.wait(timeout=FAREWELL_SECONDS)
