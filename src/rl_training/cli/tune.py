"""`rl tune`: a search for good hyperparameters. What it is and how it runs is in `experiments`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rl_training.cli.arguments import Arguments, UsageError
from rl_training.cli.output import bold, note, print_json, printable, show, table
from rl_training.cli.sweep import chosen_seeds
from rl_training.system.formatting import number_text

if TYPE_CHECKING:
    from rl_training.config.tuning import TuneConfig
    from rl_training.experiments.launching.tuning import Tuning

SHOWN = 10
"""Trials of the table; `--json` has all of them."""


def tune_command(arguments: Arguments) -> int:
    as_json = arguments.switch("json")
    if arguments.switch("resume"):
        tuning = named_tuning(arguments)
        tuning.sweep.trusted = arguments.switch("trust-plugins")
    else:
        config = tune_config(arguments)
        if arguments.switch("dry-run"):
            return dry_run(config, arguments, as_json=as_json)
        tuning = new_tuning(config, arguments)
    with tuning.sweep.lock():
        exit_code = run_tuning(tuning)
    return finish(tuning, exit_code, arguments, as_json=as_json)


def tune_config(arguments: Arguments) -> TuneConfig:
    """The file that was named, with the flags of the search on top."""
    from dataclasses import replace

    from rl_training.cli.run import source_of
    from rl_training.config.tuning import load_tune

    file = source_of(arguments)
    if file is None:
        raise UsageError("'rl tune' needs a tuning file, or --resume with a search (see 'rl tune --help')")
    config = load_tune(file)
    seeds, trials, jobs = chosen_seeds(arguments), arguments.number("trials", low=1), arguments.number("jobs", low=1)
    given: dict[str, Any] = {"seeds": tuple(seeds), "num_trials": trials, "parallel_jobs": jobs}
    given |= {name: arguments.text(name) for name in ("sampler", "pruner")}
    return replace(config, **{name: value for name, value in given.items() if value})


def new_tuning(config: TuneConfig, arguments: Arguments) -> Tuning:
    from rl_training.cli.overrides import field_values
    from rl_training.cli.run import source_text
    from rl_training.experiments.launching.tuning import Tuning

    overrides = field_values(arguments)
    return Tuning.create(config, overrides=overrides, argv=arguments.words, source=source_text(arguments))


def named_tuning(arguments: Arguments) -> Tuning:
    """The search to go on with; more trials may be asked for, nothing else changes."""
    from dataclasses import replace

    from rl_training.experiments.launching.tuning import Tuning
    from rl_training.types import RunError

    extra = [*arguments.positional, *(f"--{path}" for path in arguments.overrides if path != "output_dir")]
    extra += [f"--{name}" for name in ("sampler", "pruner", "dry-run", "config") if arguments.switch(name)]
    if extra:
        raise UsageError(f"a resumed search keeps its config; drop {', '.join(extra)} (--trials and --jobs may change)")
    output_dir = arguments.overrides.get("output_dir", "runs")
    try:
        tuning = Tuning.open_existing(arguments.text("resume") or "latest", output_dir)
    except RunError as error:
        raise UsageError(str(error)) from error
    trials, jobs = arguments.number("trials", low=1), arguments.number("jobs", low=1)
    tuning.config = replace(
        tuning.config,
        num_trials=trials or tuning.config.num_trials,
        parallel_jobs=jobs or tuning.config.parallel_jobs,
    )
    return tuning


def run_tuning(tuning: Tuning) -> int:
    from rl_training.experiments.launching.group_display import make_view
    from rl_training.experiments.launching.group_runner import GroupRunner

    config = tuning.config
    waiting = tuning.resume()
    left = config.num_trials - tuning.num_asked() + len(tuning.open)
    if left <= 0:
        note(f"nothing to do: {tuning.num_asked()} of {config.num_trials} trials are done; --trials asks for more")
        return 0
    tuning.sweep.require_consent(waiting)
    jobs = min(config.parallel_jobs, left)
    note(f"{left} trials x up to {len(config.seeds)} seeds, {jobs} at a time, in {tuning.sweep.path}")
    runner = GroupRunner(tuning.sweep, jobs, make_view(), members=waiting, retries=config.retries, feed=tuning.feed)
    exit_code = runner.run()
    return 0 if runner.stopped_by is None else exit_code


def dry_run(config: TuneConfig, arguments: Arguments, *, as_json: bool) -> int:
    """What would be searched."""
    from dataclasses import asdict

    from rl_training.cli.overrides import field_values
    from rl_training.config.loading import load_config
    from rl_training.config.yaml_reader import dump_mapping
    from rl_training.runs.directory import public_config
    from rl_training.runs.redaction import Redactor

    if as_json:
        print_json(asdict(config))
        return 0
    show(f"{bold('Plan')}  {config.num_trials} trials x up to {len(config.seeds)} seeds on {config.base_config}")
    show(
        f"      {config.sampler} with {config.pruner}, {config.parallel_jobs} at a time, "
        f"{config.direction} the {config.aggregate} of {config.metric}\n"
    )
    rows = [
        [key, f"{bounds.low:g} to {bounds.high:g}{' (log)' if bounds.log else ''}{' whole' if bounds.integer else ''}"]
        for key, bounds in config.ranges.items()
    ]
    rows += [[key, printable(", ".join(map(str, values)))] for key, values in config.sweep.items()]
    show(table(["key", "values"], rows))
    base = public_config(load_config(config.base_config, field_values(arguments)), Redactor())
    show(f"\n{bold('Config of the base')}\n{dump_mapping(base).rstrip()}")
    note("dry run: nothing was written")
    return 0


def finish(tuning: Tuning, exit_code: int, arguments: Arguments, *, as_json: bool) -> int:
    """The results, on disk and for the reader."""
    from rl_training.experiments.analysis.tune_plots import write_plots
    from rl_training.experiments.launching.sweeps import write_sweep_summary
    from rl_training.types import ConfigError

    write_sweep_summary(tuning.sweep)
    best, importance, exported = tuning.best(), tuning.importance(), None
    with suppress(ConfigError):  # no matplotlib: the numbers are there all the same
        write_plots(tuning)
    if best is not None and arguments.text("export-best"):
        exported = tuning.export_best(arguments.text("export-best") or "")
    failed = best is None and exit_code == 0
    if as_json:
        path = tuning.sweep.path.absolute()
        facts = {"path": path, "exit_code": exit_code or int(failed), "exported": exported}
        print_json({**facts, "best": best, "importance": importance, "trials": tuning.trials()})
    else:
        show(results_text(tuning, importance))
        if exported:
            show(f"  best       rl train {exported}")
    return exit_code or int(failed)


def results_text(tuning: Tuning, importance: dict[str, float]) -> str:
    """The best trials, what mattered, and what to type next."""
    trials = tuning.trials()
    keys = [*importance, *(key for key in tuning.space if key not in importance)]
    rows = [
        [
            "-" if trial["trial"] is None else str(trial["trial"]),
            trial["state"],
            number_text(trial["value"]),
            f"{len(trial['scores'])}/{len(tuning.config.seeds)}",
            *(printable(f"{trial['values'].get(key, '-')}") for key in keys),
        ]
        for trial in trials[:SHOWN]
    ]
    lines = [table(["trial", "state", tuning.config.aggregate, "seeds", *map(short, keys)], rows)]
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


def short(key: str) -> str:
    return key.removeprefix("hparams.")
