"""Sampling sequences of consecutive steps of one environment from a ring, for recurrent learners and world models."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl_training.types import Array, ConfigError


def check_sequence_length(length: int, capacity: int, num_envs: int) -> None:
    """ConfigError where a ring of `capacity` rows cannot hold a sequence besides the oldest step."""
    if capacity < (length + 1) * num_envs:
        raise ConfigError(
            f"a buffer of {capacity} transitions holds no sequence of {length} steps of {num_envs} environments: raise "
            "buffer.size"
        )


def sequence_starts(first: int, written: int, num_envs: int, length: int) -> tuple[int, int]:
    """The rows [start, stop) with which complete sequences within rows [first, written) begin; stop may be less.

    Once rows have been overwritten, no sequence starts at the oldest step: whether an episode began there is unknown.
    """
    return (first + num_envs if first else 0), written - (length - 1) * num_envs


def draw_sequences(
    first: int, written: int, num_envs: int, batch_size: int, length: int, rng: np.random.Generator
) -> Array:
    """Row numbers (B, L), sampled uniformly among the sequences of `length` steps within rows [first, written)."""
    start, stop = sequence_starts(first, written, num_envs, length)
    if length < 1 or stop <= start:
        raise ValueError(
            f"the replay buffer holds no sequence of {length} steps yet: it has {(written - first) // num_envs} steps "
            f"of each of {num_envs} environments"
        )
    starts = rng.integers(start, stop, size=batch_size)
    return starts[:, None] + num_envs * np.arange(length)


def arrivals(batch: dict[str, Any]) -> dict[str, Any]:
    """Sequences of rows (B, T, ...), as `ReplayBuffer.sample_sequences` gives them, as T arrivals each.

    World models learn from what an agent arrives at: an observation, with the reward and the end that came with it and
    the action that led there. Row j gives one arrival at its next observation. Where an episode starts, an arrival at
    the row's own observation comes before it: reward 0, no action. So the final observation of an episode is a step of
    its own, and rows that are not transitions give none. What exceeds T arrivals is cut off.

    The result has `obs`, `actions` (that led there), `rewards`, `is_first` (start of an episode: forget the state and
    the action), `is_last`, `is_terminal`, and `valid`, False for places at the end that no row fills. An arrival is
    last where none of its own episode follows, also where no end was recorded (`ReplayBuffer.drop_open_episodes`): no
    return may reach from one episode into another. `carry` and other entries pass through: the carry of row 0 is the
    one before the first arrival, unless that is a start.
    """
    valid, first = batch["valid"], batch["is_first"]
    length = valid.shape[1]
    ends = np.cumsum(valid * (1 + first.astype(np.int64)), axis=1)  # (B, T): arrivals up to and with each row
    time = np.arange(length)
    row = (ends[:, None, :] <= time[:, None]).sum(2)  # (B, T): the row behind each arrival; T where there is none
    filled = row < length
    row = np.minimum(row, length - 1)

    def at(values: Array) -> Array:
        found: Array = values[np.arange(len(values))[:, None], row]
        return found

    reset = at(first) & (time == at(ends) - 2)
    goes_on = filled & ~reset
    cut = np.zeros_like(reset)
    cut[:, :-1] = ~goes_on[:, 1:]

    def observed(next_obs: Array, obs: Array) -> Array:
        arrived = at(next_obs)
        arrived[reset] = at(obs)[reset]
        return arrived

    obs, next_obs = batch["obs"], batch["next_obs"]
    nested = isinstance(obs, dict)
    given = {"obs", "next_obs", "actions", "rewards", "terminated", "truncated", "is_first", "valid"}
    return {
        **{name: value for name, value in batch.items() if name not in given},
        "obs": {key: observed(next_obs[key], obs[key]) for key in obs} if nested else observed(next_obs, obs),
        "actions": at(batch["actions"]),
        "rewards": np.where(goes_on, at(batch["rewards"]), np.float32(0)),
        "is_first": reset | ~filled,
        "is_last": goes_on & (at(batch["terminated"] | batch["truncated"]) | cut),
        "is_terminal": goes_on & at(batch["terminated"]),
        "valid": filled,
    }
