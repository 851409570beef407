"""Exports of a comparison: LaTeX and Markdown tables, CSV, JSON and Parquet rows, and the JSON layout of marl-eval."""

from __future__ import annotations

import csv
import io
import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.experiments.analysis.comparison import Comparison, Summary
from rl_training.experiments.analysis.entries import Run
from rl_training.experiments.analysis.tables import Table, latex, markdown, paper_table
from rl_training.system.formatting import number_text
from rl_training.system.json_lines import read_rows, steps_of
from rl_training.system.terminal_text import readable
from rl_training.types import Array, ConfigError, RunError

Row = dict[str, Any]
TEXT_FORMATS = ("latex", "markdown")
ROW_FORMATS = ("csv", "json", "parquet")
MARL_EVAL = "marl-eval"
FORMATS = (*TEXT_FORMATS, *ROW_FORMATS, MARL_EVAL)
FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
"""Start of a cell that a spreadsheet evaluates as a formula, full-width signs included."""
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?inf", re.IGNORECASE)
CONTENTS = ("summary", "runs", "curves")
"""A row per entry and environment; a row per run; a row per run, metric and logged point."""


def export(comparison: Comparison, form: str, content: str | None = None) -> bytes:
    """A comparison in one of FORMATS. The default `content` is the summary for tables, and the runs for rows."""
    if form == MARL_EVAL:
        return _json(marl_eval(comparison))
    content = content or ("summary" if form in TEXT_FORMATS else "runs")
    if form in TEXT_FORMATS:
        table = paper_table(comparison) if content == "summary" else _as_table(rows_of(comparison, content), content)
        return (latex if form == "latex" else markdown)(table).encode()
    writers: dict[str, Callable[[Sequence[Row]], bytes]] = {"csv": _csv, "json": _json, "parquet": parquet}
    return writers[form](rows_of(comparison, content))


def rows_of(comparison: Comparison, content: str) -> list[Row]:
    """Flat rows with the same keys."""
    return {"summary": _summary_rows, "runs": _run_rows, "curves": _curve_rows}[content](comparison)


def marl_eval(comparison: Comparison) -> dict[str, Any]:
    """Evaluations in the layout of marl-eval: environment, task, algorithm (here: entry), run, step, lists of episodes.

    `absolute_metrics` are the episodes of the best evaluation. Names are in lower case, as marl-eval queries them.
    """
    layout: dict[str, Any] = {}
    for entry in comparison.entries:
        for run in entry.runs:
            suite, task = _suite_and_task(run.task)
            seeds = layout.setdefault(suite, {}).setdefault(task, {}).setdefault(entry.label.lower(), {})
            seeds[_unused(f"seed_{run.row['seed']}", seeds)] = _evaluations(run)
    return layout


def unequal(layout: Mapping[str, Any]) -> str | None:
    """Why marl-eval will refuse a layout, if so: it needs the same algorithms, runs and steps for every task."""
    for suite, tasks in layout.items():
        shapes = {
            tuple(sorted((label, len(seeds), *map(len, seeds.values())) for label, seeds in entries.items()))
            for entries in tasks.values()
        }
        counts = {shape[1:] for task in shapes for shape in task}
        if len(shapes) > 1 or len(counts) > 1:
            return f"marl-eval needs the same algorithms, runs and evaluations for every task of '{suite}'"
    return None


def parquet(rows: Sequence[Row]) -> bytes:
    """Rows as a Parquet file; ConfigError with the pip command where DuckDB is missing."""
    try:
        import duckdb
    except ImportError as error:
        raise ConfigError(f"Parquet needs an extra: pip install 'rl-training[analysis]' ({error})") from error
    columns = {name: _column([row[name] for row in rows]) for name in rows[0]}
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        path = Path(folder) / "rows.parquet"
        connection.register("rows", columns)
        connection.table("rows").write_parquet(str(path))
        return path.read_bytes()


# -- rows -------------------------------------------------------------------------------------------------------------


def _summary_rows(comparison: Comparison) -> list[Row]:
    rows = []
    for result in comparison.metrics:
        for one in (*result.summaries, *result.overall):
            known = {"metric": result.metric.name, "environment": one.task, "entry": one.entry, "runs": len(one.scores)}
            goal = {"threshold": result.thresholds.get(one.task), "reached": one.reached}
            rows.append({**known, **_estimates(one), **goal, "steps_to_threshold": one.steps_to_threshold})
    return rows


def _estimates(one: Summary) -> Row:
    found = {"iqm": one.iqm, "mean": one.mean, "median": one.median}
    return {
        f"{name}{ending}": value
        for name, estimate in found.items()
        for ending, value in (("", estimate.value), ("_low", estimate.low), ("_high", estimate.high))
    }


