"""Assembly: from a config to a running trainer. The only file that knows every part.

`train` and `resume` are the two ways in. What they do is in their bodies, top to bottom; the rest builds one part each.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from rl_training.callbacks import (
    Callback,
    CheckpointCallback,
    EvalCallback,
    GuardCallback,
    LogCallback,
    ProgressCallback,
    VideoCallback,
)
from rl_training.checkpointing import CheckpointManager
from rl_training.collector import Collector
from rl_training.config import TrainConfig
from rl_training.config_loading import check_hparams, load_config, parse_config, validate_config
from rl_training.context import BuildContext
from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.data.storage import layout
from rl_training.devices import pinned_threads, resolve_device
from rl_training.envs import make_env, make_vector_env, space_spec
from rl_training.eval import EvalResult, evaluate_policy
from rl_training.guards import Guard
from rl_training.hparams.base import AlgorithmSpec, supports_anything
from rl_training.logging import Logger, Sink
from rl_training.progress_display import Display
from rl_training.registry import (
    algorithms,
    buffers,
    callbacks,
    check_call,
    check_methods,
    import_attr,
    import_plugins,
    loggers,
)
from rl_training.runs import RunDir
from rl_training.secrets import with_secrets
from rl_training.seeding import Streams
from rl_training.signals import StopSignals, requeue_under_slurm
from rl_training.summary import final_metrics, finished_text, summary_text
from rl_training.trainers.base import Trainer
from rl_training.trainers.on_policy import OnPolicyTrainer
from rl_training.types import (
    Algorithm,
    CheckpointError,
    ConfigError,
    DictSpec,
    Obs,
    Progress,
    RLTrainingError,
    SpaceSpec,
    Stateful,
    VectorStep,
)
from rl_training.user_parts import UserParts, user_parts
from rl_training.video import find_ffmpeg, write_video

EnvFn = Callable[[], Any]
ConfigLike = TrainConfig | str | Path | Mapping[str, Any]
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
    init_from: str | None = None,
    source: str | None = None,
    argv: Sequence[str] = (),
    group: str | None = None,
) -> TrainResult:
    """Train from a config object, a file, a preset name or a mapping, in a new run directory.

    `env_fn` builds your environment without registering it (a resume then needs it again).
    `init_from` is "RUN[:STEP]": start from that run's policy. `group` names the group of seeds the run belongs to.
    """
    cfg = with_secrets(as_config(cfg))
    with StopSignals() as signals, pinned_threads(cfg.training.num_threads):
        trainer = build_trainer(cfg, env_fn)
        try:
            users = user_parts(cfg)
            if init_from is not None:
                warm_start(trainer, cfg, init_from)
            run = RunDir.create(cfg, source=source, argv=argv, parent=init_from, group=group)
            with run.lock():
                return execute(trainer, cfg, run, env_fn, users, signals)
        finally:
            trainer.close()


def resume(run: str | Path, *, total_timesteps: int | None = None, env_fn: EnvFn | None = None) -> TrainResult:
    """Go on with a run from its newest sound checkpoint, as if it had never stopped.

    `total_timesteps` is the run's new budget from now on; a run that is finished goes on only with one.
    """
    directory = RunDir.open(run)
    with StopSignals() as signals, directory.lock():
        cfg = directory.config()
        if total_timesteps is not None:
            directory.update_info(total_timesteps=total_timesteps)
        total = directory.info().get("total_timesteps") or cfg.training.total_timesteps
        cfg = replace(cfg, training=replace(cfg.training, total_timesteps=total))
        with pinned_threads(cfg.training.num_threads):
            trainer = build_trainer(cfg, env_fn)
            try:
                users = user_parts(cfg)
                start: Start = "resumed" if total_timesteps is None else "extended"
                return execute(trainer, cfg, directory, env_fn, users, signals, start=start)
            finally:
                trainer.close()


def execute(
    trainer: OnPolicyTrainer,
    cfg: TrainConfig,
    run: RunDir,
    env_fn: EnvFn | None,
    users: UserParts,
    signals: StopSignals,
    *,
    start: Start = "new",
) -> TrainResult:
    """Run a built trainer inside its locked run directory and leave a record of how it ended."""
    logger = build_logger(cfg, run, users.sinks)
    manager = checkpoint_manager(cfg, run, logger)
    if cfg.logging.trace:
        trainer.collector.on_step = lambda step: log_transitions(logger, step)
    trainer.callbacks = build_callbacks(trainer, cfg, run, logger, manager, env_fn, users.callbacks)
    total = cfg.training.total_timesteps
    if start != "new":
        restore(trainer, cfg, run, logger, manager)
        trainer.decided = None if start == "extended" else trainer.decided
        over = trainer.decided is not None or trainer.budget_spent(total)
        if over and run.info().get("status") == "finished":
            logger.close()
            show(finished_text(run, trainer), cfg)
            return result_of(trainer, run, "already finished")
    try:
        exact = bool(getattr(trainer.collector.env, "exact", False)) and run.info().get("exact") is not False
        run.update_info(status="running", ended=None, exit_code=None, exact=exact, threads=cfg.training.num_threads)
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
        logger.close()
    except BaseException as error:
        record_failure(trainer, run, logger, error, saved=signals.saved)
        raise
    show(words, cfg)
    return result


def result_of(trainer: Trainer, run: RunDir, reason: str, *, exit_code: int = 0) -> TrainResult:
    checkpoint = run.checkpoints / f"step_{trainer.progress.env_steps:012d}"
    return TrainResult(run.path, checkpoint, final_metrics(run, trainer, reason), reason, exit_code)


def restore(trainer: Trainer, cfg: TrainConfig, run: RunDir, logger: Logger, manager: CheckpointManager) -> None:
    """Bring a fresh trainer and the run directory to the newest sound checkpoint."""
    if not manager.steps() and not (run.logs / "metrics.jsonl").stat().st_size:
        # ended before the checkpoint of step 0 was there, so the beginning is where it was
        if parent := run.info().get("parent"):
            warm_start(trainer, cfg, parent)
        run.rewind(0)
        logger.message("resumed from the beginning: the run had no checkpoint yet")
        return
    checkpoint = manager.load_latest()
    trainer.load_state_dict(checkpoint.parts)
    manager.rewind(checkpoint.step)
    run.rewind(checkpoint.step)
    logger.message(f"resumed from {checkpoint.path.name}")


def record_failure(trainer: Trainer, run: RunDir, logger: Logger, error: BaseException, *, saved: bool) -> None:
    """Leave the terminal and the run directory in order; a full disk must not hide what really happened."""
    interrupted = isinstance(error, KeyboardInterrupt)
    for callback in trainer.callbacks:
        if isinstance(callback, ProgressCallback):
            callback.display.close()
    if interrupted:
        state = "the last step is saved" if saved else "this step is not saved; the last checkpoint stands"
        sys.stderr.write(f"{state}: rl resume {run.path}\n")
    with suppress(OSError, RLTrainingError):
        logger.message(f"{type(error).__name__}: {error}")
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


# -- building ---------------------------------------------------------------------------------------------------------


def as_config(cfg: ConfigLike) -> TrainConfig:
    if isinstance(cfg, TrainConfig):
        return validate_config(cfg)
    return parse_config(cfg) if isinstance(cfg, Mapping) else load_config(cfg)


def build_trainer(cfg: TrainConfig, env_fn: EnvFn | None = None) -> OnPolicyTrainer:
    """Environment, algorithm, buffer and collector of a run; nothing is written to disk."""
    check_supported(cfg)
    spec, hparams = resolve_algorithm(cfg)
    num_steps = int(getattr(hparams, "num_steps", 0) or mapping_get(hparams, "num_steps", 128))
    progress = Progress()
    guard = Guard(cfg.monitor.checks, progress)
    env = make_vector_env(cfg, env_fn=env_fn)
    try:
        observation_space, action_space = space_spec(env.single_observation_space), space_spec(env.single_action_space)
        algorithm = build_algorithm(cfg, spec, hparams, observation_space, action_space, guard)
        streams = Streams(cfg.seed)
        info_keys = cfg.logging.info_keys
        collector = Collector(env, algorithm.policy, streams("actions"), info_keys=info_keys, guard=guard)
        buffer = build_buffer(cfg, observation_space, action_space, num_steps)
    except BaseException:
        env.close()
        raise
    trainer = OnPolicyTrainer(algorithm, collector, buffer, progress, num_steps, guard)
    trainer.total_episodes = cfg.training.total_episodes
    return trainer


def check_supported(cfg: TrainConfig) -> None:
    """Refuse what this version cannot run, before anything is built."""
    import_plugins(cfg.plugins)
    if cfg.backend == "jax":
        raise ConfigError("backend: 'jax' is not available in this version; use backend: torch")
    if cfg.lane == "compiled":
        raise ConfigError("lane: 'compiled' needs backend: jax, which is not available in this version; use lane: host")
    for registry, parts in ((loggers, cfg.logging.sinks), (callbacks, cfg.callbacks)):
        for part in parts:
            registry.get(part.name)
    if cfg.logging.video_frequency > 0:
        find_ffmpeg()
    if cfg.logging.wandb.enabled and importlib.util.find_spec("wandb") is None:
        raise ConfigError("logging to W&B needs an extra: pip install 'rl-training[tracking]'")


def resolve_algorithm(cfg: TrainConfig) -> tuple[AlgorithmSpec, Any]:
    """The spec behind `algo` and its hyperparameters as the spec's own class."""
    spec = algorithms.get(cfg.algo)
    if isinstance(spec, type):
        hparams, supports = getattr(spec, "Hparams", dict), getattr(spec, "supports", supports_anything)
        spec = AlgorithmSpec(cfg.algo, getattr(spec, "kind", "on_policy"), hparams, build=spec, supports=supports)
    if not isinstance(spec, AlgorithmSpec):
        raise ConfigError(
            f"algorithm '{cfg.algo}' is a {type(spec).__name__}; it must be an AlgorithmSpec or a class such as one "
            "derived from rl_training.BaseAlgorithm"
        )
    if spec.kind not in ("on_policy", "static"):
        raise ConfigError(f"algorithm '{cfg.algo}' is {spec.kind}; this version trains on_policy and static ones")
    if isinstance(cfg.hparams, Mapping) and is_dataclass(spec.hparams):
        return spec, check_hparams(spec.hparams, cfg.hparams, algo=cfg.algo)
    return spec, cfg.hparams


