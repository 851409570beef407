"""Groups of runs for plots and comparisons, with labels that say in what the groups differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rl_training.dashboard.reading.tables import RunRef, RunTable
from rl_training.dashboard.text import short
from rl_training.experiments.keeping.filters import find_key, flat
from rl_training.runs.recipe import LEFT_OUT
from rl_training.types import ConfigError

RECIPE = "recipe"
"""Group by everything but the seed."""
RUN = "run"
"""Every run is a group of its own."""
MAX_RUNS = 1000
"""Runs in one request for statistics; more are refused and never sampled."""
MAX_NAMED = 3
"""Config fields in a label."""


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that are merged into one line."""

    id: str
    """What the group is told apart by; stays the same while the label may change with its neighbours."""
    label: str
    runs: tuple[RunRef, ...]


def grouped(table: RunTable, refs: Sequence[RunRef], by: Sequence[str] = (RECIPE,)) -> list[Group]:
    """The runs in groups, those with the newest runs first; ConfigError for a key that does not exist."""
    if len(refs) > MAX_RUNS:
        raise ConfigError(f"{len(refs):,} runs at once are too many; narrow the filter to at most {MAX_RUNS:,}")
    groups = _grouped(table, refs, list(by))
    # oldest run first, as `rl compare` reads a filter: the bootstrap draws runs by their number
    in_order = {
        group: sorted(group.runs, key=lambda ref: (ref.row["started"] or "", ref.path.name)) for group in groups
    }
    return [Group(group.id, group.label, tuple(runs)) for group, runs in in_order.items()]


def _grouped(table: RunTable, refs: Sequence[RunRef], by: list[str]) -> list[Group]:
    if by in ([RECIPE], ["recipe_sha256"]):
        return _by_recipe(table, refs)
    if by == [RUN]:
        labels = _labels(table, [(ref.key, [ref]) for ref in refs], with_seed=True)
        return [Group(ref.key, labels[ref.key], (ref,)) for ref in refs]
    keys = {name: find_key(name) for name in by}
    rows = table.with_values(refs, keys.values())
    split: dict[str, list[RunRef]] = {}
    for ref, row in zip(refs, rows, strict=True):
        parts = [
            f"{name.rpartition('.')[2]}={short(key.of(row))}" if key.inside else short(key.of(row))
            for name, key in keys.items()
        ]
        split.setdefault(", ".join(parts), []).append(ref)
    return [Group(label, label, tuple(runs)) for label, runs in split.items()]


def _by_recipe(table: RunTable, refs: Sequence[RunRef]) -> list[Group]:
    split: dict[str, list[RunRef]] = {}
    for ref in refs:
        split.setdefault(ref.row["recipe_sha256"] or ref.key, []).append(ref)
    labels = _labels(table, list(split.items()))
    return [Group(recipe, labels[recipe], tuple(runs)) for recipe, runs in split.items()]


def _labels(
    table: RunTable, groups: Sequence[tuple[str, Sequence[RunRef]]], *, with_seed: bool = False
) -> dict[str, str]:
    """Label of each group: algorithm, environment and the config fields in which the groups differ."""
    firsts = [runs[0] for _, runs in groups]
    trees = [_fields(row["config"]) for row in table.full_rows(firsts)]
    left_out = LEFT_OUT - {"seed"} if with_seed else LEFT_OUT
    alike: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for first, tree in zip(firsts, trees, strict=True):
        alike.setdefault((first.row["algorithm"], first.row["environment"]), []).append(tree)
    labels: dict[str, str] = {}
    for (group, runs), tree in zip(groups, trees, strict=True):
        row: dict[str, Any] = runs[0].row
        # fields of another algorithm are no difference: only groups of the same algorithm and environment are compared
        mine = _differing(alike[row["algorithm"], row["environment"]], left_out)
        several = {part: len({first.row[part] for first in firsts}) > 1 for part in ("algorithm", "environment")}
        words = [short(row[part]) for part in several if row[part] and (several[part] or not mine)]
        words += [f"{name.rpartition('.')[2]}={short(tree[name], 24)}" for name in mine[:MAX_NAMED] if name in tree]
        names_of_runs = {ref.row["name"] for ref in runs}
        if len(names_of_runs) == 1 and row["name"] and not with_seed:
            words.insert(0, short(row["name"], 30))
        labels[group] = " · ".join(words) or short(row["directory"])
    return _distinct(labels)


def _differing(trees: Sequence[dict[str, Any]], left_out: frozenset[str]) -> list[str]:
    """Fields in which configs differ, without those that are `left_out`."""
    return [
        name
        for name in dict.fromkeys(name for tree in trees for name in tree)
        if name not in ("algo", "env_id")
        and not any(name == field or name.startswith(f"{field}.") for field in left_out)
        and len({repr(tree.get(name)) for tree in trees}) > 1
    ]


def _fields(config: dict[str, Any]) -> dict[str, Any]:
    """The config by dotted names, a schedule as one value."""
    sections = flat(config)
    schedules = {name.rpartition(".")[0] for name in sections if name.endswith(".start")}
    schedules = {name for name in schedules if f"{name}.end" in sections and f"{name}.type" in sections}
    whole = {name: {part: sections[f"{name}.{part}"] for part in ("type", "start", "end")} for name in schedules}
    return {name: value for name, value in sections.items() if name.rpartition(".")[0] not in schedules} | whole


def _distinct(labels: dict[str, str]) -> dict[str, str]:
    seen: dict[str, int] = {}
    found = {}
    for group, label in labels.items():
        seen[label] = count = seen.get(label, 0) + 1
        found[group] = label if count == 1 else f"{label} ({count})"
    return found
