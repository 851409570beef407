"""A comparison as tables of text, and tables as Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rl_training.experiments.analysis.comparison import Comparison, Cost, MetricResult, Summary
from rl_training.experiments.analysis.entries import shortened
from rl_training.experiments.analysis.statistics import CONFIDENCE, Estimate
from rl_training.system.formatting import number_text

MAX_FIELDS = 40
"""Maximum number of fields in the table of config differences."""
INTERVAL = f"{CONFIDENCE:.0%} interval"
BEYOND_TEXT = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",
    "'": r"{\char39}",
    "`": r"{\char96}",
    "-": r"{-}",  # two of them would become an en dash
    "[": r"{[}",  # at the start of a row it would be an argument of the preceding line break
    "*": r"{*}",
}
"""LaTeX for characters that it would interpret or change."""
MINUS = re.compile(r"(?<![^\s\[])-(?=[\d.])")
"""The minus sign of a number, as opposed to a hyphen."""


@dataclass(frozen=True)
class Table:
    """Cells of text under headers; `best` are the cells (row, column) to be set in bold."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: frozenset[tuple[int, int]] = frozenset()


def all_tables(comparison: Comparison) -> list[Table]:
    """All tables of a comparison: scores, probability of improvement, cost and config differences."""
    tables = [table for result in comparison.metrics for table in _metric_tables(result)]
    return [*tables, _cost_table(comparison.costs), *_config_tables(comparison)]


def paper_table(comparison: Comparison) -> Table:
    """A row per entry, a column per metric and environment: IQM with its interval, the best in bold."""
    columns = [(result, task) for result in comparison.metrics for task in _tasks(result)]
    several = len(comparison.metrics) > 1
    headers = [f"{task}, {result.metric.name}" if several else task for result, task in columns]
    rows = [[shortened(entry.label)] for entry in comparison.entries]
    best = set()
    for number, (result, task) in enumerate(columns, 1):
        found = {one.entry: one for one in (*result.summaries, *result.overall) if one.task == task}
        is_low_good = result.metric.low_is_good and task in {one.task for one in result.summaries}
        for row, entry in zip(rows, comparison.entries, strict=True):
            one = found.get(entry.label)
            row.append("-" if one is None else f"{number_text(one.iqm.value)} {bounds_text(one.iqm)}".rstrip())
        values = [one.iqm.value for one in found.values()]
        top = (min if is_low_good else max)(values, default=None)
        for i, entry in enumerate(comparison.entries):
            if len(values) > 1 and entry.label in found and found[entry.label].iqm.value == top:
                best.add((i, number))
    counts = sorted({len(one.scores) for result in comparison.metrics for one in result.summaries})
    runs = f"{counts[0]} runs" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} runs" if counts else "no runs"
    names = ", ".join(result.metric.name for result in comparison.metrics)
    title = f"Interquartile mean of {names} over {runs}, with {CONFIDENCE:.0%} stratified bootstrap intervals"
    return Table(title, ["", *headers], rows, frozenset(best))


def markdown(table: Table) -> str:
    """A table as GitHub-flavoured Markdown, the best in bold."""

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    rows = [[_markdown_text(cell) for cell in row] for row in table.rows]
    for row, column in table.best:
        rows[row][column] = f"**{rows[row][column]}**"
    rule = ["---", *["---:"] * (len(table.headers) - 1)]
    return "\n".join([line([_markdown_text(cell) for cell in table.headers]), line(rule), *map(line, rows), ""])


