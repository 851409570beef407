"""The constant agent: always the same action. A task on which it scores well tests nothing."""

from __future__ import annotations

import numpy as np

from rl_training.algorithms.static import StaticAgent
from rl_training.build_context import BuildContext
from rl_training.hparams.constant import SPEC, ConstantConfig
from rl_training.numerics.encoding import within
from rl_training.types import (
    ActResult,
    Array,
    BoxSpec,
    Carry,
    ConfigError,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    Obs,
    SpaceSpec,
)

__all__ = ["SPEC", "ConstantAgent", "ConstantConfig", "constant_action"]


def constant_action(space: SpaceSpec, given: float | list[float] | None) -> Array:
    """The configured action in the shape and dtype of the space, checked against its bounds."""
    if isinstance(space, DictSpec):
        raise ConfigError("hparams.action: Dict action spaces are not supported")
    if given is None:
        return middle(space) if isinstance(space, BoxSpec) else np.zeros(space.shape, space.dtype)
    try:
        wide = np.broadcast_to(np.asarray(given, dtype=np.float64), space.shape)
    except ValueError:
        raise ConfigError(f"hparams.action: {given} does not have the shape {space.shape} of an action") from None
    if isinstance(space, BoxSpec):
        low, high = space.low, space.high
    else:
        low, high = np.zeros(space.shape), np.broadcast_to(options(space) - 1, space.shape)
        if not np.array_equal(wide, np.round(wide)):
            raise ConfigError(f"hparams.action: {given} must be whole numbers for discrete actions")
    if (wide < low).any() or (wide > high).any():
        raise ConfigError(f"hparams.action: {given} lies outside {low.tolist()} to {high.tolist()}")
    return wide.astype(space.dtype)


def options(space: DiscreteSpec | MultiDiscreteSpec | MultiBinarySpec) -> Array:
    """Number of values of each component of a discrete action."""
    if isinstance(space, MultiDiscreteSpec):
        return np.array(space.nvec)
    return np.array(space.n if isinstance(space, DiscreteSpec) else 2)


def middle(space: BoxSpec) -> Array:
    """Midpoint of finite bounds; with one finite bound the value nearest to 0; otherwise 0."""
    low = np.where(np.isfinite(space.low), space.low, np.minimum(space.high, 0.0))
    high = np.where(np.isfinite(space.high), space.high, np.maximum(space.low, 0.0))
    return within(space, low / 2 + high / 2)


class ConstantAgent(StaticAgent):
    """Repeats `hparams.action`."""

    def __init__(self, ctx: BuildContext, hp: ConstantConfig) -> None:
        self.action = constant_action(ctx.action_space, hp.action)
        self.policy = self

    def act(
        self, obs: Obs, carry: Carry, is_first: Array, rng: np.random.Generator, *, deterministic: bool = False
    ) -> ActResult:
        actions = np.repeat(self.action[None], len(is_first), axis=0)
        return ActResult(actions, actions, carry)
