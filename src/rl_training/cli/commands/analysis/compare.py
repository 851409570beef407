"""`rl compare`: the scores of runs side by side, with intervals. matplotlib is imported only for --plots and --html."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.cli.commands.analysis.selection import (
    NOTES,
    Selected,
    by_flag,
    metrics_flag,
    runs_argument,
    unfinished_flag,
    write_file,
)
from rl_training.cli.flags import converted, json_flag, names, output_dir_flag, text
from rl_training.cli.output import bold, note, print_json, printable, show, stdout_for_the_result, table
from rl_training.cli.parser import Command, UsageError

if TYPE_CHECKING:
    from rl_training.experiments.analysis.compare import Comparison


def read_threshold(typed: str) -> float | None:
    try:
        return float(typed)
    except ValueError:
        raise UsageError(f"--threshold takes a number, not '{typed}'") from None


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    runs: tuple[str, ...] = runs_argument()
    metrics: tuple[str, ...] = metrics_flag()
    by: tuple[str, ...] = by_flag()
    unfinished: bool = unfinished_flag()
    threshold: float | None = converted(
        read_threshold, None, "count the env steps until this score (default: the weakest entry's)", "X"
    )
    html: str | None = text("write a report as one self-contained page", "FILE")
    plots: str | None = text("write curves and comparison of each metric into DIR", "DIR")
    formats: tuple[str, ...] = names("of the plots: png, svg, pdf (default png,svg)", "A,B")
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: CompareOptions) -> int:
    from rl_training.experiments.analysis.compare import record
    from rl_training.experiments.analysis.group_summary import FEW_SEEDS
    from rl_training.experiments.analysis.tables import all_tables

    if options.formats and options.plots is None:
        raise UsageError("--formats is for --plots DIR")
    selected = Selected(options.runs, options.output_dir, options.by, options.unfinished)
    with stdout_for_the_result(options.json):
        comparison = selected.compared(options.metrics, threshold=options.threshold)
        written = write_outputs(comparison, selected, options)
    if options.json:
        print_json({**record(comparison), "written": written})
        return 0
    for number, found in enumerate(all_tables(comparison)):
        show(f"{chr(10) if number else ''}{bold(found.title)}\n{table(found.headers, found.rows)}")
    counts = [len(one.scores) for result in comparison.metrics for one in result.summaries]
    if counts and min(counts) < FEW_SEEDS:
        note(f"fewer than {FEW_SEEDS} runs: such an interval is too narrow")
    for line in comparison.notes:
        note(f"note: {printable(line)}")
    for path in written:
        show(path)
    return 0


def write_outputs(comparison: Comparison, selected: Selected, options: CompareOptions) -> list[Path]:
    """Write the report and the plots that were asked for."""
    written = []
    if options.html is not None:
        from rl_training.experiments.analysis.report import html_report

        written.append(write_file(Path(options.html), html_report(comparison).encode()))
    if options.plots is not None:
        from rl_training.experiments.analysis.plots import FORMATS

        plots = selected.plotter()
        plots.add_comparison(comparison)
        written += plots.save_plots(options.plots, options.formats or FORMATS)
    return written


COMMAND = Command(
    name="compare",
    summary="compare runs, groups, sweeps or filters: scores, intervals, ranking, cost",
    usage="RUN... [flags]",
    options=CompareOptions,
    run=run,
    examples=(
        "rl compare baseline latest --metrics reward,loss",
        "rl compare env=CartPole-v1 --by algorithm --html report.html",
        "rl compare tag=old tag=new --plots figures --formats pdf",
    ),
    notes=NOTES,
)
