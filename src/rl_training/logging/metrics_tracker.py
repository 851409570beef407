"""Statistics over a window of the latest episodes and training metrics."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from rl_training.system.json_lines import plain_row
from rl_training.types import StateDict

EPISODE_FIELDS = {
    "return": "return",
    "episode_return": "return",
    "episode_reward": "return",
    "reward": "return",
    "length": "length",
    "episode_length": "length",
    "success": "success",
}
"""Names that describe an episode; every other name is a training metric."""


class MetricsTracker:
    """Mean, standard deviation, minimum and maximum of the last `window` values of each name.

    >>> tracker = MetricsTracker(window=2)
    >>> for value in (1.0, 2.0, 4.0):
    ...     tracker.update({"return": value, "length": 10})
    >>> tracker.get_episode_stats()["return_mean"]
    3.0
    """

    def __init__(self, window: int = 100) -> None:
        if window < 1:
            raise ValueError(f"window must be at least 1, not {window}")
        self.window = window
        self.episodes = 0
        self._episode_values: dict[str, deque[float]] = {}
        self._training_values: dict[str, deque[float]] = {}

    def update(self, metrics: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        """Add one episode (`return`, `length`, `success`), the metrics of one update, or both."""
        ended = False
        for name, value in plain_row({**(metrics or {}), **fields}).items():
            if value is None:
                continue
            episode_name = EPISODE_FIELDS.get(name)
            values = self._training_values if episode_name is None else self._episode_values
            values.setdefault(episode_name or name, deque(maxlen=self.window)).append(float(value))
            ended = ended or episode_name is not None
        self.episodes += ended

    def get_episode_stats(self) -> dict[str, float]:
        """`episodes` (the total number) and, over the window, `return_mean return_std return_min return_max`, the same
        for `length`, and `success_rate`; names that were never given are left out."""
        values = dict(self._episode_values)
        success = values.pop("success", None)
        stats: dict[str, float] = {"episodes": self.episodes, **_statistics(values)}
        if success:
            stats["success_rate"] = float(np.mean(success))
        return stats

    def get_training_stats(self) -> dict[str, float]:
        """`<name>_mean _std _min _max` of every training metric over the window."""
        return _statistics(self._training_values)

    def reset(self) -> None:
        """Forget everything."""
        self.episodes = 0
        self._episode_values.clear()
        self._training_values.clear()

    def state_dict(self) -> StateDict:
        return {
            "episodes": self.episodes,
            "episode": {name: list(values) for name, values in self._episode_values.items()},
            "training": {name: list(values) for name, values in self._training_values.items()},
        }

    def load_state_dict(self, state: StateDict, /) -> None:
        self.episodes = int(state["episodes"])
        self._episode_values = {name: deque(values, self.window) for name, values in state["episode"].items()}
        self._training_values = {name: deque(values, self.window) for name, values in state["training"].items()}


def _statistics(values: Mapping[str, deque[float]]) -> dict[str, float]:
    stats: dict[str, float] = {}
    for name, window in values.items():
        array = np.asarray(window)
        stats[f"{name}_mean"] = float(array.mean())
        stats[f"{name}_std"] = float(array.std())
        stats[f"{name}_min"] = float(array.min())
        stats[f"{name}_max"] = float(array.max())
    return stats
