"""`rl list`, `show`, `tag`, `diff`, `index rebuild`: what is known of runs. Nothing heavy is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_training.cli.arguments import Arguments, UsageError
from rl_training.cli.output import bold, note, print_json, printable, show, table
from rl_training.cli.targets import find_target, output_dir, runs_of
from rl_training.system.formatting import number_text

if TYPE_CHECKING:
    from pathlib import Path

    from rl_training.experiments.keeping.filters import Key
    from rl_training.experiments.launching.groups import SeedGroup
    from rl_training.experiments.launching.sweeps import Sweep
    from rl_training.runs.directory import RunDir

SHOWN = "directory,name,status,environment,algorithm,seed,env_steps,reward,tags"
"""Columns of `rl list` where nobody says otherwise."""
LIMIT = 50
CELL = 60
"""Characters of a cell; `--json` has all of them."""


def list_command(arguments: Arguments) -> int:
    from rl_training.experiments.keeping.filters import check_keys, find_key
    from rl_training.experiments.keeping.tracker import ExperimentTracker

    as_json = arguments.switch("json")
    typed = arguments.text("columns")
    names = [name.strip() for name in (typed or SHOWN).split(",") if name.strip()]
    keys = {name: find_key(name) for name in names}
    folder = output_dir(arguments)
    limit = arguments.number("limit")
    everything = as_json and typed is None
    rows = ExperimentTracker(folder).find_experiments(
        *arguments.positional,
        arguments.text("filter") or "",
        sort=arguments.text("sort"),
        large={"results"} if everything else {key.column for key in keys.values()},
    )
    check_keys(keys.values(), rows)
    shown = rows if limit == 0 or (limit is None and as_json) else rows[: limit or LIMIT]
    if as_json:
        print_json(shown if everything else [{name: key.of(row) for name, key in keys.items()} for row in shown])
    elif shown:
        show(table(names, [[cell(key, row) for key in keys.values()] for row in shown]))
        if len(shown) < len(rows):
            note(f"{len(shown)} of {len(rows)} runs; --limit 0 shows all")
    else:
        is_filtered = any([*arguments.positional, arguments.text("filter")])
        none_yet = f"no runs yet in '{printable(folder)}'; 'rl train ppo/cartpole' makes one"
        note("no run passes the filter" if is_filtered else none_yet)
    return 0


def cell(key: Key, row: dict[str, Any]) -> str:
    """A value as a person reads it, with nothing in it that a terminal would obey."""
    value = key.of(row)
    if value is None or value == []:
        return "-"
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if key.column == "env_steps" else str(value)
    if key.column == "status" and row.get("cleaned"):
        value = f"{value}, cleaned"
    text = printable(", ".join(map(str, value)) if isinstance(value, list) else str(value))
    return text if len(text) <= CELL else f"{text[: CELL - 3]}..."


def show_command(arguments: Arguments) -> int:
    from rl_training.runs.directory import RunDir
    from rl_training.runs.index import describe

    found = find_target(arguments, arguments.positional[0])
    if not isinstance(found, RunDir):
        return show_many(found, as_json=arguments.switch("json"))
    row = describe(found.path)
    if arguments.switch("json"):
        print_json({"path": found.path, **row, "info": found.info()})
    else:
        show(run_text(found, row))
    return 0


def show_many(found: SeedGroup | Sweep, *, as_json: bool) -> int:
    """A group or a sweep as it is now: the table and the statistics that its own command prints at the end."""
    from rl_training.cli import group as group_texts
    from rl_training.cli import sweep as sweep_texts
    from rl_training.experiments.analysis.group_summary import summarize
    from rl_training.experiments.launching.groups import SeedGroup
    from rl_training.experiments.launching.sweeps import summarize_sweep

    if isinstance(found, SeedGroup):
        summary = summarize(found)
        lines = [group_texts.runs_table(found), group_texts.group_text(found, summary, [])]
    else:
        summary = summarize_sweep(found)
        lines = [sweep_texts.trials_table(summary["trials"]), sweep_texts.sweep_text(found)]
    if as_json:
        print_json({"path": found.path.absolute(), **summary})
    else:
        show("\n".join(lines))
    return 0


def run_text(run: RunDir, row: dict[str, Any]) -> str:
    """What is known of one run, in lines."""
    from rl_training.experiments.keeping.filters import Key
    from rl_training.runs.directory import CLOCK_KEYS
    from rl_training.runs.names import env_fn_of

    facts = [
        *("status", "name", "algorithm", "environment", "seed", "tags", "group", "sweep", "parent"),
        *("started", "ended", "exit_code", "cleaned", "env_steps", "reward", "seconds", "git", "config_sha256"),
    ]
    lines = [bold(str(run.path))]
    lines += [f"  {name:<14}{cell(Key(name), row)}" for name in facts if row[name] not in (None, [])]
    results = {k: v for k, v in row["results"].items() if isinstance(v, int | float) and not k.startswith(CLOCK_KEYS)}
    if results:
        lines += ["", bold("results")]
        lines += [f"  {printable(name):<28}{cell(Key('results', (name,)), row)}" for name in sorted(results)]
    next_step = "resume" if row["status"] in ("stopped", "killed", "failed") else "eval"
    can_go_on = not row["cleaned"] and env_fn_of(str(row["environment"])) is None
    return "\n".join([*lines, *(["", f"  next          rl {next_step} {run.path}"] if can_go_on else [])])


def tag_command(arguments: Arguments) -> int:
    from rl_training.experiments.keeping.tracker import add_tags
    from rl_training.runs.directory import RunDir
    from rl_training.runs.index import record

    named, *tags = arguments.positional
    removed = [tag for tag in (arguments.text("remove") or "").split(",") if tag]
    if not tags and not removed:
        raise UsageError("'rl tag' needs tags to add, or --remove with tags to take away")
    target = find_target(arguments, named)
    tagged = {}
    for run in runs_of(target):
        tagged[run.path] = add_tags(run, tags, remove=removed)
        record(run.path)
    if arguments.switch("json"):
        records = [{"run": path, "tags": now} for path, now in tagged.items()]
        print_json(records[0] if isinstance(target, RunDir) else {"path": target.path.absolute(), "runs": records})
        return 0
    for path, now in tagged.items():
        show(f"{path.name}: {printable(', '.join(now)) or 'no tags'}")
    return 0


def diff_command(arguments: Arguments) -> int:
    from rl_training.experiments.keeping.run_diff import side_differences

    targets = [find_target(arguments, named) for named in arguments.positional]
    sides = [runs_of(target) for target in targets]
    found = side_differences(*sides)
    if arguments.switch("json"):
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


def value_text(value: Any) -> str:
    """A value of a config or a result in one cell; of several runs, their values."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = printable("-" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value))
    return text if len(text) <= CELL else f"{text[: CELL - 3]}..."


def rebuild_command(arguments: Arguments) -> int:
    import sqlite3

    from rl_training.runs.index import RunIndex
    from rl_training.types import RunError

    index = RunIndex(output_dir(arguments))
    if not index.output_dir.is_dir():
        raise UsageError(f"no folder '{index.output_dir}'; name it with --output-dir")
    try:
        count, mode = index.rebuild(), index.journal_mode()
    except (sqlite3.Error, OSError) as error:
        raise RunError(f"cannot write the index '{index.path}': {error}; {cure_of(index.output_dir)}") from error
    if arguments.switch("json"):
        print_json({"index": index.path, "runs": count, "journal_mode": mode})
    else:
        show(f"{index.path}: {count} runs")
    return 0


def cure_of(folder: Path) -> str:
    """What to do where a folder cannot be written to."""
    from rl_training.system.atomic_io import disk_state

    state = disk_state(folder)
    if state == "the disk is full":
        return f"{state}: `rl cleanup` makes room"
    return f"{state}; `rl list` works without an index" if state else "make it and its folder yours"
