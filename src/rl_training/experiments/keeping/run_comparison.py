"""Compares two runs exactly: their logs row by row, and the states of their trainers bit for bit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.checkpointing.row_log import RowSource
from rl_training.checkpointing.safetensors_format import MAX_HEADER_BYTES, parse_blob
from rl_training.checkpointing.state_tree import flatten
from rl_training.experiments.keeping.verify_records import Difference, VerifyReport
from rl_training.runs.directory import CLOCK_KEYS, RunDir
from rl_training.system.json_lines import Row, read_rows, steps_of
from rl_training.types import CheckpointError


def compare_runs(one: RunDir, other: RunDir, report: VerifyReport) -> None:
    """Compare two finished runs: every row of their logs, and their final states."""
    report.rows = compare_logs(one, other, report, "metric", "metrics.jsonl")
    compare_logs(one, other, report, "evaluation", "evals.jsonl")
    ends = [CheckpointManager(run.path).load_latest() for run in (one, other)]
    report.env_steps, report.checkpoints = ends[0].step, 1
    kept = [name for name in ends[0].parts if name != "logs"]
    found = first_difference(ends[0].parts, ends[1].parts, only=kept)
    if found is not None:
        report.add(replace(found, env_steps=ends[0].step))


def compare_logs(
    stored: RunDir, again: RunDir, report: VerifyReport, kind: str, log: str, limit: float = math.inf
) -> int:
    """Compare two logs row by row up to `limit` env steps; returns the number of rows of the first."""
    rows = [[row for row in stored_rows(run, log) if (steps_of(row) or 0) <= limit] for run in (stored, again)]
    for one, other in zip(*rows, strict=False):
        compare_row(kind, one, other, report)
    if len(rows[0]) != len(rows[1]):
        report.add(Difference(kind, "number of rows", None, len(rows[0]), len(rows[1])))
    return len(rows[0])


def compare_row(kind: str, stored: Row, again: Row, report: VerifyReport) -> None:
    for name in dict.fromkeys([*stored, *again]):
        if stored.get(name) != again.get(name):
            steps = stored.get("env_steps", again.get("env_steps"))
            report.add(Difference(kind, name, steps, stored.get(name), again.get(name)))


def stored_rows(run: RunDir, log: str = "metrics.jsonl") -> Iterator[Row]:
    return map(comparable, read_rows(run.logs / log))


def comparable(row: Mapping[str, Any]) -> Row:
    """A row without its clock metrics."""
    return {name: value for name, value in row.items() if not name.startswith(CLOCK_KEYS)}


def first_difference(stored: Mapping[str, Any], again: Mapping[str, Any], *, only: Any) -> Difference | None:
    """The first leaf, in the order of the parts, that is not bit-identical."""
    return next((found for name in only for found in _differences(stored.get(name), again.get(name), name)), None)


def _differences(stored: Any, again: Any, path: str) -> Iterator[Difference]:
    if hasattr(stored, "copy_into") and hasattr(again, "copy_into"):  # rows of a replay buffer
        stored, again = (_rows(log) for log in (stored, again))
    if isinstance(stored, Mapping) and isinstance(again, Mapping):
        for key in dict.fromkeys([*stored, *again]):
            yield from _differences(stored.get(key), again.get(key), f"{path}/{key}")
    elif hasattr(stored, "dtype") and hasattr(again, "dtype"):
        yield from _array_differences(np.asarray(stored), np.asarray(again), path)
    elif isinstance(stored, list | tuple) and isinstance(again, list | tuple) and len(stored) == len(again):
        for number, pair in enumerate(zip(stored, again, strict=True)):
            yield from _differences(*pair, f"{path}/{number}")
    elif not _same(stored, again):
        yield Difference("tensor", path, None, shortened(stored), shortened(again))


def _rows(log: RowSource) -> dict[str, Any]:
    """The live rows of a replay buffer; an empty log on disk has no columns."""
    return {"start": log.start, "stop": log.stop, **(log.arrays() if log.stop > log.start else {})}


def _array_differences(stored: Any, again: Any, path: str) -> Iterator[Difference]:
    if stored.dtype != again.dtype or stored.shape != again.shape:
        kinds = [f"{array.dtype}{list(array.shape)}" for array in (stored, again)]
        yield Difference("tensor", path, None, *kinds)
        return
    one, other = (np.ascontiguousarray(array).reshape(-1) for array in (stored, again))
    width = max(one.itemsize, 1)
    unequal = (one.view(np.uint8) != other.view(np.uint8)).reshape(-1, width).any(axis=1) if one.size else np.zeros(0)
    if unequal.any():
        first = int(unequal.argmax())
        place = list(map(int, np.unravel_index(first, stored.shape))) if stored.shape else []
        what = f"{path}{place} and {int(unequal.sum()) - 1} more of {one.size} values"
        yield Difference("tensor", what, None, one[first].item(), other[first].item())


def _same(stored: Any, again: Any) -> bool:
    both_nan = all(isinstance(value, float) and math.isnan(value) for value in (stored, again))
    return both_nan or (type(stored) is type(again) and bool(stored == again))


def damaged_tensor(folder: Path, parts: Mapping[str, Any]) -> Difference | None:
    """The first array that differs in the files of a damaged checkpoint, as far as they can be read."""
    for name, state in parts.items():
        file = folder / f"{name}.safetensors"
        arrays = flatten(state).arrays
        most = MAX_HEADER_BYTES + sum(array.nbytes for array in arrays.values())
        try:
            if file.stat().st_size > most:  # its checksum is wrong, so its length may be anything
                continue
            stored = parse_blob(np.fromfile(file, np.uint8, most), file.name)
        except (OSError, CheckpointError):
            continue
        found = first_difference({name: stored}, {name: {key: arrays.get(key) for key in stored}}, only=[name])
        if found is not None:
            return found
    return None


def shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
