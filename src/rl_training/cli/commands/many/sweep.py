"""`rl sweep`: train many configs from one file, each with several seeds."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rl_training.cli.commands.many.planning import estimated, show_estimate
from rl_training.cli.commands.many.seeds import chosen_seeds
from rl_training.cli.commands.many.sweep_runs import SweepFlags, resume_sweep, run_sweep
from rl_training.cli.config_options import SHORT_FORMS, ConfigOptions, source_of
from rl_training.cli.flags import executor_flag, json_flag, optional_argument, switch, text, trust_flag, whole
from rl_training.cli.output import bold, note, print_json, printable, show, stdout_for_the_result, table
from rl_training.cli.parser import Command, UsageError

if TYPE_CHECKING:
    from rl_training.config.files import ConfigFile
    from rl_training.experiments.launching.sweeps import Sweep

SHOWN = 100
"""Trials of the table of a dry run."""


@dataclass(frozen=True, kw_only=True)
class SweepOptions(ConfigOptions):
    source: str | None = optional_argument()
    jobs: int | None = whole("runs at a time (default: parallel_jobs of the file)", low=1)
    executor: str | None = executor_flag()
    retries: int | None = whole("how often a run that failed is tried again (default: retries of the file)")
    resume: str | None = text("continue a sweep: by path, name, or latest", "SWEEP", values="runs")
    trust_plugins: bool = trust_flag("with --resume: agree to the code of a sweep that was not made here")
    emit: str | None = text("slurm: write an array job instead of starting the runs", "WHAT", choices=("slurm",))
    only: int | None = whole("with --resume: one run by its number, in this process (as the array job does)")
    dry_run: bool = switch("show the plan, the trials and a config; write nothing")
    json: bool = json_flag()


def run(options: SweepOptions) -> int:
    if options.resume is not None:
        sweep = named_sweep(options)
        sweep.trusted = options.trust_plugins
        if options.only is not None:
            return run_only(sweep, options.only)
        return resume_sweep(
            sweep, jobs=options.jobs, retries=options.retries, executor=options.executor, as_json=options.json
        )
    if options.only is not None:
        raise UsageError("--only is for one run of a sweep that exists; name it with --resume")
    if options.dry_run:
        return dry_run(options)
    sweep = new_sweep(options)
    if options.emit:
        return emit(sweep, as_json=options.json)
    with sweep.begin():
        flags = SweepFlags(options.jobs, options.retries, options.executor)
        return run_sweep(sweep, flags, retry_failed=False, as_json=options.json)


def new_sweep(options: SweepOptions) -> Sweep:
    """The sweep of the file that was named, with flags on top of its base."""
    from rl_training.cli.fields import field_values
    from rl_training.config.searches.sweeps import resolve_sweep
    from rl_training.config.sections.executor import named_executor
    from rl_training.experiments.launching.sweeps import Sweep

    file, seeds = sweep_file(options), chosen_seeds(options)
    document = file.read()
    config = resolve_sweep(document, file.path.parent)
    return Sweep.create(
        replace(
            config,
            parallel_jobs=options.jobs or config.parallel_jobs,
            retries=config.retries if options.retries is None else options.retries,
            executor=config.executor if options.executor is None else named_executor(options.executor, config.executor),
        ),
        overrides=field_values(options.fields.without("seed")),
        seeds=seeds,
        argv=options.words,
        source=document.text,
    )


def sweep_file(options: SweepOptions) -> ConfigFile:
    from rl_training.config.files import find_config

    file = source_of(options)
    if file is None:
        raise UsageError("'rl sweep' needs a sweep file, or --resume with a sweep (see 'rl sweep --help')")
    return find_config(file)


def dry_run(options: SweepOptions) -> int:
    """The trials, without starting them."""
    from rl_training.cli.commands.many.estimates import many_runs
    from rl_training.cli.fields import field_values
    from rl_training.config.loading import resolve_config
    from rl_training.config.searches.sweeps import resolve_sweep, seeds_of, trials_of
    from rl_training.config.yaml_reader import dump_mapping
    from rl_training.runs.directory import public_config
    from rl_training.runs.names import check_name
    from rl_training.runs.redaction import Redactor

    file = sweep_file(options)
    sweep = resolve_sweep(file.read(), file.path.parent)
    trials, seeds = trials_of(sweep), chosen_seeds(options) or list(seeds_of(sweep))
    overrides = field_values(options.fields.without("seed"))
    first = resolve_config(sweep.base_config, {**overrides, **trials[0]})
    check_name(first.config.name)
    with stdout_for_the_result(options.json):
        estimate = estimated(first, lambda cost: many_runs(first, cost, trials, seeds or [first.config.seed]))
    if options.json:
        print_json({"base_config": sweep.base_config, "seeds": seeds, "trials": trials, "estimate": estimate})
        return 0
    count, jobs = len(trials) * (len(seeds) or 1), options.jobs or sweep.parallel_jobs or 1
    show(f"{bold('Plan')}  {len(trials)} trials x {len(seeds) or 1} seeds = {count} runs, {jobs} at a time")
    show(f"      on {sweep.base_config}, seeds {', '.join(map(str, seeds)) or 'of the base'}\n")
    keys = list(dict.fromkeys(key for trial in trials for key in trial))
    shown = enumerate(trials[:SHOWN])
    show(table(["trial", *keys], [[str(i), *(printable(str(row.get(key, "-"))) for key in keys)] for i, row in shown]))
    if len(trials) > SHOWN:
        show(f"... {len(trials) - SHOWN} more (--json has all)")
    show_estimate(estimate)
    show(f"\n{bold('Config of trial 0')}\n{dump_mapping(public_config(first, Redactor())).rstrip()}")
    note("dry run: nothing was written")
    return 0


def named_sweep(options: SweepOptions) -> Sweep:
    """The sweep of --resume; UsageError for flags that would change it."""
    from rl_training.experiments.launching.sweeps import Sweep
    from rl_training.types import RunError

    texts = options.fields.texts
    extra = [options.source] if options.source is not None else []
    extra += [f"--{path}" for path in texts if path != "output_dir"]
    if extra:
        raise UsageError(f"a resumed sweep keeps its configs; drop {', '.join(extra)}")
    try:
        return Sweep.open(options.resume or "latest", texts.get("output_dir", "runs"))
    except RunError as error:
        raise UsageError(str(error)) from error


def run_only(sweep: Sweep, number: int) -> int:
    """Replace this process by one run of a sweep, for schedulers that start each run separately."""
    from rl_training.experiments.launching.membership import NAME_VARIABLE, membership_variables
    from rl_training.system.signals import REQUEUE_VARIABLE

    if number >= len(sweep.members):
        raise UsageError(f"--only {number}: sweep '{sweep.path}' has runs 0 to {len(sweep.members) - 1}")
    member = sweep.members[number]
    if member.status != "finished":
        words = sweep.command(member)
        note(f"{sweep.label(member)}: rl {words[0]}")
        consent = sweep.consent(member)
        variables = membership_variables(sweep.group_of(member), sweep.path, sweep.info.id, consent)
        del variables[REQUEUE_VARIABLE]  # it has no parent that would ask SLURM
        if words[0] == "train":
            variables[NAME_VARIABLE] = sweep.planned_run(member)
        os.execve(sys.executable, [sys.executable, "-m", "rl_training", *words], {**os.environ, **variables})
    note(f"nothing to do: {sweep.label(member)} is finished")
    return 0


def emit(sweep: Sweep, *, as_json: bool) -> int:
    from rl_training.experiments.launching.scheduling.slurm_script import write_slurm_scripts

    scripts = write_slurm_scripts(sweep)
    if as_json:
        facts = {"sweep": sweep.path.absolute(), "script": scripts[0], "scripts": scripts}
        print_json({**facts, "runs": len(sweep.members)})
        return 0
    for script in scripts:
        show(script)
    start = f"sbatch {scripts[0]}"
    if len(scripts) > 1:  # an array has only so many tasks
        start = f"for script in {sweep.path.absolute()}/slurm_*.sh; do sbatch $script; done"
    note(f"start it with `{start}`; `rl sweep --resume {sweep.path}` then shows the results")
    return 0


COMMAND = Command(
    name="sweep",
    summary="train many configs from one sweep file, each with several seeds",
    usage="[FILE] [flags]",
    options=SweepOptions,
    short_forms=SHORT_FORMS,
    run=run,
    examples=(
        "rl sweep --config configs/sweeps/ppo_sweep.yaml",
        "rl sweep configs/sweeps/ppo_sweep.yaml --total-timesteps 20000 --seed 0..4 --jobs 4",
        "rl sweep --resume latest --retries 1",
        "rl sweep configs/sweeps/ppo_sweep.yaml --emit slurm",
    ),
    notes="The file names a base_config and what its trials change: 'sweep' (all combinations), 'num_trials' with "
    "'sweep' and 'ranges' (random), or 'trials' (a list). Fields given as flags hold for every trial.",
)
