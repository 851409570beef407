"""How well dynamics foresee an episode: errors of open-loop predictions from many of its steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from rl_training.dynamics.base import Dynamics, State
from rl_training.hparams.world_models import HORIZONS

CONTEXT = 5
"""Observations that the model has seen before it is left on its own."""
STRIDE = 5
"""Steps between two starts of a prediction."""
SAMPLES = 16
"""Futures that are drawn from each start; the prediction is their mean."""


@torch.no_grad()
def episode_errors(
    dynamics: Dynamics,
    states: State,
    actions: Tensor,
    targets: Tensor,
    decode: Callable[[Tensor], Tensor],
    rng: np.random.Generator,
) -> dict[int, float]:
    """Root mean squared errors by steps ahead, over predictions from every fifth step of one episode.

    `states` (T, ...) are those after each observation, `actions` (T, A) led to each step, `targets` (T, D) is what is
    to be predicted there, and `decode` predicts it from features. Steps that the episode does not reach are left out.
    """
    length, furthest = len(targets), max(HORIZONS)
    starts = torch.arange(min(CONTEXT, length - 1) - 1, length - 1, STRIDE).clamp(min=0)
    ahead = starts[None] + torch.arange(1, furthest + 1)[:, None]  # (K, R): the steps that are predicted
    reached = ahead < length
    ahead = ahead.clamp(max=length - 1)
    rows = {name: value[starts].repeat_interleave(SAMPLES, dim=0) for name, value in states.items()}
    noise = None
    if dynamics.noise_size:
        shape = (furthest, len(starts) * SAMPLES, dynamics.noise_size)
        noise = torch.as_tensor(rng.random(shape, dtype=np.float32), device=actions.device)
    imagined = dynamics.imagine(rows, actions[ahead].repeat_interleave(SAMPLES, dim=1), noise)
    predicted = decode(dynamics.read(imagined).flatten(0, 1)).view(furthest, len(starts), SAMPLES, -1).mean(2)
    squared = (predicted - targets[ahead]).square().mean(-1)  # (K, R)
    found = {}
    for k in HORIZONS:
        counts = reached[k - 1]
        if counts.any():
            found[k] = float(squared[k - 1][counts].mean().sqrt())
    return found


def judgement(errors: dict[int, float]) -> dict[str, float]:
    """What an evaluation records of an episode: minus the error furthest ahead as its score, and every error."""
    named = {f"open_loop_error_{k}": errors.get(k, float("nan")) for k in HORIZONS}
    return {"score": -errors[max(errors)], **named}
