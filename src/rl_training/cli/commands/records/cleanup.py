"""`rl cleanup`: free the disk space of old runs."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.cli.flags import json_flag, output_dir_flag, switch, text, whole
from rl_training.cli.output import amount, bold, note, print_json, printable, show, table
from rl_training.cli.parser import Command
from rl_training.cli.targets import existing_dir


@dataclass(frozen=True, kw_only=True)
class CleanupOptions:
    keep_best: int = whole("the best runs of each environment to leave alone (default 10)", default=10)
    keep_recent: int = whole("days that a run is left alone after its end (default 30)", "DAYS", default=30)
    metric: str = text(
        "metric that decides which are best; with a minus sign low is good (default reward)", "KEY", default="reward"
    )
    dry_run: bool = switch("show what would be removed; remove nothing")
    output_dir: str | None = output_dir_flag("folder of the runs (default runs)")
    json: bool = json_flag()


def run(options: CleanupOptions) -> int:
    from rl_training.experiments.keeping.cleanup import ExperimentCleaner

    removals = ExperimentCleaner(existing_dir(options.output_dir)).cleanup_old_experiments(
        keep_best_n=options.keep_best,
        keep_recent_days=options.keep_recent,
        metric=options.metric,
        dry_run=options.dry_run,
    )
    freed = sum(removal.bytes for removal in removals)
    problems = [removal for removal in removals if removal.problem]
    cleaned = [removal for removal in removals if not removal.problem]
    code = 1 if problems else 0
    if options.json:
        runs = [{"run": removal.run.absolute(), "bytes": removal.bytes} for removal in cleaned]
        left = [{"run": each.run.absolute(), "bytes": each.bytes, "problem": each.problem} for each in problems]
        print_json({"dry_run": options.dry_run, "runs": runs, "bytes": freed, "problems": left})
        return code
    if cleaned and options.dry_run:
        plan = f"{len(cleaned)} runs would be cleaned, {amount(freed)} freed; configs and metrics stay"
        show(f"{bold('Plan')}  {plan}\n")
    if cleaned:
        show(table(["run", "size"], [[str(removal.run), amount(removal.bytes)] for removal in cleaned]))
    for removal in problems:
        freed_words = f", {amount(removal.bytes)} of it removed" if removal.bytes else ""
        note(f"not cleaned{freed_words}: {printable(str(removal.run))}: {removal.problem}")
    words = f"{len(cleaned)} runs, {amount(freed)} cleaned; their configs and final metrics are still there"
    if cleaned or not problems:
        note("nothing to clean" if not cleaned else "dry run: nothing was removed" if options.dry_run else words)
    return code


COMMAND = Command(
    name="cleanup",
    summary="free the disk space of old runs; configs and final metrics stay",
    usage="[flags]",
    options=CleanupOptions,
    run=run,
    examples=("rl cleanup --keep-best 10 --keep-recent 30 --dry-run", "rl cleanup --metric=-loss"),
    notes="Tagged and running runs are never touched. A cleaned run keeps its place in 'rl list'.",
)
