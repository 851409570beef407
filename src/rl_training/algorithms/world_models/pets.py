"""PETS: planning with the cross-entropy method over an ensemble (Chua et al. 2018, arXiv:1805.12114).

There is no policy network and no value function. Each decision searches action sequences that the ensemble predicts to
be best, and plays the first action of the result. Every member rolls out every candidate by itself (trajectory
sampling, TS-infinity): members that disagree lower the score of what only one of them likes. Hyperparameters are in
`hparams/pets.py`.

What differs from the paper: the reward is learnt with the dynamics instead of given, the ensemble learns a little at
every step instead of from scratch after each episode, and all candidates of a search share their random numbers.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.off_policy import OffPolicyAlgorithm
from rl_training.algorithms.policies import NetworkPolicy
from rl_training.algorithms.world_models.ensemble_model import build_ensemble, ensemble_rows
from rl_training.build_context import BuildContext
from rl_training.config.schema import NetworkConfig
from rl_training.dynamics.ensemble import Draws, Ensemble
from rl_training.hparams.off_policy import ReplaySchedule
from rl_training.hparams.pets import SPEC, PETSConfig
from rl_training.numerics.encoding import to_bounds
from rl_training.numerics.planning import cem, shifted
from rl_training.types import ActResult, Array, Batch, BoxSpec, Carry, ConfigError, Metrics, Obs, UpdateResult

__all__ = ["PETS", "SPEC", "PETSConfig", "plan_returns"]

PLAN = "plan"
"""Name of the carry: the actions planned for the next steps."""


@torch.no_grad()
def plan_returns(ensemble: Ensemble, obs: Tensor, candidates: Tensor, noise: Tensor, gamma: float) -> Tensor:
    """Predicted returns (N, K) of action sequences (N, K, H, A) from observations (N, n), the mean over all members.

    `noise` (H, E, N, P, n + 2) is uniform and shared by the K candidates: each of them meets the same luck. Nothing is
    earned after a predicted termination.
    """
    (decisions, count, horizon, size), members = candidates.shape, ensemble.members
    particles = noise.shape[3]
    shape = (members, decisions, particles, count)
    rows = math.prod(shape[1:])
    draws, scales = ensemble.draws_of(noise), ensemble.scales()
    state = obs[None, :, None, None].expand(*shape, -1).reshape(members, rows, -1)
    returns = torch.zeros(members, rows, device=obs.device)
    alive = torch.ones_like(returns)
    for t in range(horizon):
        actions = candidates[None, :, None, :, t].expand(*shape, size).reshape(members, rows, size)
        normal = draws.normal[t][:, :, :, None].expand(*shape, -1).reshape(members, rows, -1)
        uniform = draws.uniform[t][:, :, :, None].expand(shape).reshape(members, rows)
        after = ensemble.step(state, actions, Draws(normal, uniform), scales)
        returns += gamma**t * alive * after["reward"]
        alive = alive * (1.0 - after["terminated"])
        state = after["obs"]
    return returns.view(shape).mean((0, 2))


class PlanningPolicy(NetworkPolicy):
    """Plans every action anew, starting from the last plan one step later.

    Greedy actions search with fixed random numbers, so they depend on observation and plan alone.
    """

    network: Ensemble

    def __init__(self, ensemble: Ensemble, ctx: BuildContext, hp: PETSConfig) -> None:
        super().__init__(ensemble, ctx, None)
        self.hp = hp
        self.fixed = self.draws(1, ctx.streams("planning"))
        """Random numbers of greedy decisions."""

    def initial_carry(self, num_envs: int) -> Carry:
        return {PLAN: np.zeros((num_envs, self.hp.plan_horizon, self.action_size), np.float32)}

    @property
    def action_size(self) -> int:
        return math.prod(cast(BoxSpec, self.action_space).shape)

    def draws(self, rows: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Normal numbers for candidates (iterations, rows, K, H, A), uniform ones for models (H, E, rows, P, n + 2)."""
        hp, model = self.hp, self.network
        sequences = (hp.iterations, rows, hp.candidates, hp.plan_horizon, self.action_size)
        futures = (hp.plan_horizon, model.members, rows, hp.particles, model.size + 2)
        return rng.standard_normal(sequences, np.float32), rng.random(futures, np.float32)

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        rows = len(is_first)
        plan = np.where(is_first[:, None, None], np.float32(0.0), carry[PLAN])
        candidates, futures = self.fixed if deterministic else self.draws(rows, rng)
        seen = torch.as_tensor(obs, dtype=torch.float32, device=self.device)
        noise = torch.as_tensor(futures, device=self.device).expand(-1, -1, rows, -1, -1)

        def evaluate(sequences: Array) -> Array:
            actions = torch.as_tensor(sequences, dtype=torch.float32, device=self.device)
            return plan_returns(self.network, seen, actions, noise, self.hp.gamma).cpu().numpy()

        found = cem(
            evaluate,
            np.broadcast_to(candidates, (candidates.shape[0], rows, *candidates.shape[2:])),
            elites=self.hp.elites,
            mean=plan,
            std=np.full_like(plan, self.hp.plan_std),
            momentum=self.hp.plan_momentum,
        )
        chosen = found.mean[:, 0]
        if not deterministic and self.hp.exploration_noise:
            noisy = chosen + self.hp.exploration_noise * rng.standard_normal(chosen.shape, np.float32)
            chosen = np.clip(noisy, -1.0, 1.0)
        space = cast(BoxSpec, self.action_space)
        actions = chosen.reshape(rows, *space.shape).astype(np.float32)
        return ActResult(actions, to_bounds(space, actions), {PLAN: shifted(found.mean.astype(np.float32))})


class PETS(OffPolicyAlgorithm):
    """An ensemble that learns the environment, and a policy that plans with it."""

    hp: PETSConfig
    policy_learners = ("model",)

    def __init__(self, ctx: BuildContext, hp: PETSConfig) -> None:
        if ctx.network != NetworkConfig():
            raise ConfigError(
                "network: there is no network but the ensemble, whose widths are in hparams.dynamics.kwargs (hidden, "
                "layers); leave the section network out"
            )
        super().__init__(ctx, hp)
        self.model = build_ensemble(ctx, hp.dynamics, ctx.streams("init"))
        self.learner("model", self.model)
        self.act_with(PlanningPolicy(self.model, ctx, hp))

    @property
    def schedule(self) -> ReplaySchedule:
        """Every member learns from a batch of its own."""
        replay = self.hp.replay
        return replace(replay, batch_size=replay.batch_size * self.model.members)

    def update(self, batch: Batch) -> UpdateResult:
        """One step of every member along the likelihood of its batch."""
        self.updates += 1
        self._batch = batch
        rows, metrics = ensemble_rows(batch, self.model.members, self.tensor), cast(Metrics, {})
        self.model.update_scales(rows)
        losses = self.model.losses(rows)
        loss = losses["nll"] + losses["end"] + losses["bounds"]
        metrics |= model_metrics(losses, self.model.members)
        metrics["loss"] = loss.detach()
        metrics["grad_norm"] = self.step("model", loss, metrics)
        return UpdateResult(metrics)


def model_metrics(losses: dict[str, Tensor], members: int) -> Metrics:
    """What is logged of an ensemble's losses, per member."""
    return {
        "model_nll": losses["nll"].detach() / members,
        "model_end_loss": losses["end"].detach() / members,
        "model_error": losses["error"],
    }
