"""Compiled offline loop: a train step is a block of updates inside one XLA program, with the dataset on the device.

A block is computed in several calls where it takes long, so that a signal is acted upon; how many changes no bit of
what is computed or logged.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from rl_training.data.datasets.dataset_replay import DatasetReplay
from rl_training.jax.host import HostAlgorithm
from rl_training.jax.training.driver import root_key
from rl_training.jax.training.offline import OfflineDriver, on_device
from rl_training.jax.training.timetable import WORD
from rl_training.training.contract import ReplayTerms
from rl_training.training.host import prefixed
from rl_training.training.loop import RunSettings
from rl_training.training.offline.trainer import BLOCK_UPDATES, OfflineTrainer
from rl_training.types import Metrics

CALL_SECONDS = 0.5
FIRST_CALLS = 4
"""Calls of `learn` in the first piece of a run, whose time includes compilation."""


class CompiledOfflineTrainer(OfflineTrainer):
    """An `OfflineTrainer` whose updates are one program."""

    algorithm: HostAlgorithm

    def __init__(
        self,
        algorithm: HostAlgorithm,
        driver: OfflineDriver,
        replay: DatasetReplay,
        terms: ReplayTerms,
        settings: RunSettings,
    ) -> None:
        super().__init__(algorithm, replay, terms, settings)
        self.driver = driver
        rows = {"actions": replay.actions, "rewards": replay.rewards, "terminated": replay.terminated, **replay.extra}
        self.columns = on_device(replay.data.observations, replay.data.places, rows)
        self.pace = 0
        """Calls of `learn` that take about CALL_SECONDS; 0 before the first was timed."""

    def train_step(self, num_updates: int | None = None) -> Metrics:
        count, done = self.calls(num_updates or BLOCK_UPDATES), self.progress.updates // self.updates_per_learn
        with self.clock.measure("compiled"):
            learning, left = self.driver.begin(self.algorithm.state, self.columns), count
            while left:
                piece, began = min(left, self.pace or FIRST_CALLS, WORD - done % WORD), perf_counter()
                key = self.algorithm.key if done < WORD else root_key(self.algorithm.seed, done)
                numbers = np.uint32(done % WORD), np.uint32(piece)
                learning = self.driver.advance(learning, self.columns, key, *numbers)
                means = {name: float(total) / count for name, total in learning.totals.items()}  # waits for it
                left, done = left - piece, done + piece
                self._set_pace(piece, perf_counter() - began)
            self.algorithm.state = learning.learner
        self.progress.advance(updates=count * self.updates_per_learn)
        return prefixed("train/", means)

    def _set_pace(self, count: int, seconds: float) -> None:
        """Adapt the size of pieces; the first one says nothing, since it was compiled."""
        wanted = int(count * CALL_SECONDS / max(seconds, 1e-6))
        self.pace = max(1, min(wanted if self.pace else FIRST_CALLS, 8 * max(self.pace, 1), BLOCK_UPDATES))