def _run_rows(comparison: Comparison) -> list[Row]:
    columns = ("id", "name", "algorithm", "environment", "seed", "status", "env_steps", "seconds", "started", "git")
    return [
        {
            "entry": entry.label,
            **{name: _plain(run.row[name]) for name in columns},
            "config_sha256": _plain(run.row["config_sha256"]),
            "tags": readable(",".join(run.row["tags"])),
            "peak_memory_bytes": run.row["results"].get("system/peak_memory_bytes"),
            **{result.metric.name: result.metric.score(run) for result in comparison.metrics},
        }
        for entry in comparison.entries
        for run in entry.runs
    ]


def _curve_rows(comparison: Comparison) -> list[Row]:
    rows = []
    for result in comparison.metrics:
        if result.metric.logged is None:
            continue
        for entry in comparison.entries:
            for run in entry.runs:
                curve = result.metric.curve(run)
                known = {"entry": entry.label, "run": _plain(run.row["id"]), "environment": run.task}
                known |= {"seed": run.row["seed"], "metric": result.metric.name}
                points = zip(curve.steps.tolist(), curve.values.tolist(), strict=True)
                rows += [{**known, "env_steps": step, "value": value} for step, value in points]
    if not rows:
        raise RunError("none of these runs has logged any of these metrics; there are no curves")
    return rows


def _plain(value: Any) -> Any:
    return readable(value) if isinstance(value, str) else value


# -- marl-eval --------------------------------------------------------------------------------------------------------


def _evaluations(run: Run) -> dict[str, Any]:
    rows = [row for row in read_rows(run.path / "logs" / "evals.jsonl") if _is_evaluation(row)]
    if not rows:
        raise RunError(f"run '{run.path}' has no evaluations; marl-eval needs the returns of their episodes")
    steps = [
        {"step_count": row["env_steps"], "return": row["returns"], "length": row.get("lengths", [])} for row in rows
    ]
    # the evaluation before training does not count as the best
    best = max(steps[int(len(steps) > 1 and not steps[0]["step_count"]) :], key=_mean_return)
    absolute = {name: values for name, values in best.items() if name != "step_count"}
    return {**{f"step_{i}": step for i, step in enumerate(steps)}, "absolute_metrics": absolute}


def _is_evaluation(row: Row) -> bool:
    """Whether a row of a log, which may be damaged, has a step and episode returns."""
    returns = row.get("returns")
    is_whole = isinstance(returns, list) and returns and all(isinstance(value, int | float) for value in returns)
    return bool(is_whole) and steps_of(row) is not None


def _mean_return(step: Mapping[str, Any]) -> float:
    return float(np.mean(step["return"]))


def _suite_and_task(environment: str) -> tuple[str, str]:
    """
    >>> _suite_and_task("ALE/Pong-v5"), _suite_and_task("CartPole-v1")
    (('ale', 'pong-v5'), ('gymnasium', 'cartpole-v1'))
    """
    *suite, task = re.split(r"[/:]", environment.lower())
    return "/".join(suite) or "gymnasium", task


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    names = (name if count == 1 else f"{name}_{count}" for count in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


# -- formats ----------------------------------------------------------------------------------------------------------


def _as_table(rows: Sequence[Row], title: str) -> Table:
    def cell(value: Any) -> str:
        return number_text(value) if isinstance(value, float) else "-" if value is None else str(value)

    return Table(title, list(rows[0]), [[cell(value) for value in row.values()] for row in rows])


def _csv(rows: Sequence[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(csv_cell, rows[0]))
    writer.writerows([csv_cell(row[name]) for name in rows[0]] for row in rows)
    return text.getvalue().encode()


def csv_cell(value: Any) -> Any:
    """A value that no spreadsheet evaluates: text that begins like a formula gets an apostrophe, numbers do not.

    >>> [csv_cell(value) for value in ("=1+1", "-3.5", "-x", -3.5, "ppo")]
    ["'=1+1", '-3.5', "'-x", -3.5, 'ppo']
    """
    if not isinstance(value, str) or not FORMULA.match(value) or NUMBER.fullmatch(value):
        return value
    return f"'{value}"


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=2, allow_nan=False).encode() + b"\n"


def _column(values: Sequence[Any]) -> Array:
    kinds = {type(value) for value in values}
    if kinds == {int}:
        return np.array(values, np.int64)
    if kinds <= {int, float, type(None)} and kinds != {type(None)}:
        return np.array(values, np.float64)  # None becomes NaN, which is written as null
    return np.array([None if value is None else str(value) for value in values], object)
