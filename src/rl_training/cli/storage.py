"""`rl cleanup`, `archive`, `import`: what runs take on the disk."""

from __future__ import annotations

from pathlib import Path

from rl_training.cli.arguments import Arguments, UsageError
from rl_training.cli.output import amount, bold, note, print_json, printable, show, table
from rl_training.cli.targets import find_target, output_dir, runs_of

KEEP_BEST, KEEP_RECENT = 10, 30


def cleanup_command(arguments: Arguments) -> int:
    from rl_training.experiments.keeping.cleanup import ExperimentCleaner

    best, days = arguments.number("keep-best"), arguments.number("keep-recent")
    dry_run = arguments.switch("dry-run")
    removals = ExperimentCleaner(output_dir(arguments)).cleanup_old_experiments(
        keep_best_n=KEEP_BEST if best is None else best,
        keep_recent_days=KEEP_RECENT if days is None else days,
        metric=arguments.text("metric") or "reward",
        dry_run=dry_run,
    )
    freed = sum(removal.bytes for removal in removals)
    problems = [removal for removal in removals if removal.problem]
    cleaned = [removal for removal in removals if not removal.problem]
    code = 1 if problems else 0
    if arguments.switch("json"):
        runs = [{"run": removal.run.absolute(), "bytes": removal.bytes} for removal in cleaned]
        left = [{"run": each.run.absolute(), "bytes": each.bytes, "problem": each.problem} for each in problems]
        print_json({"dry_run": dry_run, "runs": runs, "bytes": freed, "problems": left})
        return code
    if cleaned and dry_run:
        plan = f"{len(cleaned)} runs would be cleaned, {amount(freed)} freed; configs and metrics stay"
        show(f"{bold('Plan')}  {plan}\n")
    if cleaned:
        show(table(["run", "size"], [[str(removal.run), amount(removal.bytes)] for removal in cleaned]))
    for removal in problems:
        freed_words = f", {amount(removal.bytes)} of it removed" if removal.bytes else ""
        note(f"not cleaned{freed_words}: {printable(str(removal.run))}: {removal.problem}")
    words = f"{len(cleaned)} runs, {amount(freed)} cleaned; their configs and final metrics are still there"
    if cleaned or not problems:
        note("nothing to clean" if not cleaned else "dry run: nothing was removed" if dry_run else words)
    return code


def archive_command(arguments: Arguments) -> int:
    from rl_training.experiments.keeping.archive import pack
    from rl_training.runs.directory import RunDir

    output = arguments.text("output")
    named = find_target(arguments, arguments.positional[0])
    is_single = isinstance(named, RunDir)
    if output and not is_single:
        raise UsageError("--output names one file; the runs of a group are packed one by one, into archives/")
    files = {}
    for run in runs_of(named):
        files[run.path] = pack(run, Path(output).expanduser() if output else None, remove=arguments.switch("remove"))
        if not arguments.switch("json"):
            show(f"{files[run.path]}  ({amount(files[run.path].stat().st_size)})")
    if arguments.switch("json"):
        records = [
            {"run": run, "archive": file.absolute(), "bytes": file.stat().st_size} for run, file in files.items()
        ]
        print_json(records[0] if is_single else {"path": named.path.absolute(), "runs": records})
    return 0


def import_command(arguments: Arguments) -> int:
    from rl_training.experiments.keeping.archive import unpack
    from rl_training.trust import seals

    archive = Path(arguments.positional[0]).expanduser()
    if not archive.is_file():
        raise UsageError(f"no file '{archive}'; `rl archive RUN` makes one")
    folder = Path(arguments.text("output-dir") or "runs").expanduser()
    run = unpack(archive, folder, trust_plugins=arguments.switch("trust-plugins"))
    stored = run.stored_config()
    agreed = stored.is_own or seals.is_remembered(stored.identity)
    untrusted = [] if agreed else stored.foreign_code()
    if arguments.switch("json"):
        print_json({"run": run.path, "untrusted": untrusted})
        return 0
    show(run.path)
    if untrusted:
        names = printable(", ".join(untrusted))
        note(f"its config asks for what is not part of rl_training ({names}), so it cannot be evaluated or resumed")
        note("if you trust that, import it again with --trust-plugins, or give the flag to 'rl eval' or 'rl resume'")
    return 0
