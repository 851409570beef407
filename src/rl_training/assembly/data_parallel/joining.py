"""The processes of one run: joins those that torchrun started, builds their trainers, and follows the first of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from rl_training.assembly.build import build_trainer
from rl_training.assembly.environments import EnvFn
from rl_training.config.schema import TrainConfig
from rl_training.system.launch import launched
from rl_training.system.signals import StopSignals
from rl_training.trust.consent import Consent
from rl_training.types import ConfigError, FollowedError, NonFiniteError

if TYPE_CHECKING:
    from rl_training.assembly.build import AnyTrainer
    from rl_training.distributed.ranks import Ranks
    from rl_training.distributed.shard_trainers import ShardedTrainer


@dataclass(frozen=True)
class GoAhead:
    """What the first process tells the others when it resumes a run, after it has checked that it may."""

    consent: Consent
    """What the user has agreed to where the run is resumed; it counts in all processes."""
    budget: int


def join_ranks(cfg: TrainConfig) -> Ranks | None:
    """Join the other processes of this run; None if torchrun has not started several. ConfigError if this config cannot
    be shared by them."""
    launch = launched()
    if launch.ranks == 1:
        return None
    if cfg.backend == "jax":
        raise ConfigError(
            f"torchrun started {launch.ranks} processes for a run with backend: jax, which is one process; take "
            "training.runs_per_program to train several seeds on several devices"
        )
    from rl_training.distributed.ranks import setup_distributed

    return setup_distributed(cfg.training.shards, cfg.device)


def build_together(cfg: TrainConfig, env_fn: EnvFn | None, ranks: Ranks | None) -> AnyTrainer:
    """The trainer of this process; where it cannot be built in one of them, it is in none."""
    if ranks is None:
        return build_trainer(cfg, env_fn)
    return ranks.attempt(lambda: build_trainer(cfg, env_fn, ranks=ranks))[0]


def follow(trainer: AnyTrainer, signals: StopSignals) -> Any:
    """Take part in the run that the first process leads, until it ends; returns what that gives the others."""
    follower = cast("ShardedTrainer", trainer)
    signals.bind(follower.ask)
    try:
        outcome = follower.follow()
    except NonFiniteError as error:  # of a sum over all shards, so the first process has it too
        raise FollowedError(str(error)) from error
    if outcome is None:
        raise FollowedError("the first process of the run has ended with an error")
    return outcome


def hint_at_gpus(cfg: TrainConfig, words: Sequence[str]) -> str | None:
    """A line with the command that uses all GPUs of this host, where the run uses one of several."""
    if cfg.backend != "torch" or not cfg.device.startswith(("cuda", "auto")) or launched().ranks > 1:
        return None
    import torch

    from rl_training.distributed.ranks import gpu_hint

    return gpu_hint(cfg.training.shards, torch.cuda.device_count(), words)
