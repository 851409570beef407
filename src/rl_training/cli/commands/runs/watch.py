"""`rl watch`: running experiments in the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_training.cli.flags import arguments, converted, json_flag, output_dir_flag, switch
from rl_training.cli.output import note, print_json, printable, show, table
from rl_training.cli.parser import Command, UsageError
from rl_training.cli.targets import RUN_NAMES, existing_dir, find_target, runs_of

if TYPE_CHECKING:
    from rl_training.experiments.keeping.watch import Watcher
    from rl_training.experiments.launching.group_display import GroupView
    from rl_training.runs.directory import RunDir


def read_interval(typed: str) -> float:
    try:
        seconds = float(typed)
    except ValueError:
        raise UsageError(f"--interval takes a number of seconds, not '{typed}'") from None
    if not 0.05 <= seconds <= 3600:
        raise UsageError(f"--interval must be between 0.05 and 3600 seconds, not {typed}")
    return seconds


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    targets: tuple[str, ...] = arguments(most=100, values="runs")
    interval: float = converted(read_interval, 1.0, "seconds between two looks at the runs (default 1)", "X")
    once: bool = switch("show the present state and end")
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: WatchOptions) -> int:
    from rl_training.experiments.keeping.watch import Watcher
    from rl_training.experiments.launching.group_display import LineView, make_view

    runs = named_runs(options)
    folder = existing_dir(options.output_dir)
    if options.once or options.json:
        import io

        return show_once(Watcher(folder, LineView(io.StringIO()), runs), as_json=options.json)
    view: GroupView = make_view()
    watcher = Watcher(folder, view, runs)
    if not watcher.look() and not runs:
        view.close()
        note(f"no run is running in '{folder}'; `rl list` shows those that have ended")
        return 0
    try:
        watcher.follow(options.interval)
    except KeyboardInterrupt:  # how a person leaves; the runs go on
        return 0
    show(table(["run", "status", "env steps", "return"], [row.cells()[:4] for row in watcher.rows()]))
    return 0


def show_once(watcher: Watcher, *, as_json: bool) -> int:
    """The runs as they are now."""
    watcher.look()
    if as_json:
        print_json(
            [
                {
                    "run": path,
                    "status": one.status,
                    "where": one.where,
                    "total_timesteps": one.total,
                    **one.progress,
                    "alerts": one.alerts,
                }
                for path, one in watcher.watched.items()
            ]
        )
        return 0
    from rl_training.experiments.keeping.watch import alert_text
    from rl_training.experiments.launching.group_display import WHERE

    found = watcher.rows()
    elsewhere = [WHERE] if any(row.where for row in found) else []
    rows = [[printable(cell) for cell in [*row.cells()[:4], *([row.where] if elsewhere else [])]] for row in found]
    show(table(["run", "status", "env steps", "return", *elsewhere], rows) if rows else "no run is running")
    for path, one in watcher.watched.items():
        for alert in one.alerts:
            show(printable(f"{path.name}: {alert_text(alert)}"))
    return 0


def named_runs(options: WatchOptions) -> list[RunDir]:
    """The runs that were named; those of a group or a sweep as far as they have begun."""
    found = [run for name in options.targets for run in runs_of(find_target(name, options.output_dir))]
    return list({str(run.path): run for run in found}.values())


COMMAND = Command(
    name="watch",
    summary="follow running experiments: progress, returns, alerts",
    usage="[RUN|GROUP|SWEEP...] [flags]",
    options=WatchOptions,
    run=run,
    examples=("rl watch", "rl watch latest", "rl watch --once --json"),
    notes=f"{RUN_NAMES} Without one, every run that is training is followed, also those that begin later. It ends with "
    "the last of them, or with Ctrl-C, which the runs do not notice.",
)
