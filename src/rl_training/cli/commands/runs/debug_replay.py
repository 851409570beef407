"""`rl debug replay`: run a captured update again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.cli.exit_codes import EXIT_DIFFERENT
from rl_training.cli.flags import argument, json_flag, switch, trust_flag
from rl_training.cli.output import bold, print_json, show, stdout_for_the_result, table
from rl_training.cli.parser import Command, UsageError

if TYPE_CHECKING:
    from rl_training.experiments.keeping.debug_replay import ReplayReport


@dataclass(frozen=True, kw_only=True)
class DebugReplayOptions:
    file: str = argument()
    gradient_check: bool = switch("also compare its gradients with finite differences")
    trust_plugins: bool = trust_flag()
    json: bool = json_flag()


def run(options: DebugReplayOptions) -> int:
    from rl_training.experiments.keeping.debug_replay import replay_capture

    if not Path(options.file).expanduser().is_file():
        raise UsageError(f"no file '{options.file}'; debug mode saves captures in debug/ of a run")
    with stdout_for_the_result(options.json):
        report = replay_capture(
            options.file, gradient_check=options.gradient_check, trust_plugins=options.trust_plugins
        )
    if options.json:
        print_json({**asdict(report), "reproduced": report.reproduced})
    else:
        show(report_text(report))
    return 0 if report.reproduced else EXIT_DIFFERENT


def report_text(report: ReplayReport) -> str:
    """The outcome of the update, statistics of its layers, and hints."""
    lines = [bold(f"update {report.updates}"), f"  captured   {report.why}"]
    lines.append(f"  again      {report.error or 'went through'}")
    lines += [f"  {name:<20}{value:.6g}" for name, value in report.metrics.items()]
    names = dict.fromkeys(name.rpartition("/")[0] for name in report.layers)
    kinds = ("grad_norm", "weight_norm", "update_norm", "update_ratio", "dead_share", "saturated_share")
    if names:
        rows = [[name, *(number(report.layers.get(f"{name}/{kind}")) for kind in kinds)] for name in names]
        lines += ["", table(["layer", *kinds], rows)]
    if report.gradient_checks:
        checks = [
            [
                *(check.parameter, str(check.loss), check.direction, number(check.autograd), number(check.differences)),
                "ok" if check.ok else "WRONG",
            ]
            for check in report.gradient_checks
        ]
        lines += ["", table(["parameter", "loss", "direction", "autograd", "differences", ""], checks)]
    return "\n".join([*lines, *(f"  hint       {hint}" for hint in report.hints)])


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


COMMAND = Command(
    name="debug replay",
    summary="run an update again that debug mode has captured",
    usage="FILE [flags]",
    options=DebugReplayOptions,
    run=run,
    examples=("rl debug replay runs/<run>/debug/update_000012.capture",),
    notes="Debug mode (rl train --debug, monitor.debug) saves an update that gives NaN or Inf, and the one that "
    "monitor.debug.capture_update names. Exit code 0 if it ends as it did then, 3 if not.",
)
