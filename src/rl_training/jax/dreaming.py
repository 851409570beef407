"""What a world model in JAX foresees, for the callbacks and commands that show it: errors and futures, in NumPy."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from rl_training.hparams.world_models import HORIZONS
from rl_training.jax.pytrees import to_host
from rl_training.jax.types import Batch, Foresight
from rl_training.numerics.symlog import symexp
from rl_training.types import Array, Dream, Obs


class Dreams:
    """Open-loop predictions of one model; `params` are its current weights."""

    def __init__(self, foresight: Foresight) -> None:
        self.foresight = foresight
        self.foresee_rows = jax.jit(foresight.foresee_rows, static_argnums=3)
        self.foresee = jax.jit(foresight.foresee, static_argnums=3)

    def errors(self, params: Any, batch: Batch, context: int, rng: np.random.Generator) -> dict[int, float]:
        """Root mean squared error of predictions k steps after the last observation seen, for each k that some sequence
        reaches without a new episode. Errors are those of symlog values, and of images in 0..1."""
        rows, length = batch["rewards"].shape
        found = to_host(self.foresee_rows(params, batch, self.noise(length, rows, rng), context))
        errors_of = [found.predicted[name] - true for name, true in found.true.items()]
        together = np.concatenate([error.reshape(length, rows, -1) for error in errors_of], axis=2)
        mean_squares = np.square(together).mean(2)
        errors = {}
        for k in HORIZONS:
            at = context - 1 + k
            if at >= length:
                continue
            counts = found.unbroken[context : at + 1].prod(0) > 0
            if counts.any():
                errors[k] = float(np.sqrt(mean_squares[at][counts].mean()))
        return errors

    def of_rows(self, params: Any, batch: Batch, context: int, rng: np.random.Generator, samples: int) -> Dream:
        """`samples` futures of one replayed sequence (1, T, ...)."""
        many = jax.tree.map(lambda column: np.repeat(column, samples, axis=0), batch)
        noise = self.noise(batch["rewards"].shape[1], samples, rng)
        return self._dream(to_host(self.foresee_rows(params, many, noise, context)), context)

    def of_episode(
        self, params: Any, episode: tuple[Obs, Array], context: int, rng: np.random.Generator, samples: int
    ) -> Dream:
        """`samples` futures of an episode, given as its first observations and its actions as they are stored."""
        obs, actions = episode
        steps = self.foresight.episode(obs, actions, samples)
        found = to_host(self.foresee(params, steps, self.noise(len(actions) + 1, samples, rng), context))
        known = len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
        return self._dream(found, context, known)

    def noise(self, length: int, rows: int, rng: np.random.Generator) -> Array:
        return rng.random((length, rows, self.foresight.noise_size), dtype=np.float32)

    def _dream(self, found: Any, context: int, known: int | None = None) -> Dream:
        predicted = {name: self._in_units(name, value).swapaxes(0, 1) for name, value in found.predicted.items()}
        true = {name: self._in_units(name, value)[:known, 0] for name, value in found.true.items()}
        images = tuple(self.foresight.parts.images)
        return Dream(predicted, found.rewards.T, found.continues.T, context, true, images)

    def _in_units(self, name: str, value: Array) -> Array:
        """Images as they are; anything else in the units of the environment."""
        return value if name in self.foresight.parts.images else symexp(value)
