"""Batches of which a share is from the run's own steps and the rest from a dataset."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from rl_training.data.datasets.dataset_replay import DatasetReplay
from rl_training.types import Array, Batch, Carry, Obs, VectorStep

COLUMNS = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated", "is_first", "valid")
"""What batches of both have; the last two where they are sequences."""


class OwnSteps(Protocol):
    """The replay buffer of the run."""

    def __len__(self) -> int: ...
    def begin(self, obs: Obs, carry: Carry) -> None: ...
    def store(self, step: VectorStep) -> None: ...
    def sample(self, batch_size: int) -> Batch: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any], /) -> None: ...


class MixedReplay:
    """Stores steps in `own`, and draws from both; rewards of both are scaled alike (`dataset.reward`).

    A batch for several updates at once (`pieces`) has the same mixture in each of its equal parts.
    """

    def __init__(self, dataset: DatasetReplay, own: OwnSteps, share: float, pieces: int = 1) -> None:
        self.dataset, self.own = dataset, own
        self.share, self.pieces = share, pieces
        self.memory_bytes = dataset.memory_bytes

    def __len__(self) -> int:
        return len(self.own)

    def begin(self, obs: Obs, carry: Carry) -> None:
        self.own.begin(obs, carry)

    def store(self, step: VectorStep) -> None:
        self.own.store(step)

    def sample(self, batch_size: int) -> Batch:
        """Copies of `batch_size` transitions, or of as many sequences for networks with memory."""
        sizes = [batch_size // self.pieces] * self.pieces
        return joined_rows([part for size in sizes for part in self.parts(size)])

    def parts(self, size: int) -> list[Batch]:
        """Rows of the dataset, and rows of the run with the same columns; none of either where the share says so."""
        own_rows = round(self.share * size)
        found = [self.dataset.sample(size - own_rows)] if own_rows < size else []
        if not own_rows:
            return found
        drawn = self.own.sample(own_rows)
        own = {name: drawn[name] for name in COLUMNS if name in drawn}
        own["rewards"] = (np.asarray(own["rewards"], np.float64) * self.dataset.reward_scale).astype(np.float32)
        return [*found, {**own, **self.unknown(own_rows)}]

    def unknown(self, rows: int) -> dict[str, Array]:
        """What only a dataset knows, for rows of the run: no next action, no bound of the return."""
        extra = {name: np.zeros((rows, *column.shape[1:]), column.dtype) for name, column in self.dataset.extra.items()}
        if "returns_to_go" in extra:
            extra["returns_to_go"][:] = -np.inf
        return extra

    def state_dict(self) -> dict[str, Any]:
        return self.own.state_dict()

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.own.load_state_dict(state)


def joined_rows(parts: list[Batch]) -> Batch:
    """Batches with the same columns, one behind the other."""
    if len(parts) == 1:
        return parts[0]

    def joined(name: str) -> Any:
        columns = [part[name] for part in parts]
        if isinstance(columns[0], dict):
            return {key: np.concatenate([column[key] for column in columns]) for key in columns[0]}
        return np.concatenate(columns)

    return {name: joined(name) for name in parts[0]}
