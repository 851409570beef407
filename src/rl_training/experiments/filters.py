"""Filters of runs: the language of `expressions`, asked of the rows of the index.

A key is a column of the index, a metric (it has a slash), or a field of the config (it has a dot, any spelling).
Standard library only; nothing in a filter is ever executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_training.expressions import Lookup, Predicate, parse_expression
from rl_training.index import COLUMNS, Row
from rl_training.registry import did_you_mean
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
}
EXAMPLE = "algorithm=ppo and (reward>400 or tag=keep)"


@dataclass(frozen=True)
class Key:
    """Where a value of a row is found: a column, or a place inside one of the large ones."""

    column: str
    inside: tuple[str, ...] = ()

    def of(self, row: Mapping[str, Any]) -> Any:
        value = row.get(self.column)
        for part in self.inside:
            value = value.get(part) if isinstance(value, Mapping) else None
        return value


def find_key(name: str) -> Key:
    """The key that was typed; ConfigError with a suggestion where nothing has that name."""
    if "/" in name:
        return Key("results", (name,))
    if "." in name:
        from rl_training.config_keys import canonical_key

        return Key("config", tuple(canonical_key(name).split(".")))
    found = ALIASES.get(name.lower(), name.lower())
    if found not in COLUMNS:
        hint = did_you_mean(found, [*COLUMNS, *ALIASES])
        raise ConfigError(
            f"unknown key '{name[:80]}'{hint} (columns: {', '.join(COLUMNS)}; metrics such as eval/return_iqm; "
            "fields of the config such as hparams.learning_rate)"
        )
    return Key(found)


@dataclass(frozen=True)
class Filter:
    """A filter that was understood, and the large columns it needs."""

    accepts: Predicate
    keys: tuple[Key, ...] = ()

    @classmethod
    def parse(cls, *texts: str) -> Filter:
        """A run must pass all of `texts`; an empty text lets every run pass. ConfigError shows where it goes wrong."""
        keys: list[Key] = []

        def lookup(name: str) -> Lookup:
            keys.append(find_key(name))
            return keys[-1].of

        predicates = [parse_expression(text, lookup, what="filter", example=EXAMPLE) for text in texts if text.strip()]
        return cls(lambda row: all(predicate(row) for predicate in predicates), tuple(keys))


def sorted_rows(rows: Sequence[Row], by: str) -> list[Row]:
    """Best, newest or first in the alphabet first; a minus sign in front turns it round. Rows without a value last."""
    key = find_key(by.removeprefix("-"))
    valued = [(key.of(row), row) for row in rows]
    have = [pair for pair in valued if isinstance(pair[0], int | float | str)]
    numeric = all(isinstance(value, int | float) for value, _ in have)
    high_first = (numeric or key.column in ("started", "ended", "cleaned")) != by.startswith("-")
    have.sort(key=lambda pair: pair[0] if numeric else str(pair[0]), reverse=high_first)
    return [row for _, row in have] + [row for value, row in valued if not isinstance(value, int | float | str)]
