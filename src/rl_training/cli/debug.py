"""`rl debug replay`: a captured update once more."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.cli.arguments import Arguments, UsageError
from rl_training.cli.output import bold, print_json, show, stdout_for_the_result, table

if TYPE_CHECKING:
    from rl_training.experiments.keeping.debug_replay import ReplayReport

EXIT_DIFFERENT = 3


def replay_command(arguments: Arguments) -> int:
    from rl_training.experiments.keeping.debug_replay import replay_capture

    as_json = arguments.switch("json")
    if not Path(arguments.positional[0]).expanduser().is_file():
        raise UsageError(f"no file '{arguments.positional[0]}'; debug mode saves captures in debug/ of a run")
    with stdout_for_the_result(as_json):
        report = replay_capture(
            arguments.positional[0],
            gradient_check=arguments.switch("gradient-check"),
            trust_plugins=arguments.switch("trust-plugins"),
        )
    if as_json:
        print_json({**asdict(report), "reproduced": report.reproduced})
    else:
        show(report_text(report))
    return 0 if report.reproduced else EXIT_DIFFERENT


def report_text(report: ReplayReport) -> str:
    """What happened, the layers, and what is odd about them."""
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
