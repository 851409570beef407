"""`rl sweep`: many configs from one file. What a sweep is and how it runs is in `experiments`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rl_training.cli.arguments import Arguments, UsageError
from rl_training.cli.group import parse_seeds
from rl_training.cli.output import bold, note, print_json, printable, show, table
from rl_training.system.formatting import number_text

if TYPE_CHECKING:
    from rl_training.experiments.launching.sweeps import Sweep


def sweep_command(arguments: Arguments) -> int:
    jobs, retries = arguments.number("jobs", low=1), arguments.number("retries")
    as_json = arguments.switch("json")
    if arguments.switch("resume"):
        sweep = named_sweep(arguments)
        sweep.trusted = arguments.switch("trust-plugins")
        only = arguments.number("only")
        if only is not None:
            return run_only(sweep, only)
        return resume_sweep(sweep, jobs=jobs, retries=retries, as_json=as_json)
    if arguments.switch("only"):
        raise UsageError("--only is for one run of a sweep that exists; name it with --resume")
    if arguments.switch("dry-run"):
        return dry_run(arguments)
    sweep = new_sweep(arguments)
    if arguments.text("emit"):
        return emit(sweep, as_json=as_json)
    with sweep.lock():
        return run_sweep(sweep, jobs=jobs, retries=retries, retry_failed=False, as_json=as_json)


def new_sweep(arguments: Arguments) -> Sweep:
    """The sweep of the file that was named, with flags on top of its base."""
    from dataclasses import replace

    from rl_training.cli.overrides import field_values
    from rl_training.config.files import find_config
    from rl_training.config.sweeps import load_sweep
    from rl_training.experiments.launching.sweeps import Sweep

    file, seeds = sweep_file(arguments), chosen_seeds(arguments)
    config = load_sweep(file)
    jobs, retries = arguments.number("jobs", low=1), arguments.number("retries")
    return Sweep.create(
        replace(
            config,
            parallel_jobs=jobs or config.parallel_jobs,
            retries=config.retries if retries is None else retries,
        ),
        overrides=field_values(arguments),
        seeds=seeds,
        argv=arguments.words,
        source=find_config(file).path.read_text(encoding="utf-8-sig"),
    )


def sweep_file(arguments: Arguments) -> str:
    from rl_training.cli.run import source_of

    file = source_of(arguments)
    if file is None:
        raise UsageError("'rl sweep' needs a sweep file, or --resume with a sweep (see 'rl sweep --help')")
    return file


def chosen_seeds(arguments: Arguments) -> list[int]:
    """The seeds of --seed, which belong to the sweep and not to its base."""
    return parse_seeds(arguments.overrides.pop("seed")) if "seed" in arguments.overrides else []


def dry_run(arguments: Arguments) -> int:
    """The trials, without starting them."""
    from rl_training.cli.overrides import field_values
    from rl_training.config.loading import load_config
    from rl_training.config.sweeps import load_sweep, seeds_of, trials_of
    from rl_training.config.yaml_reader import dump_mapping
    from rl_training.runs.directory import public_config
    from rl_training.runs.redaction import Redactor

    sweep = load_sweep(sweep_file(arguments))
    trials, seeds = trials_of(sweep), chosen_seeds(arguments) or list(seeds_of(sweep))
    overrides = field_values(arguments)
    if arguments.switch("json"):
        print_json({"base_config": sweep.base_config, "seeds": seeds, "trials": trials})
        return 0
    count, jobs = len(trials) * (len(seeds) or 1), arguments.number("jobs", low=1) or sweep.parallel_jobs
    show(f"{bold('Plan')}  {len(trials)} trials x {len(seeds) or 1} seeds = {count} runs, {jobs} at a time")
    show(f"      on {sweep.base_config}, seeds {', '.join(map(str, seeds)) or 'of the base'}\n")
    keys = list(dict.fromkeys(key for trial in trials for key in trial))
    cells = [[str(i), *(printable(str(trial.get(key, "-"))) for key in keys)] for i, trial in enumerate(trials)]
    show(table(["trial", *keys], cells))
    first = public_config(load_config(sweep.base_config, {**overrides, **trials[0]}), Redactor())
    show(f"\n{bold('Config of trial 0')}\n{dump_mapping(first).rstrip()}")
    note("dry run: nothing was written")
    return 0


def named_sweep(arguments: Arguments) -> Sweep:
    from rl_training.experiments.launching.sweeps import Sweep
    from rl_training.types import RunError

    extra = [*arguments.positional, *(f"--{path}" for path in arguments.overrides if path != "output_dir")]
    if extra:
        raise UsageError(f"a resumed sweep keeps its configs; drop {', '.join(extra)}")
    try:
        return Sweep.open(arguments.text("resume") or "latest", arguments.overrides.get("output_dir", "runs"))
    except RunError as error:
        raise UsageError(str(error)) from error


def resume_sweep(sweep: Sweep, *, jobs: int | None, retries: int | None, as_json: bool) -> int:
    """Go on with every run that is not finished; with those that failed if `retries` are asked for."""
    with sweep.lock():
        sweep.observe()
        return run_sweep(sweep, jobs=jobs, retries=retries, retry_failed=bool(retries), as_json=as_json)


def run_sweep(sweep: Sweep, *, jobs: int | None, retries: int | None, retry_failed: bool, as_json: bool) -> int:
    from rl_training.experiments.launching.group_display import make_view
    from rl_training.experiments.launching.group_runner import GroupRunner, at_a_time
    from rl_training.experiments.launching.member_threads import member_threads

    members = sweep.to_run(retry_failed=retry_failed)
    if not members:
        left = sweep.unfinished()
        failed = f"; {len(left)} failed, --retries 1 tries them again" if left else ""
        note(f"nothing to do: {len(sweep.members) - len(left)} of {len(sweep.members)} runs are finished{failed}")
        return finish(sweep, int(bool(left)), as_json=as_json)
    sweep.require_consent(members)
    cfg = sweep.config(0)
    parallel = at_a_time(cfg, jobs or sweep.info.jobs, len(members))
    note(f"{len(members)} runs of {len(sweep.info.trials)} trials, {parallel} at a time, in {sweep.path}")
    view = make_view(live=cfg.logging.terminal)
    tries = sweep.info.retries if retries is None else retries
    with member_threads(sweep, members) as thread:
        exit_code = GroupRunner(sweep, parallel, view, members=members, retries=tries, thread=thread).run()
    return finish(sweep, exit_code, as_json=as_json)


def run_only(sweep: Sweep, number: int) -> int:
    """One run of a sweep, which takes the place of this process: for schedulers that start each by itself."""
    from rl_training.experiments.launching.membership import consent_variable, membership_variable

    if number >= len(sweep.members):
        raise UsageError(f"--only {number}: sweep '{sweep.path}' has runs 0 to {len(sweep.members) - 1}")
    member = sweep.members[number]
    if member.status != "finished":
        words = sweep.command(member)
        note(f"{sweep.label(member)}: rl {words[0]}")
        variables = membership_variable(sweep.group_of(member), sweep.path, sweep.info.id)
        variables |= consent_variable(sweep.consent(member))
        os.execve(sys.executable, [sys.executable, "-m", "rl_training", *words], {**os.environ, **variables})
    note(f"nothing to do: {sweep.label(member)} is finished")
    return 0


def emit(sweep: Sweep, *, as_json: bool) -> int:
    from rl_training.experiments.launching.sweeps import write_slurm_script

    script = write_slurm_script(sweep)
    if as_json:
        print_json({"sweep": sweep.path.absolute(), "script": script, "runs": len(sweep.members)})
    else:
        show(script)
        note(f"start it with `sbatch {script}`; `rl sweep --resume {sweep.path}` then shows the results")
    return 0


def finish(sweep: Sweep, exit_code: int, *, as_json: bool) -> int:
    """The sweep's own results, on disk and for the reader."""
    from rl_training.experiments.launching.sweeps import write_sweep_summary

    summary = write_sweep_summary(sweep)
    if as_json:
        print_json({"path": sweep.path.absolute(), "exit_code": exit_code, **summary})
        return exit_code
    show(trials_table(summary["trials"]))
    show(sweep_text(sweep))
    return exit_code


