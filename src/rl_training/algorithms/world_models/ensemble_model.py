"""What PETS and MBPO share: an ensemble built from a config, and replayed transitions as its input."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from rl_training.build_context import BuildContext
from rl_training.dynamics.base import build_dynamics
from rl_training.dynamics.ensemble import Ensemble, EnsembleRows
from rl_training.hparams.ensembles import supports_vectors
from rl_training.hparams.world_models import DynamicsConfig
from rl_training.types import Batch, BoxSpec, ConfigError


def check_vectors(ctx: BuildContext) -> None:
    """ConfigError where observations are not vectors or actions not bounded, for a choice made by `hparams`."""
    refusal = supports_vectors(ctx.observation_space, ctx.action_space)
    if refusal is not None:
        raise ConfigError(f"an ensemble does not fit this environment: {refusal}")


def build_ensemble(ctx: BuildContext, cfg: DynamicsConfig, rng: np.random.Generator) -> Ensemble:
    """The ensemble that `hparams.dynamics` names, for vectors and bounded actions."""
    for switch, given in (("normalize_obs", ctx.normalize_obs), ("normalize_reward", ctx.normalize_reward)):
        if given:
            raise ConfigError(f"env.{switch}: the ensemble standardises what it predicts itself; leave {switch} out")
    space, actions = ctx.observation_space, ctx.action_space
    assert isinstance(space, BoxSpec), "other observation spaces are refused before anything is built"
    assert isinstance(actions, BoxSpec), "other action spaces are refused before anything is built"
    made = build_dynamics(cfg.type, cfg.kwargs, (math.prod(space.shape), math.prod(actions.shape)), rng)
    if not isinstance(made, Ensemble):
        raise ConfigError(
            f"hparams.dynamics.type '{cfg.type}' does not predict observed vectors; take ensemble, or derive yours "
            "from rl_training.dynamics.ensemble.Ensemble (planet and dreamer take latent dynamics)"
        )
    return made


def ensemble_rows(batch: Batch, members: int, tensor: Callable[..., Tensor]) -> EnsembleRows:
    """Replayed transitions (E * B rows) as (E, B, ...): every member learns from rows of its own."""

    def split(values: Tensor) -> Tensor:
        return values.to(torch.float32).view(members, len(values) // members, *values.shape[1:])

    flat = {name: tensor(batch[name]) for name in ("obs", "next_obs")}
    actions = tensor(batch["actions"]).flatten(1)
    rewards, terminated = tensor(batch["rewards"]), tensor(batch["terminated"])
    return EnsembleRows(split(flat["obs"]), split(actions), split(rewards), split(flat["next_obs"]), split(terminated))
