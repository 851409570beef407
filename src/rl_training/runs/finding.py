"""Finding runs, groups and sweeps on disk: each is a directory with a record file, found by path, name or prefix."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from rl_training.registry import did_you_mean
from rl_training.runs.names import Names, age, pick
from rl_training.types import RunError

LATEST = "latest"


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
