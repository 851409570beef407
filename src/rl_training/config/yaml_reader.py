"""YAML and JSON text to plain values and back: strict, safe and bounded. Knows nothing about the meaning of a config.

Scalars follow YAML 1.2, not PyYAML's 1.1: `3e-4` is a float, `off` and `12:30` are text. Nothing in a file is ever
executed: values are built from parser events, a tag is an error, and aliases count with the size they expand to. For
any input the only exception is ConfigError, in bounded time and memory.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import yaml

from rl_training.types import ConfigError

MAX_SIZE = 1_000_000
"""Largest text, in characters or bytes."""
MAX_COST = 150_000
"""Largest tree: every key and value costs NODE_COST plus the length of its text. Dumped, it fits into MAX_SIZE."""
NODE_COST = 16
MAX_DEPTH = 32
MAX_DIGITS = 64
MAX_INT = 2**64
MAX_PROBLEMS = 50

PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Only its event parser is used: that of libyaml where PyYAML was built with it, which is about ten times faster."""

NULLS = frozenset(("", "~", "null", "Null", "NULL"))
BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
INT = re.compile(r"[-+]?[0-9]+(?:_[0-9]+)*")
BASED_INT = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
NON_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")

NUMBER_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("float", "int", "bool", "null"))
CORE_TAGS = NUMBER_TAGS | {f"tag:yaml.org,2002:{name}" for name in ("str", "seq", "map")}
"""YAML's core tags, which mark plain values."""


@dataclass(frozen=True)
class Document:
    """A parsed file: its values, and the line of each mapping key by path (1-based; keys inside lists have none)."""

    tree: dict[str, Any]
    source: str
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    text: str = ""
    """The file as it was written; empty for what is not a file."""


def resolve_scalar(text: str) -> Any:
    """The value of an unquoted YAML 1.2 scalar; ValueError for a non-finite or overlong number.

    >>> resolve_scalar("3e-4"), resolve_scalar("1_000"), resolve_scalar("off"), resolve_scalar("~")
    (0.0003, 1000, 'off', None)
    """
    if text in NULLS:
        return None
    if text in BOOLS:
        return BOOLS[text]
    if text[0] not in "+-.0123456789":
        return text
    if NON_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number")
    convert: Callable[[str], int | float]
    if BASED_INT.fullmatch(text):
        convert = partial(int, base=0)
    elif INT.fullmatch(text):
        convert = int
    elif FLOAT.fullmatch(text):
        convert = float
    else:
        return text
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} characters is too long")
    value = convert(text)
    if math.isinf(value):
        raise ValueError(f"{text} is not a finite number")
    return checked_number(value)


def checked_number(value: int | float) -> int | float:
    """The number itself; ValueError if it is non-finite or an integer of more than 64 bits."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    if isinstance(value, int) and abs(value) >= MAX_INT:
        raise ValueError(f"{value} is too large" if abs(value) < 10**MAX_DIGITS else "the number is too large")
    return value


def checked_text(text: str) -> str:
    """The text itself; ValueError if it contains lone surrogates, which cannot be written to a file."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{shorten(text)} is not valid Unicode text") from None
    return text


def shorten(value: Any, limit: int = 60) -> str:
    """`repr` for messages: one line, at most about `limit` characters, ASCII where the value is not printable."""
    text = repr(value[: limit + 1] if isinstance(value, str) else value)
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def shown(key: str) -> str:
    """A key for messages: without quotes, shortened if long, and without control characters."""
    return key if key.isprintable() and len(key) <= 200 else shorten(key, 200)[1:-1]


# -- plain values -----------------------------------------------------------------------------------------------------


class _Budget:
    """The rest of MAX_COST while a tree is built or copied."""

    def __init__(self) -> None:
        self.left = MAX_COST

    def spend(self, depth: int, text: str = "") -> None:
        self.left -= NODE_COST + len(text)
        if self.left < 0:
            raise ValueError(f"too large for a config: more than {MAX_COST // NODE_COST:,} values or as much text")
        if depth > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} levels deep")


def plain_copy(value: Any, where: str) -> Any:
    """A deep copy of dicts with text keys, lists, text, finite numbers, bools and None; ConfigError for other values.

    Dataclasses become dicts, tuples lists, paths text, and NumPy numbers Python numbers.
    """
    try:
        return _plain(value, _Budget(), 1)
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"{where}: {error}") from None


