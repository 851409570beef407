"""MBPO: soft actor-critic on short rollouts of a learnt ensemble (Janner et al. 2019, arXiv:1906.08253).

Each update takes real transitions from replay, moves the ensemble along their likelihood, rolls the current policy out
from their states inside the model, and gives SAC the imagined transitions with a share of real ones. `MBPO.update` is
all of it; the losses of the policy are those of SAC. Hyperparameters are in `hparams/mbpo.py`.

What differs from the paper: model and policy learn in turns at every update instead of in phases, and rollouts are made
for the update that uses them instead of being stored, so that they always come from the newest model and policy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.sac import SAC, GaussianActor
from rl_training.algorithms.world_models.ensemble_model import build_ensemble, ensemble_rows
from rl_training.algorithms.world_models.pets import model_metrics
from rl_training.build_context import BuildContext
from rl_training.dynamics.ensemble import Ensemble
from rl_training.guards import gradient_suspects
from rl_training.hparams.mbpo import SPEC, MBPOConfig
from rl_training.hparams.off_policy import ReplaySchedule
from rl_training.types import Array, Batch, ConfigError, Metrics, UpdateResult

__all__ = ["MBPO", "SPEC", "MBPOConfig", "imagined_transitions"]


@torch.no_grad()
def imagined_transitions(
    model: Ensemble, actor: GaussianActor, obs: Tensor, action_noise: Tensor, model_noise: Tensor
) -> Batch:
    """Transitions of T steps of the policy in the model from `obs` (B, n), as rows of a replay batch.

    `action_noise` (T, B, A) is normal, `model_noise` (T, B, noise_size) uniform. A trajectory that the model ends goes
    no further: its later rows are left out.
    """
    state = {"obs": obs, "reward": obs.new_zeros(len(obs)), "terminated": obs.new_zeros(len(obs))}
    steps: list[dict[str, Tensor]] = []
    alive = torch.ones(len(obs), dtype=torch.bool, device=obs.device)
    for normal, uniform in zip(action_noise, model_noise, strict=True):
        actions, _ = actor.sample(state["obs"], normal)
        after = model.predict(state, actions, uniform)
        steps.append(
            {
                "obs": state["obs"][alive],
                "actions": actions[alive],
                "rewards": after["reward"][alive],
                "next_obs": after["obs"][alive],
                "terminated": after["terminated"][alive],
            }
        )
        alive = alive & (after["terminated"] == 0.0)
        state = after
    return {name: torch.cat([step[name] for step in steps]).cpu().numpy() for name in steps[0]}


class MBPO(SAC):
    """SAC with a model to imagine its transitions."""

    hp: MBPOConfig

    def __init__(self, ctx: BuildContext, hp: MBPOConfig) -> None:
        super().__init__(ctx, hp)
        if self.remembers:
            raise ConfigError("mbpo imagines single transitions; set network.*.memory.type: none, or take sac")
        self.model = build_ensemble(ctx, hp.dynamics, ctx.streams("model"))
        self.learner("model", self.model)

    @property
    def schedule(self) -> ReplaySchedule:
        """Every member of the ensemble learns from a batch of its own; the policy imagines from the first."""
        replay = super().schedule
        return replace(replay, batch_size=replay.batch_size * self.model.members)

    def update(self, batch: Batch) -> UpdateResult:
        """One step of the model, then one of SAC on imagined and real transitions."""
        metrics = self.update_model(batch) if self.updates % self.hp.model_every_updates == 0 else {}
        result = super().update(self.mixed(batch))
        return UpdateResult({**result.metrics, **metrics})

    def update_model(self, batch: Batch) -> Metrics:
        """One step of every member along the likelihood of its own real transitions."""
        self._batch = batch
        rows = ensemble_rows(batch, self.model.members, self.tensor)
        self.model.update_scales(rows)
        losses = self.model.losses(rows)
        loss, metrics = losses["nll"] + losses["end"] + losses["bounds"], model_metrics(losses, self.model.members)
        learner = self.learners["model"]
        learner.backward(loss)
        metrics["model_grad_norm"] = learner.apply(
            loss.detach(), self.hp.model_learning_rate, lambda: gradient_suspects(self.held(learner, metrics))
        )
        return metrics

    def mixed(self, batch: Batch) -> Batch:
        """The batch that SAC learns from: `batch_size` rows, `real_ratio` of them real."""
        size, hp = self.hp.batch_size, self.hp
        real = size if self.updates < hp.real_updates else round(hp.real_ratio * size)
        columns = ("obs", "actions", "rewards", "next_obs", "terminated")
        kept = {name: batch[name][:real] for name in columns}
        if real == size:
            return kept
        shape = (hp.rollout_steps, size)
        imagined = imagined_transitions(
            self.model,
            cast(GaussianActor, self.actor),
            cast(Tensor, self.observations(batch["obs"][:size])),
            self.noise(*shape, self.noise_size),
            self.tensor(self.rng.random((*shape, self.model.noise_size), np.float32)),
        )
        chosen = self.rng.choice(len(imagined["rewards"]), size - real, replace=False)
        return {name: joined(kept[name], imagined[name][chosen]) for name in columns}


def joined(real: Array, imagined: Array) -> Array:
    """Real rows, then imagined ones, in the shape and dtype of the real ones."""
    return np.concatenate([real, imagined.reshape(-1, *real.shape[1:]).astype(real.dtype)])
