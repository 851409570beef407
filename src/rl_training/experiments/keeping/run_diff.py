"""Differences between two runs, or two groups of runs: config, versions, code, results.

Only files are read; nothing that a config names is imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from rl_training.config.yaml_reader import read_yaml
from rl_training.experiments.keeping.filters import flat
from rl_training.runs.directory import CLOCK_KEYS, RunDir
from rl_training.types import RunError

Changes = dict[str, tuple[Any, Any]]
"""Name to the values of both sides; None where a side has no value."""


def run_differences(one: RunDir, other: RunDir) -> dict[str, Changes]:
    """Differences under `config` (dotted keys), `versions`, `code` and `results`; equal values are left out."""
    return side_differences([one], [other])


def side_differences(ones: Sequence[RunDir], others: Sequence[RunDir]) -> dict[str, Changes]:
    """Differences between two sides, each a run or all runs of a group or sweep.

    A config value that varies within a side is shown as a list; a result of a side is the mean over its runs.
    """
    sides = ones, others
    return {
        "config": differences(*(_values([flat(_config(run)) for run in side]) for side in sides)),
        "versions": differences(*(_values([_mapping(run.info().get("versions")) for run in side]) for side in sides)),
        "code": differences(*(_values([_code(run.info()) for run in side]) for side in sides)),
        "results": differences(*(_means([_results(run) for run in side]) for side in sides)),
    }


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Changes:
    """
    >>> differences({"a": 1, "b": 2}, {"b": 3, "c": 4})
    {'a': (1, None), 'b': (2, 3), 'c': (None, 4)}
    """
    names = dict.fromkeys([*one, *other])
    return {name: (one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)}


def _values(facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """For each name the value that all share, else the list of distinct values."""
    names = dict.fromkeys(name for fact in facts for name in fact)
    found = {}
    for name in names:
        values = list({repr(fact.get(name)): fact.get(name) for fact in facts}.values())
        found[name] = values[0] if len(values) == 1 else values
    return found


def _means(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of every numeric result; other values as in `_values`."""
    if len(results) == 1:
        return dict(results[0])
    found = _values(results)
    for name in found:
        numbers = [result[name] for result in results if isinstance(result.get(name), int | float)]
        if numbers:
            found[name] = fmean(numbers)
    return found


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
