"""Running: from a config to a finished run directory.

`train` and `resume` are the two front doors. What they do is in their bodies, top to bottom; `assembly/` builds parts.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any, Literal, cast

from rl_training.assembly.data_parallel.joining import GoAhead, build_together, follow, hint_at_gpus, join_ranks
from rl_training.assembly.devices import pinned_threads
from rl_training.assembly.environments import EnvFn, need_env_fn
from rl_training.assembly.running.records import (
    TrainResult,
    record_end,
    record_failure,
    record_start,
    result_of,
    show,
)
from rl_training.assembly.running.resuming import record_first_budget, restore
from rl_training.assembly.running.run import assemble
from rl_training.assembly.running.user_parts import (
    UserParts,
    check_env_fn,
    missing_objects,
    object_name,
    split_callbacks,
    user_parts,
)
from rl_training.assembly.running.warm_start import learns_from_given_rows, warm_start
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.checkpointing.seal import Seal, SealCheck
from rl_training.config.loading import (
    ResolvedConfig,
    as_resolved,
    config_to_mapping,
    resolve_changed,
    resolve_config,
    resolve_mapping,
)
from rl_training.config.schema import TrainConfig
from rl_training.data.datasets.environment import with_environment
from rl_training.envs.watch import EnvWatch
from rl_training.runs.directory import RunDir
from rl_training.runs.names import check_name, env_fn_id
from rl_training.runs.redaction import with_secrets
from rl_training.runs.spaces import check_spaces, read_spaces, save_spaces
from rl_training.system.launch import launched
from rl_training.system.offspring import Offspring
from rl_training.system.signals import StopSignals
from rl_training.training.callbacks import PauseCallback
from rl_training.training.loop import Trainer
from rl_training.training.off_policy import OffPolicyTrainer
from rl_training.training.summary import finished_text
from rl_training.trust.consent import Consent, current, given_by_user
from rl_training.types import ConfigError, FollowedError

if TYPE_CHECKING:
    from rl_training.assembly.build import AnyTrainer
    from rl_training.distributed.ranks import Ranks

__all__ = ["ConfigLike", "DistributedTrainer", "Start", "TrainResult", "execute", "resume", "train", "train_ppo"]

ConfigLike = TrainConfig | ResolvedConfig | str | Path | Mapping[str, Any]
PAUSED_CODE = 75
"""Exit code of a run that paused where it was told to."""
Start = Literal["new", "resumed", "extended"]


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
    total_updates: int | None = None,
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

    `run` is a path, or a name inside `output_dir`. `total_timesteps` is the run's new budget from now on,
    `total_updates` that of an offline run; a run that is finished goes on only with one. `runners` is its new number of
    runners (`env.collector: ray`). `env_fn` and callback objects are those that the run was trained with. A config that
    was edited since the checkpoint was saved, or the checkpoint of another run, is refused unless
    `allow_changed_config`. `trust_plugins` agrees to the code that a run which was not made here asks for; `consent` is
    that of the sweep to which the run belongs, given where the sweep was made. `pause_at` is as for `train`.
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
        budget = given_budget(cfg, total_timesteps, total_updates)
        stored = recorded.get("total_timesteps") or recorded.get("total_updates")
        cfg = with_budget(cfg, budget or stored or cfg.training.budget)
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
            if budget is not None:
                directory.update_info(**{axis_of(cfg): budget})
            if runners is not None:
                directory.update_info(runners=runners)
            start: Start = "resumed" if budget is None else "extended"
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


def axis_of(cfg: TrainConfig) -> str:
    """What the budget of a run is called."""
    return "total_timesteps" if cfg.training.total_updates is None else "total_updates"


def given_budget(cfg: TrainConfig, total_timesteps: int | None, total_updates: int | None) -> int | None:
    """The new budget of a run; ConfigError where it is in units that the run does not count."""
    if total_timesteps is not None and cfg.training.total_updates is not None:
        raise ConfigError("an offline run counts updates, not env steps: give --total-updates N")
    if total_updates is not None and cfg.training.total_updates is None:
        raise ConfigError("the run counts env steps, not updates: give --total-timesteps N")
    return total_timesteps if total_updates is None else total_updates


def with_budget(cfg: TrainConfig, total_timesteps: int) -> TrainConfig:
    """A config with another budget; evaluations keep the frequency of the budget that the run was started with."""
    budget: dict[str, Any] = {axis_of(cfg): total_timesteps}
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


def match_spaces(trainer: Trainer, directory: RunDir) -> None:
    """Record the spaces of the environment, or refuse an environment whose spaces differ from the recorded ones."""
    recorded = read_spaces(directory.path)
    if recorded is None:
        save_spaces(directory.path, trainer.spaces)
    else:
        check_spaces(directory.path, recorded, trainer.spaces)


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
