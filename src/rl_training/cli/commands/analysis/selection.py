"""How `rl compare`, `export` and `plot` select runs, and how they write what they make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.cli.flags import arguments, names, switch
from rl_training.cli.output import print_json, show
from rl_training.cli.parser import UsageError
from rl_training.cli.targets import existing_dir

if TYPE_CHECKING:
    from rl_training.experiments.analysis.compare import Comparison
    from rl_training.experiments.analysis.plotter import Plotter

NOTES = (
    "RUN is a run, a group of seeds, a sweep (one entry per trial) or a filter as in 'rl list'; each is an entry of "
    "its own unless --by splits them. 'latest', 'latest-group' and 'latest-sweep' are the newest. A metric is reward, "
    "loss, a name in the log such as eval/return_iqm, or a column."
)
"""Note of the help pages."""


def runs_argument() -> tuple[str, ...]:
    return arguments(1, values="runs")


def by_flag() -> tuple[str, ...]:
    return names("put all runs together and split them by these keys, such as algorithm", "KEY,KEY")


def unfinished_flag() -> bool:
    return switch("include runs of groups, sweeps and filters that are not finished")


def metrics_flag() -> tuple[str, ...]:
    return names("what to compare (default reward; hns is human-normalised); with a minus sign low is good", "A,B")


@dataclass(frozen=True)
class Selected:
    """The runs that were named, and how they are put together."""

    runs: tuple[str, ...]
    output_dir: str | None
    by: tuple[str, ...] = ()
    unfinished: bool = False

    def compared(self, metrics: tuple[str, ...], *, threshold: float | None = None) -> Comparison:
        """The statistics of these runs."""
        from rl_training.experiments.analysis.compare import compare
        from rl_training.experiments.analysis.entries import find_entries

        with run_errors_as_usage():
            entries = find_entries(self.runs, existing_dir(self.output_dir), by=self.by, unfinished=self.unfinished)
        return compare(entries, metrics or ("reward",), threshold=threshold)

    def plotter(self) -> Plotter:
        from rl_training.experiments.analysis.plotter import Plotter

        return Plotter(existing_dir(self.output_dir), by=self.by, unfinished=self.unfinished)


@contextmanager
def run_errors_as_usage() -> Iterator[None]:
    """A run that cannot be found is a mistake of the command line."""
    from rl_training.types import RunError

    try:
        yield
    except RunError as error:
        raise UsageError(str(error)) from error


def save_plot(plots: Plotter, path: Path, *, as_json: bool) -> int:
    """Write the one figure of a plotter and print where it is; returns the exit code."""
    from rl_training.experiments.analysis.plots import write_figure

    (figure,) = plots.figures.values()
    written = write_file(path, write_figure(figure, path.suffix[1:].lower()))
    if as_json:
        print_json({"written": [written]})
    else:
        show(written)
    return 0


def write_file(path: Path, data: bytes) -> Path:
    from rl_training.runs.names import readable_errors
    from rl_training.system.atomic_io import atomic_write

    path = path.expanduser()
    with readable_errors(f"cannot write '{path}'", "folder"):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, data)
    return path
