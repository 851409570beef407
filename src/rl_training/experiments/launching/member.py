"""`Member`: one planned run of a group or sweep, and the journal to which changes of members are appended.

The record of a group (`group.json`, `sweep.json`) holds the plan and the members as they were when it was written. What
changes afterwards is appended to `members.jsonl`, a line per change, so that ten thousand members cost no more than
ten. A member of a new trial (searches, population-based training) brings the trial in the same line. The record is
written again, and the journal removed, when the parent ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from rl_training.runs.holder import Holder
from rl_training.system.atomic_io import fault_point
from rl_training.system.json_lines import AppendFile, parse_row

JOURNAL = "members.jsonl"
GENERATION = "generation"
"""Field of the record and of the journal's first line: a journal of another generation belongs to an older record."""
ADDED = "added"
"""Field of a line of the journal: trials that were added to the sweep before this member, with their numbers."""
Status = Literal["waiting", "running", "finished", "stopped", "failed", "killed"]
"""`killed`: no process holds the run, and it never recorded its end."""
SMALL = 200
"""Members up to which a record is written with indented lines, for people."""


@dataclass
class Member:
    """One planned run of a group or sweep."""

    seed: int
    config_sha256: str
    """Hash of its config, the same as in `run.json`; known before the run exists."""
    run: str | None = None
    """Name of its run directory in the output directory."""
    status: Status = "waiting"
    exit_code: int | None = None
    reason: str | None = None
    """One line that says why it failed."""
    words: list[str] = field(default_factory=list)
    """The last command that was started for it."""
    process: Holder | None = None
    """The process of that command, running or not."""
    trial: int | None = None
    """Number of its trial in a sweep; None in a group."""
    where: str | None = None
    """Where its executor started it, if on another host: `ray node 850181`, `slurm 4711`."""

    @property
    def key(self) -> tuple[int | None, int]:
        """Trial and seed, which identify it among the members."""
        return self.trial, self.seed


def compact(member: Member) -> dict[str, Any]:
    """A member as plain values, without those that are the defaults."""
    return {name: value for name, value in asdict(member).items() if name not in DEFAULTS or value != DEFAULTS[name]}


DEFAULTS: dict[str, Any] = {
    item.name: item.default if item.default is not MISSING else []
    for item in fields(Member)
    if item.default is not MISSING or item.default_factory is not MISSING
}


def record_text(record: Mapping[str, Any]) -> str:
    """A record as JSON; with many members or trials one of them per line, which is half the size."""
    lists = {name: value for name, value in record.items() if isinstance(value, list)}
    if all(len(value) <= SMALL for value in lists.values()):
        return json.dumps(record, indent=2, allow_nan=False) + "\n"
    parts = []
    for name, value in record.items():
        if name in lists:
            rows = ",\n".join(json.dumps(item, separators=(",", ":"), allow_nan=False) for item in value)
            parts.append(f"{json.dumps(name)}: [\n{rows}\n]")
        else:
            parts.append(f"{json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


class MemberJournal:
    """The append-only journal of one group or sweep."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL
        self.generation = 0
        self._file: AppendFile | None = None
        self._written: dict[Any, dict[str, Any]] = {}

    def restart(self, generation: int, members: Sequence[Member]) -> None:
        """The record of this generation holds everything: start over, without a file until the first change."""
        if self._file is not None:
            self._file.close()
            self._file = None
        with suppress(OSError):
            os.unlink(self.path)
        self.generation = generation
        self._written = {member.key: compact(member) for member in members}

    def note(self, member: Member, added: Sequence[Mapping[str, Any]] = ()) -> None:
        """Append the fields of a member that have changed. With the trials that were `added` before it, which nothing
        else records, it waits until the line is on disk."""
        now, before = compact(member), self._written.get(member.key, {})
        changed = {name: now.get(name, DEFAULTS.get(name)) for name in {**before, **now}}
        changed = {name: value for name, value in changed.items() if value != before.get(name, DEFAULTS.get(name))}
        if added:
            changed[ADDED] = list(added)
        if not changed:
            return
        if self._file is None:
            self._file = self._opened()
        self._file.append(_line({"seed": member.seed, "trial": member.trial, **changed}))
        if added:
            self._file.sync()
        else:
            self._file.flush()
        self._written[member.key] = now

    def _opened(self) -> AppendFile:
        """The file, ready for the next line, whatever a parent that was killed has left."""
        begin = _line({GENERATION: self.generation})
        with suppress(OSError):
            with open(self.path, "rb") as earlier:
                is_current = earlier.readline() == begin
            if not is_current:  # of an older record, which has been written since
                fault_point("remove", self.path)
                os.unlink(self.path)
        file = AppendFile(self.path)
        file.end_line()
        if file.length() == 0:
            file.append(begin)
        return file


def read_journal(
    folder: Path, generation: int, entries: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The members of a record with what the journal adds to them, and the trials that were added, in order. A line that
    was cut off is left out."""
    members = {(entry.get("trial"), entry["seed"]): dict(entry) for entry in entries}
    if len(members) < len(entries):
        return [dict(entry) for entry in entries], []  # a seed twice: refused by the caller
    try:
        lines = (folder / JOURNAL).read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return list(members.values()), []
    rows = [row for row in map(parse_row, lines) if row is not None]
    if not rows or rows[0].get(GENERATION) != generation:
        return list(members.values()), []
    added: list[dict[str, Any]] = []
    for row in rows[1:]:
        added += row.pop(ADDED, [])
        members.setdefault((row["trial"], row["seed"]), {}).update(row)
    return list(members.values()), added


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"
