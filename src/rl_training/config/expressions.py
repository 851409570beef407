"""Boolean expressions over rows: `algorithm=ppo and (reward>400 or tag=keep)`, parsed once, evaluated on many rows.

The language of `rl list` and of alert rules. Standard library only; no input is ever executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rl_training.types import ConfigError

MAX_LENGTH = 10_000
Row = Mapping[str, Any]
Lookup = Callable[[Row], Any]
"""Finds the value of a key in a row; None if it has none."""
Predicate = Callable[[Row], bool]
_OPERATORS = "= != > >= < <= ~"
_COMPARISON = r"(?P<key>[A-Za-z_][\w./-]*)\s*(?P<operator>==|!=|>=|<=|=|>|<|~)\s*"
_TOKEN = re.compile(
    rf"""\s*(?:
        (?P<open>\() | (?P<close>\))
      | (?P<word>and|or|not)(?=[\s()]|$)
      | {_COMPARISON}(?P<value>"[^"]*"|'[^']*'|[^\s()\[\]{{}}"'=<>!~][^\s()\[\]{{}}"'=<>]*)
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_NO_VALUE = re.compile(rf"\s*{_COMPARISON}")
_NO_OPERATOR = re.compile(r"\s*[A-Za-z_][\w./-]*")
Check = Callable[[str, str, str], "str | None"]
"""(key, operator, value as typed) -> why the combination is invalid, or None."""
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


def parse_expression(
    text: str, find_key: Callable[[str], Lookup], *, what: str, example: str, check: Check | None = None
) -> Predicate:
    """The predicate that `text` describes; ConfigError says where it cannot be parsed, and why.

    `find_key` turns a key as typed into a lookup; messages call the text a `what`.
    """
    return _Parser(text, find_key, what, example, check).whole()


class _Parser:
    """Recursive descent parser; precedence from low to high: `or`, `and`, `not`."""

    def __init__(
        self, text: str, find_key: Callable[[str], Lookup], what: str, example: str, check: Check | None
    ) -> None:
        if len(text) > MAX_LENGTH:
            raise ConfigError(f"a {what} of {len(text)} characters is too long")
        self.text = text
        self.find_key = find_key
        self.what = what
        self.example = example
        self.check = check
        self.tokens = list(self._tokens())
        self.position = 0

    def whole(self) -> Predicate:
        try:
            predicate = self.either()
        except RecursionError:
            raise ConfigError(f"the {self.what} is nested too deeply") from None
        if self.position < len(self.tokens):
            token = self.tokens[self.position]
            why = "this ')' has no '('" if token["close"] else "'and' or 'or' is missing before it"
            raise self.error(token.start(), why)
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
            raise self.error(len(self.text), "a comparison is missing")
        token = self.tokens[self.position]
        if token["word"] or token["close"]:
            raise self.error(token.start(), "a comparison is missing before it")
        self.position += 1
        if token["key"]:
            return self.comparison(token)
        inside = self.either()
        if self.position == len(self.tokens):
            raise self.error(len(self.text), "a ')' is missing")
        if not self.tokens[self.position]["close"]:
            raise self.error(self.tokens[self.position].start(), "'and', 'or' or ')' is missing before it")
        self.position += 1
        return inside

    def comparison(self, token: re.Match[str]) -> Predicate:
        lookup, operator, text = self.find_key(token["key"]), token["operator"], token["value"]
        wanted = text[1:-1] if text[0] in "\"'" else text
        why = self.check(token["key"], operator, wanted) if self.check else None
        if why is not None:
            raise self.error(token.start("value"), why)
        return lambda row: holds(lookup(row), operator, wanted)

    def takes(self, word: str) -> bool:
        is_next = self.position < len(self.tokens) and (self.tokens[self.position]["word"] or "").lower() == word
        self.position += is_next
        return is_next

    def _tokens(self) -> Iterator[re.Match[str]]:
        position = 0
        while self.text[position:].strip():
            token = _TOKEN.match(self.text, position)
            if token is None:
                raise self._unreadable(position)
            yield token
            position = token.end()

    def _unreadable(self, position: int) -> ConfigError:
        """The error for a position at which no token starts."""
        if start := _NO_VALUE.match(self.text, position):
            rest, before = self.text[start.end() :], start[0].strip()
            if rest[:1] in ("'", '"') and rest:
                return self.error(start.end(), "this quote is not closed")
            why = (
                f"a value is missing after '{before}'"
                if not rest.strip(" )")
                else f"a value cannot begin with '{rest[0]}'"
            )
            return self.error(start.end(), f"{why}; quote a value with such characters" if rest.strip() else why)
        if start := _NO_OPERATOR.match(self.text, position):
            return self.error(start.end(), f"an operator ({_OPERATORS}) is missing after '{start[0].strip()[:40]}'")
        return self.error(position, "a key is missing")

    def error(self, position: int, why: str) -> ConfigError:
        rest = self.text[position:].strip()
        where = f"near '{rest[:40]}' (character {self.text.index(rest, position) + 1})" if rest else "at its end"
        whole = f"'{self.text[:200]}'"
        return ConfigError(f'cannot read the {self.what} {whole} {where}: {why}; write it like "{self.example}"')


def holds(found: Any, operator: str, wanted: str) -> bool:
    """Whether a comparison with a value of a row is true: numbers compare as numbers, texts ignore case, a list matches
    if any of its entries does.

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