def build_algorithm(
    cfg: TrainConfig,
    spec: AlgorithmSpec,
    hparams: Any,
    observation_space: SpaceSpec,
    action_space: SpaceSpec,
    guard: Guard,
) -> Algorithm:
    """The algorithm, if it fits the spaces. `guard` brings the run's live progress along."""
    refusal = spec.supports(observation_space, action_space)
    if refusal is not None:
        raise ConfigError(f"algorithm '{cfg.algo}' does not fit environment '{cfg.env_id}': {refusal}")
    if spec.build is None:
        raise ConfigError(f"algorithm '{cfg.algo}' has no torch implementation; use backend: jax")
    build = import_attr(spec.build, "algorithm") if isinstance(spec.build, str) else spec.build
    ctx = BuildContext(
        observation_space=observation_space,
        action_space=action_space,
        num_envs=cfg.env.num_envs,
        device=resolve_device(cfg),
        network=cfg.network,
        streams=Streams(cfg.seed),
        progress=guard.progress,
        total_timesteps=cfg.training.total_timesteps,
        normalize_obs=cfg.env.normalize_obs,
        normalize_reward=cfg.env.normalize_reward,
        guard=guard,
    )
    what = f"algorithm '{cfg.algo}'"
    check_call(build, what, {"ctx": ctx, "hparams": hparams})
    algorithm = build(ctx, hparams)
    base = "derive it from rl_training.BaseAlgorithm, or see the protocols in rl_training.types"
    check_methods(algorithm, ("update", "observe", "state_dict", "load_state_dict"), what, base)
    policy = getattr(algorithm, "policy", None)
    check_methods(policy, ("act", "initial_carry", "state_dict", "load_state_dict"), f"the policy of {what}", base)
    return cast(Algorithm, algorithm)


