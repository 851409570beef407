"""IPPO (de Witt et al. 2020, arXiv:2011.09533) and MAPPO (Yu et al. 2022, arXiv:2103.01955) in JAX.

The twin of `rl_training/algorithms/multi_agent/ippo.py`: PPO on rows of agents, with normalised values. The critic's
output n stands for the value n * std + mean of a scale that moves with the returns; when it moves, the last layer is
rescaled so that no value changes by it (PopArt, van Hasselt et al. 2016, arXiv:1602.07714).
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax.numpy as jnp
import numpy as np

from rl_training.build_context import BuildContext
from rl_training.hparams.ippo import SPEC, IPPOConfig
from rl_training.jax.algorithms.on_policy import Learner, Rollout, State
from rl_training.jax.algorithms.ppo import HYPER, clipped
from rl_training.jax.models.networks import Params
from rl_training.jax.models.optimization import OptimizerState
from rl_training.jax.numerics.normalization import RewardStatistics, Statistics
from rl_training.jax.types import Batch, Hyper, JaxAlgorithm, Metrics
from rl_training.numerics.value_scale import SMALLEST_STD, moved_scale

__all__ = ["HYPER", "SPEC", "IPPOConfig", "ippo"]


class Scale(NamedTuple):
    """Exponential mean and variance of returns, and the weight of all data in them; see `ValueScale`."""

    mean: Any
    variance: Any
    weight: Any


class ScaledState(NamedTuple):
    """`State` with the scale of the values, which is saved with the policy."""

    params: Params
    normalizer: dict[str, Statistics]
    optimizer: OptimizerState
    reward_normalizer: RewardStatistics | None
    hyper: Hyper
    value_scale: Scale


def units(scale: Scale) -> tuple[Any, Any]:
    """(mean, std) of the values that the critic's outputs stand for; (0, 1) before any data."""
    return scale.mean, jnp.where(scale.weight > 0.0, jnp.maximum(jnp.sqrt(scale.variance), SMALLEST_STD), 1.0)


def moved(scale: Scale, returns: Any) -> Scale:
    """The scale, moved towards the returns of a rollout."""
    return Scale(*moved_scale(*scale, returns.mean(), returns.var()))


def rescaled(head: Params, before: tuple[Any, Any], after: tuple[Any, Any]) -> Params:
    """A linear layer whose outputs are in the units `after` in place of `before`, both (mean, std)."""
    (mean, std), (new_mean, new_std) = before, after
    bias = (head["output.bias"] * std + mean - new_mean) / new_std
    return {**head, "output.weight": head["output.weight"] * (std / new_std), "output.bias": bias}


class ScaledLearner(Learner):
    """An on-policy learner whose critic learns normalised values."""

    def init(self, rng: np.random.Generator, hyper: Hyper) -> State:
        nothing = Scale(*(np.zeros((), np.float32) for _ in Scale._fields))
        return cast(State, ScaledState(*super().init(rng, hyper), nothing))

    def prepare(self, state: State, batch: Batch) -> tuple[State, Rollout]:
        """The rollout in the units of the current scale, which has moved towards its returns."""
        state, rollout = super().prepare(state, batch)
        scale = scale_of(state)
        after = moved(scale, rollout.returns)
        (mean, std), (new_mean, new_std) = units(scale), units(after)
        head = rescaled(state.params["value_head"], (mean, std), (new_mean, new_std))
        params = {**state.params, "value_head": head}
        scaled = cast(ScaledState, state)._replace(params=params, value_scale=after)
        values = (rollout.values * std + mean - new_mean) / new_std
        returns = (rollout.returns - new_mean) / new_std
        return cast(State, scaled), rollout._replace(values=values, returns=returns)

    def targets(self, state: State, batch: Batch, rewards: Any, values: Any, next_values: Any) -> tuple[Any, Any]:
        mean, std = units(scale_of(state))
        return super().targets(state, batch, rewards, values * std + mean, next_values * std + mean)

    def rollout_metrics(self, state: State, rollout: Rollout, learning_rate: Any) -> Metrics:
        metrics = super().rollout_metrics(state, rollout, learning_rate)
        mean, std = units(scale_of(state))
        return metrics | {"value_mean": metrics["value_mean"] * std + mean, "value_scale": std}


def scale_of(state: State) -> Scale:
    return cast(ScaledState, state).value_scale


def ippo(ctx: BuildContext, hp: IPPOConfig) -> JaxAlgorithm:
    """PPO with normalised values; without them it is PPO. What the critic sees follows from `hp.critic_input`."""
    if not hp.normalize_value:
        return clipped(Learner(ctx, hp), hp)
    return clipped(ScaledLearner(ctx, hp), hp)._replace(policy_fields=("value_scale",))
