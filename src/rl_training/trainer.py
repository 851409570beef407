"""Running: from a config to a finished run directory.

`train` and `resume` are the two ways in. What they do is in their bodies, top to bottom; `assembly/build.py` builds
parts.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from rl_training.assembly.build import EnvFn, build_trainer, eval_env_maker, need_env_fn
from rl_training.assembly.devices import pinned_threads
from rl_training.assembly.resuming import record_changes, record_damage, record_first_budget, take_over
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
from rl_training.envs.watch import EnvWatch
from rl_training.logging.logger import Logger, Sink
from rl_training.logging.progress_display import Display
from rl_training.logging.video import write_video
from rl_training.monitoring.alert_hooks import AlertHook
from rl_training.monitoring.alerts import MonitorCallback
from rl_training.registry import loggers
from rl_training.runs import index
from rl_training.runs.budgets import Budget, budgets_json, read_budgets
from rl_training.runs.directory import RunDir
from rl_training.runs.names import check_name, env_fn_id, parse_run_step
from rl_training.runs.redaction import with_secrets
from rl_training.runs.spaces import check_spaces, read_spaces, save_spaces
from rl_training.system.error_text import describe
from rl_training.system.offspring import Offspring
from rl_training.system.signals import StopSignals, requeue_under_slurm
from rl_training.system.terminal_text import printable
from rl_training.training.callbacks import (
    Callback,
    CheckpointCallback,
    EvalCallback,
    GuardCallback,
    LogCallback,
    ProgressCallback,
    VideoCallback,
)
from rl_training.training.evaluation import EvalResult, evaluate_policy
from rl_training.training.loop import Trainer
from rl_training.training.summary import final_metrics, finished_text, summary_text
from rl_training.trust.consent import given_by_user
from rl_training.types import (
    ConfigError,
    Obs,
    RLTrainingError,
    Stateful,
    VectorStep,
)

if TYPE_CHECKING:
    from rl_training.assembly.build import AnyTrainer
    from rl_training.training.compiled import CompiledTrainer

ConfigLike = TrainConfig | ResolvedConfig | str | Path | Mapping[str, Any]
STOP_PATIENCE = 1.0
"""Seconds that a run which was asked to stop waits for the user's alert hook."""
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
    source: str | None = None,
    argv: Sequence[str] = (),
    group: str | None = None,
    sweep: str | None = None,
    signals: StopSignals | None = None,
    **fields: Any,
) -> TrainResult:
    """Train from a config object, a file, a preset name or a mapping, in a new run directory.

    `fields` change the config, by short form (`seed=3, total_timesteps=10_000`), section (`env={"num_envs": 8}`) or
    dotted path (`**{"hparams.clip_coef": 0.1}`). `env_fn` makes your environment without registering it, `callbacks`
    are objects of yours, or names and mappings as in a config; both must be given again to a resume.
    `init_from` is "RUN[:STEP]": start from that run's policy. `group` and `sweep` name what the run belongs to,
    `source` and `argv` are recorded. `signals` stops a run in a thread.
    """
    objects, named = split_callbacks(callbacks)
    resolved = resolved_config(cfg, {**fields, **({"callbacks": named} if named else {})})
    if env_fn is not None:
        check_env_fn(env_fn)
        resolved = resolved.with_values({"env_id": env_fn_id(env_fn)})
    check_name(resolved.config.name)
    cfg = with_secrets(resolved.config)
    threads = pinned_threads(cfg.training.num_threads, cfg.backend)
    with given_by_user(), supervised(signals) as signals, threads:
        trainer = build_trainer(cfg, env_fn)
        try:
            users = user_parts(cfg, objects, env_fn)
            if init_from is not None:
                warm_start(trainer, cfg, init_from)
            run = RunDir.create(resolved, source=source, argv=argv, parent=init_from, group=group, sweep=sweep)
            with run.lock():
                if objects:
                    run.update_info(callbacks=[object_name(item) for item in objects])
                return execute(trainer, cfg, run, env_fn, users, signals)
        finally:
            trainer.close()


