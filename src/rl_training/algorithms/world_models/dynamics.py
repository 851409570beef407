"""A model of the environment, learnt by itself: no rewards are pursued, its score is how well it predicts.

Actions are random, or the rows come from another run (`--init-from`). Latent dynamics (rssm, stochastic, deterministic)
learn inside the world model of Dreamer and PlaNet, an ensemble from single transitions. Hyperparameters are in
`hparams/dynamics.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.off_policy import UniformPolicy
from rl_training.algorithms.sequences import map_obs
from rl_training.algorithms.world_models.actors import action_distribution
from rl_training.algorithms.world_models.ensemble_model import check_vectors
from rl_training.algorithms.world_models.episode_errors import episode_errors, judgement
from rl_training.algorithms.world_models.latent_policy import LatentPolicy
from rl_training.algorithms.world_models.learner import WorldModelLearner
from rl_training.algorithms.world_models.pets import PETS
from rl_training.algorithms.world_models.world_model import mean_over
from rl_training.build_context import BuildContext
from rl_training.dynamics.base import State
from rl_training.dynamics.ensemble import Ensemble
from rl_training.hparams.dynamics import SPEC, DynamicsHparams
from rl_training.hparams.ensembles import EnsembleConfig
from rl_training.hparams.off_policy import ReplaySchedule
from rl_training.hparams.optimizer import LAPROP, OptimizerConfig
from rl_training.hparams.pets import PETSConfig
from rl_training.models.laprop import warmed_up
from rl_training.models.networks import as_tensors, load_module_state, module_state
from rl_training.models.world_models.two_hot import symlog
from rl_training.numerics.encoding import from_bounds
from rl_training.registry import dynamics
from rl_training.seeding import stream
from rl_training.types import Array, Batch, BoxSpec, Dream, Obs, StateDict, UpdateResult

__all__ = ["SPEC", "DynamicsHparams", "EnsembleModel", "LatentModel", "build_model"]


def build_model(ctx: BuildContext, hp: DynamicsHparams) -> LatentModel | EnsembleModel:
    """The learner that fits the dynamics: of a latent state, or of observed vectors."""
    kind = dynamics.get(hp.dynamics.type)
    if isinstance(kind, type) and issubclass(kind, Ensemble):
        return EnsembleModel(ctx, hp)
    return LatentModel(ctx, hp)


class ModelPolicy(UniformPolicy):
    """Acts at random, and judges episodes by how well its model would have predicted them."""

    def __init__(self, owner: LatentModel | EnsembleModel) -> None:
        super().__init__(owner.ctx.action_space)
        self.owner = owner
        self.numbers = action_distribution(owner.ctx.action_space, 0.0)

    def judge(self, obs: Obs, actions: Array) -> dict[str, float]:
        """Errors of predictions 1, 5 and 15 steps ahead in an episode of T + 1 observations and T actions, as the
        environment took them. The score is minus the last one that the episode is long enough for."""
        space = self.action_space
        stored = from_bounds(space, actions) if isinstance(space, BoxSpec) else actions
        numbers = self.numbers.as_numbers(self.owner.tensor(stored))
        led_here = torch.cat([torch.zeros_like(numbers[:1]), numbers])
        return judgement(self.owner.errors_of(obs, led_here, stream(0, "open_loop")))

    def state_dict(self) -> StateDict:
        return {"network": {"model": module_state(self.owner.model)}}

    def load_state_dict(self, state: StateDict, /) -> None:
        load_module_state(self.owner.model, state["network"]["model"])


class LatentModelPolicy(ModelPolicy):
    """The same for a latent model, which can also be asked for its dreams."""

    owner: LatentModel

    def dream(
        self, obs: Obs, actions: Array, rng: np.random.Generator, samples: int = 16, context: int | None = None
    ) -> Dream:
        """Futures of an episode that began with the observations `obs`; see `LatentPolicy.dream`."""
        return LatentPolicy(self.owner).dream(obs, actions, rng, samples, context)


class LatentModel(WorldModelLearner):
    """A world model with any latent dynamics."""

    def __init__(self, ctx: BuildContext, hp: DynamicsHparams) -> None:
        super().__init__(ctx, hp)
        self.hp = hp
        self.ready()
        self.policy = LatentModelPolicy(self)

    def update(self, batch: Batch) -> UpdateResult:
        """One step of the world model."""
        steps = self.prepare(batch)
        seen = self.model.observe(steps, self.uniform(*steps.rewards.shape, self.model.dynamics.noise_size))
        terms = self.model.losses(seen, steps, self.hp, discount=1.0)
        losses = {name: mean_over(loss, steps.valid) for name, loss in terms.items()}
        total = torch.stack(list(losses.values())).sum()
        grad_norm = self.descend(total, losses)
        metrics = {name: loss.detach() for name, loss in losses.items()}
        return UpdateResult({"loss": total.detach(), **metrics, "grad_norm": grad_norm})

    @torch.no_grad()
    def errors_of(self, obs: Obs, actions: Tensor, rng: np.random.Generator) -> dict[int, float]:
        """Errors of open-loop predictions in one episode, in symlog units, images in 0..1."""
        model, length = self.model, len(actions)
        rows = as_tensors(obs, self.device)
        is_first = torch.zeros(length, 1, device=self.device)
        is_first[0] = 1.0
        size = model.dynamics.noise_size
        noise = self.tensor(rng.random((length, 1, size), dtype=np.float32)) if size else None
        tokens = model.encode(as_tensors(map_obs(obs, lambda column: column[:, None]), self.device))
        seen = model.dynamics.observe(model.dynamics.initial(1), actions[:, None], tokens, is_first, noise)
        states: State = {name: value[:, 0] for name, value in seen.states.items()}
        targets = joined(model.decoder.targets(rows))
        return episode_errors(model.dynamics, states, actions, targets, lambda x: joined(model.decoder(x)), rng)


class EnsembleModel(PETS):
    """An ensemble alone: it learns as that of PETS does, and nothing is planned with it."""

    def __init__(self, ctx: BuildContext, hp: DynamicsHparams) -> None:
        check_vectors(ctx)
        self.settings = hp
        ensemble = EnsembleConfig(hp.dynamics.type, hp.dynamics.kwargs)
        optimizer = OptimizerConfig(LAPROP, {"agc": hp.agc})
        super().__init__(ctx, PETSConfig(learning_rate=hp.learning_rate, dynamics=ensemble, optimizer=optimizer))
        self.policy: Any = ModelPolicy(self)

    @property
    def schedule(self) -> ReplaySchedule:
        """As many transitions per update as sequences have steps, for every member."""
        replay = self.settings.replay
        return replace(replay, batch_size=replay.batch_size * self.settings.sequence_length * self.model.members)

    def scheduled(self, name: str) -> float:
        value = super().scheduled(name)
        return warmed_up(value, self.updates - 1, self.settings.warmup_updates) if name == "learning_rate" else value

    @torch.no_grad()
    def errors_of(self, obs: Obs, actions: Tensor, rng: np.random.Generator) -> dict[int, float]:
        """Errors of open-loop predictions in one episode, in symlog units."""
        seen = cast(Tensor, as_tensors(obs, self.device)).to(torch.float32)
        none = torch.zeros(len(seen), device=self.device)
        states: State = {"obs": seen, "reward": none, "terminated": none}
        return episode_errors(self.model, states, actions, symlog(seen), symlog, rng)


def joined(parts: dict[str, Tensor]) -> Tensor:
    """Everything that is observed as one row of numbers: (B, D)."""
    return torch.cat([value.flatten(1) for value in parts.values()], dim=1)
