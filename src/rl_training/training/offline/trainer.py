"""Offline loop: updates from a dataset. No environment is stepped; evaluation and checkpoints are callbacks."""

from __future__ import annotations

from rl_training.data.datasets.dataset_replay import DatasetReplay
from rl_training.numerics.metrics import mean_metrics
from rl_training.training.host import checked_update, prefixed
from rl_training.training.loop import RunSettings, Trainer
from rl_training.types import Algorithm, Metrics, Stateful

BLOCK_UPDATES = 256
"""Updates of one train step."""


class OfflineTrainer(Trainer):
    """A block of updates at a time; its progress counts updates."""

    num_steps = BLOCK_UPDATES

    def __init__(self, algorithm: Algorithm, replay: DatasetReplay, batch_size: int, settings: RunSettings) -> None:
        super().__init__(algorithm, settings)
        self.replay = replay
        self.batch_size = batch_size

    @property
    def exact(self) -> bool:
        return True

    def train_step(self) -> Metrics:
        """Some 256 updates, never more than the budget has left."""
        count = BLOCK_UPDATES
        if self.total_timesteps:
            count = min(count, self.total_timesteps - self.progress.updates)
        learnt = []
        with self.clock.measure("learning"):
            for _ in range(count):
                learnt.append(checked_update(self.algorithm, self.replay.sample(self.batch_size)).metrics)
                self.progress.advance(updates=1)
        return prefixed("train/", mean_metrics(learnt))

    def parts(self) -> dict[str, Stateful]:
        return {
            "policy": self.algorithm.policy,
            "algorithm": self.algorithm,
            "dataset": self.replay,
            "progress": self.progress,
        }

    def close(self) -> None:
        """There is nothing to release."""
