"""Runs as single files: `pack` makes one `.tar.gz` of a run directory, `unpack` brings it back on any machine.

An archive may come from anybody. It is read file by file into a folder aside, nothing in it is executed, no link and no
path out of its own folder is followed, and a run that names code of its own cannot be run until its reader trusts it.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from rl_training import index
from rl_training.atomic_io import TEMPORARY, discard, fsync_dir, rename, sync_file, sync_tree, temporary_path
from rl_training.experiments.cleanup import clean
from rl_training.run_names import name_part, readable_errors
from rl_training.runs import RunDir
from rl_training.stored_config import StoredConfig
from rl_training.trust import Identity
from rl_training.types import ConfigError, RunError

FOLDER, SUFFIX = "archives", ".tar.gz"
MAX_FILES = 1_000_000


def pack(run: RunDir, target: Path | None = None, *, remove: bool = False) -> Path:
    """Write a run into one file, by default `<output_dir>/archives/<id>.tar.gz`; never over one that exists.

    With `remove` the run is cleaned afterwards (see `cleanup`).
    """
    target = target or run.path.parent / FOLDER / f"{run.path.name}{SUFFIX}"
    if target.exists():
        raise RunError(f"'{target}' exists already; remove it, or choose another file with --output")
    with run.lock(anonymous=True), readable_errors(f"cannot write '{target}'"):
        if run.info().get("cleaned"):
            raise RunError(f"run '{run.path}' was cleaned up; there is nothing left to pack")
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_path(target.parent)
        try:
            with tarfile.open(temporary, "w:gz", compresslevel=6, format=tarfile.PAX_FORMAT) as archive:
                for path in _files(run.path):
                    archive.add(path, f"{run.path.name}/{path.relative_to(run.path)}", recursive=False, filter=_plain)
            sync_file(temporary)
            rename(temporary, target)
            fsync_dir(target.parent)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
    if remove and (problem := clean(run).problem):
        raise RunError(f"'{target}' is written, but run '{run.path}' could not be cleaned: {problem}")
    return target


def unpack(archive: Path, output_dir: Path, *, trust_plugins: bool = False) -> RunDir:
    """Bring an archived run into `output_dir` under its own name; whole or not at all.

    What was left of it after a cleaning is replaced; any other run of that name is not.
    """
    with readable_errors(f"cannot import '{archive}'"):
        output_dir.mkdir(parents=True, exist_ok=True)
        temporary = temporary_path(output_dir)
        try:
            name = _extract(archive, temporary)
            run = RunDir(temporary)
            info, stored = run.info(), _stored(run)
            run.update_info(imported=datetime.now(UTC).isoformat(timespec="milliseconds"))
            target = output_dir / name
            if target.exists():
                _make_room(target, info, agreed=stored.identity if trust_plugins else None)
            if trust_plugins:
                stored.consent(trust_plugins=True)
            if not target.exists():
                sync_tree(temporary)
                rename(temporary, target)
                fsync_dir(output_dir)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    index.record(target)
    return RunDir(target)


def _files(folder: Path) -> Iterator[Path]:
    """Every regular file of a run in a fixed order; the lock, links and what is half written stay behind."""
    for name in sorted(os.listdir(folder)):
        path = folder / name
        if name == ".lock" or TEMPORARY.fullmatch(name) or path.is_symlink():
            continue
        if path.is_dir():
            yield from _files(path)
        elif path.is_file():
            yield path


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """A member without its owner: names of accounts do not belong into an archive."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


def _extract(archive: Path, folder: Path) -> str:
    """Write the files of an archive into `folder`; the name of the run in it. RunError for anything unusual."""
    top = ""
    count = size = 0
    free = shutil.disk_usage(folder.parent).free
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                count, size = count + 1, size + member.size
                if member.isdir():
                    continue
                parts = PurePosixPath(member.name).parts
                top = top or parts[0]
                if not member.isreg() or len(parts) < 2 or parts[0] != top or _is_odd(member.name, parts):
                    raise RunError(f"'{archive}' is not the archive of a run: it holds {member.name[:100]!r}")
                if count > MAX_FILES or size > free:
                    raise RunError(f"'{archive}' is too large: {count} files with {size / 1e9:.1f} GB and more")
                source = tar.extractfile(member)
                assert source is not None
                path = folder.joinpath(*parts[1:])
                path.parent.mkdir(parents=True, exist_ok=True)
                with source, open(path, "xb") as target:
                    shutil.copyfileobj(source, target, 2**20)
            assert tar.fileobj is not None
            while tar.fileobj.read(2**20):  # to the checksum, which stands at the very end
                continue
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError) as error:
        raise RunError(f"'{archive}' is damaged or no archive of a run ({error}); pack it again") from error
    if not (folder / "run.json").is_file() or top != name_part(top) or top[0] in ".-":
        raise RunError(f"'{archive}' is not the archive of a run; `rl archive RUN` makes one")
    for name in ("configs", "logs", "checkpoints", "videos", "plots", "debug"):
        (folder / name).mkdir(exist_ok=True)
    return top


def _is_odd(name: str, parts: tuple[str, ...]) -> bool:
    """A path that leads elsewhere, or that no file of a run has."""
    return name.startswith("/") or ".." in parts or not name.isprintable() or "\\" in name or ".lock" in parts


def _stored(run: RunDir) -> StoredConfig:
    try:
        stored = run.stored_config()
        stored.read()
        return stored
    except ConfigError as error:
        raise RunError(f"the run in the archive has no readable config: {error}") from error


def _make_room(target: Path, info: Mapping[str, Any], *, agreed: Identity | None) -> None:
    """Clear away the remains of the same run, or leave it there if it is whole and was `agreed` to; RunError for any
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
