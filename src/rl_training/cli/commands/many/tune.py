"""`rl tune`: search for good hyperparameters. What a search is and how it runs is in `experiments/launching`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from rl_training.cli.commands.many.planning import estimated, show_estimate
from rl_training.cli.commands.many.seeds import chosen_seeds
from rl_training.cli.commands.many.sweep_runs import steps_text
from rl_training.cli.config_options import SHORT_FORMS, ConfigOptions, source_of
from rl_training.cli.flags import executor_flag, json_flag, optional_argument, switch, text, trust_flag, whole
from rl_training.cli.output import bold, note, print_json, printable, show, stdout_for_the_result, table
from rl_training.cli.parser import Command, UsageError
from rl_training.system.formatting import number_text

if TYPE_CHECKING:
    from rl_training.config.searches.schedulers import SchedulerConfig
    from rl_training.config.searches.tuning import TuneConfig
    from rl_training.experiments.launching.group_runner import GroupRunner
    from rl_training.experiments.launching.tuning import Tuning

SHOWN = 10
"""Trials of the table; `--json` has all of them."""
FIXED = ("sampler", "pruner", "dry-run", "config")
"""Flags that a search which is resumed does not take."""


@dataclass(frozen=True, kw_only=True)
class TuneOptions(ConfigOptions):
    source: str | None = optional_argument()
    trials: int | None = whole("trials in all (default: num_trials of the file)", low=1)
    jobs: int | None = whole("trials at a time (default: parallel_jobs of the file)", low=1)
    executor: str | None = executor_flag()
    sampler: str | None = text("how values are chosen", "NAME", choices=("tpe", "random", "qmc", "gp", "cmaes"))
    pruner: str | None = text("when a trial is ended early", "NAME", choices=("wilcoxon", "median", "none"))
    resume: str | None = text("continue a search: by path, name, or latest", "SEARCH", values="runs")
    trust_plugins: bool = trust_flag("with --resume: agree to the code of a search that was not made here")
    export_best: str | None = text("write the config of the best trial", "FILE")
    dry_run: bool = switch("show the plan, the search space and the base; write nothing")
    json: bool = json_flag()


def run(options: TuneOptions) -> int:
    if options.resume is not None:
        tuning = named_tuning(options)
        tuning.sweep.trusted = options.trust_plugins
    else:
        config, source = tune_config(options)
        if options.dry_run:
            return dry_run(config, options)
        tuning = new_tuning(config, source, options)
    with tuning.sweep.begin():
        exit_code = run_tuning(tuning, options.executor)
    return finish(tuning, exit_code, options)


def tune_config(options: TuneOptions) -> tuple[TuneConfig, str]:
    """The file that was named, with the flags of the search on top, and its text."""
    from rl_training.config.files import find_config
    from rl_training.config.searches.tuning import resolve_tune
    from rl_training.config.sections.executor import named_executor

    named = source_of(options)
    if named is None:
        raise UsageError("'rl tune' needs a tuning file, or --resume with a search (see 'rl tune --help')")
    file = find_config(named)
    document = file.read()
    config = resolve_tune(document, file.path.parent)
    executor = None if options.executor is None else named_executor(options.executor, config.executor)
    given: dict[str, Any] = {
        "seeds": tuple(chosen_seeds(options)),
        "num_trials": options.trials,
        "parallel_jobs": options.jobs,
        "sampler": options.sampler,
        "pruner": options.pruner,
        "executor": executor,
    }
    return replace(config, **{name: value for name, value in given.items() if value}), document.text


def new_tuning(config: TuneConfig, source: str, options: TuneOptions) -> Tuning:
    from rl_training.cli.fields import field_values
    from rl_training.experiments.launching.tuning import Tuning

    overrides = field_values(options.fields.without("seed"))
    return Tuning.create(config, overrides=overrides, argv=options.words, source=source)


def named_tuning(options: TuneOptions) -> Tuning:
    """The search to continue; more trials may be asked for, nothing else changes."""
    from rl_training.config.sections.executor import named_executor
    from rl_training.experiments.launching.tuning import Tuning
    from rl_training.types import RunError

    texts = options.fields.texts
    extra = [options.source] if options.source is not None else []
    extra += [f"--{path}" for path in texts if path != "output_dir"]
    extra += [f"--{name}" for name in FIXED if name in options.given]
    if extra:
        raise UsageError(f"a resumed search keeps its config; drop {', '.join(extra)} (--trials and --jobs may change)")
    try:
        tuning = Tuning.open_existing(options.resume or "latest", texts.get("output_dir", "runs"))
    except RunError as error:
        raise UsageError(str(error)) from error
    executor = tuning.config.executor
    tuning.config = replace(
        tuning.config,
        executor=executor if options.executor is None else named_executor(options.executor),
        num_trials=options.trials or tuning.config.num_trials,
        parallel_jobs=options.jobs or tuning.config.parallel_jobs,
    )
    return tuning


def run_tuning(tuning: Tuning, executor: str | None) -> int:
    from rl_training.experiments.launching.executors import Launch, launch, require_plain
    from rl_training.experiments.launching.group_display import make_view

    config = tuning.config
    if not (tuning.sweep.planned_here or tuning.sweep.trusted or tuning.sweep.is_own):
        require_plain(config.executor, tuning.sweep, executor)
    waiting = tuning.resume()
    tuning.sweep.executor_given = executor is not None
    if config.scheduler is not None:
        return run_scheduled(tuning, config.scheduler)
    left = config.num_trials - tuning.num_asked() + len(tuning.open)
    if left <= 0:
        note(f"nothing to do: {tuning.num_asked()} of {config.num_trials} trials are done; --trials asks for more")
        return 0
    tuning.sweep.require_consent(waiting)
    jobs = jobs_of(config)
    words = f"{left} trials x up to {len(config.seeds)} seeds"
    runner = launch(
        tuning.sweep,
        waiting,
        make_view,
        Launch(config.executor, left if jobs is None else min(jobs, left), config.retries, tuning.feed),
        announce=lambda at_a_time: note(f"{words}, {at_a_time}, in {tuning.sweep.path}"),
    )
    return exit_code_of(runner)


def run_scheduled(tuning: Tuning, how: SchedulerConfig) -> int:
    """Run a search whose scheduler decides which of the suggested trials go on."""
    from rl_training.experiments.launching.executors import Launch, launch
    from rl_training.experiments.launching.group_display import make_view
    from rl_training.experiments.launching.scheduling.making import make_scheduler
    from rl_training.experiments.launching.scheduling.suggested import SuggestedTrials

    config, sweep = tuning.config, tuning.sweep
    scheduler = make_scheduler(sweep, how, SuggestedTrials(tuning))
    try:
        if scheduler.is_over():
            more = "" if how.type == "pbt" else "; --trials asks for more"
            note(f"nothing to do: the scheduler has no trial left to go on with{more}")
            return 0
        sweep.require_consent(sweep.members)
        words = f"{config.num_trials} trials x {len(config.seeds)} seeds, scheduled by {how.type}"
        runner = launch(
            sweep,
            [],
            make_view,
            Launch(config.executor, jobs_of(config), config.retries, scheduler.feed),
            announce=lambda at_a_time: note(f"{words}, {at_a_time}, in {sweep.path}"),
        )
        if how.type == "asha" and sweep.members:
            note(steps_text(scheduler.steps_used(), sweep))
    finally:
        scheduler.close()
    return exit_code_of(runner)


def jobs_of(config: TuneConfig) -> int | None:
    """Runs at a time: one on this host, and as many as fit on a cluster, unless the user has said."""
    return config.parallel_jobs or (1 if config.executor.type in ("local", "threads") else None)


def exit_code_of(runner: GroupRunner) -> int:
    """0 for a search that ended by itself, also if single trials failed."""
    ended_by_itself = runner.stopped_by is None and not runner.executor_is_gone
    return 0 if ended_by_itself else runner.exit_code or 0


def dry_run(config: TuneConfig, options: TuneOptions) -> int:
    """The search, without starting it."""
    from rl_training.cli.commands.many.estimates import search_runs
    from rl_training.cli.fields import field_values
    from rl_training.config.loading import resolve_config
    from rl_training.config.yaml_reader import dump_mapping
    from rl_training.runs.directory import public_config
    from rl_training.runs.names import check_name
    from rl_training.runs.redaction import Redactor

    base = resolve_config(config.base_config, field_values(options.fields.without("seed")))
    check_name(base.config.name)
    with stdout_for_the_result(options.json):
        estimate = estimated(base, lambda cost: search_runs(base, cost, config))
    if options.json:
        print_json({**asdict(config), "estimate": estimate})
        return 0
    show(f"{bold('Plan')}  {config.num_trials} trials x up to {len(config.seeds)} seeds on {config.base_config}")
    ended_by = f"pruner {config.pruner}" if config.scheduler is None else f"scheduler {config.scheduler.type}"
    show(
        f"      {config.sampler} with {ended_by}, {config.parallel_jobs or 1} at a time, "
        f"{config.direction} the {config.aggregate} of {config.metric}\n"
    )
    rows = [
        [key, f"{bounds.low:g} to {bounds.high:g}{' (log)' if bounds.log else ''}{' whole' if bounds.integer else ''}"]
        for key, bounds in config.ranges.items()
    ]
    rows += [[key, printable(", ".join(map(str, values)))] for key, values in config.sweep.items()]
    show(table(["key", "values"], rows))
    show_estimate(estimate)
    show(f"\n{bold('Config of the base')}\n{dump_mapping(public_config(base, Redactor())).rstrip()}")
    note("dry run: nothing was written")
    return 0


def finish(tuning: Tuning, exit_code: int, options: TuneOptions) -> int:
    """Write the results and print them; returns the exit code."""
    from rl_training.experiments.analysis.tune_plots import write_plots
    from rl_training.experiments.launching.sweeps import write_sweep_summary
    from rl_training.types import ConfigError

    write_sweep_summary(tuning.sweep)
    best, importance, exported = tuning.best(), tuning.importance(), None
    with suppress(ConfigError):  # no matplotlib: the numbers are printed all the same
        write_plots(tuning)
    if best is not None and options.export_best:
        exported = tuning.export_best(options.export_best)
    failed = best is None and exit_code == 0
    if options.json:
        path = tuning.sweep.path.absolute()
        facts = {"path": path, "exit_code": exit_code or int(failed), "exported": exported}
        print_json({**facts, "best": best, "importance": importance, "trials": tuning.trials()})
    else:
        show(results_text(tuning, importance))
        if exported:
            show(f"  best       rl train {exported}")
    return exit_code or int(failed)


def results_text(tuning: Tuning, importance: dict[str, float]) -> str:
    """The best trials, the importance of each key, and what to type next."""
    trials = tuning.trials()
    stage, num_stages = stages_of(tuning.config)
    keys = [*importance, *(key for key in tuning.space if key not in importance)]
    rows = [
        [
            "-" if trial["trial"] is None else str(trial["trial"]),
            trial["state"],
            number_text(trial["value"]),
            f"{len(trial['scores'])}/{num_stages}",
            *(printable(f"{trial['values'].get(key, '-')}") for key in keys),
        ]
        for trial in trials[:SHOWN]
    ]
    lines = [table(["trial", "state", tuning.config.aggregate, stage, *map(short, keys)], rows)]
    if len(trials) > SHOWN:
        lines.append(f"... {len(trials) - SHOWN} more")
    states = [trial["state"] for trial in trials]
    counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
    lines += ["", f"{len(trials)} trials: {', '.join(counts)}"]
    if importance:
        lines.append("  matters    " + ", ".join(f"{short(key)} {share:.2f}" for key, share in importance.items()))
    lines.append(f"  search     {tuning.sweep.path}")
    lines.append(f"  next       rl tune --resume {tuning.sweep.path} --export-best best.yaml")
    return "\n".join(lines)


def stages_of(config: TuneConfig) -> tuple[str, int]:
    """What the scores of a trial are of, and how many a whole trial has."""
    scheduler = config.scheduler
    if scheduler is None:
        return "seeds", len(config.seeds)
    return ("rungs", scheduler.num_rungs) if scheduler.type == "asha" else ("intervals", scheduler.num_intervals)


def short(key: str) -> str:
    return key.removeprefix("hparams.")


COMMAND = Command(
    name="tune",
    summary="search for good hyperparameters, scored over several seeds",
    usage="[FILE] [flags]",
    options=TuneOptions,
    short_forms=SHORT_FORMS,
    run=run,
    examples=(
        "rl tune --config configs/sweeps/ppo_tune.yaml",
        "rl tune configs/sweeps/ppo_tune.yaml --trials 30 --jobs 4 --export-best best.yaml",
        "rl tune --resume latest --trials 60",
    ),
    notes="The file names a base_config and, if the search space that ships for its algorithm does not fit, 'ranges' "
    "and 'sweep'. Fields given as flags hold for every trial.",
)
