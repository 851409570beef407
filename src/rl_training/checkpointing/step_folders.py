"""The checkpoint folders of a run on disk: listed, published by rename, and pointed to by `latest` and `best`.

    step_000000012288/            a checkpoint
    .old-step_000000012288/       one that a save of the same step is replacing, or was when the process died
    latest, best                  text files with the name of a step folder

Not here: what a folder contains (`folder.py`), and when one is written or removed (`manager.py`).
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from rl_training.checkpointing.folder import STEP_NAME, read_pointer, step_name
from rl_training.system.atomic_io import atomic_write, discard, fsync_dir, rename
from rl_training.types import CheckpointError

REPLACED_NAME = re.compile(r"\.old-step_([0-9]{12})")
LATEST, BEST = "latest", "best"


class StepFolders:
    """Names and paths of the checkpoints in one folder. Readers may call it while another process writes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def steps(self) -> list[int]:
        """The steps of all checkpoints on disk, oldest first; whether they are intact is known when they load."""
        return sorted({step for step, _ in self.inodes()})

    def inodes(self) -> set[tuple[int, int]]:
        """Step and inode of every checkpoint; a folder that is replaced gets another inode."""
        self.refuse_link()
        try:
            with os.scandir(self.path) as entries:
                inodes = {entry.name: entry.inode() for entry in entries}
        except (FileNotFoundError, NotADirectoryError):
            return set()
        except OSError as error:
            raise CheckpointError(f"cannot read {self.path}: {error.strerror or error}{cure(error)}") from error
        matches = ((STEP_NAME.fullmatch(name) or REPLACED_NAME.fullmatch(name), inodes[name]) for name in inodes)
        return {(int(match[1]), inode) for match, inode in matches if match}

    def folder(self, step: int) -> Path:
        """Where a step's checkpoint is: under its own name, or set aside by a replacement that a crash interrupted."""
        folder = self.path / step_name(step)
        aside = self.aside(step)
        return aside if not os.path.lexists(folder) and os.path.lexists(aside) else folder

    def aside(self, step: int) -> Path:
        """Where the old checkpoint of a step is kept while a new one replaces it."""
        return self.path / f".old-{step_name(step)}"

    def publish(self, temporary: Path, step: int) -> None:
        """Give a finished folder its name; the checkpoint it replaces can be loaded at every moment (see `folder`)."""
        target, aside = self.path / step_name(step), self.aside(step)
        try:
            if os.path.lexists(target):
                rename(target, aside)
            rename(temporary, target)
        except BaseException:
            if os.path.lexists(aside) and not os.path.lexists(target):
                os.rename(aside, target)
            raise
        fsync_dir(self.path)

    def finish_replacements(self) -> None:
        """Complete or undo the replacements that a crash interrupted. Only for the process that writes."""
        for name in os.listdir(self.path):
            if match := REPLACED_NAME.fullmatch(name):
                aside, folder = self.path / name, self.path / step_name(int(match[1]))
                if os.path.lexists(folder):
                    discard([aside])
                else:
                    rename(aside, folder)
                    fsync_dir(self.path)

    def point(self, which: str, step: int | None) -> None:
        """Make `latest` or `best` name a step; None removes the file."""
        if step is None:
            discard([self.path / which])
        else:
            atomic_write(self.path / which, f"{step_name(step)}\n".encode())

    def pointed(self, which: str) -> int | None:
        """The step that `latest` or `best` names; None if the file is missing or unreadable."""
        self.refuse_link()
        return read_pointer(self.path / which)

    def refuse_link(self) -> None:
        """CheckpointError if the folder is a symbolic link."""
        if os.path.islink(self.path):
            raise CheckpointError(f"{self.path} is a symbolic link; move or link the whole run directory instead")


def cure(error: OSError) -> str:
    """What the user can do about an error of the file system, as the end of a message; empty where nothing is known."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ". Free disk space, or lower checkpoint.keep_last and keep_every, then go on with `rl resume`"
    if error.errno == errno.EFBIG:
        return ". Raise the limit on the size of files (ulimit -f), then go on with `rl resume`"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ". Make the folder yours, or choose another output_dir"
    return ""
