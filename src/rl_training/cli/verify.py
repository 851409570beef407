"""`rl verify`: does a run come out the same again?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rl_training.cli.arguments import Arguments
from rl_training.cli.output import bold, note, print_json, printable, show, stdout_for_the_result
from rl_training.cli.targets import find_target, runs_of

if TYPE_CHECKING:
    from rl_training.experiments.keeping.verify import VerifyReport

EXIT_DIFFERENT = 3


def verify_command(arguments: Arguments) -> int:
    target = find_target(arguments, arguments.positional[0])
    runs, steps = runs_of(target), arguments.number("steps", low=1)
    as_json, resume_check = arguments.switch("json"), arguments.switch("resume-check")
    with stdout_for_the_result(as_json):
        from rl_training.experiments.keeping.verify import ReproducibilityChecker
        from rl_training.runs.directory import RunDir

        checker = ReproducibilityChecker()
        check = checker.verify_resume if resume_check else checker.verify_experiment
        reports = []
        for run in runs:
            note(f"training {run.path} again; this takes as long as it took")
            reports.append(check(run.path, steps=steps, trust_plugins=arguments.switch("trust-plugins")))
            if not as_json:
                show(report_text(reports[-1], resume_check=resume_check))
    reproduced = all(report.reproduced for report in reports)
    if as_json:
        facts = [{**asdict(one), "reproduced": one.reproduced, "resume_check": resume_check} for one in reports]
        is_run = isinstance(target, RunDir)
        print_json(facts[0] if is_run else {"path": target.path.absolute(), "reproduced": reproduced, "runs": facts})
    elif len(reports) > 1:
        show(f"{sum(report.reproduced for report in reports)} of {len(reports)} runs are the same")
    return 0 if reproduced else EXIT_DIFFERENT


def report_text(report: VerifyReport, *, resume_check: bool) -> str:
    """What was found, in a few lines."""
    what = "stopped and resumed equals straight through" if resume_check else "reproduced"
    lines = [bold(what if report.reproduced else f"not {what}")]
    compared = f"{report.env_steps:,} env steps, {report.rows:,} rows of metrics, {report.checkpoints} checkpoints"
    lines.append(f"  compared   {compared}")
    lines += [f"  differs    {printable(str(difference))}" for difference in report.differences]
    lines += [f"  note       {printable(text)}" for text in report.notes]
    return "\n".join([*lines, f"  run        {report.run}"])
