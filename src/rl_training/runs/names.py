"""Names of runs, groups and sweeps on disk: creating a unique one, and finding one from what the user typed.

Only names, folders and the names in their records; all other content belongs to `runs/directory.py` and
`experiments/launching/groups.py`.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from rl_training.registry import did_you_mean
from rl_training.system.atomic_io import fsync_dir, make_folder
from rl_training.types import ConfigError, RunError

MAX_PART = 80
"""Characters of the algorithm and of the environment in a directory name; file systems allow 255 bytes in all."""
RESERVED = frozenset({"groups", "sweeps", "archives", "latest", "latest-group", "latest-sweep", "best"})
"""Names that already have another meaning in an output directory or on the command line."""
INDEX = "index.sqlite"
"""File name of the index of an output directory; SQLite adds `-wal`, `-shm` and `-journal` files."""
LATEST = "latest"
MAX_ATTEMPTS = 10_000
_STAMP = re.compile(r"__(\d{8}-\d{6})(?:-(\d+))?$")


ENV_FN = "env_fn"
_ENV_FN = re.compile(r"env_fn(?:\((.+)\))?")


class Names(NamedTuple):
    """The names recorded inside a directory, which may have been renamed since."""

    name: str | None = None
    """The `name:` that the user chose."""
    id: str | None = None
    """The name of the directory when it was created."""


def name_part(text: str) -> str:
    """A text made safe for use in a directory name.

    >>> name_part("ALE/Pong-v5")
    'ALE-Pong-v5'
    """
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)[:MAX_PART]


def function_name(made_by: Any) -> str:
    """The name of a function or class that makes environments; "env_fn" for a lambda.

    >>> function_name(dict), function_name(lambda: None)
    ('dict', 'env_fn')
    """
    inner = made_by.func if isinstance(made_by, partial) else made_by
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    short = str(name).rpartition("<locals>.")[2]
    return ENV_FN if "<lambda>" in short else name_part(short)


def env_fn_id(env_fn: Any) -> str:
    """The `env_id` of a run whose environment is made by a function of the caller; no other environment has it."""
    name = function_name(env_fn)
    return ENV_FN if name == ENV_FN else f"{ENV_FN}({name})"


def env_fn_of(env_id: str) -> str | None:
    """The name of the function in an `env_id` from `env_fn_id`; None for every other environment."""
    match = _ENV_FN.fullmatch(env_id)
    return (match[1] or ENV_FN) if match else None


def is_reserved(name: str) -> bool:
    """Whether a name is reserved; upper and lower case count as equal, as on some file systems.

    >>> is_reserved("Groups"), is_reserved("index.sqlite-wal"), is_reserved("groups-2")
    (True, True, False)
    """
    folded = name.casefold()
    return folded in RESERVED or folded.startswith(INDEX)


def check_name(name: str | None) -> None:
    """ConfigError where a run was given a reserved name, under which no command would find it."""
    if name is not None and is_reserved(name):
        reserved = ", ".join(sorted({*RESERVED, INDEX}))
        raise ConfigError(f"a run cannot be named '{name[:MAX_PART]}': {reserved} are reserved; choose another name")


class RunStep(NamedTuple):
    """A run and one of its checkpoints, as typed."""

    run: str
    step: str
    """Env steps, `latest` or `best`; empty where none was given."""

    @property
    def checkpoint(self) -> int | str:
        """The checkpoint to load: a number of env steps, or a name."""
        return int(self.step) if self.step.isdigit() else (self.step or "latest")


def parse_run_step(text: str) -> RunStep:
    """`RUN[:STEP]` as its two parts. A path that exists is a run, whatever characters it has.

    >>> parse_run_step("baseline:2000"), parse_run_step("latest").checkpoint
    (RunStep(run='baseline', step='2000'), 'latest')
    """
    if Path(text).exists():
        return RunStep(text, "")
    run, _, step = text.partition(":")
    return RunStep(run, step)


def claim_directory(root: Path, name: str, subfolders: Sequence[str], kind: str) -> Path:
    """Create `<root>/<name>[-2]/` with its subfolders, never one that exists. OSError if it cannot be created.

    Where many hosts create one at the same second, numbers that differ between processes keep them from trying one
    name after the other together.
    """
    if name.startswith((".", "-")):  # neither a hidden folder nor a name that looks like a flag
        name = f"{kind}{name}"
    if is_reserved(name):
        name = f"{kind}-{name}"
    make_folder(root)
    for count in _numbers():
        path = root / (name if count == 1 else f"{name}-{count}")
        # mkdir both tests and claims the name: of two processes that try the same one, one fails
        with suppress(FileExistsError):
            path.mkdir()
            for subfolder in subfolders:
                (path / subfolder).mkdir()
            # without this, a power failure could lose the folder with everything saved in it later
            fsync_dir(root)
            return path
    raise RunError(f"'{root}' already holds too many {kind}s of this second; choose another output_dir")


def reserve(root: Path, name: str, number: int, kind: str) -> str:
    """Reserve `<name>-<number>` (number 1: `<name>`), or with other digits if that is taken, as an empty folder.

    Whoever gets the name makes the folder its own by `claim_exactly`; parents that plan at the same second, on whatever
    host, get different names.
    """
    make_folder(root)
    for digits in chain((number,), _random_numbers()):
        reserved = name if digits == 1 else f"{name}-{digits}"
        with suppress(FileExistsError):
            (root / reserved).mkdir()
            return reserved
    raise RunError(f"'{root}' already holds too many {kind}s of this second; choose another output_dir")


def release(root: Path, name: str) -> None:
    """Give back a reserved name that nobody has claimed; a folder with anything in it stays."""
    with suppress(OSError):
        (root / name).rmdir()


def claim_exactly(root: Path, name: str, subfolders: Sequence[str], kind: str) -> Path:
    """Create `<root>/<name>/`, or take it where `reserve` made it; RunError if it is in use."""
    if name != name_part(name) or is_reserved(name) or name.startswith((".", "-")):
        raise RunError(f"'{name[:MAX_PART]}' cannot be the name of a {kind}")
    make_folder(root)
    path = root / name
    try:
        path.mkdir()
    except FileExistsError:
        if not path.is_dir() or any(path.iterdir()):
            raise RunError(f"{kind} '{path}' is already there; start it again for another name") from None
    for subfolder in subfolders:
        (path / subfolder).mkdir()
    fsync_dir(root)
    return path


def _numbers() -> Iterator[int]:
    """1, 2, ... 8, then numbers of five digits in an order of this process's own."""
    yield from range(1, 9)
    yield from _random_numbers()


