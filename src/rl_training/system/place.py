"""Detects that a run directory was renamed, deleted or replaced while the run writes into it.

The next save then fails with one clear sentence: the old path is not created again, and nothing is written into
another folder that has taken its place.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rl_training.types import RunError


class Place:
    """Holds a folder open, so that its inode is not reused, and compares it with what its path leads to."""

    def __init__(self, path: Path) -> None:
        """Open the folder; OSError if there is none."""
        self.path = path
        self._descriptor = os.open(path, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._descriptor)

    def is_there(self) -> bool:
        """Whether the path still leads to the same folder."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except OSError:
            return False

    def check(self) -> None:
        """RunError if the folder is no longer there, with its new path if it has one."""
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
        """The current path of the folder; None if it was deleted or the system does not tell."""
        with suppress(OSError):
            found = Path(os.readlink(f"/proc/self/fd/{self._descriptor}"))
            if os.path.samestat(os.stat(found), os.fstat(self._descriptor)):
                return found
        return None