def build_buffer(
    cfg: TrainConfig, observation_space: SpaceSpec, action_space: SpaceSpec, num_steps: int
) -> RolloutBuffer:
    if isinstance(action_space, DictSpec):
        raise ConfigError(f"environment '{cfg.env_id}' has a Dict action space, which no algorithm here can use")
    obs_shape, obs_dtype = layout(observation_space)
    kind = buffers.get(cfg.buffer.type or "rollout")
    if not (isinstance(kind, type) and issubclass(kind, RolloutBuffer)):
        raise ConfigError(
            f"buffer.type '{cfg.buffer.type}' does not fit '{cfg.algo}', which learns from rollouts; "
            "derive it from rl_training.data.rollout_buffer.RolloutBuffer"
        )
    sizes: dict[str, Any] = {
        "num_steps": num_steps,
        "num_envs": cfg.env.num_envs,
        "obs_shape": obs_shape,
        "action_shape": action_space.shape,
        "obs_dtype": obs_dtype,
        "action_dtype": action_space.dtype,
    }
    check_call(kind, f"buffer '{cfg.buffer.type}'", kwargs=sizes)
    return kind(**sizes)


def build_callbacks(
    trainer: OnPolicyTrainer,
    cfg: TrainConfig,
    run: RunDir,
    logger: Logger,
    manager: CheckpointManager,
    env_fn: EnvFn | None,
    users: Sequence[Callback],
) -> list[Any]:
    """The callbacks in their order; those with state become parts of the checkpoint."""
    training = cfg.training
    policy = trainer.algorithm.policy

    def evaluate(**options: Any) -> EvalResult:
        maker = eval_env_maker(cfg, env_fn, render=options.get("record", False))
        episodes = 1 if options.get("record") else training.num_eval_episodes
        return evaluate_policy(policy, maker, episodes=episodes, seed=cfg.seed, **options)

    callbacks: list[tuple[str, Any]] = [("guard", GuardCallback(trainer.guard))]
    if training.num_eval_episodes > 0:
        goal = training.stop_at_return
        callbacks.append(("eval", EvalCallback(evaluate, logger, every=training.eval_frequency, stop_at_return=goal)))
    if cfg.logging.video_frequency > 0:

        def record(path: Path) -> Path:
            result = evaluate(record=True)
            return write_video(path, result.frames, fps=result.fps)

        callbacks.append(("video", VideoCallback(record, run.videos, cfg.logging.video_frequency)))
    callbacks.append(("log", LogCallback(logger, cfg.logging.log_frequency)))
    callbacks += [(f"callback_{i}", callback) for i, callback in enumerate(users)]
    keep_best = cfg.checkpoint.keep_best
    saver = CheckpointCallback(manager, trainer.guard, every=training.checkpoint_frequency, keep_best=keep_best)
    callbacks.append(("checkpoint", saver))
    callbacks.append(("progress", ProgressCallback(Display(training.total_timesteps, enabled=cfg.logging.terminal))))
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


