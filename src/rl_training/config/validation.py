"""A tree under canonical keys to typed values, or every problem with it at once, in the spelling of the file.

pydantic validates; this file translates its errors to paths, expectations and suggestions. Values with a problem are
removed and the rest validated again, so that a wrong type does not hide a value out of range beside it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, make_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

from rl_training.config.aliases import Origin, spellings
from rl_training.config.fields import (
    below,
    describe,
    hints_of,
    leaf_paths,
    list_of,
    options_of,
    root_hints,
    section_of,
)
from rl_training.config.migrations import OLD_NAMES
from rl_training.config.schema import SECTION
from rl_training.config.yaml_reader import MAX_PROBLEMS, shorten
from rl_training.registry import did_you_mean
from rl_training.types import ConfigError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")
Path = tuple[str | int, ...]

MAX_PASSES = 20
MAX_ERRORS = 1000
"""At most this many of pydantic's errors are translated per pass."""
MAX_NAME = 64
"""Longest name for which a suggestion is searched; the search is quadratic."""
NAMES = {str: "str", bool: "bool", int: "int", float: "float", list: "list", dict: "mapping"}


@dataclass(frozen=True)
class Problem:
    """A problem at a path; its message is `before`, the key as the user wrote it, `after`."""

    path: Path
    after: str
    before: str = ""


def raise_problems(lines: Iterable[str]) -> None:
    """One ConfigError with all problems; returns if there are none."""
    lines = list(dict.fromkeys(lines))
    if not lines:
        return
    more = [f"... and {len(lines) - MAX_PROBLEMS} more"] if len(lines) > MAX_PROBLEMS else []
    heading = [f"{len(lines)} problems"] if len(lines) > 1 else []
    raise ConfigError("\n  ".join([*heading, *lines[:MAX_PROBLEMS], *more]))


def located(problem: Problem, origins: Mapping[tuple[str, ...], Origin], source: str) -> str:
    """The message line of a problem: its place, and its key as written there."""
    path = problem.path
    for length in range(len(path), 0, -1):
        origin = origins.get(path[:length])  # type: ignore[arg-type]
        if origin is not None:
            rest = dotted(path[length:], ".")
            if origin.place == f"--{origin.spelt}" and not problem.before:
                return f"{origin.place}{rest}{problem.after}"
            return f"{origin.place}: {problem.before}'{origin.spelt}{rest}'{problem.after}"
    if not path:  # of the config as a whole
        return f"{source}{problem.after}"
    return f"{source}: {problem.before}'{dotted(path)}'{problem.after}"


def dotted(path: Path, start: str = "") -> str:
    """("a", 0, "b") as "a[0].b"."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text if start or not text.startswith(".") else text[1:]


# -- checking ---------------------------------------------------------------------------------------------------------


@cache
def root_type(hparams: Any) -> type:
    """TrainConfig for pydantic: with the class of the hparams, no required fields and no checks across sections."""
    fields = [(name, hint, field(default=None)) for name, hint in root_hints(hparams).items()]
    return make_dataclass("Root", fields, namespace={"__pydantic_config__": SECTION})


@cache
def _adapter(cls: type) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(cls)


def check(cls: type, tree: dict[str, Any], build: Callable[[Any], T]) -> tuple[T | None, list[Problem]]:
    """`build` applied to the tree validated as `cls`, or None and all problems found."""
    from pydantic import ValidationError

    tree = json.loads(json.dumps(tree))  # a copy, because the passes below remove keys
    problems: dict[Path, Problem] = {}
    result: T | None = None
    for _ in range(MAX_PASSES):
        try:
            result = build(_adapter(cls).validate_json(json.dumps(tree), strict=True))
            break
        except ValidationError as error:
            found = _translated(error.errors(include_url=False), tree, cls)
        except ConfigError as error:
            found = [_own_message(str(error), (), cls)]
            if problems and len(found[0].path) != 1:
                break  # two sections that disagree, perhaps only because a value was removed
        targets = {_present(tree, problem.path) for problem in found}
        for problem in found:
            if not any(problem.path[:length] in problems for length in range(len(problem.path) + 1)):
                problems[problem.path] = problem
        if len(problems) > MAX_PROBLEMS:
            break
        for target in targets:
            _remove(tree, target)
    return (None if problems else result), list(problems.values())


def _present(tree: dict[str, Any], path: Path) -> tuple[str, ...]:
    """The longest prefix of a path that exists in the tree; lists are not entered."""
    found: tuple[str, ...] = ()
    here: Any = tree
    for part in path:
        if not isinstance(part, str) or not isinstance(here, dict) or part not in here:
            break
        found = (*found, part)
        here = here[part]
    return found


def _remove(tree: dict[str, Any], path: tuple[str, ...]) -> None:
    """Remove the value at `path` if it is still there; the empty path clears the tree."""
    if not path:
        tree.clear()
        return
    here: Any = tree
    for part in path[:-1]:
        here = here.get(part, {})
    here.pop(path[-1], None)


# -- translating ------------------------------------------------------------------------------------------------------


def _translated(errors: Iterable[Any], tree: dict[str, Any], cls: type) -> list[Problem]:
    found: dict[Path, Problem] = {}
    for error in itertools.islice(errors, MAX_ERRORS):
        place = _follow(error["loc"], tree, cls)
        if place is not None and place[0] not in found:
            found[place[0]] = _problem(error, *place, suggest=len(found) < MAX_PROBLEMS)
    return list(found.values())


def _follow(loc: tuple[str | int, ...], tree: Any, cls: type) -> tuple[Path, Any, Any] | None:
    """pydantic's location as a path of the tree, with the type there and the type around it.

    For a union pydantic reports an error per member, with a label. If a mapping or list was clearly meant for one
    member, the errors of the others are dropped (None); otherwise all of them concern the whole value.
    """
    path: Path = ()
    hint: Any = cls
    parent: Any = cls
    value = tree
    parts = list(loc)
    while parts:
        if sum(option is not type(None) for option in options_of(hint)) > 1:
            meant = _meant_member(hint, value)
            label = str(parts.pop(0))
            if meant is not None and not label.startswith(meant):
                return None
            if meant is None or not parts:
                break
        part = parts.pop(0)
        parent, hint = hint, below(hint, part)
        path = (*path, part)
        value = _at(value, part)
    return path, hint, parent


def _meant_member(hint: Any, value: Any) -> str | None:
    """pydantic's label (or its prefix) of the union member that a mapping or a list is meant for."""
    section = section_of(hint)
    if isinstance(value, dict) and section is not None:
        return section.__name__
    return "list" if isinstance(value, list) and list_of(hint) else None


