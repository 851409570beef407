"""One run as a row of the index: its columns, and how they are read from a run directory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rl_training.runs.holder import living_holder
from rl_training.runs.recipe import recipe_sha256
from rl_training.system.json_lines import tail_rows
from rl_training.types import RunError

Row = dict[str, Any]
"""One run: every column of `COLUMNS` by name; `tags` is a list, `results` and `config` are mappings."""

COLUMNS = {
    "directory": "TEXT PRIMARY KEY",
    "id": "TEXT",
    "name": "TEXT",
    "status": "TEXT",
    "algorithm": "TEXT",
    "environment": "TEXT",
    "seed": "INTEGER",
    "tags": "TEXT",
    "group": "TEXT",
    "sweep": "TEXT",
    "parent": "TEXT",
    "started": "TEXT",
    "ended": "TEXT",
    "exit_code": "INTEGER",
    "git": "TEXT",
    "dirty": "INTEGER",
    "config_sha256": "TEXT",
    "recipe_sha256": "TEXT",
    "notes": "TEXT",
    "env_steps": "INTEGER",
    "reward": "REAL",
    "loss": "REAL",
    "seconds": "REAL",
    "cleaned": "TEXT",
    "results": "TEXT",
    "config": "TEXT",
}
LARGE = ("results", "config")
"""Columns that are read only on request."""
REWARDS = ("eval/return_mean", "rollout/return_mean")
"""The metrics behind `reward`: the first of these that a run has."""
UNSETTLED = ("running", "killed")
"""States that may have changed since the row was written: a killed run cannot update it, and may be resumed."""
OTHER_FOLDERS = ("groups", "sweeps", "archives")
"""Folders of an output directory that are not runs."""


def by_age(rows: Iterable[Row]) -> list[Row]:
    """Rows in the order of the index: oldest first."""
    return sorted(rows, key=lambda row: (row["started"] or "", row["directory"]))


def scan(output_dir: Path, *, config: bool) -> list[Row]:
    """A row for every run directory, read from the directories."""
    return described(output_dir, directories(output_dir), config=config)


def describe(run: Path, *, config: bool = True) -> Row:
    """The row of a run, read from its directory; RunError if that is not a run."""
    from rl_training.runs.directory import RunDir

    info = RunDir(run).info()
    status = _status(run, info.get("status"))
    results = _results(run, is_over=status in ("finished", "stopped"))
    tree = _config(run) if config or "algo" not in info else {}
    facts = {**tree, **info}  # runs of older versions have algo, env_id, ... only in their config
    git = info.get("git")
    row: Row = {
        "directory": run.name,
        "status": status,
        "algorithm": facts.get("algo"),
        "environment": facts.get("env_id"),
        "tags": [tag for tag in _listed(facts.get("tags")) if isinstance(tag, str)],
        "git": git.get("commit") if isinstance(git, dict) else None,
        "dirty": git.get("dirty") if isinstance(git, dict) else None,
        "env_steps": results.get("env_steps"),
        "reward": next((results[name] for name in REWARDS if results.get(name) is not None), None),
        "loss": results.get("train/loss"),
        "seconds": results.get("time/elapsed_seconds"),
        "recipe_sha256": recipe_sha256(tree) if config else None,
        "results": results,
        "config": tree if config else None,
    }
    return {name: _typed(row.get(name, facts.get(name)), kind) for name, kind in COLUMNS.items()}


def directories(output_dir: Path) -> list[str]:
    """Names of the folders that may be runs; only `describe` can tell."""
    try:
        with os.scandir(output_dir) as entries:
            names = [entry.name for entry in entries if entry.name[0] != "." and entry.is_dir()]
    except OSError:
        return []
    return sorted(name for name in names if name not in OTHER_FOLDERS)


def described(output_dir: Path, names: Iterable[str], *, config: bool = True) -> list[Row]:
    """The rows of these folders of an output directory; those that are no runs are left out."""
    rows = []
    for name in names:
        with suppress(RunError):  # not a run, or its run.json is damaged
            rows.append(describe(output_dir / name, config=config))
    return rows


def _status(run: Path, status: Any) -> Any:
    """The status of a run: one recorded as running that no process holds was killed."""
    if status != "running":
        return status
    return "killed" if living_holder(run / ".lock") is None else "running"


def _results(run: Path, *, is_over: bool) -> dict[str, Any]:
    """The final metrics of a run, or the newest ones if it has not finished."""
    found: dict[str, Any] = {}
    with suppress(OSError, ValueError, RecursionError):
        final = json.loads((run / "metrics.json").read_bytes())
        found = final if isinstance(final, dict) else {}
    for row in () if is_over else tail_rows(run / "logs" / "metrics.jsonl"):
        found |= {name: value for name, value in row.items() if value is not None}
    return found


def _config(run: Path) -> dict[str, Any]:
    from rl_training.config.yaml_reader import read_yaml
    from rl_training.types import ConfigError

    try:
        return read_yaml(run / "configs" / "resolved.yaml")
    except (OSError, ConfigError):
        return {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _typed(value: Any, kind: str) -> Any:
    """A value converted to the type of its column, None if it has another one: files may contain anything."""
    if kind == "REAL":
        with suppress(OverflowError):  # an integer too large for a float
            return float(value) if isinstance(value, int | float) else None
        return None
    if kind == "INTEGER":
        return int(value) if isinstance(value, int) and abs(value) < 2**63 else None
    if isinstance(value, dict | list):
        return value
    return value if isinstance(value, str) else None
