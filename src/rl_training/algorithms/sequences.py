"""Sampled sequences as the rows that losses are written over, and the priorities of sequences from errors of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rl_training.models.backbones.mlp import TensorObs
from rl_training.models.observed import Steps
from rl_training.models.transfer import to_device
from rl_training.numerics.returns import n_step_sums
from rl_training.types import Array, Batch, Obs


def steps_of(
    batch: Batch, burn_in: int, device: torch.device, observed: Callable[[Obs], TensorObs]
) -> tuple[Steps, dict[str, Array]]:
    """Sequences (N, K + T, ...) as `Steps` with what follows each row, and the other columns of the T * N rows.

    Rows that are not transitions stay in the sequence and are left out of the columns. `observed` turns arrays of
    observations into tensors.
    """
    before, obs = map_obs(batch["obs"], lambda x: in_time(x[:, :burn_in])), after(batch["obs"], burn_in)
    valid = in_time(batch["valid"][:, burn_in:])
    kept = None if valid.all() else np.flatnonzero(valid)
    flat = {name: in_time(batch[name][:, burn_in:]) for name in ("actions", "rewards", "terminated")}
    if "weights" in batch:  # one weight for each sequence
        flat["weights"] = np.tile(batch["weights"], len(valid) // len(batch["weights"]))
    if kept is not None:
        flat = {name: column[kept] for name, column in flat.items()}
    carry = batch.get("carry")
    return Steps(
        observed(before),
        observed(obs),
        to_device(np.ascontiguousarray(batch["is_first"].T), device),
        None if kept is None else to_device(kept, device),
        None if carry is None else {name: to_device(value, device) for name, value in carry.items()},
        observed(after(batch["next_obs"], burn_in)),
    ), flat


def with_n_steps(flat: dict[str, Array], batch: Batch, burn_in: int, gamma: float, n: int) -> dict[str, Array]:
    """The columns of `steps_of` for targets over up to n steps of a sequence, fewer where it or an episode ends.

    `rewards` are sums, `discounts` belong to them, `terminated` is that of the last row of a sum, and `bootstrap` says
    which row that is: its next observation is what the target goes on from.
    """
    rewards, terminated, valid, is_first = (
        batch[name][:, burn_in:].T for name in ("rewards", "terminated", "valid", "is_first")
    )
    ends = np.array(terminated, np.bool_)
    ends[:-1] |= is_first[1:] | ~valid[1:]
    sums, discounts, last = n_step_sums(np.asarray(rewards, np.float32), ends, gamma=gamma, n=n)
    rows = (last * rewards.shape[1] + np.arange(rewards.shape[1])).reshape(-1)
    kept = np.flatnonzero(valid)
    place = np.cumsum(valid.reshape(-1)) - 1  # of a row among those that are transitions
    return {
        **flat,
        "rewards": sums.reshape(-1)[kept],
        "discounts": discounts.reshape(-1)[kept],
        "terminated": terminated.reshape(-1)[rows[kept]],
        "bootstrap": place[rows[kept]],
    }


def in_time(values: Array) -> Array:
    """(N, T, ...) to (T * N, ...): row t * N + n is step t of sequence n."""
    return np.ascontiguousarray(values.swapaxes(0, 1)).reshape(-1, *values.shape[2:])


def after(obs: Obs, burn_in: int) -> Any:
    """Observations (N, K + T, ...) of the steps behind the burn-in, (T * N, ...)."""
    return map_obs(obs, lambda x: in_time(x[:, burn_in:]))


def map_obs(obs: Obs, function: Callable[[Array], Array]) -> Any:
    """Apply `function` to an observation or to each of a dict of them."""
    return {name: function(value) for name, value in obs.items()} if isinstance(obs, dict) else function(obs)


def priorities_of(steps: Steps, errors: Array, eta: float) -> Array:
    """eta * max + (1 - eta) * mean of the errors of each sequence (N,); 0 where it holds no transition.

    Kapturowski et al. 2019 (R2D2), section 2.3.
    """
    count = steps.num_sequences
    sequence = (np.arange(len(errors)) if steps.kept is None else steps.kept.cpu().numpy()) % count
    largest, total = np.zeros(count, errors.dtype), np.zeros(count, errors.dtype)
    np.maximum.at(largest, sequence, errors)
    np.add.at(total, sequence, errors)
    mean = total / np.maximum(np.bincount(sequence, minlength=count), 1)
    result: Array = eta * largest + (1.0 - eta) * mean
    return result