def resume(
    run: str | Path,
    *,
    total_timesteps: int | None = None,
    env_fn: EnvFn | None = None,
    callbacks: Sequence[Any] = (),
    output_dir: str | Path = "runs",
    allow_changed_config: bool = False,
    signals: StopSignals | None = None,
    trust_plugins: bool = False,
) -> TrainResult:
    """Go on with a run from its newest sound checkpoint, as if it had never stopped.

    `run` is a path, or a name inside `output_dir`. `total_timesteps` is the run's new budget from now on; a run that is
    finished goes on only with one. `env_fn` and callback objects are those that the run was trained with. A config that
    was edited since the checkpoint was saved, or the checkpoint of another run, is refused unless
    `allow_changed_config`. `trust_plugins` agrees to the code that a run which was not made here asks for.
    """
    directory = RunDir.open(run, output_dir)
    to_run = directory.to_run(trust_plugins=trust_plugins, env_given=env_fn is not None)
    with to_run as cfg, supervised(signals) as signals, directory.lock():
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
        cfg = with_budget(cfg, total_timesteps or recorded.get("total_timesteps") or cfg.training.total_timesteps)
        with pinned_threads(cfg.training.num_threads, cfg.backend):
            trainer = build_trainer(cfg, env_fn)
            try:
                users = user_parts(cfg, callbacks, env_fn)
                match_spaces(trainer, directory)
                record_first_budget(directory, first)
                if total_timesteps is not None:
                    directory.update_info(total_timesteps=total_timesteps)
                start: Start = "resumed" if total_timesteps is None else "extended"
                return execute(trainer, cfg, directory, env_fn, users, signals, start=start, sealing=sealing)
            finally:
                trainer.close()


def with_budget(cfg: TrainConfig, total_timesteps: int) -> TrainConfig:
    """A config with another budget; the rhythm of evaluations stays that of the budget the run was started with."""
    training = replace(cfg.training, total_timesteps=total_timesteps, eval_frequency=cfg.training.eval_steps)
    return replace(cfg, training=training)


@contextmanager
def supervised(signals: StopSignals | None) -> Iterator[StopSignals]:
    """Around a whole run: signals stop it, an environment that is stuck is named, what it starts ends with it."""
    with signals or StopSignals() as signals, Offspring() as offspring, EnvWatch():
        signals.before_exit = offspring.end
        yield signals


def execute(
    trainer: AnyTrainer,
    cfg: TrainConfig,
    run: RunDir,
    env_fn: EnvFn | None,
    users: UserParts,
    signals: StopSignals,
    *,
    start: Start = "new",
    sealing: SealCheck | None = None,
) -> TrainResult:
    """Run a built trainer inside its locked run directory and leave a record of how it ended."""
    match_spaces(trainer, run)
    logger = build_logger(cfg, run, users.sinks)
    manager = checkpoint_manager(cfg, run, logger, sealing or SealCheck(Seal.of(run)))
    if cfg.logging.trace and hasattr(trainer, "collector"):
        trainer.collector.on_step = lambda step: log_transitions(logger, step)
    trainer.callbacks = build_callbacks(trainer, cfg, run, logger, manager, env_fn, users)
    total = cfg.training.total_timesteps
    trainer.budgets = [Budget(0, total)]
    if start != "new":
        restore(trainer, cfg, run, logger, manager)
        take_over(trainer, total, asked=start == "extended")
        over = trainer.decided is not None or trainer.budget_spent(total)
        if over and run.info().get("status") == "finished":
            logger.close()
            show(finished_text(run, trainer), cfg)
            return result_of(trainer, run, "already finished")
    try:
        exact = trainer.exact and run.info().get("exact") is not False
        intact = run.info().get("logs_intact") is not False
        now = {"exact": exact, "logs_intact": intact, "budgets": budgets_json(trainer.budgets)}
        run.update_info(status="running", ended=None, exit_code=None, threads=threads_of(cfg), **now)
        index.record(run.path)
        signals.bind(lambda why: trainer.request_stop(why, interrupted=True))
        reason = trainer.run(total)
        signals.saved = True
        stopped = trainer.interrupted
        result = result_of(trainer, run, reason, exit_code=(signals.exit_code or 0) if stopped else 0)
        words = summary_text(run, trainer, result.metrics, reason)
        logger.message(words)
        run.write_summary(result.metrics)
        run.finish(status="stopped" if stopped else "finished", exit_code=result.exit_code)
        # last: SLURM ends a job that is requeued
        if result.exit_code == 75 and (requeued := requeue_under_slurm()):
            logger.message(requeued)
            words = f"{words}\n{requeued}"
        for callback in trainer.callbacks:
            if isinstance(callback, MonitorCallback):
                callback.close(patience=STOP_PATIENCE if stopped else None)
        logger.close()
    except BaseException as error:
        record_failure(trainer, run, logger, error, saved=signals.saved)
        raise
    show(run.redactor.values(words), cfg)
    return result


def match_spaces(trainer: Trainer, run: RunDir) -> None:
    """Record the spaces of a run's environment, or refuse an environment with others than the recorded ones."""
    recorded = read_spaces(run.path)
    if recorded is None:
        save_spaces(run.path, trainer.spaces)
    else:
        check_spaces(run.path, recorded, trainer.spaces)