def show(text: str, cfg: TrainConfig) -> None:
    """A few lines for the person at the terminal."""
    if cfg.logging.terminal:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


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


def eval_env_maker(cfg: TrainConfig, env_fn: EnvFn | None, *, render: bool = False) -> Callable[[int], Any]:
    """Makes evaluation environments: the same stack without what is for training only."""
    mode = "rgb_array" if render else None
    return lambda i: make_env(env_fn or cfg.env_id, cfg.env, seed=cfg.seed, index=i, training=False, render_mode=mode)


def checkpoint_manager(cfg: TrainConfig, run: RunDir, logger: Logger) -> CheckpointManager:
    """The run's checkpoints; what they have to say goes to the terminal and to train.log."""

    def report(line: str) -> None:
        logger.message(line)
        sys.stderr.write(line + "\n")

    return CheckpointManager(run.path, **asdict(cfg.checkpoint), report=report)


def warm_start(trainer: Trainer, cfg: TrainConfig, init_from: str) -> None:
    """Load the policy of another run, its newest or the given step; everything else starts fresh."""
    name, _, step = init_from.partition(":") if not Path(init_from).exists() else (init_from, "", "")
    source = RunDir.open(name, cfg.output_dir)
    which = int(step) if step.isdigit() else (step or "latest")
    checkpoint = CheckpointManager(source.path).load(which, parts={"policy"})
    try:
        trainer.parts()["policy"].load_state_dict(checkpoint.parts["policy"])
    except (RuntimeError, KeyError, ValueError) as error:
        raise CheckpointError(
            f"--init-from {init_from}: that policy does not fit this run's network or spaces ({error})"
        ) from error


def mapping_get(hparams: Any, key: str, default: Any) -> Any:
    return hparams.get(key, default) if isinstance(hparams, Mapping) else default
