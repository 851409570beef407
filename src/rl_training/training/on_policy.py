"""On-policy loop: collect a rollout, learn from it, forget it. Evaluation and checkpoints are callbacks."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.guards import Guard
from rl_training.training.collector import Collector, CollectStats
from rl_training.training.loop import Trainer
from rl_training.types import Algorithm, Batch, ConfigError, Metrics, Progress, Stateful, UpdateResult


class OnPolicyTrainer(Trainer):
    """Also drives the agents that never learn: their update does nothing."""

    def __init__(
        self,
        algorithm: Algorithm,
        collector: Collector,
        buffer: RolloutBuffer,
        progress: Progress,
        num_steps: int,
        guard: Guard,
    ) -> None:
        super().__init__(progress)
        self.algorithm = algorithm
        self.collector = collector
        self.buffer = buffer
        self.num_steps = num_steps
        self.guard = guard

    @property
    def exact(self) -> bool:
        return bool(getattr(self.collector.env, "exact", False))

    def train_step(self) -> Metrics:
        stats = self.collector.collect(self.num_steps, self.buffer)
        batch = self.buffer.as_batch()
        self.guard.check_batch(batch)
        with self.clock.measure("learning"):
            result = update(self.algorithm, batch)
            self.algorithm.observe(batch)
        self.progress.advance(env_steps=stats.env_steps, updates=1, episodes=len(stats.episodes))
        self.clock.seconds["acting"] += stats.acting_seconds
        self.clock.seconds["environment"] += stats.env_seconds
        self.episodes = stats.episodes
        return {**prefixed("train/", result.metrics), **rollout_metrics(stats)}

    def parts(self) -> dict[str, Stateful]:
        return {
            "policy": self.algorithm.policy,
            "algorithm": self.algorithm,
            "collector": self.collector,
            "env": self.collector.env,  # type: ignore[dict-item]  # every environment of ours is Stateful
            "progress": self.progress,
        }

    def close(self) -> None:
        self.collector.env.close()


def update(algorithm: Algorithm, batch: Batch) -> UpdateResult:
    """`algorithm.update`, with words for one of a user's that returns something else."""
    result: Any = algorithm.update(batch)
    if not isinstance(result, UpdateResult):
        name = type(algorithm).__name__
        raise ConfigError(f'{name}.update returned a {type(result).__name__}; return UpdateResult({{"loss": loss}})')
    return result


def prefixed(prefix: str, metrics: Metrics) -> Metrics:
    return {prefix + name: value for name, value in metrics.items()}


def rollout_metrics(stats: CollectStats) -> Metrics:
    """Episodes that ended in this rollout, absent where none did, and frames where the environment counts them."""
    frames = {"rollout/env_frames": stats.env_frames} if stats.env_frames else {}
    if not stats.episodes:
        return frames
    metrics: Metrics = {
        **frames,
        "rollout/return_mean": float(np.mean(stats.returns)),
        "rollout/length_mean": float(np.mean([episode.length for episode in stats.episodes])),
        "rollout/episodes": len(stats.episodes),
    }
    names = {name: None for episode in stats.episodes for name in episode.info}
    for name in names:
        values = [episode.info[name] for episode in stats.episodes if name in episode.info]
        metrics["rollout/success_rate" if name == "success" else f"rollout/info/{name}"] = float(np.mean(values))
    return metrics
