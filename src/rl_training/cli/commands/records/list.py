"""`rl list`: runs in a table. Nothing heavy is imported."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.cli.commands.records.cells import cell
from rl_training.cli.flags import arguments, json_flag, names, output_dir_flag, text, whole
from rl_training.cli.output import note, print_json, printable, show, table
from rl_training.cli.parser import Command
from rl_training.cli.targets import existing_dir

SHOWN = ("directory", "name", "status", "environment", "algorithm", "seed", "env_steps", "reward", "tags")
"""Columns without --columns."""
LIMIT = 50


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    filters: tuple[str, ...] = arguments(most=100)
    filter: str | None = text("runs to list, such as 'algorithm=ppo and reward>400'", "FILTER")
    sort: str | None = text("column or metric: best, newest or A first; with a minus sign the other way round", "KEY")
    columns: tuple[str, ...] = names("what to show of each run", "A,B")
    limit: int | None = whole("runs to list, 0 for all (default 50 in a table, all with --json)")
    output_dir: str | None = output_dir_flag("folder of the runs (default runs)")
    json: bool = json_flag()


def run(options: ListOptions) -> int:
    from rl_training.experiments.keeping.filters import check_keys, find_key
    from rl_training.experiments.keeping.tracker import ExperimentTracker

    keys = {name: find_key(name) for name in options.columns or SHOWN}
    folder = existing_dir(options.output_dir)
    everything = options.json and not options.columns
    rows = ExperimentTracker(folder).find_experiments(
        *options.filters,
        options.filter or "",
        sort=options.sort,
        large={"results"} if everything else {key.column for key in keys.values()},
    )
    check_keys(keys.values(), rows)
    is_whole = options.limit == 0 or (options.limit is None and options.json)
    shown = rows if is_whole else rows[: options.limit or LIMIT]
    if options.json:
        print_json(shown if everything else [{name: key.of(row) for name, key in keys.items()} for row in shown])
    elif shown:
        show(table(list(keys), [[cell(key, row) for key in keys.values()] for row in shown]))
        if len(shown) < len(rows):
            note(f"{len(shown)} of {len(rows)} runs; --limit 0 shows all")
    else:
        is_filtered = any([*options.filters, options.filter])
        none_yet = f"no runs yet in '{printable(folder)}'; 'rl train ppo/cartpole' makes one"
        note("no run passes the filter" if is_filtered else none_yet)
    return 0


COMMAND = Command(
    name="list",
    summary="list runs: filter, sort, choose columns",
    usage="[FILTER...] [flags]",
    options=ListOptions,
    run=run,
    examples=(
        "rl list",
        "rl list --filter algorithm=ppo --sort reward",
        "rl list 'status=failed or status=killed'",
        "rl list 'reward>400 and env=CartPole-v1' --columns id,seed,hparams.learning_rate,eval/return_iqm",
    ),
    notes="A filter compares with = != > >= < <= ~ (contains) and joins with and, or, not and parentheses. A key is a "
    "column (status, algorithm, environment, seed, tag, group, sweep, reward, loss, env_steps, started, ...), a metric "
    "or a field of the config. Quote filters: a shell takes > for a redirection.",
)
