"""The config schema as data: type, default and sentence of every field, for messages, `--help` and the reference.

Nothing here reads a config; the dataclasses in `config/` and `hparams/` are the only source.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from rl_training.config.schema import TrainConfig
from rl_training.hparams.schedules import Schedule
from rl_training.registry import algorithms, did_you_mean
from rl_training.types import ConfigError

FREE_HPARAMS: Any = Mapping[str, Any]
"""Type of `hparams` for an algorithm outside the package."""
SIMPLE_NAMES = {int: "int", float: "float", str: "str", bool: "bool", type(None): "null", Any: "any value"}


@dataclass(frozen=True)
class FieldDoc:
    """Documentation of one field; `type` and `default` are written as in YAML."""

    path: str
    type: str
    default: str
    doc: str


def field_docs(algo: str = "ppo") -> dict[str, FieldDoc]:
    """Every field that holds a value, by dotted path, with the hyperparameters of `algo` (if it is built in)."""
    if algo not in algorithms and ":" not in algo:
        raise ConfigError(f"unknown algorithm '{algo}'{did_you_mean(algo, algorithms.names())}")
    return {doc.path: doc for doc in _docs_of(TrainConfig, TrainConfig(algo=algo), "")}


def _docs_of(section: type, values: Any, prefix: str) -> Iterator[FieldDoc]:
    sentences = attribute_docs(section)
    for name, hint in hints_of(section).items():
        value = getattr(values, name)
        path = f"{prefix}{name}"
        if dataclasses.is_dataclass(value) and not isinstance(value, Schedule):
            yield from _docs_of(type(value), value, f"{path}.")
        else:
            yield FieldDoc(path, describe(hint), written(value), sentences.get(name, ""))


def written(value: Any) -> str:
    """A default as one line of YAML: `null`, `true`, `0.0003`, `[64, 64]`, `sync`."""
    if isinstance(value, str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    return json.dumps(value, default=dict)


@cache
def attribute_docs(cls: type) -> dict[str, str]:
    """The docstring under each field of a dataclass and its bases, on one line."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        body = _class_bodies(base.__module__).get(base.__name__, [])
        for statement, following in itertools.pairwise(body):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
                and isinstance(following.value.value, str)
            ):
                docs[statement.target.id] = " ".join(following.value.value.split())
    return docs


@cache
def _class_bodies(module: str) -> dict[str, list[ast.stmt]]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):  # a class defined in an interactive session has no source
        return {}
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}


# -- types ------------------------------------------------------------------------------------------------------------


@cache
def hints_of(cls: type) -> dict[str, Any]:
    """The resolved type of each field of a dataclass, in order."""
    hints = typing.get_type_hints(cls)
    return {item.name: hints[item.name] for item in dataclasses.fields(cls)}


def options_of(hint: Any) -> tuple[Any, ...]:
    """The members of a union; for any other type, the type itself."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def section_of(hint: Any) -> type | None:
    """The dataclass among the members of a union, if any."""
    return next((item for item in options_of(hint) if isinstance(item, type) and dataclasses.is_dataclass(item)), None)


def list_of(hint: Any) -> Any:
    """The list type among the members of a union, if any."""
    return next((option for option in options_of(hint) if typing.get_origin(option) in (tuple, list)), None)


def is_mapping(hint: Any) -> bool:
    """True for a mapping with arbitrary keys (`kwargs`)."""
    return any(typing.get_origin(option) in (dict, Mapping) or option in (dict, Mapping) for option in options_of(hint))


def below(hint: Any, part: str | int) -> Any:
    """The type of a field or element of `hint`; Any if it has none of that name."""
    if isinstance(part, int):
        return typing.get_args(list_of(hint))[0] if list_of(hint) else Any
    if is_mapping(hint):
        return next((typing.get_args(option)[1] for option in options_of(hint) if typing.get_args(option)), Any)
    section = section_of(hint)
    return hints_of(section).get(part, Any) if section else Any


def root_hints(hparams: Any) -> dict[str, Any]:
    """The fields of TrainConfig with the type of `hparams` filled in."""
    return {**hints_of(TrainConfig), "hparams": hparams}


def describe(hint: Any) -> str:
    """A type in plain words.

    >>> describe(tuple[int, ...]), describe(int | None), describe(Literal["sync", "async"])
    ('list of int', 'int or null', 'one of sync, async')
    """
    return " or ".join(_describe_one(option) for option in options_of(hint))


def _describe_one(hint: Any) -> str:
    if hint in SIMPLE_NAMES:
        return SIMPLE_NAMES[hint]
    if typing.get_origin(hint) is Literal:
        choices = [str(choice) for choice in typing.get_args(hint)]
        return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    if list_of(hint):
        item = typing.get_args(hint)[0]
        return "list" if item is Any else f"list of {describe(item)}"
    if is_mapping(hint):
        return "mapping"
    if hint is Schedule:
        return "schedule {type, start, end}"
    if section_of(hint):
        return f"mapping with {', '.join(hints_of(hint))}"
    return str(getattr(hint, "__name__", hint))


@cache
def section_paths(hparams: Any) -> frozenset[tuple[str, ...]]:
    """Paths of the mappings that are sections, not values: ("env",), ("network", "actor"), ("hparams",), ..."""
    found: set[tuple[str, ...]] = {("hparams",)}

    def visit(path: tuple[str, ...], hint: Any) -> None:
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            found.add(path)
            for name, inner in hints_of(hint).items():
                visit((*path, name), inner)

    for name, hint in root_hints(hparams).items():
        visit((name,), hint)
    return frozenset(found)


@cache
def leaf_paths(hparams: Any) -> dict[str, str]:
    """The dotted path of each field name that occurs once in the tree: `clip_coef` -> `hparams.clip_coef`.

    A hyperparameter itself goes before fields of the same name in sections below `hparams`, such as `exploration`.
    """
    paths: dict[str, list[str]] = {}
    sections = section_paths(hparams)

    def visit(path: tuple[str, ...], hint: Any) -> None:
        if path in sections and (section := section_of(hint)):
            for name, inner in hints_of(section).items():
                visit((*path, name), inner)
        else:
            paths.setdefault(path[-1], []).append(".".join(path))

    for name, hint in root_hints(hparams).items():
        visit((name,), hint)
    own = {name: [path for path in found if path == f"hparams.{name}"] for name, found in paths.items()}
    return {name: (own[name] or found)[0] for name, found in paths.items() if own[name] or len(found) == 1}


def hint_at(path: tuple[str | int, ...], hparams: Any) -> Any:
    """The type at a path of the tree; Any if the schema does not reach that far."""
    if not path:
        return TrainConfig
    hint: Any = root_hints(hparams).get(str(path[0]), Any)
    for part in path[1:]:
        hint = below(hint, part)
    return hint