def threads_of(cfg: TrainConfig) -> int:
    """Threads that one operation of the run may use: as asked for, but XLA keeps those it was started with."""
    if cfg.backend != "jax":
        return cfg.training.num_threads
    from rl_training.jax.runtime import threads

    return threads()


def result_of(trainer: Trainer, run: RunDir, reason: str, *, exit_code: int = 0) -> TrainResult:
    checkpoint = run.checkpoints / f"step_{trainer.progress.env_steps:012d}"
    return TrainResult(run.path, checkpoint, final_metrics(run, trainer, reason), reason, exit_code)


def restore(trainer: Trainer, cfg: TrainConfig, run: RunDir, logger: Logger, manager: CheckpointManager) -> None:
    """Bring a fresh trainer and the run directory to the newest sound checkpoint."""
    if not manager.steps() and not (run.logs / "metrics.jsonl").stat().st_size:
        # ended before the checkpoint of step 0 was there, so the beginning is where it was
        if parent := run.info().get("parent"):
            warm_start(trainer, cfg, parent)
        logger.cut_all()
        run.rewind(0)
        logger.message("resumed from the beginning: the run had no checkpoint yet")
        return
    checkpoint = manager.load_latest()
    trainer.load_state_dict(checkpoint.parts)
    trainer.budgets = read_budgets(checkpoint.metadata.get("budgets", run.info().get("budgets")))
    manager.rewind(checkpoint.step)
    run.rewind(checkpoint.step)
    record_changes(run, checkpoint, manager.sealing)
    record_damage(run, checkpoint.step, logger.damage)
    logger.message(f"resumed from {checkpoint.path.name}")


def record_failure(trainer: Trainer, run: RunDir, logger: Logger, error: BaseException, *, saved: bool) -> None:
    """Leave the terminal and the run directory in order; a full disk must not hide what really happened."""
    interrupted = isinstance(error, KeyboardInterrupt)
    in_place = run.is_in_place()
    for callback in trainer.callbacks:
        # a capture of the failed update has no folder any more if the run's own has gone; an alert needs none
        may_write = in_place or isinstance(callback, MonitorCallback)
        if not interrupted and may_write and hasattr(callback, "on_failure"):
            with suppress(Exception):
                callback.on_failure(trainer, error)
        if isinstance(callback, ProgressCallback):
            callback.display.close()
    if interrupted:
        state = "the last step is saved" if saved else "this step is not saved; the last checkpoint stands"
        sys.stderr.write(f"{state}: rl resume {printable(str(run.path))}\n")
    with suppress(OSError, RLTrainingError):
        logger.message(describe(error))
        logger.close()
    with suppress(OSError, RLTrainingError):
        run.finish(status="stopped" if interrupted else "failed", exit_code=130 if interrupted else 1)


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
            training=replace(cfg.training, total_timesteps=total_timesteps or cfg.training.total_timesteps),
            env=replace(cfg.env, num_envs=num_envs or cfg.env.num_envs),
            hparams=replace(cfg.hparams, num_steps=num_steps or cfg.hparams.num_steps),
        )
    )


# -- around a trainer -------------------------------------------------------------------------------------------------


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
    """Objects, and what a config could hold: names and mappings."""
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


def build_callbacks(
    trainer: AnyTrainer,
    cfg: TrainConfig,
    run: RunDir,
    logger: Logger,
    manager: CheckpointManager,
    env_fn: EnvFn | None,
    users: UserParts,
) -> list[Any]:
    """The callbacks in their order; those with state become parts of the checkpoint."""
    training = cfg.training
    policy = trainer.algorithm.policy

    def evaluate(*, episodes: int, first: int = 0, record: bool = False) -> EvalResult:
        maker = eval_env_maker(cfg, env_fn, render=record)
        return evaluate_policy(policy, maker, episodes=episodes, seed=cfg.seed, first=first, record=record)

    callbacks: list[tuple[str, Any]] = [("guard", GuardCallback(trainer.guard))]
    if training.num_eval_episodes > 0:
        play = cast("CompiledTrainer", trainer).evaluate if training.eval_lane == "compiled" else evaluate
        callbacks.append(("eval", EvalCallback(play, logger, training)))
    if cfg.logging.video_frequency > 0:

        def record(path: Path) -> Path:
            result = evaluate(episodes=1, record=True)
            run.check_place()
            return write_video(path, result.frames, fps=result.fps)

        callbacks.append(("video", VideoCallback(record, run.videos, cfg.logging.video_frequency)))
    display = Display(training.total_timesteps, enabled=speaks(cfg))
    if users.monitor.rules:
        callbacks.append(("monitor", MonitorCallback(users.monitor, logger, display, alert_hook(cfg), run.path.name)))
    callbacks.append(("log", LogCallback(logger, cfg.logging.log_frequency)))
    if cfg.monitor.debug.enabled:
        callbacks.append(("debug", debug_callback(cfg, run, env_fn, display, logger)))
    callbacks += [(f"callback_{i}", callback) for i, callback in enumerate(users.callbacks)]
    keep_best = cfg.checkpoint.keep_best
    saver = CheckpointCallback(manager, trainer.guard, every=training.checkpoint_frequency, keep_best=keep_best)
    callbacks.append(("checkpoint", saver))
    callbacks.append(("progress", ProgressCallback(display)))
    trainer.attached = {name: part for name, part in callbacks if isinstance(part, Stateful)} | {"logs": logger}
    return [callback for _, callback in callbacks]


