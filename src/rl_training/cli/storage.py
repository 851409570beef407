"""`rl cleanup`, `archive`, `import`: what runs take on the disk."""

from __future__ import annotations

from pathlib import Path

from rl_training.cli.arguments import Arguments, UsageError
from rl_training.cli.output import amount, note, print_json, printable, show, table
from rl_training.cli.records import find_run

KEEP_BEST, KEEP_RECENT = 10, 30


def cleanup_command(arguments: Arguments) -> int:
    from rl_training.experiments.cleanup import ExperimentCleaner

    best, days = arguments.number("keep-best"), arguments.number("keep-recent")
    dry_run = arguments.switch("dry-run")
    removals = ExperimentCleaner(arguments.text("output-dir") or "runs").cleanup_old_experiments(
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
    if cleaned:
        show(table(["run", "size"], [[str(removal.run), amount(removal.bytes)] for removal in cleaned]))
    for removal in problems:
        freed_words = f", {amount(removal.bytes)} of it removed" if removal.bytes else ""
        note(f"not cleaned{freed_words}: {printable(str(removal.run))}: {removal.problem}")
    words = "would be cleaned" if dry_run else "cleaned; their configs and final metrics are still there"
    if cleaned or not problems:
        note(f"{len(cleaned)} runs, {amount(freed)} {words}" if cleaned else "nothing to clean")
    return code


def archive_command(arguments: Arguments) -> int:
    from rl_training.experiments.archive import pack

    output = arguments.text("output")
    run = find_run(arguments, arguments.positional[0])
    target = pack(run, Path(output).expanduser() if output else None, remove=arguments.switch("remove"))
    if arguments.switch("json"):
        print_json({"run": run.path, "archive": target.absolute(), "bytes": target.stat().st_size})
    else:
        show(f"{target}  ({amount(target.stat().st_size)})")
    return 0


def import_command(arguments: Arguments) -> int:
    from rl_training import trust
    from rl_training.experiments.archive import unpack

    archive = Path(arguments.positional[0]).expanduser()
    if not archive.is_file():
        raise UsageError(f"no file '{archive}'; `rl archive RUN` makes one")
    output_dir = Path(arguments.text("output-dir") or "runs").expanduser()
    run = unpack(archive, output_dir, trust_plugins=arguments.switch("trust-plugins"))
    stored = run.stored_config()
    agreed = stored.is_own or trust.is_remembered(stored.identity)
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
