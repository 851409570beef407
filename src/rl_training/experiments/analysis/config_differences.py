"""Differences between the configs of entries, from rows of the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rl_training.experiments.analysis.entries import Entry, Run, value_text
from rl_training.experiments.keeping.filters import flat
from rl_training.system.terminal_text import readable

NOT_VARIED = ("seed", "name", "tags", "output_dir", "env_id", "version", "base")
"""Config fields that are not hyperparameters."""
MAX_VALUES = 4
"""Maximum number of values written out where the runs of one entry differ."""
Differences = Mapping[str, Mapping[str, str]]
"""Field to a mapping from entry label to the text of its value."""


def varied(runs: Sequence[Run]) -> list[str]:
    """Dotted names of the config fields that differ between runs."""
    configs = [_fields(run) for run in runs]
    names = dict.fromkeys(name for one in configs for name in one)
    return [name for name in names if len({repr(one.get(name)) for one in configs}) > 1]


def config_differences(entries: Sequence[Entry]) -> dict[str, dict[str, str]]:
    """The fields whose values differ between entries; a missing field is "-"."""
    values = {entry.label: _values(entry) for entry in entries}
    names = dict.fromkeys(name for fields in values.values() for name in fields)
    found = {name: {label: fields.get(name, ["-"]) for label, fields in values.items()} for name in names}
    return {
        name: {label: _text(texts) for label, texts in by_entry.items()}
        for name, by_entry in found.items()
        if len({frozenset(texts) for texts in by_entry.values()}) > 1
    }


def mixed(entry: Entry) -> list[str]:
    """The fields that differ between the runs of one entry."""
    return varied(entry.runs)


def _values(entry: Entry) -> dict[str, list[str]]:
    """Field to the distinct values among the runs of an entry."""
    configs = [_fields(run) for run in entry.runs]
    names = dict.fromkeys(name for one in configs for name in one)
    return {name: list(dict.fromkeys(value_text(one.get(name, "-")) for one in configs)) for name in names}


def _fields(run: Run) -> dict[str, Any]:
    config = run.row["config"]
    fields = flat(config) if isinstance(config, Mapping) else {}
    return {name: value for name, value in fields.items() if name.split(".")[0] not in NOT_VARIED}


def _text(values: Sequence[str]) -> str:
    more = ", ..." if len(values) > MAX_VALUES else ""
    return readable(", ".join(values[:MAX_VALUES]) + more)
