"""`rl watch`: running experiments in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.cli.arguments import Arguments, UsageError
from rl_training.cli.output import note, print_json, printable, show, table
from rl_training.cli.targets import find_target, output_dir, runs_of

if TYPE_CHECKING:
    from rl_training.experiments.keeping.watch import Watcher
    from rl_training.experiments.launching.group_display import GroupView
    from rl_training.runs.directory import RunDir

INTERVAL_SECONDS = 1.0


def watch_command(arguments: Arguments) -> int:
    from rl_training.experiments.keeping.watch import Watcher
    from rl_training.experiments.launching.group_display import LineView, make_view

    interval = interval_of(arguments)
    runs = named_runs(arguments)
    once = arguments.switch("once") or arguments.switch("json")
    folder = output_dir(arguments)
    if once:
        import io

        return show_once(Watcher(folder, LineView(io.StringIO()), runs), as_json=arguments.switch("json"))
    view: GroupView = make_view()
    watcher = Watcher(folder, view, runs)
    if not watcher.look() and not runs:
        view.close()
        note(f"no run is running in '{folder}'; `rl list` shows those that have ended")
        return 0
    try:
        watcher.follow(interval)
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
                {"run": path, "status": one.status, "total_timesteps": one.total, **one.progress, "alerts": one.alerts}
                for path, one in watcher.watched.items()
            ]
        )
        return 0
    from rl_training.experiments.keeping.watch import alert_text

    rows = [[printable(cell) for cell in row.cells()[:4]] for row in watcher.rows()]
    show(table(["run", "status", "env steps", "return"], rows) if rows else "no run is running")
    for path, one in watcher.watched.items():
        for alert in one.alerts:
            show(printable(f"{path.name}: {alert_text(alert)}"))
    return 0


def interval_of(arguments: Arguments) -> float:
    text = arguments.text("interval")
    try:
        seconds = INTERVAL_SECONDS if text is None else float(text)
    except ValueError:
        raise UsageError(f"--interval takes a number of seconds, not '{text}'") from None
    if not 0.05 <= seconds <= 3600:
        raise UsageError(f"--interval must be between 0.05 and 3600 seconds, not {text}")
    return seconds


def named_runs(arguments: Arguments) -> list[RunDir]:
    """The runs that were named; those of a group or a sweep as far as they have begun."""
    found = [run for name in arguments.positional for run in runs_of(find_target(arguments, name))]
    return list({str(run.path): run for run in found}.values())
