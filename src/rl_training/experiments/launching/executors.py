"""Executors by name: the one that a file or a flag asks for, ready to start the members of a group, sweep or search."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from rl_training.config.schema import TrainConfig
from rl_training.config.sections.executor import ExecutorConfig, named_executor
from rl_training.distributed.executors import Executor, Resources
from rl_training.distributed.local_executor import LocalExecutor
from rl_training.experiments.launching.group_display import GroupView
from rl_training.experiments.launching.group_runner import GroupRunner, Limits, at_a_time
from rl_training.experiments.launching.member import Member
from rl_training.experiments.launching.member_threads import ThreadExecutor, threads_fit
from rl_training.experiments.launching.members import RunSet
from rl_training.registry import check_call, check_methods, executors
from rl_training.system.machine import usable_cores
from rl_training.trust.consent import Consent, scope
from rl_training.types import ConfigError, RunError

METHODS = ("slots", "start", "lost", "close")


def executor_config(runs: RunSet, flag: str | None) -> ExecutorConfig:
    """The executor of a group or sweep as recorded, with a flag on top: any executor may go on with any sweep.

    What a record says about its executor (variables, flags of sbatch, code) counts only if it was written here or the
    user trusts it; else TrustError, unless a flag names another one.
    """
    recorded, before = runs.info.executor, ExecutorConfig()
    if recorded is not None:
        try:
            before = TypeAdapter(ExecutorConfig).validate_json(json.dumps(recorded), strict=True)
        except (ValidationError, ConfigError) as error:
            raise RunError(f"the recorded executor makes no sense ({error}); name one with --executor") from None
    if not runs.executor_is_own():
        require_plain(before, runs, flag)
        before = ExecutorConfig()
    return before if flag is None else named_executor(flag, before)


def require_plain(config: ExecutorConfig, runs: RunSet, flag: str | None) -> None:
    """TrustError for an executor of others that asks for more than processes of this host, if no flag replaces it."""
    if flag is None and config != ExecutorConfig():
        raise Consent("none", f"{runs.kind} '{runs.path}'").refusal([f"executor {config.type}"])


def limits_of(config: ExecutorConfig) -> Limits:
    """What each member may use."""
    resources = Resources(config.cpus, config.gpus, config.memory_mb, config.wall_time)
    return Limits(resources, config.max_losses, dict(config.env))


def make_executor(config: ExecutorConfig, runs: RunSet, members: Sequence[Member], jobs: int | None) -> Executor:
    """The executor for these members, checked and connected; ConfigError or RunError before anything starts.

    `jobs` is the upper bound that the user gave; without one, processes of this host run one per core.
    """
    first = runs.config(members[0].trial) if members else None
    if config.type in ("local", "threads"):
        return _of_this_host(config, runs, members, first, config.max_slots or jobs)
    if needed := runs.redactor.needed:
        raise ConfigError(
            f"executor {config.type}: secrets are not sent to other hosts; export {', '.join(needed)} on every node "
            "and write ${env:NAME} in the config"
        )
    if first is not None and first.training.runs_per_program > 1:
        raise ConfigError(
            f"training.runs_per_program {first.training.runs_per_program}: runs of one program share a process, which "
            f"executor {config.type} cannot give them; set it to 1 or use --executor local"
        )
    with scope(runs.executor_consent()):
        factory = executors.get(config.type)
        if executors.is_builtin(config.type):
            built: Executor = factory(config, output_dir=runs.output_dir.absolute(), name=runs.info.id)
            return built
        what = f"executor '{config.type}'"
        check_call(factory, what, {"config": config}, dict(config.options))
        own: Executor = factory(config, **config.options)
        check_methods(own, METHODS, what, "it is the contract of rl_training.distributed.executors.Executor")
        return own


def _of_this_host(
    config: ExecutorConfig, runs: RunSet, members: Sequence[Member], first: TrainConfig | None, jobs: int | None
) -> Executor:
    if first is not None and threads_fit(runs, members):
        return ThreadExecutor(runs, first, at_a_time(first, jobs, len(members)))
    if config.type == "threads":
        raise ConfigError(
            "executor threads: only compiled runs (backend: jax) with the same device and number of threads share a "
            "process; use --executor local"
        )
    return LocalExecutor(jobs or usable_cores(), secrets=runs.redactor.needed_values)


@dataclass(frozen=True)
class Launch:
    """How members are to be run."""

    executor: ExecutorConfig = field(default_factory=ExecutorConfig)
    jobs: int | None = None
    """Upper bound of members at a time; None for one per core here, and for as many as fit on a cluster."""
    retries: int = 0
    feed: Callable[[GroupRunner], list[Member]] | None = None
    """Gives further members while they run, for a search."""
    first: Callable[[GroupRunner], None] | None = None
    """Called with the runner before anything starts."""


def launch(
    runs: RunSet,
    members: Sequence[Member],
    view: Callable[[], GroupView],
    how: Launch,
    *,
    announce: Callable[[str], None] = lambda text: None,
) -> GroupRunner:
    """Run members to their end on the executor that was asked for; its exit code is in the returned runner."""
    # a search starts processes: what it will run is not known yet
    executor = make_executor(how.executor, runs, members if how.feed is None else (), how.jobs)
    jobs = how.jobs
    if jobs is not None and members:
        jobs = max(jobs, runs.config(members[0].trial).training.runs_per_program)
    try:
        slots = executor.slots()
        announce(f"{slots if jobs is None else min(slots, jobs)} at a time{_place(executor)}")
        runner = GroupRunner(
            runs,
            jobs,
            view(),
            members=members,
            retries=how.retries,
            feed=how.feed,
            executor=executor,
            limits=limits_of(how.executor),
        )
        if how.first is not None:
            how.first(runner)
    except BaseException:
        executor.close()
        raise
    runner.exit_code = runner.run()
    return runner


def _place(executor: Executor) -> str:
    return f" on {executor.name}" if executor.is_remote else ""