def latex(table: Table) -> str:
    """A LaTeX table with booktabs rules, the best in bold."""
    rows = [[latex_text(cell) for cell in row] for row in table.rows]
    for row, column in table.best:
        rows[row][column] = rf"\textbf{{{rows[row][column]}}}"
    lines = [
        "% needs \\usepackage{booktabs}",
        r"\begin{table}[t]",
        r"  \centering",
        rf"  \caption{{{latex_text(table.title)}.}}",
        rf"  \begin{{tabular}}{{l{'r' * (len(table.headers) - 1)}}}",
        r"    \toprule",
        f"    {_latex_row([latex_text(cell) for cell in table.headers])}",
        r"    \midrule",
        *(f"    {_latex_row(row)}" for row in rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def latex_text(text: str) -> str:
    """Escape a text for LaTeX. Characters beyond Latin-1, which plain LaTeX cannot set, become question marks.

    >>> latex_text("a_b & 5%")
    'a\\\\_b \\\\& 5\\\\%'
    """
    parts = MINUS.split(text)
    return "$-$".join("".join(BEYOND_TEXT.get(c, c if _is_latin(c) else "?") for c in part) for part in parts)


def bounds_text(found: Estimate) -> str:
    return "" if found.low is None else f"[{number_text(found.low)}, {number_text(found.high)}]"


def bytes_text(size: float | None) -> str:
    return "-" if size is None else f"{size / 1e6:,.0f} MB"


# -- the tables of a comparison ---------------------------------------------------------------------------------------


def _tasks(result: MetricResult) -> list[str]:
    return list(dict.fromkeys(one.task for one in (*result.summaries, *result.overall)))


def _metric_tables(result: MetricResult) -> list[Table]:
    name, tables = result.metric.name, []
    for task in _tasks(result):
        shown = [one for one in (*result.summaries, *result.overall) if one.task == task]
        with_steps = any(one.reached is not None for one in shown)
        goal = [f"steps to {number_text(result.thresholds[task])}", "reached"] if with_steps else []
        headers = ["entry", "runs", "IQM", INTERVAL, "mean", "median", *goal]
        rows = [_score_cells(one) if with_steps else _score_cells(one)[:-2] for one in shown]
        scale = ", 0 the worst run and 1 the best of each" if result.is_scaled and shown[0] in result.overall else ""
        tables.append(Table(f"{name} on {task}{scale}", headers, rows))
    if result.improvements:
        rows = [
            [shortened(one.entry), shortened(one.over), f"{one.probability.value:.2f}", _shares_text(one.probability)]
            for one in result.improvements
        ]
        tables.append(Table(f"{name}: probability of improvement", ["entry", "over", "P", INTERVAL], rows))
    return tables


def _shares_text(found: Estimate) -> str:
    return "-" if found.low is None else f"[{found.low:.2f}, {found.high:.2f}]"


def _score_cells(one: Summary) -> list[str]:
    return [
        shortened(one.entry),
        str(len(one.scores)),
        number_text(one.iqm.value),
        bounds_text(one.iqm) or "-",
        number_text(one.mean.value),
        number_text(one.median.value),
        "-" if one.steps_to_threshold is None else f"{one.steps_to_threshold:,.0f}",
        "-" if one.reached is None else f"{one.reached} of {len(one.scores)}",
    ]


def _config_tables(comparison: Comparison) -> list[Table]:
    """Config differences with a row per field or, with more entries than fields, a row per entry."""
    found, labels = comparison.config_differences, [entry.label for entry in comparison.entries]
    if len(labels) < 2:
        return []
    title = "what differs between the configs"
    if not found:
        return [Table(f"{title}: nothing but seeds and names", ["field"], [])]
    names, left_out = list(found)[:MAX_FIELDS], max(len(found) - MAX_FIELDS, 0)
    title += f" ({left_out} more fields in --json)" if left_out else ""
    if len(labels) > len(names):
        cells = [[shortened(label), *(shortened(found[name][label]) for name in names)] for label in labels]
        return [Table(title, ["entry", *names], cells)]
    rows = [[name, *(shortened(found[name][label]) for label in labels)] for name in names]
    return [Table(title, ["field", *map(shortened, labels)], rows)]


def _cost_table(costs: Sequence[Cost]) -> Table:
    rows = [
        [
            shortened(cost.entry),
            str(cost.runs),
            "-" if cost.seconds is None else f"{cost.seconds:,.1f} s",
            "-" if cost.steps_per_second is None else f"{cost.steps_per_second:,.0f}",
            bytes_text(cost.peak_memory_bytes),
        ]
        for cost in costs
    ]
    return Table("cost of a run (medians)", ["entry", "runs", "time", "steps/s", "peak memory"], rows)


# -- characters -------------------------------------------------------------------------------------------------------


def _markdown_text(text: str) -> str:
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{letter}" if letter in "\\|`*_[]#!$~" else letter for letter in plain)


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _is_latin(letter: str) -> bool:
    return " " <= letter <= "~" or ("\u00c0" <= letter <= "\u00ff" and letter not in "\u00d7\u00f7")
