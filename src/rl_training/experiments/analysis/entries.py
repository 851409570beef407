"""The sides of a comparison: entries, each a label with its runs, found from names, paths and filters.

A run is one entry, a group of seeds is one, a sweep has one per trial, and the runs that pass a filter are one. Split
by a key, all runs are pooled and every value of the key becomes an entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rl_training.experiments.keeping.filters import find_key
from rl_training.experiments.keeping.tracker import ExperimentTracker
from rl_training.experiments.launching.groups import SeedGroup
from rl_training.experiments.launching.member import Member
from rl_training.experiments.launching.sweeps import Sweep, find_runs
from rl_training.runs.directory import RunDir
from rl_training.runs.index import all_rows
from rl_training.runs.row import LARGE, Row, describe
from rl_training.system.terminal_text import readable
from rl_training.types import RunError

LABEL = 44
"""Maximum characters of a label in tables and plots; JSON has the full label."""
_OPERATOR = re.compile(r"[=<>~]")


@dataclass(frozen=True)
class Run:
    """A run directory and its full row of the index."""

    path: Path
    row: Row

    @property
    def task(self) -> str:
        """The environment, without control characters."""
        return readable(str(self.row["environment"]))

    @property
    def axis(self) -> str:
        """What the run counts by: env steps, or updates where it stepped no environment."""
        return "updates" if not self.row["env_steps"] and self.length else "env steps"

    @property
    def length(self) -> int | None:
        """How long the run was, by its axis."""
        steps = self.row["env_steps"] or (self.row["results"] or {}).get("updates")
        return int(steps) if isinstance(steps, int | float) and steps else None


@dataclass(frozen=True)
class Entry:
    """One side of a comparison: a label and its runs."""

    label: str
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Selection:
    """The entries that were found, and notes for the reader."""

    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()


def find_entries(
    named: Sequence[str | Path], output_dir: str | Path = "runs", *, by: Sequence[str] = (), unfinished: bool = False
) -> Selection:
    """The entries of runs, groups, sweeps and filters; RunError for a word that is none of these.

    Groups, sweeps and filters contribute only finished runs, unless `unfinished` is set.
    """
    notes: list[str] = []
    found = [entry for word in named for entry in _entries(str(word), Path(output_dir).expanduser(), notes)]
    kept = []
    for entry, is_single in found:
        runs = tuple(run for run in entry.runs if is_single or unfinished or run.row["status"] == "finished")
        if len(runs) < len(entry.runs):
            notes.append(f"{entry.label}: {len(entry.runs) - len(runs)} of {len(entry.runs)} runs are not finished")
        if runs:
            kept.append(replace(entry, runs=runs))
    if not kept:
        words = ", ".join(readable(str(word)) for word in named)
        raise RunError(f"no finished run in {words[:200]}; --unfinished takes the others as they are")
    return Selection(tuple(_distinct(_split(kept, by) if by else kept)), tuple(notes))


def shortened(label: str, limit: int = LABEL) -> str:
    """
    >>> shortened("a long name of a run", 12)
    'a lon... run'
    """
    if len(label) <= limit:
        return label
    return f"{label[: (limit - 2) // 2]}...{label[-((limit - 3) // 2) :]}"


def value_text(value: Any) -> str:
    """A value of a config or a column as short text."""
    return readable(f"{value:g}" if isinstance(value, float) else str(value))


# -- from words to runs -----------------------------------------------------------------------------------------------


def _entries(word: str, output_dir: Path, notes: list[str]) -> list[tuple[Entry, bool]]:
    """The entries that a word names, each with whether it is a single run."""
    try:
        found = find_runs(word, output_dir)
    except RunError:
        if not _OPERATOR.search(word):
            raise
        return [(_filtered(word, output_dir), False)]
    if isinstance(found, RunDir):
        row = describe(found.path)
        return [(Entry(readable(row["name"] or row["directory"]), (Run(found.path, row),)), True)]
    rows, note = all_rows(found.output_dir, large=LARGE)
    if note is not None:
        notes.append(note)
    known = {row["directory"]: row for row in rows}
    if isinstance(found, SeedGroup):
        label = readable(found.info.name or found.info.id)
        return [(Entry(label, _runs_of(found, found.members, known)), False)]
    return [(entry, False) for entry in _trials(found, known)]


def _filtered(text: str, output_dir: Path) -> Entry:
    rows = ExperimentTracker(output_dir).find_experiments(text)
    if not rows:
        raise RunError(f"no run in '{output_dir}' passes the filter '{readable(text)[:200]}'")
    return Entry(readable(text), tuple(Run(output_dir / row["directory"], row) for row in reversed(rows)))


def _trials(sweep: Sweep, known: dict[str, Row]) -> list[Entry]:
    entries = []
    for number, values in enumerate(sweep.info.trials):
        members = [member for member in sweep.members if member.trial == number]
        changed = ", ".join(f"{key.rpartition('.')[2]}={value_text(value)}" for key, value in values.items())
        entries.append(Entry(readable(changed) or f"trial {number}", _runs_of(sweep, members, known)))
    return entries


def _runs_of(runs: SeedGroup | Sweep, members: Iterable[Member], known: dict[str, Row]) -> tuple[Run, ...]:
    return tuple(
        Run(runs.output_dir / member.run, known[member.run])
        for member in members
        if member.run is not None and member.run in known
    )


def _split(entries: Sequence[Entry], by: Sequence[str]) -> list[Entry]:
    """Pool all runs and make one entry for every combination of the keys' values, in order of appearance."""
    keys = {name: find_key(name) for name in by}
    runs = {run.path.resolve(): run for entry in entries for run in entry.runs}
    split: dict[str, list[Run]] = {}
    for run in runs.values():
        parts = [
            f"{name.rpartition('.')[2]}={value_text(key.of(run.row))}" if key.inside else value_text(key.of(run.row))
            for name, key in keys.items()
        ]
        split.setdefault(", ".join(parts), []).append(run)
    return [Entry(label, tuple(members)) for label, members in split.items()]


def _distinct(entries: Iterable[Entry]) -> list[Entry]:
    """Number equal labels."""
    seen: dict[str, int] = {}
    distinct = []
    for entry in entries:
        seen[entry.label] = count = seen.get(entry.label, 0) + 1
        distinct.append(entry if count == 1 else replace(entry, label=f"{entry.label} ({count})"))
    return distinct