def build_logger(cfg: TrainConfig, run: RunDir, users: Sequence[Sink]) -> Logger:
    """JSONL always; TensorBoard, W&B and the user's own where the config asks for them."""
    wanted = cfg.logging
    sinks: list[Any] = []
    if wanted.tensorboard:
        sinks.append(loggers.get("tensorboard")(run.logs / "tensorboard"))
    if wanted.wandb.enabled:
        sinks.append(loggers.get("wandb")(wanted.wandb, run))
    return Logger(run.logs, [*sinks, *users], redact=run.redactor.text)


def alert_hook(cfg: TrainConfig) -> AlertHook | None:
    monitor = cfg.monitor
    wanted = monitor.command or monitor.url
    if not wanted:
        return None
    return AlertHook(monitor.command, monitor.url, timeout=monitor.hook_timeout, env=monitor.hook_env)


def debug_callback(cfg: TrainConfig, run: RunDir, env_fn: EnvFn | None, display: Display, logger: Logger) -> Callback:
    """Debug mode around the run's own updates."""
    from rl_training.envs import check_env
    from rl_training.monitoring.debug_mode import DebugCallback

    def tell(text: str) -> None:
        logger.message(text)
        display.message(run.redactor.text(text))

    stored = run.config(secrets=False)
    return DebugCallback(
        run.debug,
        cfg.monitor.debug,
        config_to_mapping(replace(stored, training=cfg.training)),
        check_env=lambda: str(check_env(env_fn or cfg.env_id, cfg.env, seed=cfg.seed)),
        tell=tell,
    )


def show(text: str, cfg: TrainConfig) -> None:
    """A few lines for the person at the terminal."""
    if speaks(cfg):
        sys.stdout.write(printable(text, lines=True) + "\n")
        sys.stdout.flush()


def speaks(cfg: TrainConfig) -> bool:
    """Whether the run has the terminal: one of many in threads of a process leaves it to the group's table."""
    return cfg.logging.terminal and threading.current_thread() is threading.main_thread()


def log_transitions(logger: Logger, step: VectorStep) -> None:
    """Every transition of a step to trace.jsonl: for looking closely at short runs."""
    for i in np.flatnonzero(step.valid):
        logger.log_step(
            env=int(i),
            obs=row_of(step.obs, int(i)),
            action=step.actions[i],
            reward=step.rewards[i],
            next_obs=row_of(step.next_obs, int(i)),
            terminated=step.terminated[i],
            truncated=step.truncated[i],
        )


def row_of(obs: Obs, row: int) -> Any:
    return {name: column[row] for name, column in obs.items()} if isinstance(obs, dict) else obs[row]


# -- helpers ----------------------------------------------------------------------------------------------------------


def checkpoint_manager(cfg: TrainConfig, run: RunDir, logger: Logger, sealing: SealCheck) -> CheckpointManager:
    """The run's checkpoints; what they have to say goes to the terminal and to train.log."""

    def report(line: str) -> None:
        logger.message(line)
        sys.stderr.write(printable(line) + "\n")

    return CheckpointManager(run.path, **asdict(cfg.checkpoint), report=report, sealing=sealing)


def warm_start(trainer: Trainer, cfg: TrainConfig, init_from: str) -> None:
    """Load the policy of another run, its newest or the given step; everything else starts fresh."""
    start = parse_run_step(init_from)
    source = RunDir.open(start.run, cfg.output_dir)
    checkpoint = CheckpointManager(source.path).load(start.checkpoint, parts={"policy"})
    with fitting(f"--init-from {init_from}: that policy", "it needs the network and the spaces of that run"):
        trainer.parts()["policy"].load_state_dict(checkpoint.parts["policy"])
