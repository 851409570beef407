"""`ExperimentTracker`: the index of an output directory from Python; `rl list`, `show` and `tag` use it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.experiments.keeping.filters import Filter, Key, check_keys, find_key, sorted_rows
from rl_training.runs.index import RunIndex, all_rows
from rl_training.runs.row import LARGE, Row, describe
from rl_training.types import ConfigError

if TYPE_CHECKING:
    from rl_training.runs.directory import RunDir

MAX_TAG = 200
MAX_NOTES = 10_000


class ExperimentTracker:
    """All runs of an output directory: register, find and compare them."""

    def __init__(self, output_dir: str | Path = "runs") -> None:
        self.output_dir = Path(output_dir).expanduser()
        self.index = RunIndex(self.output_dir)

    def register_experiment(self, run: str | Path, *, tags: Iterable[str] = ()) -> str:
        """Add a run directory to the index, with optional tags; returns its id. Runs register themselves."""
        directory = self._open(run)
        if tags := tuple(tags):
            add_tags(directory, tags)
        row = describe(directory.path)
        RunIndex(directory.path.parent).put([row])
        return str(row["id"] or row["directory"])

    def find_experiments(
        self,
        *filters: str,
        sort: str | None = None,
        limit: int | None = None,
        large: Iterable[str] = LARGE,
        **equal: Any,
    ) -> list[Row]:
        """The runs that pass every filter, newest first or as `sort` says.

        `find_experiments("reward>400", algorithm="ppo", sort="reward")`. Without some of the `large` columns it is
        faster.
        """
        chosen = Filter.parse(*filters)
        wanted = {find_key(name): value for name, value in equal.items()}
        keys = [*chosen.keys, *wanted, *([find_key(sort.removeprefix("-"))] if sort else [])]
        rows, note = all_rows(self.output_dir, large={*large, *(key.column for key in keys)})
        if note is not None:
            warnings.warn(note, UserWarning, stacklevel=2)
        check_keys(keys, rows)
        found = [row for row in rows if chosen.accepts(row) and all(_is(row, *pair) for pair in wanted.items())]
        found = sorted_rows(found, sort) if sort else found[::-1]
        return found if limit is None else found[:limit]

    def compare_experiments(
        self, runs: Sequence[str | Path], metrics: Sequence[str] = ("reward", "loss")
    ) -> dict[str, dict[str, Any]]:
        """The final value of each metric (a column, a metric's name or a field of the config) for each run, by id."""
        keys = {name: find_key(name) for name in metrics}
        rows = [describe(self._open(run).path) for run in runs]
        return {str(row["id"] or row["directory"]): {name: key.of(row) for name, key in keys.items()} for row in rows}

    def _open(self, run: str | Path) -> RunDir:
        from rl_training.runs.directory import RunDir

        return RunDir.open(run, self.output_dir)


def _is(row: Row, key: Key, wanted: Any) -> bool:
    found = key.of(row)
    return wanted in found if isinstance(found, list) else bool(found == wanted)


def add_tags(run: RunDir, tags: Iterable[str], *, remove: Iterable[str] = ()) -> list[str]:
    """Add and remove tags in a run's `run.json`; returns the new tags."""
    new, old = [run.redactor.text(tag).strip() for tag in tags], set(remove)
    for tag in new:
        if not tag or len(tag) > MAX_TAG or not tag.isprintable():
            raise ConfigError(f"a tag is 1 to {MAX_TAG} printable characters, not {tag[:80]!r}")

    def changed(info: Mapping[str, Any]) -> dict[str, Any]:
        had = info.get("tags")
        if had is None:  # a run of an older version
            had = list(run.config(secrets=False).tags)
        kept = [tag for tag in dict.fromkeys([*had, *new]) if tag not in old]
        return {"tags": kept}

    tags_now: list[str] = run.change_info(changed)["tags"]
    return tags_now


def set_notes(run: RunDir, text: str) -> str | None:
    """Replace the notes in a run's `run.json`; an empty text removes them. Returns the notes as stored."""
    notes = run.redactor.text(text.replace("\r\n", "\n")).strip()
    strange = next((letter for letter in notes if not letter.isprintable() and letter not in "\n\t"), None)
    if strange is not None or len(notes) > MAX_NOTES:
        found = f"{len(notes):,} of them" if strange is None else f"with {strange!r}"
        raise ConfigError(f"notes are up to {MAX_NOTES:,} printable characters, not {found}")
    stored: str | None = run.change_info(lambda info: {"notes": notes or None})["notes"]
    return stored
