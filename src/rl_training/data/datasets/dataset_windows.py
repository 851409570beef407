"""Consecutive steps of a dataset: windows with their returns (sequence models), sequences (networks with memory)."""

from __future__ import annotations

import numpy as np

from rl_training.config.schema import DatasetConfig
from rl_training.data.datasets.dataset import Dataset
from rl_training.data.datasets.dataset_replay import DatasetReplay
from rl_training.types import Array, Batch, ConfigError, Obs


class DatasetWindows(DatasetReplay):
    """Windows that begin at any row, drawn uniformly with replacement; long episodes are drawn more often. What would
    have followed an episode that does not end (the newest rows of a replay buffer, the last of a number of recorded
    steps) is unknown, and so is its return: its rows are not drawn, unless no episode ends."""

    def __init__(self, data: Dataset, rng: np.random.Generator, cfg: DatasetConfig, length: int) -> None:
        super().__init__(data, rng, cfg)
        self.length = length
        self.to_go = undiscounted(self.data, self.rewards)
        self.ends = np.repeat(self.data.episodes()[:, 1], self.data.lengths)
        """(R,): the row behind the last of the episode that each row belongs to."""
        ended = np.repeat(self.data.ends_known, self.data.lengths)
        self.begins = np.flatnonzero(ended) if ended.any() else np.arange(len(self))
        """Rows that a window may begin with."""
        self.memory_bytes += int(self.to_go.nbytes + self.ends.nbytes + self.begins.nbytes)

    def sample(self, batch_size: int) -> Batch:
        """Copies of `batch_size` windows (B, K, ...): obs actions rewards returns_to_go valid. Behind the end of an
        episode, where `valid` is False, its last row is repeated."""
        begin = self.begins[self.rng.integers(len(self.begins), size=batch_size)]
        rows = begin[:, None] + np.arange(self.length)
        last = self.ends[begin][:, None] - 1
        valid, rows = rows <= last, np.minimum(rows, last)
        return {
            "obs": shaped(self.data.obs_of(rows.ravel()), rows.shape),
            "actions": self.actions[rows],
            "rewards": self.rewards[rows],
            "returns_to_go": self.to_go[rows],
            "valid": valid,
        }


class DatasetSequences(DatasetReplay):
    """Sequences that begin at any row, drawn uniformly with replacement. Where one reaches the end of an episode it
    goes on with the next, and `is_first` says so: memories start afresh there, also where an episode's start is not in
    the dataset."""

    def __init__(self, data: Dataset, rng: np.random.Generator, cfg: DatasetConfig, length: int) -> None:
        super().__init__(data, rng, cfg)
        self.length = length
        if len(self) < length:
            raise ConfigError(
                f"networks with memory learn from sequences of {length} steps, and the dataset has {len(self)} rows: "
                "lower hparams.sequence_length and hparams.burn_in"
            )
        self.is_first = np.zeros(len(self), np.bool_)
        self.is_first[self.data.starts] = True
        self.memory_bytes += int(self.is_first.nbytes)

    def sample(self, batch_size: int) -> Batch:
        """Copies of `batch_size` sequences (B, L, ...): the columns of transitions, `is_first` and `valid`."""
        begin = self.rng.integers(len(self) - self.length + 1, size=batch_size)
        rows = begin[:, None] + np.arange(self.length)
        return {
            "obs": shaped(self.data.obs_of(rows.ravel()), rows.shape),
            "actions": self.actions[rows],
            "rewards": self.rewards[rows],
            "next_obs": shaped(self.data.next_obs_of(rows.ravel()), rows.shape),
            "terminated": self.terminated[rows],
            "truncated": self.truncated[rows],
            "is_first": self.is_first[rows],
            "valid": np.ones(rows.shape, np.bool_),
        }


def undiscounted(data: Dataset, rewards: Array) -> Array:
    """(R,): the sum of rewards from each row to the end of its episode."""
    sums = np.append(np.cumsum(np.asarray(rewards, np.float64)), 0.0)
    ends = np.repeat(data.episodes()[:, 1] - 1, data.lengths)
    left: Array = sums[ends] - sums[np.arange(len(data)) - 1]
    return left.astype(np.float32)


def shaped(obs: Obs, shape: tuple[int, ...]) -> Obs:
    """Observations (B * K, ...) as (B, K, ...)."""
    if isinstance(obs, dict):
        return {key: leaf.reshape(*shape, *leaf.shape[1:]) for key, leaf in obs.items()}
    return obs.reshape(*shape, *obs.shape[1:])
