"""The random agent: uniform over the action space, or over what a mask allows. The baseline of every comparison."""

from __future__ import annotations

import numpy as np

from rl_training.algorithms.static import StaticAgent
from rl_training.build_context import BuildContext
from rl_training.hparams.random import SPEC, RandomConfig
from rl_training.models.heads import sample_categorical
from rl_training.numerics.encoding import within
from rl_training.types import (
    ACTION_MASK,
    ActResult,
    Array,
    BoxSpec,
    Carry,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    Obs,
    SpaceSpec,
)

__all__ = ["SPEC", "RandomAgent", "RandomConfig", "random_actions"]


def random_actions(space: SpaceSpec, count: int, rng: np.random.Generator, mask: Array | None = None) -> Array:
    """`count` uniform actions; unbounded Box dimensions are standard normal, half-bounded ones exponential."""
    if isinstance(space, DiscreteSpec):
        if mask is None:
            return rng.integers(space.n, size=count)
        return sample_categorical(np.zeros((count, space.n)), rng, False, mask)
    if isinstance(space, MultiDiscreteSpec):
        if mask is None:
            return rng.integers(space.nvec, size=(count, len(space.nvec)))
        masks = np.split(mask, np.cumsum(space.nvec)[:-1], axis=1)
        return np.stack([sample_categorical(np.zeros(m.shape), rng, False, m) for m in masks], axis=1)
    if isinstance(space, MultiBinarySpec):
        switches = rng.integers(2, size=(count, space.n), dtype=np.int8)
        return switches if mask is None else switches * (mask != 0)
    assert isinstance(space, BoxSpec)
    return random_box(space, count, rng)


def random_box(space: BoxSpec, count: int, rng: np.random.Generator) -> Array:
    """Uniform between finite bounds, exponential beyond a single finite bound, standard normal without bounds."""
    shape = (count, *space.shape)
    below, above = np.isfinite(space.low), np.isfinite(space.high)
    low, high = np.where(below, space.low, 0.0), np.where(above, space.high, 1.0)
    share = rng.random(shape)
    uniform = (1.0 - share) * low + share * high if space.is_wide else low + (high - low) * share
    tail = rng.standard_exponential(shape)
    one_sided = np.where(below, low + tail, np.where(above, high - tail, rng.standard_normal(shape)))
    return within(space, np.where(below & above, uniform, one_sided))


class RandomAgent(StaticAgent):
    """Samples even with `deterministic=True`, because it has no best action."""

    def __init__(self, ctx: BuildContext, hp: RandomConfig) -> None:
        self.action_space = ctx.action_space
        self.policy = self

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        mask = obs.get(ACTION_MASK) if isinstance(obs, dict) else None
        actions = random_actions(self.action_space, len(is_first), rng, mask)
        return ActResult(actions, actions, carry)
