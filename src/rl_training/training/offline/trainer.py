"""Offline loop: updates from a dataset. No environment is stepped; evaluation and checkpoints are callbacks."""

from __future__ import annotations

from rl_training.data.datasets.dataset_replay import DatasetReplay
from rl_training.numerics.metrics import mean_metrics
from rl_training.training.contract import ReplayTerms
from rl_training.training.host import checked_update, prefixed
from rl_training.training.loop import RunSettings, Trainer
from rl_training.types import Algorithm, Metrics, Stateful

BLOCK_UPDATES = 256
"""Updates of one train step."""


class OfflineTrainer(Trainer):
    """A block of updates at a time; its progress counts updates."""

    num_steps = BLOCK_UPDATES

    def __init__(self, algorithm: Algorithm, replay: DatasetReplay, terms: ReplayTerms, settings: RunSettings) -> None:
        super().__init__(algorithm, settings)
        self.replay = replay
        if replay.has_scores:
            self.normalized_score = replay.score
        self.batch_size = terms.schedule.batch_size
        self.updates_per_learn = terms.updates_per_learn

    @property
    def exact(self) -> bool:
        return True

    def train_step(self, num_updates: int | None = None) -> Metrics:
        """Some 256 updates, or `num_updates`; never more than the budget has left."""
        learnt = []
        with self.clock.measure("learning"):
            for _ in range(self.calls(num_updates or BLOCK_UPDATES)):
                learnt.append(checked_update(self.algorithm, self.replay.sample(self.batch_size)).metrics)
                self.progress.advance(updates=self.updates_per_learn)
        return prefixed("train/", mean_metrics(learnt))

    def calls(self, num_updates: int) -> int:
        """Calls of `update` in a step of `num_updates`, as far as the budget allows: the last call is finished."""
        if self.total_timesteps:
            num_updates = min(num_updates, self.total_timesteps - self.progress.updates)
        return -(-num_updates // self.updates_per_learn)

    def parts(self) -> dict[str, Stateful]:
        return {
            "policy": self.algorithm.policy,
            "algorithm": self.algorithm,
            "dataset": self.replay,
            "progress": self.progress,
        }

    def close(self) -> None:
        """There is nothing to release."""
