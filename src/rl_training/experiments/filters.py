"""Filters of runs: `algorithm=ppo and (reward>400 or tag=keep)`, read once and asked of every row of the index.

A key is a column of the index, a metric (it has a slash), or a field of the config (it has a dot, any spelling).
Standard library only; nothing in a filter is ever executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
MAX_LENGTH = 10_000
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<open>\() | (?P<close>\))
      | (?P<word>and|or|not)(?=[\s()]|$)
      | (?P<key>[A-Za-z_][\w./-]*)\s*(?P<operator>==|!=|>=|<=|=|>|<|~)\s*(?P<value>"[^"]*"|'[^']*'|[^\s()]+)
    )""",
    re.VERBOSE | re.IGNORECASE,
)
Predicate = Callable[[Row], bool]
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda found, wanted: found == wanted,
    "==": lambda found, wanted: found == wanted,
    "!=": lambda found, wanted: found != wanted,
    ">": lambda found, wanted: found > wanted,
    ">=": lambda found, wanted: found >= wanted,
    "<": lambda found, wanted: found < wanted,
    "<=": lambda found, wanted: found <= wanted,
    "~": lambda found, wanted: wanted in found,
}


@dataclass(frozen=True)
class Key:
    """Where a value of a row is found: a column, or a place inside one of the large ones."""

    column: str
    inside: tuple[str, ...] = ()

    def of(self, row: Row) -> Any:
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
        parsers = [_Parser(text) for text in texts if text.strip()]
        predicates = [parser.whole() for parser in parsers]
        return cls(
            lambda row: all(predicate(row) for predicate in predicates),
            tuple(key for parser in parsers for key in parser.keys),
        )


def sorted_rows(rows: Sequence[Row], by: str) -> list[Row]:
    """Best, newest or first in the alphabet first; a minus sign in front turns it round. Rows without a value last."""
    key = find_key(by.removeprefix("-"))
    valued = [(key.of(row), row) for row in rows]
    have = [pair for pair in valued if isinstance(pair[0], int | float | str)]
    numeric = all(isinstance(value, int | float) for value, _ in have)
    high_first = (numeric or key.column in ("started", "ended", "cleaned")) != by.startswith("-")
    have.sort(key=lambda pair: pair[0] if numeric else str(pair[0]), reverse=high_first)
    return [row for _, row in have] + [row for value, row in valued if not isinstance(value, int | float | str)]


class _Parser:
    """Recursive descent: `or` binds least, then `and`, then `not`."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise ConfigError(f"a filter of {len(text)} characters is too long")
        self.text = text
        self.keys: list[Key] = []
        self.tokens = list(self._tokens())
        self.position = 0

    def whole(self) -> Predicate:
        try:
            predicate = self.either()
        except RecursionError:
            raise ConfigError("the filter is nested too deeply") from None
        if self.position < len(self.tokens):
            raise self.error(self.tokens[self.position].start())
        return predicate

    def either(self) -> Predicate:
        parts = [self.all_of()]
        while self.takes("or"):
            parts.append(self.all_of())
        return parts[0] if len(parts) == 1 else lambda row: any(part(row) for part in parts)

    def all_of(self) -> Predicate:
        parts = [self.one()]
        while self.takes("and"):
            parts.append(self.one())
        return parts[0] if len(parts) == 1 else lambda row: all(part(row) for part in parts)

    def one(self) -> Predicate:
        if self.takes("not"):
            inner = self.one()
            return lambda row: not inner(row)
        if self.position == len(self.tokens):
            raise self.error(len(self.text))
        token = self.tokens[self.position]
        if token["word"] or token["close"]:
            raise self.error(token.start())
        self.position += 1
        if token["key"]:
            return self.comparison(token)
        inside = self.either()
        if self.position == len(self.tokens) or not self.tokens[self.position]["close"]:
            raise self.error(len(self.text))
        self.position += 1
        return inside

    def comparison(self, token: re.Match[str]) -> Predicate:
        key, operator, text = find_key(token["key"]), token["operator"], token["value"]
        self.keys.append(key)
        wanted = text[1:-1] if text[0] in "\"'" and text[0] == text[-1] and len(text) > 1 else text
        return lambda row: holds(key.of(row), operator, wanted)

    def takes(self, word: str) -> bool:
        is_next = self.position < len(self.tokens) and (self.tokens[self.position]["word"] or "").lower() == word
        self.position += is_next
        return is_next

    def _tokens(self) -> Iterator[re.Match[str]]:
        position = 0
        while self.text[position:].strip():
            token = _TOKEN.match(self.text, position)
            if token is None:
                raise self.error(position)
            yield token
            position = token.end()

    def error(self, position: int) -> ConfigError:
        rest = self.text[position:].strip()
        where = f"near '{rest[:40]}'" if rest else "at its end"
        return ConfigError(
            f"cannot read the filter '{self.text[:200]}' {where}; write it like "
            '"algorithm=ppo and (reward>400 or tag=keep)"'
        )


def holds(found: Any, operator: str, wanted: str) -> bool:
    """Whether a value of a row compares as asked: numbers as numbers, texts in any case, of lists any entry.

    >>> holds(450.0, ">", "400"), holds("PPO", "=", "ppo"), holds(["a", "b"], "=", "b"), holds(None, "<", "1")
    (True, True, True, False)
    """
    if isinstance(found, list | tuple):
        if operator == "!=":
            return not any(holds(item, "=", wanted) for item in found)
        return any(holds(item, operator, wanted) for item in found)
    if found is None:
        return (
            (operator == "!=") != (wanted.lower() in ("", "none", "null")) if operator in ("=", "==", "!=") else False
        )
    if isinstance(found, int | float) and not isinstance(found, bool):
        try:
            return _COMPARISONS[operator](found, float(wanted)) if operator != "~" else wanted in str(found)
        except ValueError:
            return operator == "!="
    return _COMPARISONS[operator](str(found).casefold(), wanted.casefold())
