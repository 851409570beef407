"""`rl resume`: continue a run, a group of seeds or a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_training.cli.flags import (
    allow_changed_config_flag,
    argument,
    executor_flag,
    json_flag,
    output_dir_flag,
    trust_flag,
    whole,
)
from rl_training.cli.output import print_json, stdout_for_the_result
from rl_training.cli.parser import Command, UsageError
from rl_training.cli.targets import find_target
from rl_training.system.imports import without_collections
from rl_training.system.launch import leads

if TYPE_CHECKING:
    from rl_training.experiments.launching.membership import Membership
    from rl_training.runs.directory import RunDir
    from rl_training.trainer import TrainResult

TARGETS = (
    "RUN is a run directory, the start of its name or its --name (if only one fits), or 'latest'. GROUP is a "
    "folder of seeds in <output-dir>/groups, or for 'rl resume' a sweep in <output-dir>/sweeps, named in the same way."
)
"""Note of the help pages of `rl resume` and `rl eval`."""


@dataclass(frozen=True, kw_only=True)
class ResumeOptions:
    run: str = argument(values="runs")
    total_timesteps: int | None = whole("train to this many env steps instead of the run's own budget", low=1)
    total_updates: int | None = whole("train an offline run to this many updates instead of its own budget", low=1)
    runners: int | None = whole("runners of a run with env.collector: ray, from now on", low=1)
    jobs: int | None = whole("runs at a time of a group (default: as it was started)", low=1)
    executor: str | None = executor_flag()
    trust_plugins: bool = trust_flag()
    allow_changed_config: bool = allow_changed_config_flag()
    output_dir: str | None = output_dir_flag()
    json: bool = json_flag()


def run(options: ResumeOptions) -> int:
    from rl_training.experiments.launching.membership import join_group
    from rl_training.experiments.launching.sweeps import Sweep
    from rl_training.runs.directory import RunDir

    member = join_group()
    target = find_target(options.run, options.output_dir)
    if isinstance(target, RunDir):
        return resume_run(target, options, member)
    if options.allow_changed_config:
        raise UsageError("--allow-changed-config is for one run; resume the runs that were changed one by one")
    if options.runners is not None:
        raise UsageError("--runners is for one run; resume the runs one by one")
    if options.total_updates is not None:
        raise UsageError("--total-updates is for one offline run; resume the runs one by one")
    target.trusted = options.trust_plugins
    if isinstance(target, Sweep):
        from rl_training.cli.commands.many.sweep_runs import resume_sweep

        if options.total_timesteps is not None:
            raise UsageError("a sweep keeps its configs; drop --total-timesteps")
        return resume_sweep(target, jobs=options.jobs, retries=None, executor=options.executor, as_json=options.json)
    from rl_training.cli.commands.many.seed_groups import resume_group

    return resume_group(
        target,
        jobs=options.jobs,
        total_timesteps=options.total_timesteps,
        executor=options.executor,
        as_json=options.json,
    )


def resume_run(run: RunDir, options: ResumeOptions, member: Membership | None = None) -> int:
    """Continue one run in this process."""
    if options.jobs is not None:
        raise UsageError("--jobs is for a group of seeds; this is one run")
    if options.executor is not None:
        raise UsageError("--executor is for a group of seeds or a sweep; this is one run, which goes on here")
    consent = member.consent if member is not None and member.consent.level != "none" else None
    with stdout_for_the_result(options.json):
        with without_collections():
            from rl_training.trainer import resume
        result = resume(
            run.path,
            total_timesteps=options.total_timesteps,
            total_updates=options.total_updates,
            runners=options.runners,
            allow_changed_config=options.allow_changed_config,
            trust_plugins=options.trust_plugins,
            consent=consent,
            pause_at=None if member is None else member.pause_at,
        )
    return finish(result, as_json=options.json)


def finish(result: TrainResult, *, as_json: bool) -> int:
    """Print the result of a training where JSON is wanted (the trainer has told the rest); returns the exit code."""
    if as_json and leads():
        print_json(
            {
                "run": result.run_dir,
                "checkpoint": result.checkpoint_path,
                "stop_reason": result.stop_reason,
                "exit_code": result.exit_code,
                "metrics": result.metrics,
            }
        )
    return result.exit_code


COMMAND = Command(
    name="resume",
    summary="continue a stopped run, or the seeds of a group, exactly where they were",
    usage="RUN|GROUP [flags]",
    options=ResumeOptions,
    run=run,
    examples=(
        "rl resume latest",
        "rl resume latest --total-timesteps 1000000",
        "rl resume runs/groups/ppo__CartPole-v1__20260101-120000",
    ),
    notes=TARGETS,
)
