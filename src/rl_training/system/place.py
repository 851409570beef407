"""A folder that a process writes into by name, and that must stay the folder it was.

Whoever renames, deletes or replaces the directory of a run while it trains gets one clear sentence at its next save:
nothing is made anew at the old name, and nothing is written into another folder that stands there now.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rl_training.types import RunError


class Place:
    """Holds a folder open, so that its identity is not given to another one, and compares it with its name."""

    def __init__(self, path: Path) -> None:
        """OSError if there is no such folder."""
        self.path = path
        self._descriptor = os.open(path, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._descriptor)

    def is_there(self) -> bool:
        """Whether the name still leads to the same folder."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except OSError:
            return False

    def check(self) -> None:
        """RunError, with the folder's new name where it has one, if it is no longer there."""
        if self.is_there():
            return
        moved = self._now()
        what = "was replaced by another folder" if os.path.lexists(self.path) else "was deleted or renamed"
        if moved is None:
            raise RunError(f"run directory '{self.path}' {what} while the run was going on; nothing more is written")
        raise RunError(
            f"run directory '{self.path}' {what} while the run was going on: it is now '{moved}', and nothing more is "
            f"written; go on from its last checkpoint with `rl resume {moved}`"
        )

    def _now(self) -> Path | None:
        """Where the folder is now; None if it was deleted or the system does not tell."""
        with suppress(OSError):
            found = Path(os.readlink(f"/proc/self/fd/{self._descriptor}"))
            if os.path.samestat(os.stat(found), os.fstat(self._descriptor)):
                return found
        return None
