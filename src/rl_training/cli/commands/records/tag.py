"""`rl tag`: add tags to runs, or remove them."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.cli.flags import argument, arguments, json_flag, names, output_dir_flag
from rl_training.cli.output import print_json, printable, show
from rl_training.cli.parser import Command, UsageError
from rl_training.cli.targets import GROUP_NAMES, RUN_NAMES, find_target, runs_of


@dataclass(frozen=True, kw_only=True)
class TagOptions:
    target: str = argument(values="runs")
    tags: tuple[str, ...] = arguments(most=99)
    remove: tuple[str, ...] = names("tags to remove", "A,B")
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: TagOptions) -> int:
    from rl_training.experiments.keeping.tracker import add_tags
    from rl_training.runs.directory import RunDir
    from rl_training.runs.index import record

    if not options.tags and not options.remove:
        raise UsageError("'rl tag' needs tags to add, or --remove with tags to remove")
    target = find_target(options.target, options.output_dir)
    tagged = {}
    for found in runs_of(target):
        tagged[found.path] = add_tags(found, options.tags, remove=options.remove)
        record(found.path)
    if options.json:
        records = [{"run": path, "tags": now} for path, now in tagged.items()]
        print_json(records[0] if isinstance(target, RunDir) else {"path": target.path.absolute(), "runs": records})
        return 0
    for path, now in tagged.items():
        show(f"{path.name}: {printable(', '.join(now)) or 'no tags'}")
    return 0


COMMAND = Command(
    name="tag",
    summary="add tags to a run or all runs of a group, or remove them",
    usage="RUN|GROUP|SWEEP [TAG...] [flags]",
    options=TagOptions,
    run=run,
    examples=("rl tag latest keep paper", "rl tag latest --remove paper"),
    notes=f"{RUN_NAMES} {GROUP_NAMES} Tagged runs are never cleaned up.",
)