def _at(value: Any, part: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(part)
    return value[part] if isinstance(value, list) and isinstance(part, int) else None


def _problem(error: Any, path: Path, hint: Any, parent: Any, *, suggest: bool) -> Problem:
    kind = error["type"]
    if kind == "unexpected_keyword_argument":
        return Problem(path, suggestion(path, parent) if suggest else "", "unknown key ")
    if kind == "missing":
        return Problem(path, f" is missing; it takes {describe(hint)}")
    if kind == "value_error":
        return _own_message(str(error["ctx"]["error"]), path, section_of(hint))
    if kind.endswith("_type") or kind in ("literal_error", "int_from_float"):
        return Problem(path, f": expected {describe(hint)}, got {given(error['input'])}{cure(hint, error['input'])}")
    return Problem(path, f": {error['msg']}, got {given(error['input'])}")


def _own_message(message: str, path: Path, section: type | None) -> Problem:
    """A problem from the message of a config class, which by convention starts with the field or dotted path."""
    first, _, rest = message.partition(" ")
    parts = tuple(first.split("."))
    if section is not None and parts[0] in hints_of(section):
        return Problem((*path, *parts), f" {rest}")
    return Problem(path, f": {message}")


def suggestion(path: Path, parent: Any) -> str:
    """What an unknown key was probably meant to be; the list of known keys if nothing is similar."""
    name = str(path[-1])
    section = section_of(parent)
    fields = hints_of(section) if section else {}
    if len(name) > MAX_NAME:
        return ""
    if OLD_NAMES.get(name) in fields:
        return f"; did you mean '{OLD_NAMES[name]}'?"
    elsewhere = leaf_paths(fields["hparams"]).get(name) if len(path) == 1 and "hparams" in fields else None
    if elsewhere:
        return f"; did you mean '{elsewhere}'?"
    in_list = any(isinstance(part, int) for part in path)
    names = set(fields) if in_list else spellings(tuple(str(part) for part in path[:-1]), fields)
    return did_you_mean(name, names) or f" (known: {', '.join(fields)})"


def given(value: Any) -> str:
    """A value for messages, with its type: `'5' (str)`, `null`, `true (bool)`."""
    if value is None:
        return "null"
    text = str(value).lower() if isinstance(value, bool) else shorten(value)
    return f"{text} ({NAMES.get(type(value), type(value).__name__)})"


def cure(hint: Any, value: Any) -> str:
    """How to write what was probably meant; empty if that is unclear."""
    options = options_of(hint)
    choices = [str(choice) for option in options if get_origin(option) is Literal for choice in get_args(option)]
    if isinstance(value, str):
        if choices and len(value) <= MAX_NAME:
            return did_you_mean(value, choices)
        if bool in options and value.lower() in ("yes", "no", "on", "off", "true", "false"):
            return "; write true or false, without quotes"
        if (int in options or float in options) and value.strip().lstrip("+-").replace(".", "", 1).isdigit():
            return "; remove the quotes"
    if isinstance(value, float) and int in options and value.is_integer():
        return f"; write {int(value)}"
    if isinstance(value, int | float) and str in options:
        return "; put it in quotes"
    if list_of(hint) and not isinstance(value, list | dict) and value is not None:
        return f"; write [{value}]" if len(str(value)) <= MAX_NAME else "; write it as a list"
    return ""
