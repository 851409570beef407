"""Running: from a config to a finished run directory.

`train` and `resume` are the two front doors. What they do is in their bodies, top to bottom; `assembly/` builds parts.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any, Literal, cast

from rl_training.assembly.algorithm import resolve_algorithm
from rl_training.assembly.callbacks import speaks
from rl_training.assembly.data_parallel.joining import GoAhead, build_together, follow, hint_at_gpus, join_ranks
from rl_training.assembly.devices import pinned_threads
from rl_training.assembly.environments import EnvFn, need_env_fn
from rl_training.assembly.resuming import record_changes, record_damage, record_first_budget
from rl_training.assembly.run import Run, assemble
from rl_training.assembly.user_parts import UserParts, missing_objects, object_name, user_parts
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.checkpointing.seal import Seal, SealCheck, fitting
from rl_training.config.loading import (
    ResolvedConfig,
    as_resolved,
    config_to_mapping,
    resolve_changed,
    resolve_config,
    resolve_mapping,
)
from rl_training.config.schema import PartConfig, TrainConfig
from rl_training.data.datasets.environment import with_environment
from rl_training.envs.watch import EnvWatch
from rl_training.monitoring.alerts import MonitorCallback
from rl_training.runs import index
from rl_training.runs.budgets import Budget, budgets_json, read_budgets
from rl_training.runs.directory import RunDir
from rl_training.runs.holder import WHERE_VARIABLE
from rl_training.runs.names import check_name, env_fn_id, parse_run_step
from rl_training.runs.redaction import with_secrets
from rl_training.runs.spaces import check_spaces, read_spaces, save_spaces
from rl_training.system.error_text import describe
from rl_training.system.file_systems import host_name
from rl_training.system.launch import launched
from rl_training.system.offspring import Offspring
from rl_training.system.signals import StopSignals, requeue_under_slurm
from rl_training.system.terminal_text import printable
from rl_training.training.callbacks import HandlesFailure, PauseCallback
from rl_training.training.loop import Trainer
from rl_training.training.off_policy import OffPolicyTrainer
from rl_training.training.offline.online import OnlineTrainer
from rl_training.training.summary import final_metrics, finished_text, summary_text
from rl_training.trust.consent import Consent, current, given_by_user
from rl_training.types import CheckpointError, ConfigError, FollowedError, RLTrainingError

if TYPE_CHECKING:
    from rl_training.assembly.build import AnyTrainer
    from rl_training.distributed.ranks import Ranks

ConfigLike = TrainConfig | ResolvedConfig | str | Path | Mapping[str, Any]
PAUSED_CODE = 75
"""Exit code of a run that paused where it was told to."""
STOP_PATIENCE = 1.0
"""Seconds that an interrupted run waits for the alert hook of the user."""
Start = Literal["new", "resumed", "extended"]


@dataclass(frozen=True)
class TrainResult:
    """What a finished (or stopped) run left behind."""

    run_dir: Path
    checkpoint_path: Path
    metrics: dict[str, Any] = field(default_factory=dict)
    stop_reason: str = ""
    exit_code: int = 0


def train(
    cfg: ConfigLike,
    env_fn: EnvFn | None = None,
    *,
    callbacks: Sequence[Any] = (),
    init_from: str | None = None,
    init_policy_only: bool = False,
    source: str | None = None,
    argv: Sequence[str] = (),
    group: str | None = None,
    sweep: str | None = None,
    run_name: str | None = None,
    pause_at: int | None = None,
    signals: StopSignals | None = None,
    **fields: Any,
) -> TrainResult:
    """Train from a config object, a file, a preset name or a mapping, in a new run directory.

    `fields` change the config, by short form (`seed=3, total_timesteps=10_000`), section (`env={"num_envs": 8}`) or
    dotted path (`**{"hparams.clip_coef": 0.1}`). `env_fn` makes your environment without registering it, `callbacks`
    are objects of yours, or names and mappings as in a config; both must be given again to a resume.
    `init_from` is "RUN[:STEP]": start from that run's policy, or with algo dynamics learn from its replay rows. Where
    an offline algorithm goes on in an environment (`dataset.online_share`), critics, optimisers and normaliser come
    along too, unless `init_policy_only`.
    `group` and `sweep` name what the run belongs to, `run_name` its directory, `source` and `argv` are recorded.
    `pause_at` saves and stops the run at this many env steps, from where `resume` goes on to its budget. `signals`
    stops a run in a thread.
    """
    objects, named = split_callbacks(callbacks)
    resolved = resolved_config(cfg, {**fields, **({"callbacks": named} if named else {})})
    if env_fn is not None:
        check_env_fn(env_fn)
        resolved = resolved.with_values({"env_id": env_fn_id(env_fn)})
    resolved = with_environment(resolved)
    check_name(resolved.config.name)
    cfg = with_secrets(resolved.config)
    ranks, threads = join_ranks(cfg), pinned_threads(cfg.training.num_threads, cfg.backend)
    with (
        given_by_user(),
        supervised(signals) as signals,
        threads,
        closing(build_together(cfg, env_fn, ranks)) as trainer,
    ):
        if ranks is not None and not ranks.leads:
            return cast(TrainResult, follow(trainer, signals))
        if hint := hint_at_gpus(cfg, argv):
            show(hint, cfg)
        users = user_parts(cfg, objects, env_fn)
        if init_from is not None:
            warm_start(trainer, cfg, init_from, policy_only=init_policy_only)
        directory = RunDir.create(
            resolved, source=source, argv=argv, parent=init_from, group=group, sweep=sweep, name=run_name
        )
        with directory.lock():
            if init_policy_only:
                directory.update_info(init_policy_only=True)
            if objects:
                directory.update_info(callbacks=[object_name(item) for item in objects])
            result = execute(trainer, cfg, directory, env_fn, users, signals, pause_at=pause_at)
        trainer.conclude(result)
        return result


def resume(
    run: str | Path,
    *,
    total_timesteps: int | None = None,
    runners: int | None = None,
    env_fn: EnvFn | None = None,
    callbacks: Sequence[Any] = (),
    output_dir: str | Path = "runs",
    allow_changed_config: bool = False,
    signals: StopSignals | None = None,
    trust_plugins: bool = False,
    consent: Consent | None = None,
    pause_at: int | None = None,
) -> TrainResult:
    """Go on with a run from its newest sound checkpoint, as if it had never stopped.

    `run` is a path, or a name inside `output_dir`. `total_timesteps` is the run's new budget from now on; a run that is
    finished goes on only with one; `runners` is its new number of runners (`env.collector: ray`). `env_fn` and callback
    objects are those that the run was trained with. A config that was edited since the checkpoint was saved, or the
    checkpoint of another run, is refused unless `allow_changed_config`. `trust_plugins` agrees to the code that a run
    which was not made here asks for; `consent` is that of the sweep to which the run belongs, given where the sweep was
    made. `pause_at` is as for `train`.
    """
    directory = RunDir.open(run, output_dir)
    ranks = None if launched().ranks == 1 else join_ranks(directory.config(secrets=False))
    if ranks is not None and not ranks.leads:
        return follow_resumed(directory, ranks, env_fn, signals)
    to_run = directory.to_run(trust_plugins=trust_plugins, env_given=env_fn is not None, consent=consent)
    with leading(ranks), to_run as cfg, supervised(signals) as signals, directory.lock():
        need_env_fn(directory.path, cfg, env_fn, "resume")
        sealing = SealCheck(Seal.of(directory), allow_changed_config)
        CheckpointManager(directory.path, sealing=sealing).check_seal()
        recorded = directory.info()
        if missing := missing_objects(recorded.get("callbacks"), callbacks):
            names = ", ".join(missing)
            warnings.warn(
                f"run '{directory.path.name}' had callback objects that are not given again ({names}); it goes on "
                "without them: rl_training.resume(run, callbacks=[...]) takes them",
                stacklevel=2,
            )
        first = cfg
        if total_timesteps is not None and cfg.training.total_updates is not None:
            raise ConfigError("an offline run counts updates: it cannot go on to another number of env steps")
        cfg = with_budget(cfg, total_timesteps or recorded.get("total_timesteps") or cfg.training.budget)
        cfg = with_runners(cfg, runners or recorded.get("runners"))
        if ranks is not None:
            ranks.tell(GoAhead(current(), cfg.training.budget))
        threads = pinned_threads(cfg.training.num_threads, cfg.backend)
        with threads, closing(build_together(cfg, env_fn, ranks)) as trainer:
            users = user_parts(cfg, callbacks, env_fn)
            match_spaces(trainer, directory)
            if recorded.get("parent") and isinstance(trainer, OffPolicyTrainer) and learns_from_given_rows(cfg):
                trainer.close_replay()
            record_first_budget(directory, first)
            if total_timesteps is not None:
                directory.update_info(total_timesteps=total_timesteps)
            if runners is not None:
                directory.update_info(runners=runners)
            start: Start = "resumed" if total_timesteps is None else "extended"
            result = execute(
                trainer, cfg, directory, env_fn, users, signals, start=start, sealing=sealing, pause_at=pause_at
            )
            trainer.conclude(result)
            return result


def follow_resumed(directory: RunDir, ranks: Ranks, env_fn: EnvFn | None, signals: StopSignals | None) -> TrainResult:
    """Take part in a run that the first process of torchrun resumes, once it says so."""
    go_ahead: GoAhead | None = ranks.tell()
    if go_ahead is None:
        raise FollowedError("the first process of the run could not resume it")
    to_run = directory.to_run(env_given=env_fn is not None, consent=go_ahead.consent)
    with to_run as cfg, supervised(signals) as signals:
        cfg = with_budget(cfg, go_ahead.budget)
        threads = pinned_threads(cfg.training.num_threads, cfg.backend)
        with threads, closing(build_together(cfg, env_fn, ranks)) as trainer:
            return cast(TrainResult, follow(trainer, signals))


@contextmanager
def leading(ranks: Ranks | None) -> Iterator[None]:
    """Around what the first process does: if it fails before the others are told what to do, they are told to end."""
    try:
        yield
    except BaseException:
        if ranks is not None:
            ranks.give_up()
        raise


def with_budget(cfg: TrainConfig, total_timesteps: int) -> TrainConfig:
    """A config with another budget; evaluations keep the frequency of the budget that the run was started with."""
    axis = "total_timesteps" if cfg.training.total_updates is None else "total_updates"
    budget: dict[str, Any] = {axis: total_timesteps}
    return replace(cfg, training=replace(cfg.training, **budget, eval_frequency=cfg.training.eval_steps))


def with_runners(cfg: TrainConfig, runners: int | None) -> TrainConfig:
    """A config with another number of runners, which changes nothing but the speed of the run."""
    return cfg if runners is None else replace(cfg, env=replace(cfg.env, runners=runners))


@contextmanager
def supervised(signals: StopSignals | None) -> Iterator[StopSignals]:
    """Around a whole run: signals stop it, a stuck environment is named, and child processes end with it."""
    with signals or StopSignals() as signals, Offspring() as offspring, EnvWatch():
        signals.clean_up_with(offspring.end)
        yield signals


def execute(
    trainer: AnyTrainer,
    cfg: TrainConfig,
    directory: RunDir,
    env_fn: EnvFn | None,
    users: UserParts,
    signals: StopSignals,
    *,
    start: Start = "new",
    sealing: SealCheck | None = None,
    pause_at: int | None = None,
) -> TrainResult:
    """Run a built trainer inside its locked run directory and leave a record of how it ended."""
    match_spaces(trainer, directory)
    run = assemble(cfg, trainer, directory, users, sealing or SealCheck(Seal.of(directory)), env_fn)
    total = cfg.training.budget
    if start != "new":
        saved = restore(run, cfg, directory)
        trainer.take_over(saved, total, asked=start == "extended")
        over = trainer.decided is not None or trainer.budget_spent(total)
        if over and directory.info().get("status") == "finished":
            run.logger.close()
            show(finished_text(directory, trainer), cfg)
            return result_of(trainer, directory, "already finished")
    try:
        record_start(trainer, cfg, directory)
        signals.bind(lambda why: trainer.request_stop(why, interrupted=True))
        trainer.hear_signals(lambda name: signals.receive(Signals[name]))
        pause = PauseCallback(total if pause_at is None else pause_at)
        reason = trainer.run(total, [*run.callbacks, pause])
        signals.mark_saved()
        exit_code = (signals.exit_code or PAUSED_CODE * pause.has_paused) if trainer.interrupted else 0
        result = result_of(trainer, directory, reason, exit_code=exit_code)
        words = record_end(run, directory, result)
    except BaseException as error:
        record_failure(run, directory, error, saved=signals.saved)
        raise
    show(directory.redactor.values(words), cfg)
    return result


def record_start(trainer: Trainer, cfg: TrainConfig, directory: RunDir) -> None:
    """Mark the run as running, in run.json and in the index."""
    exact = trainer.exact and directory.info().get("exact") is not False
    intact = directory.info().get("logs_intact") is not False
    now: dict[str, Any] = {"exact": exact, "logs_intact": intact, "budgets": budgets_json(trainer.budgets)}
    if trainer.progress.axis != "env_steps":
        now["axis"] = trainer.progress.axis
    if cfg.training.shards > 1:
        now["ranks"] = trainer.num_ranks
    place = os.environ.get(WHERE_VARIABLE) or f"{host_name()}:{os.getpid()}"
    directory.update_info(status="running", ended=None, exit_code=None, threads=threads_of(cfg), where=place, **now)
    index.record(directory.path)


def record_end(run: Run, directory: RunDir, result: TrainResult) -> str:
    """Write the summary and close everything; returns what the user reads."""
    stopped = run.trainer.interrupted
    words = summary_text(directory, run.trainer, result.metrics, result.stop_reason)
    run.logger.message(words)
    directory.write_summary(result.metrics)
    directory.finish(status="stopped" if stopped else "finished", exit_code=result.exit_code)
    # last: SLURM ends a job that is requeued
    if result.exit_code == 75 and (requeued := requeue_under_slurm()):
        run.logger.message(requeued)
        words = f"{words}\n{requeued}"
    for callback in run.callbacks:
        if isinstance(callback, MonitorCallback):
            callback.close(patience=STOP_PATIENCE if stopped else None)
    run.logger.close()
    return words


def match_spaces(trainer: Trainer, directory: RunDir) -> None:
    """Record the spaces of the environment, or refuse an environment whose spaces differ from the recorded ones."""
    recorded = read_spaces(directory.path)
    if recorded is None:
        save_spaces(directory.path, trainer.spaces)
    else:
        check_spaces(directory.path, recorded, trainer.spaces)


def threads_of(cfg: TrainConfig) -> int:
    """Threads that one operation of the run may use: as configured, but XLA keeps those it was started with."""
    if cfg.backend != "jax":
        return cfg.training.num_threads
    from rl_training.jax.runtime import threads

    return threads()


def result_of(trainer: Trainer, directory: RunDir, reason: str, *, exit_code: int = 0) -> TrainResult:
    checkpoint = directory.checkpoints / f"step_{trainer.progress.position:012d}"
    return TrainResult(directory.path, checkpoint, final_metrics(directory, trainer, reason), reason, exit_code)


def restore(run: Run, cfg: TrainConfig, directory: RunDir) -> list[Budget]:
    """Bring a new trainer and the run directory to the newest intact checkpoint; returns the budgets saved in it."""
    trainer, logger, manager = run.trainer, run.logger, run.manager
    if not manager.steps() and not (directory.logs / "metrics.jsonl").stat().st_size:
        # ended before the checkpoint of step 0 was there, so the beginning is where it was
        if parent := directory.info().get("parent"):
            warm_start(trainer, cfg, parent, policy_only=bool(directory.info().get("init_policy_only")))
        logger.cut_all()
        directory.rewind(0)
        logger.message("resumed from the beginning: the run had no checkpoint yet")
        return trainer.budgets
    checkpoint = manager.load_latest()
    run.saver.restore(trainer, checkpoint.parts)
    saved = read_budgets(checkpoint.metadata.get("budgets", directory.info().get("budgets")))
    manager.rewind(checkpoint.step)
    directory.rewind(checkpoint.step)
    record_changes(directory, checkpoint, manager.sealing)
    record_damage(directory, checkpoint.step, logger.damage)
    logger.message(f"resumed from {checkpoint.path.name}")
    return saved


def record_failure(run: Run, directory: RunDir, error: BaseException, *, saved: bool) -> None:
    """Leave the terminal and the run directory in order; a full disk must not hide what really happened."""
    interrupted = isinstance(error, KeyboardInterrupt)
    in_place = directory.is_in_place()
    for callback in run.callbacks:
        # a capture of the failed update has no folder any more if that of the run is gone; an alert needs none
        may_write = in_place or isinstance(callback, MonitorCallback)
        if not interrupted and may_write and isinstance(callback, HandlesFailure):
            with suppress(Exception):
                callback.on_failure(run.trainer, error)
    run.display.close()
    if interrupted:
        state = "the last step is saved" if saved else "this step is not saved; the last checkpoint stands"
        sys.stderr.write(f"{state}: rl resume {printable(str(directory.path))}\n")
    with suppress(OSError, RLTrainingError):
        run.logger.message(describe(error))
        run.logger.close()
    with suppress(OSError, RLTrainingError):
        directory.finish(status="stopped" if interrupted else "failed", exit_code=130 if interrupted else 1)


def train_ppo(
    cfg: TrainConfig,
    total_timesteps: int | None = None,
    num_envs: int | None = None,
    num_steps: int | None = None,
) -> TrainResult:
    """PPO with the three sizes given by hand; everything else from `cfg`."""
    return train(
        replace(
            cfg,
            training=replace(cfg.training, total_timesteps=total_timesteps or cfg.training.budget),
            env=replace(cfg.env, num_envs=num_envs or cfg.env.num_envs),
            hparams=replace(cfg.hparams, num_steps=num_steps or cfg.hparams.num_steps),
        )
    )


class DistributedTrainer:
    """Trains one run from a script that torchrun starts in several processes, each of which learns from some shards.

        trainer = DistributedTrainer("ppo/cartpole", training={"shards": 4})
        trainer.setup_distributed()
        result = trainer.train()  # in every process; the first one writes the run directory

    `cfg`, `env_fn` and `fields` are those of `train`. Any number of processes that divides `training.shards` gives the
    same run, bit for bit; without torchrun it is one. `torchrun --nproc-per-node 4 -m rl_training train ppo/cartpole
    --training.shards 4` does the same without a script.
    """

    def __init__(self, cfg: ConfigLike, env_fn: EnvFn | None = None, **fields: Any) -> None:
        self.resolved = resolved_config(cfg, fields)
        self.env_fn = env_fn

    def setup_distributed(self) -> Ranks:
        """Join the other processes; says which of them this one is. `train` and `resume` do it by themselves."""
        from rl_training.distributed.ranks import setup_distributed

        return setup_distributed(self.resolved.config.training.shards, self.resolved.config.device)

    def train(self, **options: Any) -> TrainResult:
        """Train in a new run directory; every process returns the result. `options` are those of `train`."""
        return train(self.resolved, self.env_fn, **options)

    def resume(self, run: str | Path, **options: Any) -> TrainResult:
        """Go on with a run, with any number of processes. `options` are those of `resume`."""
        return resume(run, env_fn=self.env_fn, **options)


# -- what callers give ------------------------------------------------------------------------------------------------


def resolved_config(cfg: ConfigLike, fields: Mapping[str, Any] | None = None) -> ResolvedConfig:
    """The config that a caller means, with `fields` (dotted keys, any spelling) on top."""
    if fields:
        if isinstance(cfg, TrainConfig | ResolvedConfig):
            cfg = cfg.mapping if isinstance(cfg, ResolvedConfig) else config_to_mapping(cfg)
        return resolve_changed(cfg, fields, source="train()")
    if isinstance(cfg, TrainConfig | ResolvedConfig):
        return as_resolved(cfg)
    return resolve_mapping(cfg) if isinstance(cfg, Mapping) else resolve_config(cfg)


def split_callbacks(given: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Separate callback objects from what a config could hold: names and mappings."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ConfigError(f"callbacks: expected a list, such as callbacks=[MyCallback()], not {type(given).__name__}")
    named = [item for item in given if isinstance(item, str | Mapping | PartConfig)]
    return [item for item in given if not isinstance(item, str | Mapping | PartConfig)], named


def check_env_fn(env_fn: Any) -> None:
    """Refuse what cannot be called to make an environment."""
    if not callable(env_fn):
        raise ConfigError(
            f"env_fn is a {type(env_fn).__name__}; give a function or class that makes an environment: env_fn=MyEnv"
        )


def show(text: str, cfg: TrainConfig) -> None:
    """Print a few lines to the terminal, if the run has it."""
    if speaks(cfg):
        sys.stdout.write(printable(text, lines=True) + "\n")
        sys.stdout.flush()


def warm_start(trainer: Trainer, cfg: TrainConfig, init_from: str, *, policy_only: bool = False) -> None:
    """Load the policy of another run, its newest or the given step, or its replay rows where the algorithm learns from
    those; everything else starts fresh. An offline run that goes on in an environment is loaded whole, unless
    `policy_only`."""
    start = parse_run_step(init_from)
    source = RunDir.open(start.run, cfg.output_dir)
    if isinstance(trainer, OnlineTrainer) and not policy_only:
        algo = source.config(secrets=False).algo
        if algo != cfg.algo:
            raise ConfigError(
                f"--init-from {init_from} is a run of '{algo}', whose critics do not fit '{cfg.algo}': take --algo "
                f"{algo}, or give --init-policy-only"
            )
        saved = CheckpointManager(source.path).load(start.checkpoint, parts={"policy", "algorithm"}).parts
        with fitting(f"--init-from {init_from}: that run", "it needs the networks and the spaces of that run"):
            trainer.take_from(saved["policy"], saved["algorithm"])
        return
    if policy_only and not isinstance(trainer, OnlineTrainer):
        raise ConfigError(
            "--init-policy-only is for offline algorithms that go on in an environment; others take the policy"
        )
    if isinstance(trainer, OffPolicyTrainer) and learns_from_given_rows(cfg):
        try:
            trainer.learn_from(CheckpointManager(source.path).load(start.checkpoint, {"buffer"}).parts["buffer"])
        except CheckpointError as error:
            raise ConfigError(f"--init-from {init_from}: that run has no replay rows for this one: {error}") from error
        return
    checkpoint = CheckpointManager(source.path).load(start.checkpoint, parts={"policy"})
    with fitting(f"--init-from {init_from}: that policy", "it needs the network and the spaces of that run"):
        trainer.parts()["policy"].load_state_dict(checkpoint.parts["policy"])


def learns_from_given_rows(cfg: TrainConfig) -> bool:
    """Whether `--init-from` gives the algorithm replay rows instead of a policy."""
    return resolve_algorithm(cfg)[0].init_from == "replay"
