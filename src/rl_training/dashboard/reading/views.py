"""Statistics for the page, by the code of `rl compare`: bands over seeds, comparisons, the HTML report."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_training.dashboard.reading.columns import ColumnStore
from rl_training.dashboard.reading.curves import Axis, finite_curve
from rl_training.dashboard.reading.grouping import RECIPE, Group, grouped
from rl_training.dashboard.reading.tables import RunRef, RunTable
from rl_training.experiments.analysis.compare import compare, record
from rl_training.experiments.analysis.comparison import Comparison
from rl_training.experiments.analysis.curves import Curve, align
from rl_training.experiments.analysis.entries import Entry, Run, Selection
from rl_training.experiments.analysis.metrics.metric import parse_metric
from rl_training.experiments.analysis.statistics import curve_band
from rl_training.experiments.analysis.tables import all_tables
from rl_training.seeding import stream
from rl_training.types import ConfigError, RunError

DRAWS, LIVE_DRAWS = 1000, 200
"""Bootstrap samples of a band: those of `rl compare` at rest, fewer while one of its runs is training."""
MAX_BANDS = 200
"""Bands kept in memory."""


@dataclass(frozen=True)
class BandRequest:
    """Which bands a panel asks for."""

    metric: str = "reward"
    axis: Axis = field(default_factory=Axis)
    by: tuple[str, ...] = (RECIPE,)


def logged_metric(table: RunTable, refs: Sequence[RunRef], name: str) -> str:
    """The name in the logs of `reward`, `loss` and other aliases, as `rl compare` reads them for the same runs."""
    if "/" in name:
        return name.removeprefix("-")
    runs = [Run(ref.path, row) for ref, row in zip(refs, table.full_rows(refs), strict=True)]
    logged = parse_metric(name, runs).logged
    if logged is None:
        raise ConfigError(f"'{name[:80]}' is a column, which has no curve; choose a metric of the log")
    return logged


class Bands:
    """IQM and 95% interval over the runs of each group, computed again only for groups whose logs have grown."""

    def __init__(self, store: ColumnStore) -> None:
        self.store = store
        self._done: OrderedDict[Any, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def answer(self, table: RunTable, refs: Sequence[RunRef], request: BandRequest) -> dict[str, Any]:
        """The bands of all groups. Each is computed from its own runs alone: hiding one changes no other."""
        metric = logged_metric(table, refs, request.metric)
        groups = grouped(table, refs, request.by)
        bands = [band for group in groups for band in self._of_group(group, metric, request.axis)]
        return {
            "metric": metric,
            "by": list(request.by),
            "axis": request.axis.name,
            "groups": bands,
            "runs": len(refs),
            "sampled": False,
        }

    def _of_group(self, group: Group, metric: str, axis: Axis) -> list[dict[str, Any]]:
        """One band per environment, as runs of different environments cannot be averaged."""
        tasks: dict[str, list[RunRef]] = {}
        for ref in group.runs:
            tasks.setdefault(Run(ref.path, ref.row).task, []).append(ref)
        found = []
        for task, refs in tasks.items():
            label = group.label if len(tasks) == 1 else f"{group.label} · {task}"
            band = self._band(refs, metric, axis)
            found.append({**band, "id": f"{group.id}/{task}", "label": label, "task": task})
        return found

    def _band(self, refs: Sequence[RunRef], metric: str, axis: Axis) -> dict[str, Any]:
        curves: list[Curve] = []
        state, used = [], []
        for ref in refs:
            curve, view = finite_curve(self.store, ref.path, metric, axis, ref.row["started"])
            state.append((ref.path, view.offset, view.generation))
            if len(curve.steps):
                curves.append(curve)
                used.append(ref.key)
        is_live = any(ref.row["status"] == "running" for ref in refs)
        draws = LIVE_DRAWS if is_live else DRAWS
        asked = (tuple(state), metric, axis, draws)
        with self._lock:
            if asked in self._done:
                self._done.move_to_end(asked)
                return {**self._done[asked], "runs": used}
        grid, values = align(curves)
        band: dict[str, Any] = {"x": [], "iqm": [], "low": [], "high": []}
        if len(grid):
            line, low, high = curve_band(values, rng=stream(0, "bootstrap"), num_resamples=draws)
            band = {"x": grid.tolist(), "iqm": line.tolist(), "low": low.tolist(), "high": high.tolist()}
        band |= {"n": len(curves), "of": len(refs), "preliminary": is_live, "draws": draws}
        with self._lock:
            self._done[asked] = band
            while len(self._done) > MAX_BANDS:
                self._done.popitem(last=False)
        return {**band, "runs": used}


def compared(
    table: RunTable, refs: Sequence[RunRef], by: Sequence[str], metrics: Sequence[str], threshold: float | None
) -> Comparison:
    """The comparison of groups of runs, as `rl compare` computes it."""
    if not refs:
        raise RunError("choose runs to compare: none is selected")
    groups = grouped(table, refs, by)
    rows = {ref.key: row for ref, row in zip(refs, table.full_rows(refs), strict=True)}
    entries = [Entry(group.label, tuple(Run(ref.path, rows[ref.key]) for ref in group.runs)) for group in groups]
    return compare(Selection(tuple(entries)), metrics or ("reward",), threshold=threshold)


def comparison_answer(comparison: Comparison) -> dict[str, Any]:
    """The record of `rl compare --json` and the tables that `rl compare` prints."""
    tables = [
        {"title": found.title, "headers": list(found.headers), "rows": [list(row) for row in found.rows]}
        for found in all_tables(comparison)
    ]
    return {**record(comparison), "tables": tables}
