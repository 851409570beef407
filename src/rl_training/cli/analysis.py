"""`rl compare`, `export` and `plot`: what runs say together. matplotlib is imported only where something is drawn."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.cli.arguments import Arguments, UsageError
from rl_training.cli.output import bold, note, print_json, printable, show, stdout_for_the_result, table
from rl_training.cli.targets import output_dir
from rl_training.types import RunError

if TYPE_CHECKING:
    from rl_training.experiments.analysis.compare import Comparison
    from rl_training.experiments.analysis.entries import Selection
    from rl_training.experiments.analysis.plotter import Plotter


def compare_command(arguments: Arguments) -> int:
    from rl_training.experiments.analysis.compare import record
    from rl_training.experiments.analysis.group_summary import FEW_SEEDS
    from rl_training.experiments.analysis.tables import all_tables

    as_json = arguments.switch("json")
    formats = names_of(arguments, "formats")
    if formats and arguments.text("plots") is None:
        raise UsageError("--formats is for --plots DIR")
    with stdout_for_the_result(as_json):
        comparison = compared(arguments)
        written = write_outputs(comparison, arguments, formats)
    if as_json:
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


def export_command(arguments: Arguments) -> int:
    from rl_training.experiments.analysis.export import MARL_EVAL, export, marl_eval, unequal

    form, output = arguments.text("format"), arguments.text("output")
    if form is None:
        raise UsageError("'rl export' needs --format (see 'rl export --help')")
    if form == "parquet" and output is None:
        raise UsageError("--format parquet is not for a terminal; name a file with --output")
    with stdout_for_the_result(True):
        comparison = compared(arguments)
        data = export(comparison, form, arguments.text("content"))
    lines = [*comparison.notes, *filter(None, [unequal(marl_eval(comparison)) if form == MARL_EVAL else None])]
    for line in lines:
        note(f"note: {printable(line)}")
    if output is None:
        sys.stdout.write(data.decode())
    else:
        show(write(Path(output), data))
    return 0


def plot_curves_command(arguments: Arguments) -> int:
    plots = plotter(arguments)
    with named_rightly():
        plots.plot_learning_curves(arguments.positional, metric(arguments))
    return save_plot(arguments, "curves", plots)


def plot_compare_command(arguments: Arguments) -> int:
    plots = plotter(arguments)
    with named_rightly():
        plots.plot_algorithm_comparison(arguments.positional, metric(arguments))
    return save_plot(arguments, "compare", plots)


def plot_sensitivity_command(arguments: Arguments) -> int:
    plots = plotter(arguments)
    parameters = names_of(arguments, "parameters")
    with named_rightly():
        plots.plot_hyperparameter_sensitivity(arguments.positional, parameters, metric(arguments))
    return save_plot(arguments, "sensitivity", plots)


# -- what they share --------------------------------------------------------------------------------------------------


def compared(arguments: Arguments) -> Comparison:
    from rl_training.experiments.analysis.compare import compare

    text = arguments.text("threshold")
    try:
        threshold = None if text is None else float(text)
    except ValueError:
        raise UsageError(f"--threshold takes a number, not '{text}'") from None
    return compare(selected(arguments), names_of(arguments, "metrics") or ["reward"], threshold=threshold)


def selected(arguments: Arguments) -> Selection:
    from rl_training.experiments.analysis.entries import find_entries

    with named_rightly():
        return find_entries(
            arguments.positional,
            output_dir(arguments),
            by=names_of(arguments, "by"),
            unfinished=arguments.switch("unfinished"),
        )


@contextmanager
def named_rightly() -> Iterator[None]:
    """A run that cannot be found is a mistake of the command line."""
    try:
        yield
    except RunError as error:
        raise UsageError(str(error)) from error


def plotter(arguments: Arguments) -> Plotter:
    from rl_training.experiments.analysis.plotter import Plotter

    return Plotter(
        output_dir(arguments),
        by=names_of(arguments, "by"),
        unfinished=arguments.switch("unfinished"),
    )


def metric(arguments: Arguments) -> str:
    return arguments.text("metric") or "reward"


def names_of(arguments: Arguments, option: str) -> list[str]:
    return [name.strip() for name in (arguments.text(option) or "").split(",") if name.strip()]


def write_outputs(comparison: Comparison, arguments: Arguments, formats: list[str]) -> list[Path]:
    """The report and the plots that were asked for."""
    written = []
    html, folder = arguments.text("html"), arguments.text("plots")
    if html is not None:
        from rl_training.experiments.analysis.report import html_report

        written.append(write(Path(html), html_report(comparison).encode()))
    if folder is not None:
        from rl_training.experiments.analysis.plots import FORMATS

        plots = plotter(arguments)
        plots.add_comparison(comparison)
        written += plots.save_plots(folder, formats or FORMATS)
    return written


def save_plot(arguments: Arguments, kind: str, plots: Plotter) -> int:
    from rl_training.experiments.analysis.plots import write_figure

    (figure,) = plots.figures.values()
    path = Path(arguments.text("output") or f"{kind}.png")
    written = write(path, write_figure(figure, path.suffix[1:].lower()))
    if arguments.switch("json"):
        print_json({"written": [written]})
    else:
        show(written)
    return 0


def write(path: Path, data: bytes) -> Path:
    from rl_training.runs.names import readable_errors
    from rl_training.system.atomic_io import atomic_write

    path = path.expanduser()
    with readable_errors(f"cannot write '{path}'"):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, data)
    return path