def trials_table(trials: Sequence[dict[str, Any]]) -> str:
    """One line per trial, the best first: what it changes and what its seeds score."""
    keys = list(dict.fromkeys(key for trial in trials for key in trial["values"]))
    rows = []
    for trial in trials:
        result = trial["return"]
        interval = "-"
        if result and result["iqm"]["low"] is not None:
            interval = f"{number_text(result['iqm']['low'])} to {number_text(result['iqm']['high'])}"
        rows.append(
            [
                str(trial["trial"]),
                *(printable(str(trial["values"].get(key, "-"))) for key in keys),
                f"{trial['num_scores']}/{len(trial['runs'])}",
                number_text(result["iqm"]["value"] if result else None),
                interval,
                number_text(result["mean"] if result else None),
            ]
        )
    return table(["trial", *keys, "seeds", "IQM", "95% interval", "mean"], rows)


def sweep_text(sweep: Sweep) -> str:
    """What a user reads when a sweep is over, failures with their reasons."""
    left = sweep.unfinished()
    lines = ["", f"{len(sweep.members) - len(left)} of {len(sweep.members)} runs finished"]
    for member in left:
        reason = f"; {printable(member.reason)}" if member.reason else ""
        lines.append(f"  {sweep.label(member)}: {member.status}{reason}")
    lines.append(f"  sweep      {sweep.path}")
    if left:
        again = " --retries 1" if all(member.status == "failed" for member in left) else ""
        lines.append(f"  next       rl sweep --resume {sweep.path}{again}")
    else:
        lines.append(f"  next       rl list sweep={sweep.info.id} --sort reward")
    return "\n".join(lines)
