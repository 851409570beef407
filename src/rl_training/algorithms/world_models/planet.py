"""PlaNet: planning by search in a world model, without a policy network (Hafner et al. 2019, arXiv:1811.04551).

At every step the cross-entropy method looks for the sequence of actions with the largest sum of predicted rewards and
plays its first action. The world model is Dreamer's; hyperparameters are in `hparams/planet.py`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.world_models.latent_policy import LatentPolicy
from rl_training.algorithms.world_models.learner import WorldModelLearner
from rl_training.algorithms.world_models.world_model import WorldModel, mean_over
from rl_training.build_context import BuildContext
from rl_training.dynamics.base import State
from rl_training.hparams.planet import SPEC, PlaNetConfig
from rl_training.numerics.planning import cem
from rl_training.seeding import stream
from rl_training.types import Array, Batch, UpdateResult

__all__ = ["SPEC", "PlaNet", "PlaNetConfig"]

DISCOUNT = 1.0
"""Plans are short: rewards are summed as they are, as long as the model predicts that the episode goes on."""


def predicted_return(model: WorldModel, state: State, actions: Tensor, noise: Tensor | None) -> Tensor:
    """Sums (N,) of the rewards that the model predicts for action sequences (H, N, A) from states of N rows, each
    weighted by how likely the episode has gone on until then."""
    states = model.dynamics.imagine(state, actions, noise)
    features = model.dynamics.read(states)
    alive = torch.cumprod(model.continues(features), dim=0)
    before = torch.cat([torch.ones_like(alive[:1]), alive[:-1]])
    return (before * model.rewards(features)).sum(0)


class PlanningPolicy(LatentPolicy):
    """Chooses by the cross-entropy method; while collecting, noise is added to what was planned.

    Candidates are to differ by their actions, not by their luck: while collecting, all candidates of a decision meet
    the same random latents. Without a generator they are scored by the most likely latents, and the candidates' own
    draws are the same at every step, so that the action depends on nothing but the state.
    """

    learner: PlaNet

    def choose(self, state: State, rng: np.random.Generator | None) -> Array:
        hp, size = self.learner.hp, self.learner.actions.size
        rows = len(next(iter(state.values())))
        draws = stream(0, "plan") if rng is None else rng
        shared = 1 if rng is None else rows
        shape = hp.iterations, shared, hp.candidates, hp.plan_horizon, size
        normal = draws.standard_normal(shape, dtype=np.float32)
        uniform = None
        if rng is not None and self.model.dynamics.noise_size:
            uniform = rng.random((hp.plan_horizon, rows, self.model.dynamics.noise_size), np.float32)
        plan = cem(
            lambda candidates: self.scores(state, candidates, uniform),
            np.broadcast_to(normal, (hp.iterations, rows, *shape[2:])),
            elites=hp.elites,
        )
        actions = plan.mean[:, 0]
        if rng is not None:
            actions = actions + hp.action_noise * rng.standard_normal(actions.shape, dtype=np.float32)
        return np.clip(actions, -1.0, 1.0).astype(np.float32)

    def scores(self, state: State, candidates: Array, uniform: Array | None) -> Array:
        """Predicted returns (N, K) of candidates (N, K, H, A). The noise of the latents, `uniform` (H, N, noise_size),
        is that of every candidate; None takes the most likely latents."""
        rows, count, horizon, size = candidates.shape
        actions = np.array(candidates.transpose(2, 0, 1, 3), np.float32).reshape(horizon, -1, size)
        each = {name: value.repeat_interleave(count, dim=0) for name, value in state.items()}
        tensor = self.learner.tensor
        noise = None if uniform is None else tensor(np.repeat(uniform, count, axis=1))
        found = predicted_return(self.model, each, tensor(actions), noise)
        scores: Array = found.view(rows, count).cpu().numpy()
        return scores


class RandomPolicy(LatentPolicy):
    """Uniform actions before learning starts; the state is followed all the same."""

    def choose(self, state: State, rng: np.random.Generator | None) -> Array:
        rows, size = len(next(iter(state.values()))), self.learner.actions.size
        draws = stream(0, "plan") if rng is None else rng
        return draws.uniform(-1.0, 1.0, (rows, size)).astype(np.float32)


class PlaNet(WorldModelLearner):
    """A world model alone; its policy is a search."""

    policy: PlanningPolicy

    def __init__(self, ctx: BuildContext, hp: PlaNetConfig) -> None:
        super().__init__(ctx, hp)
        self.hp = hp
        self.ready()
        self.policy = PlanningPolicy(self)
        self.random = RandomPolicy(self)

    @property
    def warmup(self) -> RandomPolicy:
        return self.random

    def update(self, batch: Batch) -> UpdateResult:
        """One step of the world model."""
        steps = self.prepare(batch)
        noise_size = self.model.dynamics.noise_size
        seen = self.model.observe(steps, self.uniform(*steps.rewards.shape, noise_size))
        model = self.model.losses(seen, steps, self.hp, DISCOUNT)
        losses = {name: mean_over(loss, steps.valid) for name, loss in model.items()}
        total = torch.stack(list(losses.values())).sum()
        grad_norm = self.descend(total, losses)
        detached = {name: loss.detach() for name, loss in losses.items()}
        return UpdateResult({"loss": total.detach(), **detached, "grad_norm": grad_norm})