def _random_numbers() -> Iterator[int]:
    """Numbers of five digits, each drawn when it is asked for."""
    return (10_000 + secrets.randbelow(90_000) for _ in range(MAX_ATTEMPTS))


def age(path: Path, record: str) -> tuple[str, int, str]:
    """Sort key of a directory, oldest first: the time stamp in its name, else the time of its file `record`."""
    match = _STAMP.search(path.name)
    if match is None:  # renamed by hand
        modified = datetime.fromtimestamp((path / record).stat().st_mtime)
        return f"{modified:%Y%m%d-%H%M%S}", 0, path.name
    return match[1], int(match[2] or 1), path.name


def pick(name: str, folders: Sequence[Path], given_names: Callable[[Path], Names], kind: str) -> Path:
    """The one of `folders` (oldest first) with this directory name, `name:` or id, or the only one that starts with
    it."""
    by_name = {folder.name: folder for folder in folders}
    if name in by_name:
        return by_name[name]
    names = {folder: given_names(folder) for folder in folders}
    matches = [folder for folder in folders if name in names[folder]]
    matches = matches or [f for f in folders if f.name.startswith(name) or (names[f].id or "").startswith(name)]
    if len(matches) == 1:
        return matches[0]
    where = folders[-1].parent
    if matches:
        shown = ", ".join(folder.name for folder in matches[-5:])
        raise RunError(f"'{name}' fits {len(matches)} {kind}s in '{where}' ({shown}); type more of the name")
    hint = did_you_mean(name, by_name) or f"; the latest is '{folders[-1].name}'"
    raise RunError(f"no {kind} '{name}' in '{where}'{hint}")


@dataclass(frozen=True)
class DirectoryKind:
    """A kind of directory that a record file describes."""

    name: str
    """What messages call it: `run`, `group` or `sweep`."""
    record: str
    """The file that makes a directory one of this kind."""
    advice: str
    """What to do where a folder holds none."""
    max_bytes: int
    """Size above which a record is not read."""

    def all_in(self, folder: Path) -> list[Path]:
        """All directories of this kind in `folder`, oldest first by the stamp in their names."""
        paths = [folder / name for name in names_in(folder) if (folder / name / self.record).is_file()]
        return sorted(paths, key=lambda path: age(path, self.record))

    def find(self, path: Path, folder: Path) -> Path:
        """The directory in `folder` that was typed as `path`: its name, id, `name:`, a unique prefix, or `latest`."""
        if len(path.parts) != 1:
            near = did_you_mean(path.name, [found.name for found in self.all_in(path.parent)])
            raise RunError(f"no {self.name} '{path}': there is no such directory{near}")
        found = self.all_in(folder)
        if not found:
            raise RunError(f"no {self.name} '{path}': '{folder}' holds no {self.name}s; {self.advice}")
        return found[-1] if str(path) == LATEST else pick(str(path), found, self.given_names, self.name)

    def given_names(self, path: Path) -> Names:
        """The names in a directory's record; empty where the record cannot be read."""
        file = path / self.record
        try:
            record = json.loads(file.read_bytes()) if file.stat().st_size <= self.max_bytes else None
        except (OSError, ValueError, RecursionError):
            return Names()
        if not isinstance(record, dict):
            return Names()
        name, id_ = record.get("name"), record.get("id")
        return Names(name if isinstance(name, str) else None, id_ if isinstance(id_, str) else None)


def names_in(folder: Path) -> list[str]:
    """Names of the entries of a folder; empty where it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


@contextmanager
def readable_errors(what: str, place: str = "output_dir") -> Iterator[None]:
    """Turn OSError into a RunError that says what to do; `place` is what the user chose where to write."""
    cures = {
        errno.ENOSPC: f"free some space or choose another {place}",
        errno.EDQUOT: f"your disk quota is used up; free some space or choose another {place}",
        errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
        errno.EROFS: f"the disk is read-only; choose another {place}",
        errno.ENAMETOOLONG: f"choose a shorter {place}",
        errno.ENOTDIR: f"a file is in the way; move it or choose another {place}",
        errno.EEXIST: f"a file is in the way; move it or choose another {place}",
    }
    article, example = ("an", ", such as --output-dir ~/runs") if place == "output_dir" else ("a", "")
    usual = f"choose {article} {place} you may write to{example}"
    try:
        yield
    except OSError as error:
        cure = cures.get(error.errno or 0, usual)
        where = f" ({error.filename})" if error.filename else ""
        raise RunError(f"{what}: {error.strerror}{where}; {cure}") from error
    except ValueError as error:  # a NUL byte or a lone surrogate in the path
        raise RunError(f"{what}: {error}; choose {article} {place} of ordinary characters") from error
