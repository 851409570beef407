"""Small Dreamers and batches for the tests of world models."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl_training.algorithms.world_models.dreamer import Dreamer
from rl_training.build_context import BuildContext
from rl_training.hparams.dreamer import DreamerConfig
from rl_training.hparams.world_models import ModelSize
from rl_training.seeding import Streams
from rl_training.types import Array, Batch, BoxSpec, DiscreteSpec, SpaceSpec

SMALL = ModelSize(deter=16, hidden=12, stoch=4, classes=3, units=10, layers=1, depth=1, bins=21)
T, B = 5, 3


def box(size: int, bound: float = 1.0) -> BoxSpec:
    return BoxSpec(np.full(size, -bound, np.float32), np.full(size, bound, np.float32), np.dtype(np.float32))


IMAGE = BoxSpec(np.zeros((16, 16, 1), np.uint8), np.full((16, 16, 1), 255, np.uint8), np.dtype(np.uint8))


def small(observation: SpaceSpec | None = None, action: SpaceSpec | None = None, **given: Any) -> Dreamer:
    spaces = box(3) if observation is None else observation, DiscreteSpec(2) if action is None else action
    return Dreamer(BuildContext(*spaces, streams=Streams(0)), small_config(**given))


def small_config(**given: Any) -> DreamerConfig:
    hp = {"batch_size": B, "sequence_length": T, "imagine_horizon": 3, "size": "custom", "custom": SMALL, **given}
    return DreamerConfig(**hp)


def observations(space: SpaceSpec, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    assert isinstance(space, BoxSpec)
    if space.dtype == np.uint8:
        return rng.integers(0, 256, (*shape, *space.shape), dtype=np.uint8)
    return rng.standard_normal((*shape, *space.shape)).astype(np.float32)


def rows(dreamer: Dreamer, length: int = T, seed: int = 0) -> Batch:
    """Replay rows (B, length): the first sequence starts an episode, the second ends one, by termination."""
    rng = np.random.default_rng(seed)
    shape = (B, length)
    space, action = dreamer.ctx.observation_space, dreamer.ctx.action_space
    terminated, first = np.zeros(shape, bool), np.zeros(shape, bool)
    first[0, 0] = True
    if length > 3:
        terminated[1, 1], first[1, 2] = True, True
    spec = dreamer.model.dynamics.state_spec
    carry = {
        name: rng.integers(0, 3, (B, *part)).astype(dtype)
        if dtype == np.uint8
        else rng.uniform(-1, 1, (B, *part)).astype(dtype)
        for name, (part, dtype) in spec.items()
    }
    discrete = isinstance(action, DiscreteSpec)
    return {
        "obs": observations(space, shape, rng),
        "next_obs": observations(space, shape, rng),
        "actions": rng.integers(0, action.n, shape) if discrete else rng.normal(size=(*shape, *action.shape)),  # type: ignore[union-attr]
        "rewards": rng.standard_normal(shape).astype(np.float32),
        "terminated": terminated,
        "truncated": np.zeros(shape, bool),
        "is_first": first,
        "valid": np.ones(shape, bool),
        "carry": carry,
    }
