"""`rl verify`: does a run come out the same again?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rl_training.cli.arguments import Arguments
from rl_training.cli.output import bold, note, print_json, printable, show, stdout_for_the_result
from rl_training.cli.records import find_run

if TYPE_CHECKING:
    from rl_training.experiments.verify import VerifyReport

EXIT_DIFFERENT = 3


def verify_command(arguments: Arguments) -> int:
    run = find_run(arguments, arguments.positional[0])
    steps = arguments.number("steps", low=1)
    as_json, resume_check = arguments.switch("json"), arguments.switch("resume-check")
    with stdout_for_the_result(as_json):
        from rl_training.experiments.verify import ReproducibilityChecker

        checker = ReproducibilityChecker()
        note(f"training {run.path} again; this takes as long as it took")
        verify = checker.verify_resume if resume_check else checker.verify_experiment
        report = verify(run.path, steps=steps, trust_plugins=arguments.switch("trust-plugins"))
    if as_json:
        print_json({**asdict(report), "reproduced": report.reproduced, "resume_check": resume_check})
    else:
        show(report_text(report, resume_check=resume_check))
    return 0 if report.reproduced else EXIT_DIFFERENT


def report_text(report: VerifyReport, *, resume_check: bool) -> str:
    """What was found, in a few lines."""
    what = "stopped and resumed equals straight through" if resume_check else "reproduced"
    lines = [bold(what if report.reproduced else f"not {what}")]
    compared = f"{report.env_steps:,} env steps, {report.rows:,} rows of metrics, {report.checkpoints} checkpoints"
    lines.append(f"  compared   {compared}")
    lines += [f"  differs    {printable(str(difference))}" for difference in report.differences]
    lines += [f"  note       {printable(text)}" for text in report.notes]
    return "\n".join([*lines, f"  run        {report.run}"])
