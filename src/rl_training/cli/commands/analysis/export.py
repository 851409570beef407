"""`rl export`: results as tables for papers and data frames."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rl_training.cli.commands.analysis.selection import (
    NOTES,
    Selected,
    by_flag,
    metrics_flag,
    runs_argument,
    unfinished_flag,
    write_file,
)
from rl_training.cli.flags import output_dir_flag, text
from rl_training.cli.output import note, printable, show, stdout_for_the_result
from rl_training.cli.parser import Command, UsageError


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    runs: tuple[str, ...] = runs_argument()
    format: str | None = text(
        "latex, markdown, csv, json, parquet or marl-eval",
        "NAME",
        choices=("latex", "markdown", "csv", "json", "parquet", "marl-eval"),
    )
    content: str | None = text(
        "summary (default of latex, markdown), runs (default of the others) or curves",
        "WHAT",
        choices=("summary", "runs", "curves"),
    )
    output: str | None = text("file to write (default: stdout)", "FILE")
    metrics: tuple[str, ...] = metrics_flag()
    by: tuple[str, ...] = by_flag()
    unfinished: bool = unfinished_flag()
    output_dir: str | None = output_dir_flag()


def run(options: ExportOptions) -> int:
    from rl_training.experiments.analysis.export import MARL_EVAL, export, marl_eval, unequal

    form, output = options.format, options.output
    if form is None:
        raise UsageError("'rl export' needs --format (see 'rl export --help')")
    if form == "parquet" and output is None:
        raise UsageError("--format parquet is not for a terminal; name a file with --output")
    with stdout_for_the_result(True):
        selected = Selected(options.runs, options.output_dir, options.by, options.unfinished)
        comparison = selected.compared(options.metrics)
        data = export(comparison, form, options.content)
    lines = [*comparison.notes, *filter(None, [unequal(marl_eval(comparison)) if form == MARL_EVAL else None])]
    for line in lines:
        note(f"note: {printable(line)}")
    if output is None:
        sys.stdout.write(data.decode())
    else:
        show(write_file(Path(output), data))
    return 0


COMMAND = Command(
    name="export",
    summary="write results for papers and data frames",
    usage="RUN... --format NAME [flags]",
    options=ExportOptions,
    run=run,
    examples=(
        "rl export baseline --format latex > table.tex",
        "rl export env=CartPole-v1 --by algorithm --format parquet --content curves --output curves.parquet",
    ),
    notes=NOTES,
)
