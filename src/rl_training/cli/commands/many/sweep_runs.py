"""Sweeps on the command line: how one is run or continued, and what is printed at its end.

What a sweep is and how it runs is in `experiments/launching`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from rl_training.cli.output import note, print_json, printable, show, table
from rl_training.cli.parser import UsageError
from rl_training.system.formatting import number_text

if TYPE_CHECKING:
    from rl_training.experiments.launching.executors import Launch
    from rl_training.experiments.launching.sweeps import Sweep


def resume_sweep(sweep: Sweep, *, jobs: int | None, retries: int | None, executor: str | None, as_json: bool) -> int:
    """Continue every run that is not finished, including failed ones if there are `retries`."""
    with sweep.lock():
        sweep.observe()
        flags = SweepFlags(jobs, retries, executor)
        return run_sweep(sweep, flags, retry_failed=bool(retries), as_json=as_json)


class SweepFlags(NamedTuple):
    """What a command line says about how a sweep is run; None where it says nothing."""

    jobs: int | None
    retries: int | None
    executor: str | None


def run_sweep(sweep: Sweep, flags: SweepFlags, *, retry_failed: bool, as_json: bool) -> int:
    from rl_training.experiments.launching.executors import launch
    from rl_training.experiments.launching.group_display import make_view

    if sweep.info.scheduler is not None:
        return run_scheduled(sweep, flags, as_json=as_json)
    members = sweep.to_run(retry_failed=retry_failed)
    if not members:
        left = sweep.unfinished()
        failed = f"; {len(left)} failed, --retries 1 tries them again" if left else ""
        note(f"nothing to do: {len(sweep.members) - len(left)} of {len(sweep.members)} runs are finished{failed}")
        return finish(sweep, int(bool(left)), as_json=as_json)
    sweep.require_consent(members)
    words = f"{len(members)} runs of {len(sweep.info.trials)} trials"
    terminal = sweep.config(members[0].trial).logging.terminal
    runner = launch(
        sweep,
        members,
        lambda: make_view(live=terminal),
        launch_of(sweep, flags),
        announce=lambda at_a_time: note(f"{words}, {at_a_time}, in {sweep.path}"),
    )
    return finish(sweep, runner.exit_code or 0, as_json=as_json)


def launch_of(sweep: Sweep, flags: SweepFlags) -> Launch:
    """How a sweep is run: as recorded, with the flags on top."""
    from rl_training.experiments.launching.executors import Launch, executor_config

    sweep.executor_given = flags.executor is not None
    config = executor_config(sweep, flags.executor)
    jobs = flags.jobs or sweep.info.jobs or (1 if config.type in ("local", "threads") else None)
    return Launch(config, jobs, sweep.info.retries if flags.retries is None else flags.retries)


def run_scheduled(sweep: Sweep, flags: SweepFlags, *, as_json: bool) -> int:
    """Run a sweep whose scheduler decides which trials go on."""
    from rl_training.experiments.launching.executors import launch
    from rl_training.experiments.launching.group_display import make_view
    from rl_training.experiments.launching.scheduling.making import make_scheduler
    from rl_training.experiments.launching.scheduling.scores import scheduler_config

    if sweep.is_search:
        raise UsageError(f"'{sweep.path}' is a search with a scheduler; go on with `rl tune --resume {sweep.path}`")
    config = scheduler_config(sweep.info.scheduler)
    scheduler = make_scheduler(sweep, config)
    try:
        if scheduler.is_over():
            note("nothing to do: the scheduler has no trial left to go on with")
            return finish(sweep, 0, as_json=as_json)
        sweep.require_consent(sweep.members)
        words = f"{len(sweep.info.trials)} trials, scheduled by {config.type}"
        terminal = sweep.config(sweep.members[0].trial).logging.terminal
        runner = launch(
            sweep,
            [],
            lambda: make_view(live=terminal),
            replace(launch_of(sweep, flags), feed=scheduler.feed),
            announce=lambda at_a_time: note(f"{words}, {at_a_time}, in {sweep.path}"),
        )
        by_itself = runner.stopped_by is None and not runner.executor_is_gone
        if config.type == "asha":
            note(steps_text(scheduler.steps_used(), sweep))
    finally:
        scheduler.close()
    failed = any(member.status in ("failed", "killed") for member in sweep.members)
    return finish(sweep, int(failed) if by_itself else runner.exit_code or 0, as_json=as_json)


def steps_text(used: int, sweep: Sweep) -> str:
    """What a scheduler has saved."""
    whole = sum(sweep.total(member) for member in sweep.members)
    return f"{used:,} env steps, {used / whole:.0%} of running every trial to its end"


def finish(sweep: Sweep, exit_code: int, *, as_json: bool) -> int:
    """Write the sweep's results and print them; returns the exit code."""
    from rl_training.experiments.launching.sweeps import write_sweep_summary

    summary = write_sweep_summary(sweep)
    if as_json:
        print_json({"path": sweep.path.absolute(), "exit_code": exit_code, **summary})
        return exit_code
    show(trials_table(summary["trials"]))
    show(sweep_text(sweep))
    return exit_code


def trials_table(trials: Sequence[dict[str, Any]]) -> str:
    """One line per trial, the best first: its values and the scores of its seeds."""
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
    """The end of a sweep in a few lines: failures with their reasons, and what to type next."""
    left = sweep.unfinished()
    lines = ["", f"{len(sweep.members) - len(left)} of {len(sweep.members)} runs finished"]
    if sweep.info.scheduler is not None:  # the others were ended early
        lines[-1] += f", {sum(member.status == 'stopped' for member in left)} paused by the scheduler"
        left = [member for member in left if member.status != "stopped"]
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
