"""Open-loop predictions of a world model in JAX: the twin of `rl_training.algorithms.world_models.dreams`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.algorithms.world_models.actors import ActionDistribution
from rl_training.jax.algorithms.world_models.world_model import Arrivals, WorldModel, flat
from rl_training.jax.models.layers import Params
from rl_training.jax.models.world_models.layers import part
from rl_training.jax.types import Batch
from rl_training.numerics.images import ObservationParts
from rl_training.types import Array


class Foreseen(NamedTuple):
    """Predictions for B sequences, (T, B, ...): vectors in symlog space, images (height, width, channels) in 0..1."""

    predicted: dict[str, Any]
    true: dict[str, Any]
    """What was observed, in the same form."""
    rewards: Any
    continues: Any
    unbroken: Any
    """1 where a step goes on with the episode of the step before it."""


class Foresight(NamedTuple):
    """What errors and pictures of open-loop predictions need of an algorithm with a world model."""

    model: WorldModel
    actions: ActionDistribution
    prepare: Callable[[Batch], Arrivals]
    """Sequences of rows as arrivals."""

    @property
    def parts(self) -> ObservationParts:
        """Images and vectors among the observations."""
        return self.model.encoder.parts

    @property
    def noise_size(self) -> int:
        """Uniform numbers that one row needs per step."""
        return self.model.dynamics.noise_size

    def foresee_rows(self, params: Params, batch: Batch, noise: Any, context: int) -> Foreseen:
        """`foresee` for sequences of rows, as a replay buffer gives them."""
        return self.foresee(params, self.prepare(batch), noise, context)

    def foresee(self, params: Params, steps: Arrivals, noise: Any, context: int) -> Foreseen:
        """Follow the first `context` steps and imagine the others with their actions; `noise` is (T, B, noise_size)."""
        model, rssm = self.model, self.model.dynamics
        seen = model.observe(params, steps.part(slice(context)), noise[:context]).states
        dynamics = part(params, "dynamics")

        def step(state: Any, inputs: tuple[Any, Any]) -> tuple[Any, Any]:
            state = rssm.predict(dynamics, state, *inputs)
            return state, rssm.read(state)

        last = {name: value[-1] for name, value in seen.items()}
        _, ahead = jax.lax.scan(step, last, (steps.actions[context:], noise[context:]))
        features = jnp.concatenate([rssm.read(seen), ahead])
        shape = features.shape[:2]
        decoded = model.decoder.apply(part(params, "decoder"), features.reshape(-1, features.shape[-1]))
        true = model.decoder.targets(flat(steps.obs))
        return Foreseen(
            {name: value.reshape(*shape, *value.shape[1:]) for name, value in decoded.items()},
            {name: value.reshape(*shape, *value.shape[1:]) for name, value in true.items()},
            model.rewards(params, features),
            model.continues(params, features),
            (1.0 - steps.is_first) * steps.valid,
        )

    def episode(self, obs: Any, actions: Array, samples: int) -> Arrivals:
        """An episode from its first observation on, `samples` times: `actions` (T - 1, ...), as they are stored, lead
        from one observation to the next. Observations that are missing at the end are repeated; nobody looks at them.
        """
        led = np.asarray(self.actions.as_numbers(actions), np.float32).reshape(-1, self.actions.size)
        numbers = np.concatenate([np.zeros((1, self.actions.size), np.float32), led])  # nothing led to the first one
        length = len(numbers)

        def many(column: Array) -> Array:
            filled = np.concatenate([column, np.repeat(column[-1:], length - len(column), axis=0)])
            return np.repeat(filled[:, None], samples, axis=1)

        nothing = np.zeros((length, samples), np.float32)
        is_first = nothing.copy()
        is_first[0] = 1.0
        seen: Any = jax.tree.map(many, obs)
        start = jax.tree.map(np.asarray, self.model.dynamics.initial(samples))
        return Arrivals(seen, many(numbers), nothing, is_first, nothing, nothing, np.ones_like(nothing), start)