def _plain(value: Any, budget: _Budget, depth: int) -> Any:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        budget.spend(depth, value)
        return checked_text(str(value))
    budget.spend(depth)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return checked_number(int(value))
    if isinstance(value, Real):
        return checked_number(float(value))
    if isinstance(value, list | tuple):
        return [_plain(item, budget, depth + 1) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        value = {item.name: getattr(value, item.name) for item in fields(value)}
    if isinstance(value, Mapping):
        copy = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"a key of type {type(key).__name__} is not text")
            budget.spend(depth, key)
            copy[checked_text(str(key))] = _plain(item, budget, depth + 1)
        return copy
    raise ValueError(
        f"a value of type {type(value).__name__} has no place in a config; "
        "text, numbers, true and false, null, lists and mappings have"
    )


# -- reading ----------------------------------------------------------------------------------------------------------


def read_yaml(source: Path | str) -> dict[str, Any]:
    """The mapping in a file (a Path; JSON if its name ends in .json) or in YAML text (a str)."""
    return read_document(source).tree if isinstance(source, Path) else parse_yaml(source, "text").tree


def read_document(path: Path, label: str | None = None) -> Document:
    """Read a config file; messages call it `label`, or its path."""
    source = label or str(path)
    text = read_text(path, source)
    document = parse_json(text, source) if path.suffix == ".json" else parse_yaml(text, source)
    return replace(document, text=text)


def read_text(path: Path, source: str) -> str:
    """The text of a regular UTF-8 file of at most MAX_SIZE bytes."""
    try:
        if not os.path.isfile(path):
            cause = "is not a regular file" if os.path.exists(path) else "does not exist"
            raise ConfigError(f"config file '{source}' {cause}")
        with open(path, "rb") as file:
            data = file.read(MAX_SIZE + 1)
    except OSError as error:
        raise ConfigError(f"cannot read config file '{source}': {error.strerror or error}") from error
    if len(data) > MAX_SIZE:
        raise ConfigError(f"{source}: too large for a config: more than {MAX_SIZE:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: not a text file in UTF-8 (byte {error.start})") from None


def parse_yaml(text: str, source: str, *, core_tags: bool = False) -> Document:
    """The mapping in a YAML text, `{}` for an empty one; `core_tags` accepts YAML's core tags (`!!float`)."""
    value, lines = parse_yaml_value(text, source, core_tags=core_tags)
    return _document({} if value is None else value, source, lines)


def parse_yaml_value(
    text: str, source: str, *, numbered: bool = True, core_tags: bool = False
) -> tuple[Any, dict[tuple[str, ...], int]]:
    """A single YAML value of any type with the lines of its keys; messages contain line numbers if `numbered`."""

    def place(line: int) -> str:
        return f"{source}:{line}" if numbered else source

    if len(text) > MAX_SIZE:
        raise ConfigError(f"{source}: too large for a config: more than {MAX_SIZE:,} characters")
    try:
        checked_text(text)
        builder = _Builder(PARSER(text), core_tags=core_tags)
        value = builder.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = place(mark.line + 1) if mark else source
        raise ConfigError(f"{where}: not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, OverflowError) as error:
        raise ConfigError(f"{source}: not valid YAML: {' '.join(str(error).split())[:200]}") from None
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from None
    if builder.problems:
        raise ConfigError("\n".join(f"{place(line)}: {message}" for line, message in builder.problems))
    return value, builder.lines


def parse_json(text: str, source: str) -> Document:
    """The mapping in a JSON text."""
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant, parse_int=_json_int)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{source}:{error.lineno}: not valid JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigError(f"{source}: {reason}") from None
    return _document(plain_copy(value, source), source, {})


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"duplicate key {shorten(twice)}")
    return unique


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a finite number")


def _json_int(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} characters is too long")
    return int(text)


def _document(value: Any, source: str, lines: Mapping[tuple[str, ...], int]) -> Document:
    if not isinstance(value, dict):
        raise ConfigError(f"{source}: expected a mapping (lines of 'key: value'), got {shorten(value)}")
    return Document(value, source, lines)


