"""Filter expressions over runs: the language of `config.expressions`, evaluated on rows of the index.

A key is a column of the index, a metric (contains a slash), or a field of the config (contains a dot, any spelling).
Nothing in a filter is ever executed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_training.config.expressions import Lookup, Predicate, parse_expression
from rl_training.registry import did_you_mean
from rl_training.runs.row import COLUMNS, Row
from rl_training.types import ConfigError

ALIASES = {
    "algo": "algorithm",
    "env": "environment",
    "env_id": "environment",
    "experiment": "name",
    "return": "reward",
    "score": "reward",
    "steps": "env_steps",
    "tag": "tags",
    "run": "directory",
    "time": "seconds",
    "commit": "git",
    "note": "notes",
    "recipe": "recipe_sha256",
}
COUNTS = ("agent_steps", "updates", "episodes")
"""Metrics without a slash in their names, beside the column env_steps."""
NUMBERS = ("seed", "exit_code", "env_steps", "reward", "loss", "seconds", "results")
"""Numeric columns."""
STATUSES = ("running", "finished", "stopped", "failed", "killed")
STANDARD_METRICS = frozenset(
    f"{kind}/{name}"
    for kind in ("eval", "rollout")
    for name in ("return_mean", "return_std", "return_iqm", "length_mean")
) | {"train/loss"}
"""Metrics that may be filtered by even where no run has logged them yet."""
EXAMPLE = "algorithm=ppo and (reward>400 or tag=keep)"


@dataclass(frozen=True)
class Key:
    """Location of a value in a row: a column, or a path inside a nested column."""

    column: str
    inside: tuple[str, ...] = ()

    def of(self, row: Mapping[str, Any]) -> Any:
        value = row.get(self.column)
        for part in self.inside:
            value = value.get(part) if isinstance(value, Mapping) else None
        return value


def find_key(name: str) -> Key:
    """The key with this name; ConfigError with a suggestion for an unknown one."""
    if "/" in name:
        return Key("results", (name,))
    if "." in name:
        from rl_training.config.aliases import canonical_key

        return Key("config", tuple(canonical_key(name).split(".")))
    found = ALIASES.get(name.lower(), name.lower())
    if found in COUNTS:
        return Key("results", (found,))
    if found not in COLUMNS:
        hint = did_you_mean(found, [*COLUMNS, *ALIASES, *COUNTS]) or (
            f" (columns: {', '.join(COLUMNS)}; metrics such as eval/return_iqm; fields of the config such as "
            "hparams.learning_rate)"
        )
        raise ConfigError(f"unknown key '{name[:80]}'{hint}")
    return Key(found)


def check_keys(keys: Iterable[Key], rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise ConfigError for a metric or field that is unknown and that none of the rows has."""
    for key in dict.fromkeys(keys):
        if not key.inside or any(_has(key, row) for row in rows):
            continue
        name = ".".join(key.inside)
        if key.column == "results":
            known = {metric for row in rows for metric in row.get("results") or ()}
            if known and name not in STANDARD_METRICS:
                hint = did_you_mean(name, {*known, *STANDARD_METRICS}) or "; `rl show RUN` lists the metrics of a run"
                raise ConfigError(f"no run has the metric '{name[:80]}'{hint}")
        elif rows:
            fields = {*_fields(rows), *_all_fields()}
            if name not in fields and not any(one.startswith(f"{name}.") for one in fields):
                hint = did_you_mean(name, fields) or "; `rl config show` prints the fields"
                raise ConfigError(f"no config has the field '{name[:80]}'{hint}")


def _has(key: Key, row: Mapping[str, Any]) -> bool:
    value: Any = row.get(key.column)
    for part in key.inside:
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return True


def _fields(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    return {name for row in rows for name in flat(row.get("config") or {})}


def _all_fields() -> set[str]:
    """All config fields of the built-in algorithms; needed only to check a field that seems misspelt."""
    from rl_training.config.fields import field_docs
    from rl_training.registry import algorithms

    return {path for algo in algorithms.names() for path in field_docs(algo)}


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings to dotted names.

    >>> flat({"env": {"num_envs": 4}, "seed": 1})
    {'env.num_envs': 4, 'seed': 1}
    """
    found: dict[str, Any] = {}
    for name, value in tree.items():
        nested = isinstance(value, Mapping) and value
        found |= flat(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return found


def _misfit(name: str, operator: str, wanted: str) -> str | None:
    """Why a value cannot be compared with a key: text with a number, or an unknown status; None if it can."""
    key = find_key(name)
    if operator == "~" or (operator in ("=", "==", "!=") and wanted.lower() in ("", "none", "null")):
        return None
    if key.column == "status" and wanted.lower() not in STATUSES:
        return f"a status is one of {', '.join(STATUSES)}{did_you_mean(wanted.lower(), STATUSES)}"
    if key.column in NUMBERS:
        try:
            return "nan compares with nothing" if math.isnan(float(wanted)) else None
        except ValueError:
            return f"'{name}' is a number and '{wanted[:40]}' is not"
    return None


@dataclass(frozen=True)
class Filter:
    """A parsed filter and the keys it reads."""

    accepts: Predicate
    keys: tuple[Key, ...] = ()

    @classmethod
    def parse(cls, *texts: str) -> Filter:
        """Parse a filter that requires all `texts`, ignoring empty ones; ConfigError shows the mistake."""
        keys: list[Key] = []

        def lookup(name: str) -> Lookup:
            keys.append(find_key(name))
            return keys[-1].of

        predicates = [
            parse_expression(text, lookup, what="filter", example=EXAMPLE, check=_misfit)
            for text in texts
            if text.strip()
        ]
        return cls(lambda row: all(predicate(row) for predicate in predicates), tuple(keys))


def sorted_rows(rows: Sequence[Row], by: str) -> list[Row]:
    """Rows sorted best, newest or alphabetically first; a leading minus sign reverses. Rows without value come last."""
    key = find_key(by.removeprefix("-"))
    valued = [(key.of(row), row) for row in rows]
    have = [pair for pair in valued if isinstance(pair[0], int | float | str)]
    numeric = all(isinstance(value, int | float) for value, _ in have)
    high_first = (numeric or key.column in ("started", "ended", "cleaned")) != by.startswith("-")
    have.sort(key=lambda pair: pair[0] if numeric else str(pair[0]), reverse=high_first)
    return [row for _, row in have] + [row for value, row in valued if not isinstance(value, int | float | str)]
