"""`rl diff`: how two runs, or two groups of runs, differ."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.cli.commands.records.cells import value_text
from rl_training.cli.flags import arguments, json_flag, output_dir_flag
from rl_training.cli.output import bold, print_json, printable, show
from rl_training.cli.parser import Command
from rl_training.cli.targets import GROUP_NAMES, RUN_NAMES, find_target, runs_of


@dataclass(frozen=True, kw_only=True)
class DiffOptions:
    targets: tuple[str, ...] = arguments(2, 2, values="runs")
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: DiffOptions) -> int:
    from rl_training.experiments.keeping.run_diff import side_differences

    targets = [find_target(named, options.output_dir) for named in options.targets]
    sides = [runs_of(target) for target in targets]
    found = side_differences(*sides)
    if options.json:
        print_json({"runs": [target.path for target in targets], **found})
        return 0
    for letter, target, runs in zip("AB", targets, sides, strict=True):
        show(f"{bold(letter)}  {target.path}" + (f"  ({len(runs)} runs)" if len(runs) > 1 else ""))
    for part, changes in found.items():
        means = " (means of the runs)" if part == "results" and max(map(len, sides)) > 1 else ""
        show(f"\n{bold(part)}{means}" + ("" if changes else "  the same"))
        for name, values in changes.items():
            before, after = (value_text(value) for value in values)
            show(f"  {printable(name):<32}  {before}  ->  {after}")
    return 0


COMMAND = Command(
    name="diff",
    summary="how two runs or groups differ: config, versions, code, results",
    usage="RUN|GROUP RUN|GROUP [flags]",
    options=DiffOptions,
    run=run,
    examples=("rl diff baseline latest", "rl diff ppo__CartPole-v1__seed0 ppo__CartPole-v1__seed1 --json"),
    notes=f"{RUN_NAMES} {GROUP_NAMES} Results of a group are means over its runs.",
)
