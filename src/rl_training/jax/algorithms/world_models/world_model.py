"""The world model of Dreamer in JAX: the twin of `rl_training.algorithms.world_models.world_model`, as pure functions.

Parameters are one flat dict with the torch twin's names. Arrays of steps are (T, B, ...), time first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.hparams.world_models import WorldModelHparams
from rl_training.jax.dynamics.base import Dynamics, Observed
from rl_training.jax.dynamics.build import build_dynamics
from rl_training.jax.dynamics.latents import Belief
from rl_training.jax.models.layers import Params
from rl_training.jax.models.world_models.layers import normed_mlp, normed_mlp_init, part, scoped
from rl_training.jax.models.world_models.observations import Decoder, encoder_of
from rl_training.jax.models.world_models.two_hot import two_hot_loss, two_hot_mean
from rl_training.jax.types import Hyper
from rl_training.numerics.symlog import symexp_bins
from rl_training.types import SpaceSpec

Losses = dict[str, Any]


class Arrivals(NamedTuple):
    """A batch of replayed sequences, (T, B, ...); see the torch twin."""

    obs: Any
    actions: Any
    """What led to each step, as numbers: one-hot where discrete."""
    rewards: Any
    is_first: Any
    is_last: Any
    is_terminal: Any
    valid: Any
    """1 where there is a step, 0 in the few places at the end of a sequence that no replayed row fills."""
    start: Any
    """State before the first step, (B, ...)."""

    def part(self, times: slice) -> Arrivals:
        """The steps of some times; `start` stays as it is."""
        columns: Arrivals = jax.tree.map(lambda column: column[times], self._replace(start=()))
        return columns._replace(start=self.start)


# -- the mathematics --------------------------------------------------------------------------------------------------


def divergence_losses(dynamics: Dynamics, posterior: Belief, prior: Belief, free_nats: Any) -> tuple[Any, Any]:
    """Divergences (T, B) of posterior and prior: one that moves the prior, one that moves the posterior.

    Below `free_nats`, summed over the latents of a step, they are constant: no gradient.
    """
    moves_prior = dynamics.divergence(jax.lax.stop_gradient(posterior), prior)
    moves_posterior = dynamics.divergence(posterior, jax.lax.stop_gradient(prior))
    return at_least(moves_prior, free_nats), at_least(moves_posterior, free_nats)


def at_least(values: Any, lowest: Any) -> Any:
    """max(values, lowest), with the gradient 0 below and 1 at the bound, as torch's clamp has it."""
    return jnp.where(values < lowest, lowest, values)


def continue_loss(logits: Any, is_terminal: Any, discount: Any) -> Any:
    """Cross-entropy of the prediction that an episode goes on; the target is the discount instead of 1."""
    target = (1.0 - is_terminal) * discount
    return jax.nn.softplus(logits) - target * logits


def mean_over(values: Any, weights: Any) -> Any:
    """Mean of `values` where `weights` are 1."""
    return (values * weights).sum() / jnp.maximum(weights.sum(), 1.0)


# -- the model --------------------------------------------------------------------------------------------------------


