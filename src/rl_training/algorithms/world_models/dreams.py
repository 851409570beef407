"""Open-loop predictions of a world model: it follows some observations and then imagines with given actions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.world_models.world_model import Arrivals, WorldModel, flat
from rl_training.dynamics.base import State
from rl_training.hparams.world_models import HORIZONS
from rl_training.models.world_models.observations import ObservationFormat
from rl_training.models.world_models.two_hot import symexp
from rl_training.types import Array, Dream


@torch.no_grad()
def foresee(model: WorldModel, steps: Arrivals, context: int, rng: np.random.Generator) -> Tensor:
    """Features (T, B, F) of states that see the first `context` steps and are imagined from there on."""
    dynamics = model.dynamics
    length, rows = steps.actions.shape[:2]
    device = steps.actions.device

    def noise(count: int) -> Tensor | None:
        shape = (count, rows, dynamics.noise_size)
        return torch.as_tensor(rng.random(shape, dtype=np.float32), device=device) if dynamics.noise_size else None

    tokens = model.encode(steps.part(slice(context)).obs)
    seen = dynamics.observe(steps.start, steps.actions[:context], tokens, steps.is_first[:context], noise(context))
    features = [dynamics.read(seen.states)]
    if length > context:
        last: State = {name: value[-1] for name, value in seen.states.items()}
        features.append(dynamics.read(dynamics.imagine(last, steps.actions[context:], noise(length - context))))
    return torch.cat(features)


def open_loop_errors(
    model: WorldModel, steps: Arrivals, context: int, rng: np.random.Generator, horizons: Sequence[int] = HORIZONS
) -> dict[int, float]:
    """Root mean squared error of predictions k steps after the last observation seen, for each k that some sequence
    reaches without a new episode. Errors are those of symlog values, and of images in 0..1."""
    features = foresee(model, steps, context, rng)
    length, rows = features.shape[:2]
    with torch.no_grad():
        errors = model.decoder.loss(features.flatten(0, 1), flat(steps.obs)).view(length, rows)
    size = sum(
        int(np.prod(value.shape[1:])) for value in model.decoder.targets(flat(steps.part(slice(1)).obs)).values()
    )
    unbroken = (1.0 - steps.is_first) * steps.valid
    found = {}
    for k in horizons:
        at = context - 1 + k
        if at >= length:
            continue
        counts = unbroken[context : at + 1].prod(0) > 0
        if counts.any():
            found[k] = float((errors[at][counts] / size).mean().sqrt())
    return found


@torch.no_grad()
def dream(model: WorldModel, steps: Arrivals, context: int, samples: int, rng: np.random.Generator) -> Dream:
    """`samples` futures of one sequence: steps are (T, 1, ...), of which the observations may end with the context."""
    many = repeated(steps, samples)
    features = foresee(model, many, context, rng)
    length = features.shape[0]
    predicted = model.decoder(features.flatten(0, 1))
    layout = model.encoder.format
    found = {name: in_units(layout, name, value, (length, samples)).swapaxes(0, 1) for name, value in predicted.items()}
    real = model.decoder.targets(flat(steps.obs))
    true = {name: in_units(layout, name, value, (len(value), 1))[:, 0] for name, value in real.items()}
    rewards, continues = model.rewards(features), model.continues(features)
    return Dream(found, rewards.cpu().numpy().T, continues.cpu().numpy().T, context, true, tuple(layout.images))


def repeated(steps: Arrivals, count: int) -> Arrivals:
    """Steps (T, 1, ...) as (T, count, ...)."""
    start = {name: value.expand(count, *value.shape[1:]) for name, value in steps.start.items()}
    return steps.mapped(lambda column: column.expand(-1, count, *column.shape[2:]))._replace(start=start)


def in_units(layout: ObservationFormat, name: str, value: Tensor, shape: tuple[int, int]) -> Array:
    """Decoded rows (T * B, ...) as (T, B, ...): images (H, W, C) in 0..1, anything else in the environment's units."""
    rows = value.permute(0, 2, 3, 1) if name in layout.images else symexp(value)
    result: Array = rows.unflatten(0, shape).cpu().numpy()
    return result
