"""Values in hyperparameter files of the SB3 Zoo, parsed without evaluating any of them.

Some values are Python source: `policy_kwargs: "dict(net_arch=[64, 64], activation_fn=nn.ReLU)"`. Such a text is parsed
to a syntax tree, of which numbers, strings, lists, mappings and dotted names are accepted; a name is never looked up.
"""

from __future__ import annotations

import ast
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.config.yaml_reader import Document, parse_yaml, read_text, shorten
from rl_training.types import ConfigError

MAX_EXPRESSION = 2_000
"""Longest text that is parsed as Python, in characters."""
LINEAR = "lin_"
"""The Zoo's prefix for a value that decreases linearly to 0 over the run: lin_3e-4."""


@dataclass(frozen=True)
class Name:
    """A dotted name in a file (`nn.ReLU`); nothing is imported."""

    text: str

    @property
    def last(self) -> str:
        return self.text.rpartition(".")[2]

    def __repr__(self) -> str:
        return self.text


def read_zoo(path: str | Path) -> Document:
    """A file of the Zoo: environment ids to mappings. YAML's core tags (`!!float 1e6`) are accepted, others refused."""
    path = Path(path)
    return parse_yaml(read_text(path, str(path)), str(path), core_tags=True)


def literal(value: Any) -> Any:
    """The value of a text that holds a Python literal, `dict(...)` or dotted names, ValueError for any other text;
    values that are not texts are returned unchanged."""
    if not isinstance(value, str):
        return value
    if len(value) > MAX_EXPRESSION:
        raise ValueError(f"a text of {len(value)} characters is too long")
    try:
        return _literal(ast.parse(value.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{shorten(value)} is not a literal") from None


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | None):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(item) for item in node.elts]
    if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(_literal(key)): _literal(value) for key, value in pairs if key is not None}
    if isinstance(node, ast.Call) and _is_dict_call(node):
        return {str(keyword.arg): _literal(keyword.value) for keyword in node.keywords}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = _literal(node.operand)
        if isinstance(number, int | float):
            return -number
    if isinstance(node, ast.Name):
        return Name(node.id)
    if isinstance(node, ast.Attribute) and isinstance(inner := _literal(node.value), Name):
        return Name(f"{inner.text}.{node.attr}")
    raise ValueError(f"{shorten(ast.unparse(node))} is neither a literal nor a name; nothing is evaluated")


def _is_dict_call(node: ast.Call) -> bool:
    """Whether a call is `dict(a=1, b=2)`, without `**`."""
    is_dict = isinstance(node.func, ast.Name) and node.func.id == "dict"
    return is_dict and not node.args and all(keyword.arg is not None for keyword in node.keywords)


def number(value: Any, what: str) -> float:
    """A number, which may be in quotes."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{what}: expected a number, got {shorten(value)}")
    return float(value)


def whole(value: Any, what: str) -> int:
    """A whole number; the Zoo writes large ones as floats (1e6)."""
    result = number(value, what)
    if not result.is_integer():
        raise ConfigError(f"{what}: expected a whole number, got {shorten(value)}")
    return int(result)


def positive(value: Any, what: str) -> int:
    """A whole number of at least 1."""
    result = whole(value, what)
    if result < 1:
        raise ConfigError(f"{what} must be at least 1, not {result}")
    return result


def scheduled(value: Any, what: str) -> float | dict[str, Any]:
    """A number, or the linear schedule that `lin_3e-4` stands for."""
    if isinstance(value, str) and value.startswith(LINEAR):
        return {"type": "linear", "start": number(value.removeprefix(LINEAR), what), "end": 0.0}
    return number(value, what)


def switch(value: Any, what: str) -> bool:
    """A boolean."""
    if not isinstance(value, bool):
        raise ConfigError(f"{what}: expected true or false, got {shorten(value)}")
    return value