class WorldModel:
    """Predicts what an agent arrives at: observation, reward, and whether the episode goes on."""

    def __init__(self, space: SpaceSpec, actions: int, hp: WorldModelHparams) -> None:
        size = hp.widths
        self.size = size
        self.encoder = encoder_of(space, size)
        self.dynamics = build_dynamics(hp, self.encoder.features, actions)
        deter = self.dynamics.deter
        self.decoder = Decoder(self.encoder.parts, size, deter, self.dynamics.features - deter, self.dynamics.blocks)
        self.bins = symexp_bins(size.bins).astype(np.float32)

    def init(self, rng: np.random.Generator) -> Params:
        """Initial parameters, drawn in the order of the torch twin."""
        size, features = self.size, self.dynamics.features
        return {
            **scoped("encoder", self.encoder.init(rng)),
            **scoped("dynamics", self.dynamics.init(rng)),
            **scoped("decoder", self.decoder.init(rng)),
            **scoped("reward", normed_mlp_init(rng, features, size.units, 1, size.bins, 0.0)),
            **scoped("goes_on", normed_mlp_init(rng, features, size.units, 1, 1)),
        }

    def encode(self, params: Params, obs: Any) -> Any:
        """Tokens (T, B, E) of observations (T, B, ...)."""
        shape = jax.tree.leaves(obs)[0].shape[:2]
        return self.encoder.apply(part(params, "encoder"), flat(obs)).reshape(*shape, -1)

    def observe(self, params: Params, steps: Arrivals, noise: Any) -> Observed:
        """States after each step of replayed sequences, with what was believed before and after seeing it."""
        tokens = self.encode(params, steps.obs)
        dynamics = part(params, "dynamics")
        return self.dynamics.observe(dynamics, steps.start, steps.actions, tokens, steps.is_first, noise)

    def rewards(self, params: Params, features: Any) -> Any:
        """Predicted rewards of arriving at states with these features (..., F)."""
        return two_hot_mean(jax.nn.log_softmax(normed_mlp(part(params, "reward"), features)), self.bins)

    def continues(self, params: Params, features: Any) -> Any:
        """Predicted discounts of states: the probability that the episode goes on, times the discount learnt with."""
        return jax.nn.sigmoid(normed_mlp(part(params, "goes_on"), features)[..., 0])

    def losses(self, params: Params, seen: Observed, steps: Arrivals, hyper: Hyper, discount: Any) -> Losses:
        """The losses of the model, each (T, B) and weighted as in the total."""
        features = self.dynamics.read(seen.states)
        rows = features.reshape(-1, features.shape[-1])
        predicted = jax.nn.log_softmax(normed_mlp(part(params, "reward"), features))
        goes_on = normed_mlp(part(params, "goes_on"), features)[..., 0]
        errors = self.decoder.loss(part(params, "decoder"), rows, flat(steps.obs))
        losses = {
            "reconstruction_loss": errors.reshape(features.shape[:2]),
            "reward_loss": hyper["reward_scale"] * two_hot_loss(predicted, steps.rewards, self.bins),
            "continue_loss": continue_loss(goes_on, steps.is_terminal, discount),
        }
        if seen.prior:
            found = divergence_losses(self.dynamics, seen.posterior, seen.prior, hyper["free_nats"])
            losses["dynamics_loss"] = hyper["kl_dynamics"] * found[0]
            losses["representation_loss"] = hyper["kl_representation"] * found[1]
        if self.dynamics.open_loop:
            losses["open_loop_loss"] = self.open_loop_loss(params, seen, steps, hyper)
        return losses

    def open_loop_loss(self, params: Params, seen: Observed, steps: Arrivals, hyper: Hyper) -> Any:
        """Error of what is predicted one to `dynamics.open_loop` steps ahead of each state, for dynamics that no
        divergence teaches to predict; nothing is predicted across the start of an episode."""
        state, weights, total, count = seen.states, steps.valid, jnp.zeros(()), jnp.zeros(())
        for k in range(1, min(self.dynamics.open_loop, len(steps.rewards) - 1) + 1):
            ahead = steps.part(slice(k, None))
            shape = ahead.rewards.shape
            rows = flat({name: value[: shape[0]] for name, value in state.items()})
            rows = self.dynamics.predict(part(params, "dynamics"), rows, flat(ahead.actions))
            state = {name: value.reshape(*shape, *value.shape[1:]) for name, value in rows.items()}
            weights = weights[: shape[0]] * (1.0 - ahead.is_first) * ahead.valid
            features = self.dynamics.read(rows)
            errors = self.decoder.loss(part(params, "decoder"), features, flat(ahead.obs))
            predicted = jax.nn.log_softmax(normed_mlp(part(params, "reward"), features))
            errors = errors + hyper["reward_scale"] * two_hot_loss(predicted, ahead.rewards.reshape(-1), self.bins)
            total, count = total + (weights.reshape(-1) * errors).sum(), count + weights.sum()
        return total / jnp.maximum(count, 1.0)


def flat(obs: Any) -> Any:
    """Arrays (T, B, ...) as T * B rows."""
    return jax.tree.map(lambda value: value.reshape(-1, *value.shape[2:]), obs)
