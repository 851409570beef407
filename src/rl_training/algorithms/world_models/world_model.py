"""The world model of Dreamer and PlaNet: encoder, dynamics, decoder, reward and continue heads, and their losses.

It learns from arrivals (`data.sequence.arrivals`): step t is an observation, with the reward and the end that came with
it and the action that led there. Tensors are (T, B, ...), time first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.dynamics.base import Belief, Dynamics, Observed, State, build_dynamics, detached, rows_of
from rl_training.dynamics.ensemble import Ensemble
from rl_training.hparams.world_models import WorldModelHparams
from rl_training.models.backbones.mlp import TensorObs
from rl_training.models.world_models.layers import NormedMLP
from rl_training.models.world_models.observations import ObservationDecoder, ObservationEncoder
from rl_training.models.world_models.two_hot import two_hot_loss, two_hot_mean
from rl_training.numerics.symlog import symexp_bins
from rl_training.types import ConfigError, SpaceSpec

Losses = dict[str, Tensor]


class Arrivals(NamedTuple):
    """A batch of replayed sequences, (T, B, ...)."""

    obs: TensorObs
    actions: Tensor
    """What led to each step, as numbers: one-hot where discrete."""
    rewards: Tensor
    is_first: Tensor
    is_last: Tensor
    is_terminal: Tensor
    valid: Tensor
    """1 where there is a step, 0 in the few places at the end of a sequence that no replayed row fills."""
    start: State
    """State before the first step, (B, ...)."""

    def part(self, times: slice) -> Arrivals:
        """The steps of some times; `start` stays as it is."""
        return self.mapped(lambda column: column[times])

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Arrivals:
        """The same steps with every column (T, B, ...) changed; `start` stays as it is."""
        obs = self.obs
        seen = {name: change(value) for name, value in obs.items()} if isinstance(obs, dict) else change(obs)
        others = ("actions", "rewards", "is_first", "is_last", "is_terminal", "valid")
        columns: dict[str, Any] = {name: change(getattr(self, name)) for name in others}
        return self._replace(obs=seen, **columns)


# -- the mathematics --------------------------------------------------------------------------------------------------


def divergence_losses(dynamics: Dynamics, posterior: Belief, prior: Belief, free_nats: float) -> tuple[Tensor, Tensor]:
    """Divergences (T, B) of posterior and prior: one that moves the prior, one that moves the posterior.

    Below `free_nats`, summed over the latents of a step, they are constant: no gradient (DreamerV3, equation 5).
    """
    moves_prior = dynamics.divergence(detached(posterior), prior)
    moves_posterior = dynamics.divergence(posterior, detached(prior))
    return moves_prior.clamp(min=free_nats), moves_posterior.clamp(min=free_nats)


def continue_loss(logits: Tensor, is_terminal: Tensor, discount: float) -> Tensor:
    """Cross-entropy of the prediction that an episode goes on. The target is the discount instead of 1, so that the
    predicted probability is the discount of imagined returns."""
    return F.binary_cross_entropy_with_logits(logits, (1.0 - is_terminal) * discount, reduction="none")


def mean_over(values: Tensor, weights: Tensor) -> Tensor:
    """Mean of `values` where `weights` are 1."""
    return (values * weights).sum() / weights.sum().clamp(min=1.0)


# -- the model --------------------------------------------------------------------------------------------------------


class WorldModel(nn.Module):
    """Predicts what an agent arrives at: observation, reward, and whether the episode goes on."""

    bins: Tensor

    def __init__(self, space: SpaceSpec, actions: int, hp: WorldModelHparams, rng: np.random.Generator) -> None:
        super().__init__()
        size = hp.widths
        self.encoder = ObservationEncoder(space, size, rng)
        sizes = self.encoder.out_features, actions
        self.dynamics = build_dynamics(hp.dynamics.type, hp.dynamics.kwargs, sizes, rng, hp.dynamics_defaults)
        if isinstance(self.dynamics, Ensemble):
            raise ConfigError(
                f"hparams.dynamics.type '{hp.dynamics.type}' predicts observed vectors, not a latent state; take rssm, "
                "stochastic or deterministic here, or the algorithms pets, mbpo and dynamics"
            )
        features, deter = self.dynamics.features, self.dynamics.deter
        self.decoder = ObservationDecoder(space, (deter, features - deter), size, rng, blocks=self.dynamics.blocks)
        self.reward = NormedMLP(rng, features, size.units, 1, size.bins, output_scale=0.0)
        self.goes_on = NormedMLP(rng, features, size.units, 1, 1)
        self.register_buffer("bins", torch.from_numpy(symexp_bins(size.bins)).float(), persistent=False)

    def encode(self, obs: TensorObs) -> Tensor:
        """Tokens (T, B, E) of observations (T, B, ...)."""
        leaf = next(iter(obs.values())) if isinstance(obs, dict) else obs
        tokens: Tensor = self.encoder(flat(obs))
        return tokens.view(*leaf.shape[:2], -1)

    def observe(self, steps: Arrivals, noise: Tensor | None) -> Observed:
        """States after each step of replayed sequences, with what was believed before and after seeing it."""
        return self.dynamics.observe(steps.start, steps.actions, self.encode(steps.obs), steps.is_first, noise)

    def rewards(self, features: Tensor) -> Tensor:
        """Predicted rewards of arriving at states with these features (..., F)."""
        return two_hot_mean(F.log_softmax(self.reward(features), dim=-1), self.bins)

    def continues(self, features: Tensor) -> Tensor:
        """Predicted discounts of states: the probability that the episode goes on, times the discount learnt with."""
        return torch.sigmoid(self.goes_on(features).squeeze(-1))

    def losses(self, seen: Observed, steps: Arrivals, hp: WorldModelHparams, discount: float) -> Losses:
        """The losses of the model, each (T, B) and weighted as in the total."""
        features = self.dynamics.read(seen.states)
        shape = features.shape[:2]
        predicted = F.log_softmax(self.reward(features), dim=-1)
        losses = {
            "reconstruction_loss": self.decoder.loss(features.flatten(0, 1), flat(steps.obs)).view(shape),
            "reward_loss": hp.reward_scale * two_hot_loss(predicted, steps.rewards, self.bins),
            "continue_loss": continue_loss(self.goes_on(features).squeeze(-1), steps.is_terminal, discount),
        }
        if seen.prior:
            moves_prior, moves_posterior = divergence_losses(self.dynamics, seen.posterior, seen.prior, hp.free_nats)
            losses["dynamics_loss"] = hp.kl_dynamics * moves_prior
            losses["representation_loss"] = hp.kl_representation * moves_posterior
        if self.dynamics.open_loop:
            losses["open_loop_loss"] = self.open_loop_loss(seen, steps, hp)
        return losses

    def open_loop_loss(self, seen: Observed, steps: Arrivals, hp: WorldModelHparams) -> Tensor:
        """Error of what is predicted one to `dynamics.open_loop` steps ahead of each state, for dynamics that no
        divergence teaches to predict; nothing is predicted across the start of an episode."""
        state, weights = seen.states, steps.valid
        total, count = steps.rewards.new_zeros(()), steps.rewards.new_zeros(())
        for k in range(1, min(self.dynamics.open_loop, len(steps.rewards) - 1) + 1):
            shape = steps.rewards[k:].shape
            rows = rows_of({name: value[: shape[0]] for name, value in state.items()})
            rows = self.dynamics.predict(rows, steps.actions[k:].flatten(0, 1))
            state = {name: value.unflatten(0, shape) for name, value in rows.items()}
            weights = weights[: shape[0]] * (1.0 - steps.is_first[k:]) * steps.valid[k:]
            features = self.dynamics.read(rows)
            errors = self.decoder.loss(features, flat(steps.part(slice(k, None)).obs))
            predicted = F.log_softmax(self.reward(features), dim=-1)
            errors = errors + hp.reward_scale * two_hot_loss(predicted, steps.rewards[k:].flatten(), self.bins)
            total, count = total + (weights.flatten() * errors).sum(), count + weights.sum()
        return total / count.clamp(min=1.0)


def flat(obs: TensorObs) -> TensorObs:
    """Observations (T, B, ...) as T * B rows."""
    if isinstance(obs, dict):
        return {name: value.flatten(0, 1) for name, value in obs.items()}
    return obs.flatten(0, 1)
