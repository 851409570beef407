"""Hyperparameters of the algorithm `dynamics`, which learns a model of the environment and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_training.hparams.base import STRICT, AlgorithmSpec
from rl_training.hparams.schedules import Schedule
from rl_training.hparams.world_models import Size, WorldModelHparams, supports_world_model


@dataclass(frozen=True)
class DynamicsHparams(WorldModelHparams):
    """A model of the environment, learnt from random actions or from the replay rows of another run."""

    __pydantic_config__ = STRICT

    size: Size = "mini"
    """Widths of all networks: mini and tiny for a CPU, size1m to size400m as published, custom as in `custom`."""
    batch_size: int = 16
    """Sequences per update; for an ensemble, sequence_length times as many transitions for each member."""
    sequence_length: int = 32
    """Steps of each sequence."""
    learning_rate: float | Schedule = 1e-3
    """Step size of the optimiser, LaProp."""
    warmup_updates: int = 100
    """Updates over which the step size rises linearly from 0."""
    context: Literal["zero"] = "zero"
    """State that a sequence begins with where it does not begin an episode; states of random actions are not stored."""


SPEC = AlgorithmSpec(
    name="dynamics",
    kind="off_policy",
    hparams=DynamicsHparams,
    build="rl_training.algorithms.world_models.dynamics:build_model",
    supports=supports_world_model,
    summary="a model of the environment alone, from random actions or a run's replay; its score is minus its error",
    init_from="replay",
    prioritizes=False,
)
