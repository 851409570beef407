"""How two runs differ: config, versions, code, results. Reads their directories; imports no code of a user."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rl_training.config_yaml import read_yaml
from rl_training.runs import CLOCK_KEYS, RunDir
from rl_training.types import RunError

Changes = dict[str, tuple[Any, Any]]
"""Name to the values of the one and of the other; None where a side has none."""


def run_differences(one: RunDir, other: RunDir) -> dict[str, Changes]:
    """What differs, under `config` (dotted keys), `versions`, `code` and `results`; equal things are left out."""
    infos = one.info(), other.info()
    return {
        "config": differences(*(flat(_config(run)) for run in (one, other))),
        "versions": differences(*(_mapping(info.get("versions")) for info in infos)),
        "code": differences(*(_code(info) for info in infos)),
        "results": differences(*(_results(run) for run in (one, other))),
    }


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Changes:
    """
    >>> differences({"a": 1, "b": 2}, {"b": 3, "c": 4})
    {'a': (1, None), 'b': (2, 3), 'c': (None, 4)}
    """
    names = dict.fromkeys([*one, *other])
    return {name: (one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)}


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A tree under dotted keys; lists are values.

    >>> flat({"a": {"b": 1, "c": [2]}, "d": {}})
    {'a.b': 1, 'a.c': [2], 'd': {}}
    """
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        leaves |= flat(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value}
    return leaves


def _config(run: RunDir) -> dict[str, Any]:
    path = run.path / "configs" / "resolved.yaml"
    if not path.is_file():
        raise RunError(f"run '{run.path}' has no configs/resolved.yaml; there is nothing to compare")
    return read_yaml(path)


def _code(info: Mapping[str, Any]) -> dict[str, Any]:
    git = _mapping(info.get("git"))
    return {name: git.get(name) for name in ("commit", "branch", "dirty", "diff_sha256")}


def _results(run: RunDir) -> dict[str, Any]:
    try:
        found = json.loads((run.path / "metrics.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return {name: value for name, value in _mapping(found).items() if not name.startswith(CLOCK_KEYS)}


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
