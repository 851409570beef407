"""`rl show`: the facts of one run, of a group of seeds or of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rl_training.cli.commands.records.cells import cell
from rl_training.cli.flags import argument, json_flag, output_dir_flag
from rl_training.cli.output import bold, print_json, printable, show
from rl_training.cli.parser import Command
from rl_training.cli.targets import GROUP_NAMES, RUN_NAMES, find_target

if TYPE_CHECKING:
    from rl_training.experiments.launching.groups import SeedGroup
    from rl_training.experiments.launching.sweeps import Sweep
    from rl_training.runs.directory import RunDir


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    target: str = argument(values="runs")
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: ShowOptions) -> int:
    from rl_training.runs.directory import RunDir
    from rl_training.runs.row import describe

    found = find_target(options.target, options.output_dir)
    if not isinstance(found, RunDir):
        return show_many(found, as_json=options.json)
    row = describe(found.path)
    if options.json:
        print_json({"path": found.path, **row, "info": found.info()})
    else:
        show(run_text(found, row))
    return 0


def show_many(found: SeedGroup | Sweep, *, as_json: bool) -> int:
    """A group or a sweep as it is now: the table and the statistics that its own command prints at the end."""
    from rl_training.cli.commands.many import seed_groups, sweep_runs
    from rl_training.experiments.analysis.group_summary import summarize
    from rl_training.experiments.keeping.surroundings import mixture_text
    from rl_training.experiments.launching.groups import SeedGroup
    from rl_training.experiments.launching.sweeps import summarize_sweep

    if isinstance(found, SeedGroup):
        summary = summarize(found)
        lines = [seed_groups.runs_table(found), seed_groups.group_text(found, summary, [])]
    else:
        summary = summarize_sweep(found)
        lines = [sweep_runs.trials_table(summary["trials"]), sweep_runs.sweep_text(found)]
    warning = mixture_text(found)
    if as_json:
        print_json({"path": found.path.absolute(), **summary, "warning": warning})
    else:
        show("\n".join([*lines, *([warning] if warning else [])]))
    return 0


def agents_of(run: RunDir) -> list[str]:
    """Who plays whom in a run of several agents, one line for each policy."""
    from rl_training.runs.spaces import read_spaces
    from rl_training.types import JointSpec

    spaces = read_spaces(run.path)
    if spaces is None or not isinstance(spaces[0], JointSpec):
        return []
    return [f"{name}: {', '.join(played.agents)}" for name, played in spaces[0].policies.items()]


def run_text(run: RunDir, row: dict[str, Any]) -> str:
    """The facts of one run, one per line."""
    from rl_training.experiments.keeping.filters import Key
    from rl_training.runs.directory import CLOCK_KEYS
    from rl_training.runs.names import env_fn_of

    facts = [
        *("status", "name", "algorithm", "environment", "seed", "tags", "notes", "group", "sweep", "parent"),
        *("started", "ended", "exit_code", "cleaned", "env_steps", "reward", "seconds", "git", "config_sha256"),
    ]
    lines = [bold(str(run.path))]
    lines += [f"  {name:<14}{cell(Key(name), row)}" for name in facts if row[name] not in (None, [])]
    lines += [f"  {'agents':<14}{printable(line)}" for line in agents_of(run)]
    if run.info().get("exact") is False:
        lines.append("  exact         false: a resume or a repetition does not give the same bits")
    results = {k: v for k, v in row["results"].items() if isinstance(v, int | float) and not k.startswith(CLOCK_KEYS)}
    if results:
        lines += ["", bold("results")]
        lines += [f"  {printable(name):<28}{cell(Key('results', (name,)), row)}" for name in sorted(results)]
    next_step = "resume" if row["status"] in ("stopped", "killed", "failed") else "eval"
    can_go_on = not row["cleaned"] and env_fn_of(str(row["environment"])) is None
    return "\n".join([*lines, *(["", f"  next          rl {next_step} {run.path}"] if can_go_on else [])])


COMMAND = Command(
    name="show",
    summary="show the facts of a run, a group of seeds or a sweep",
    usage="RUN|GROUP|SWEEP [flags]",
    options=ShowOptions,
    run=run,
    examples=("rl show latest", "rl show latest --json"),
    notes=f"{RUN_NAMES} {GROUP_NAMES}",
)