class _Builder:
    """Builds values from parser events, recursing at most MAX_DEPTH deep; collects the problems of single values."""

    def __init__(self, parser: Any, *, core_tags: bool = False) -> None:
        self.parser = parser
        self.core_tags = core_tags
        self.budget = _Budget()
        self.anchors: dict[str, Any] = {}
        self.lines: dict[tuple[str, ...], int] = {}
        self.problems: list[tuple[int, str]] = []

    def document(self) -> Any:
        self.parser.get_event()  # start of the stream
        event = self.parser.get_event()
        if isinstance(event, yaml.StreamEndEvent):
            return None
        value = self.node(self.parser.get_event(), (), 1)
        self.parser.get_event()  # end of the document
        event = self.parser.get_event()
        if not isinstance(event, yaml.StreamEndEvent):
            self.problem(event, "a second document ('---'); a config is one")
        return value

    def problem(self, event: Any, message: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append((event.start_mark.line + 1, message))

    def node(self, event: Any, path: tuple[str, ...] | None, depth: int) -> Any:
        """The value that starts with `event`; `path` is None inside lists."""
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                self.problem(event, f"alias {shorten(event.anchor)} of an anchor that is not complete before it")
                return None
            return _plain(self.anchors[event.anchor], self.budget, depth)
        if event.tag is not None and not (self.core_tags and event.tag in CORE_TAGS):
            self.problem(event, f"tag {shorten(event.tag)}; tags are not allowed in a config, remove it")
        if isinstance(event, yaml.ScalarEvent):
            self.budget.spend(depth, event.value)
            value = self.scalar(event)
        else:
            self.budget.spend(depth)
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            value = self.mapping(path, depth) if is_mapping else self.sequence(depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = value
        return value

    def scalar(self, event: Any) -> Any:
        try:
            plain = event.implicit[0] or event.tag in NUMBER_TAGS
            return resolve_scalar(event.value) if plain else checked_text(event.value)
        except ValueError as error:
            self.problem(event, str(error))
            return None

    def sequence(self, depth: int) -> list[Any]:
        items = []
        while not isinstance(event := self.parser.get_event(), yaml.SequenceEndEvent):
            items.append(self.node(event, None, depth + 1))
        return items

    def mapping(self, path: tuple[str, ...] | None, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        first_lines: dict[str, int] = {}
        merged: list[Any] = []
        while not isinstance(event := self.parser.get_event(), yaml.MappingEndEvent):
            key = self.node(event, None, depth + 1)
            line = event.start_mark.line + 1
            is_text = isinstance(key, str)
            below = (*path, key) if path is not None and is_text else None
            value = self.node(self.parser.get_event(), below, depth + 1)
            if not is_text:
                self.problem(event, f"key {shorten(key)} is not text; put it in quotes")
            elif key == "<<" and getattr(event, "implicit", (False,))[0]:
                merged += value if isinstance(value, list) else [value]
            elif key in values:
                self.problem(event, f"duplicate key {shorten(key)}, first on line {first_lines[key]}")
            else:
                values[key], first_lines[key] = value, line
                if below is not None:
                    self.lines[below] = line
        for mapping in merged:
            if isinstance(mapping, dict):
                values = {**mapping, **values}
            else:
                self.problem(event, "'<<' takes a mapping or a list of mappings")
        return values


# -- writing ----------------------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Block style, flat lists on one line, no anchors; text that YAML 1.1 or 1.2 reads as another type is quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def list_node(self, data: list[Any]) -> yaml.Node:
        flow = not any(isinstance(item, dict | list) for item in data)
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flow)

    def text_node(self, data: str) -> yaml.Node:
        # other styles would lose a Unicode line break (U+0085, U+2028)
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if data.isprintable() else '"')


_Dumper.add_representer(list, _Dumper.list_node)
_Dumper.add_representer(str, _Dumper.text_node)
for _tag, _pattern in (("float", FLOAT), ("int", BASED_INT), ("int", INT)):
    _Dumper.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern.pattern})\Z"), list("+-.0123456789")
    )


def dump_mapping(tree: Mapping[str, Any]) -> str:
    """YAML text that `read_yaml` reads back to an equal tree; the order of keys is kept."""
    copy = plain_copy(tree, "config")
    return yaml.dump(copy, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100, default_flow_style=False)
