"""On-policy loop: collect a rollout, learn from it, forget it. Evaluation and checkpoints are callbacks."""

from __future__ import annotations

from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.training.host import CollectorLike, HostTrainer
from rl_training.training.loop import RunSettings
from rl_training.types import Algorithm, Metrics


class OnPolicyTrainer(HostTrainer):
    """Also drives the agents that never learn: their update does nothing."""

    def __init__(
        self,
        algorithm: Algorithm,
        collector: CollectorLike,
        buffer: RolloutBuffer,
        num_steps: int,
        settings: RunSettings,
    ) -> None:
        super().__init__(algorithm, collector, settings)
        self.buffer = buffer
        self.num_steps = num_steps

    def train_step(self, num_steps: int | None = None) -> Metrics:
        stats = self.collector.collect(num_steps or self.num_steps, self.buffer)
        batch = self.buffer.as_batch()
        self.guard.check_batch(batch)
        with self.clock.measure("learning"):
            result = self.update(batch)
            self.algorithm.observe(batch)
        self.progress.advance(env_steps=stats.env_steps, updates=1, episodes=len(stats.episodes))
        return self.finish_step(stats, result.metrics)
