"""Runs as single files: `pack` writes a run directory as one `.tar.gz`, `unpack` restores it on any machine.

Archives are untrusted. One is extracted into a temporary folder, nothing in it is executed, links and paths that leave
its folder are refused, and a run that names custom code cannot be run until the user trusts it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rl_training.experiments.keeping.archive_files import LIMITS, extract
from rl_training.experiments.keeping.cleanup import clean
from rl_training.runs import index
from rl_training.runs.directory import SUBFOLDERS, RunDir
from rl_training.runs.names import readable_errors
from rl_training.runs.stored_config import StoredConfig
from rl_training.system.atomic_io import (
    TEMPORARY,
    discard,
    fsync_dir,
    make_folder,
    rename,
    sync_file,
    sync_tree,
    temporary_path,
)
from rl_training.trust.seals import Identity
from rl_training.types import ConfigError, RunError

FOLDER, SUFFIX = "archives", ".tar.gz"
HALF_ARCHIVE = re.compile(TEMPORARY.pattern + re.escape(SUFFIX))
"""Names of incomplete archives."""


def pack(run: RunDir, target: Path | None = None, *, remove: bool = False) -> Path:
    """Write a run into one file, by default `<output_dir>/archives/<id>.tar.gz`; never overwrites.

    With `remove` the run is cleaned afterwards (see `cleanup`).
    """
    target = target or run.path.parent / FOLDER / f"{run.path.name}{SUFFIX}"
    if target.exists():
        raise RunError(f"'{target}' exists already; remove it, or choose another file with --output")
    with run.lock(anonymous=True), readable_errors(f"cannot write '{target}'"):
        if run.info().get("cleaned"):
            raise RunError(f"run '{run.path}' was cleaned up; there is nothing left to pack")
        make_folder(target.parent)
        with _claimed(target.parent, is_folder=False) as temporary:
            size = _write(run.path, temporary, compresslevel=6)
            if size > LIMITS.allowed(temporary.stat().st_size, size):  # an import would refuse it as a zip bomb
                _write(run.path, temporary, compresslevel=0)
            sync_file(temporary)
            rename(temporary, target)
            fsync_dir(target.parent)
    if remove and (problem := clean(run).problem):
        raise RunError(f"'{target}' is written, but run '{run.path}' could not be cleaned: {problem}")
    return target


def unpack(archive: Path, output_dir: Path, *, trust_plugins: bool = False) -> RunDir:
    """Restore an archived run in `output_dir` under its own name, atomically.

    The remains of the same run after a cleanup are replaced; any other run of that name is not.
    """
    with readable_errors(f"cannot import '{archive}'"):
        make_folder(output_dir)
        with _claimed(output_dir, is_folder=True) as temporary:
            folder = temporary / "run"  # one level deeper, so that an incomplete run is not found
            name = extract(archive, folder)
            if not (folder / "run.json").is_file():
                raise RunError(f"'{archive}' is not the archive of a run; `rl archive RUN` makes one")
            for subfolder in SUBFOLDERS:
                (folder / subfolder).mkdir(exist_ok=True)
            run = RunDir(folder)
            info, stored = run.info(), _stored(run)
            run.update_info(imported=datetime.now(UTC).isoformat(timespec="milliseconds"))
            target = output_dir / name
            if target.exists():
                _make_room(target, info, agreed=stored.identity if trust_plugins else None)
            if trust_plugins:
                stored.consent(trust_plugins=True)
            if not target.exists():
                sync_tree(folder)
                rename(folder, target)
                fsync_dir(output_dir)
    index.record(target)
    return RunDir(target)


@contextmanager
def _claimed(folder: Path, *, is_folder: bool) -> Iterator[Path]:
    """A temporary folder or file in `folder`, removed at the end; leftovers of killed processes are removed too.

    The process that writes one holds a lock on it, so that no other process takes it for a leftover.
    """
    temporary = temporary_path(folder)
    temporary = temporary if is_folder else temporary.with_name(temporary.name + SUFFIX)
    with _locked(folder, wait=True):  # no other process searches for leftovers before the new one is locked
        _remove_left_behind(folder, folders=is_folder)
        temporary.mkdir() if is_folder else temporary.touch(exist_ok=False)
        claim = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
        with suppress(OSError):  # a file system without flock: leftovers are not removed there either
            fcntl.flock(claim, fcntl.LOCK_EX)
    try:
        yield temporary
    finally:
        os.close(claim)
        _remove(temporary)


def _remove_left_behind(folder: Path, *, folders: bool) -> None:
    # version 0.1.0 wrote temporary archives without a suffix
    patterns = [TEMPORARY] if folders else [HALF_ARCHIVE, TEMPORARY] if folder.name == FOLDER else [HALF_ARCHIVE]
    for name in os.listdir(folder):
        path = folder / name
        if not any(pattern.fullmatch(name) for pattern in patterns) or path.is_symlink() or path.is_dir() != folders:
            continue
        with suppress(OSError), _locked(path, wait=False):
            _remove(path)


@contextmanager
def _locked(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock of a file or folder; without `wait`, OSError if another process has it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if wait:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _write(run: Path, target: Path, *, compresslevel: int) -> int:
    """Write all files of a run as one archive; returns their total size."""
    size, paths = 0, list(_files(run))
    if len(paths) > LIMITS.entries:
        raise RunError(f"run '{run}' has {len(paths):,} files, and an archive holds at most {LIMITS.entries:,}")
    with tarfile.open(target, "w:gz", compresslevel=compresslevel, format=tarfile.PAX_FORMAT) as archive:
        for path in paths:
            archive.add(path, f"{run.name}/{path.relative_to(run)}", recursive=False, filter=_plain)
            size += path.stat().st_size
    return size


def _files(folder: Path) -> Iterator[Path]:
    """Every regular file of a run in a fixed order, without the lock, links and temporary files."""
    for name in sorted(os.listdir(folder)):
        path = folder / name
        if name == ".lock" or TEMPORARY.fullmatch(name) or path.is_symlink():
            continue
        if path.is_dir():
            yield from _files(path)
        elif path.is_file():
            yield path


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """An archive member without owner and permissions, so that no account names are published."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


def _stored(run: RunDir) -> StoredConfig:
    try:
        stored = run.stored_config()
        stored.read()
        return stored
    except ConfigError as error:
        raise RunError(f"the run in the archive has no readable config: {error}") from error


def _make_room(target: Path, info: Mapping[str, Any], *, agreed: Identity | None) -> None:
    """Remove the remains of the same run, or leave it in place if it is complete and was `agreed` to; RunError for any
    other run of that name."""
    there: Mapping[str, Any] = {}
    with suppress(RunError):
        there = RunDir(target).info()
    is_same = there.get("id") == info.get("id") and there.get("started") == info.get("started") is not None
    if is_same and there.get("cleaned"):
        with RunDir(target).lock():
            discard([target])
    elif not (is_same and agreed is not None and RunDir(target).stored_config().identity == agreed):
        raise RunError(f"'{target}' exists already; choose another folder with --output-dir")
