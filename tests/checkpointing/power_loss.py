"""A model of a power failure: everything since the last fsync is lost, or any part of it.

`PowerLoss` watches a folder: the names in each directory and the content of each file when it was last synced, and all
changes since. `image` makes a copy of the folder as it could be after a power failure now. A `Fate` decides on changes
that were not synced: all lost, names kept but contents lost, contents kept but names lost, or each at random, including
torn files, so that later changes may survive earlier ones.
"""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np

Names = dict[str, int]
"""The entries of a folder: name to inode."""
Change = dict[str, int | None]
"""Names that one operation gave another inode, or took away (None)."""


class Fate(Protocol):
    """Which changes that were not synced survive a power failure."""

    def names(self, synced: Names, changes: list[Change]) -> Names: ...
    def contents(self, synced: bytes | None, current: bytes) -> bytes: ...


class AllLost:
    """Only synced changes survive; a file that was never synced is empty."""

    def names(self, synced: Names, changes: list[Change]) -> Names:
        return synced

    def contents(self, synced: bytes | None, current: bytes) -> bytes:
        return synced or b""


class NamesKept:
    """Every creation, renaming and removal survives; contents that were not synced are zeros."""

    def names(self, synced: Names, changes: list[Change]) -> Names:
        return applied(synced, changes)

    def contents(self, synced: bytes | None, current: bytes) -> bytes:
        return (synced or b"").ljust(len(current), b"\0")


class ContentsKept:
    """All contents survive, but creations, renamings and removals that were not synced do not."""

    def names(self, synced: Names, changes: list[Change]) -> Names:
        return synced

    def contents(self, synced: bytes | None, current: bytes) -> bytes:
        return current


class ByChance:
    """Each change survives or not, at random and in any order; a file has its old contents, its new ones, or a part."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def names(self, synced: Names, changes: list[Change]) -> Names:
        return applied(synced, [change for change in changes if self.rng.random() < 0.5])

    def contents(self, synced: bytes | None, current: bytes) -> bytes:
        if synced == current:
            return current
        kind = self.rng.integers(3)
        if kind < 2:
            return current if kind else synced or b""
        pairs = enumerate(zip(synced or b"", current, strict=False))
        both = min(len(synced or b""), len(current))
        untouched = next((i for i, (old, new) in pairs if old != new), both)  # synced and not changed since
        kept = int(self.rng.integers(untouched, len(current) + 1))
        return current[:kept] + self.rng.bytes(len(current) - kept)


FATES: dict[str, Fate] = {"all lost": AllLost(), "names kept": NamesKept(), "contents kept": ContentsKept()}


def fate_of(name: str) -> Fate:
    """One of FATES, or `chance N`."""
    return FATES[name] if name in FATES else ByChance(int(name.split()[1]))


def applied(names: Names, changes: list[Change]) -> Names:
    result = dict(names)
    for change in changes:
        for name, inode in change.items():
            if inode is None:
                result.pop(name, None)
            else:
                result[name] = inode
    return result


class PowerLoss:
    """The durable state of everything below `root`; what is there at the beginning is durable.

    Every inode is held open, so that its number is not given to another file and a removed one can still be read.
    """

    def __init__(self, root: Path, ignored: str = "index.sqlite") -> None:
        self.root = root
        self.ignored = ignored
        """Beginning of names that look after themselves (SQLite does) and are not part of the model."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        self._open: dict[int, int] = {}
        self._folders: dict[int, Names] = {}
        """As they are now."""
        self._synced_names: dict[int, Names] = {}
        self._synced_bytes: dict[int, bytes] = {}
        self._changes: dict[int, list[Change]] = {}
        self._fsync = os.fsync
        self.look()
        self._synced_names = {inode: dict(names) for inode, names in self._folders.items()}
        self._synced_bytes = {inode: self._read(inode) for inode in self._open if inode not in self._folders}
        self._changes.clear()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within the block every `os.fsync` of this process counts."""
        os.fsync = self.fsync
        try:
            yield
        finally:
            os.fsync = self._fsync

    def fsync(self, fd: int) -> None:
        """Replacement for `os.fsync`."""
        self._fsync(fd)
        self.look()
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            self._synced_names[status.st_ino] = dict(self._folders.get(status.st_ino, {}))
            self._changes.pop(status.st_ino, None)
        elif status.st_ino in self._open:
            self._synced_bytes[status.st_ino] = self._read(status.st_ino)

    def look(self) -> None:
        """Record what has changed since the last call; called before and after every operation."""
        self._look(self.root)

    def _look(self, folder: Path) -> int:
        inode = os.stat(folder).st_ino
        self._hold(inode, folder)
        names: Names = {}
        with os.scandir(folder) as entries:
            for entry in list(entries):
                if entry.name.startswith(self.ignored) or entry.is_symlink():
                    continue
                if entry.is_dir():
                    names[entry.name] = self._look(folder / entry.name)
                else:
                    names[entry.name] = entry.inode()
                    self._hold(entry.inode(), folder / entry.name)
        before = self._folders.get(inode, {})
        change: Change = {name: child for name, child in names.items() if before.get(name) != child}
        change |= {name: None for name in before if name not in names}
        if change:
            self._changes.setdefault(inode, []).append(change)
        self._folders[inode] = names
        return inode

    def _hold(self, inode: int, path: Path) -> None:
        if inode not in self._open:
            self._open[inode] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _read(self, inode: int) -> bytes:
        fd = self._open[inode]
        return os.pread(fd, os.fstat(fd).st_size, 0)

    def image(self, target: Path, fate: Fate) -> None:
        """Make `target` a copy of the folder as it could be after a power failure now."""
        self.look()
        self._image(os.stat(self.root).st_ino, target, fate)

    def _image(self, inode: int, target: Path, fate: Fate) -> None:
        target.mkdir()
        names = fate.names(self._synced_names.get(inode, {}), self._changes.get(inode, []))
        for name, child in names.items():
            if child in self._folders:
                self._image(child, target / name, fate)
            else:
                contents = fate.contents(self._synced_bytes.get(child), self._read(child))
                (target / name).write_bytes(contents)

    def close(self) -> None:
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()
