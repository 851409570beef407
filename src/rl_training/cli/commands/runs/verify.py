"""`rl verify`: train a run again and compare the two bit by bit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rl_training.cli.exit_codes import EXIT_DIFFERENT
from rl_training.cli.flags import argument, json_flag, output_dir_flag, switch, trust_flag, whole
from rl_training.cli.output import bold, note, print_json, printable, show, stdout_for_the_result
from rl_training.cli.parser import Command
from rl_training.cli.targets import GROUP_NAMES, RUN_NAMES, find_target, runs_of

if TYPE_CHECKING:
    from rl_training.experiments.keeping.verify import VerifyReport


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    target: str = argument(values="runs")
    steps: int | None = whole("env steps to compare (default: as far as the run came)", low=1)
    resume_check: bool = switch("instead: stop half-way, resume, and compare with a run straight through")
    trust_plugins: bool = trust_flag()
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: VerifyOptions) -> int:
    target = find_target(options.target, options.output_dir)
    runs, resume_check = runs_of(target), options.resume_check
    with stdout_for_the_result(options.json):
        from rl_training.experiments.keeping.verify import ReproducibilityChecker
        from rl_training.runs.directory import RunDir

        checker = ReproducibilityChecker()
        check = checker.verify_resume if resume_check else checker.verify_experiment
        reports = []
        for one in runs:
            note(f"training {one.path} again; this takes as long as it took")
            reports.append(check(one.path, steps=options.steps, trust_plugins=options.trust_plugins))
            if not options.json:
                show(report_text(reports[-1], resume_check=resume_check))
    reproduced = all(report.reproduced for report in reports)
    if options.json:
        facts = [{**asdict(one), "reproduced": one.reproduced, "resume_check": resume_check} for one in reports]
        is_run = isinstance(target, RunDir)
        print_json(facts[0] if is_run else {"path": target.path.absolute(), "reproduced": reproduced, "runs": facts})
    elif len(reports) > 1:
        show(f"{sum(report.reproduced for report in reports)} of {len(reports)} runs are the same")
    return 0 if reproduced else EXIT_DIFFERENT


def report_text(report: VerifyReport, *, resume_check: bool) -> str:
    """The result of the comparison in a few lines."""
    what = "stopped and resumed equals straight through" if resume_check else "reproduced"
    lines = [bold(what if report.reproduced else f"not {what}")]
    compared = f"{report.env_steps:,} env steps, {report.rows:,} rows of metrics, {report.checkpoints} checkpoints"
    lines.append(f"  compared   {compared}")
    lines += [f"  differs    {printable(str(difference))}" for difference in report.differences]
    lines += [f"  note       {printable(text)}" for text in report.notes]
    return "\n".join([*lines, f"  run        {report.run}"])


COMMAND = Command(
    name="verify",
    summary="train a run again from its config and report the first difference",
    usage="RUN|GROUP|SWEEP [flags]",
    options=VerifyOptions,
    run=run,
    examples=("rl verify latest", "rl verify latest --steps 10000", "rl verify latest --resume-check"),
    notes=f"{RUN_NAMES} {GROUP_NAMES} Exit code 0 if everything is the same to the last bit, 3 if not.",
)
