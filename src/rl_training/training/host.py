"""What the trainers of the host lane share: a collector for Gymnasium environments, and the update of an algorithm."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, cast

import numpy as np

from rl_training.training.collector import Collector, CollectStats
from rl_training.training.loop import RunSettings, Trainer
from rl_training.types import Algorithm, Batch, ConfigError, Metrics, Stateful, UpdateResult, VectorStep

Update = Callable[[Batch], UpdateResult]


class ResumableEnv(Stateful, Protocol):
    """What every vector environment of `envs.make_vector_env` has beside Gymnasium's methods."""

    @property
    def exact(self) -> bool:
        """Whether the open episodes go on exactly after a resume."""

    def close(self) -> None: ...


class HostTrainer(Trainer):
    """Collects with an algorithm's policy and learns with its update; a subclass says when."""

    def __init__(self, algorithm: Algorithm, collector: Collector, settings: RunSettings) -> None:
        super().__init__(algorithm, settings)
        self.collector = collector
        self.env = cast(ResumableEnv, collector.env)
        self.update: Update = partial(checked_update, algorithm)

    def wrap_update(self, wrap: Callable[[Update], Update]) -> None:
        """Learn with `wrap(update)` from now on: for debug mode, which watches each update."""
        self.update = wrap(self.update)

    def watch_steps(self, look: Callable[[VectorStep], None]) -> None:
        """Show every step of the environments to `look` from now on."""
        self.collector.watch(look)

    @property
    def exact(self) -> bool:
        return self.env.exact

    @abstractmethod
    def train_step(self, num_steps: int | None = None) -> Metrics:
        """Collect and learn once; `num_steps` replaces the usual number of steps per environment."""

    def parts(self) -> dict[str, Stateful]:
        return {
            "policy": self.algorithm.policy,
            "algorithm": self.algorithm,
            "collector": self.collector,
            "env": self.env,
            "progress": self.progress,
        }

    def close(self) -> None:
        self.env.close()

    def finish_step(self, stats: CollectStats, learnt: Metrics) -> Metrics:
        """Account for what was collected in a train step; gives the metrics of the step."""
        self.clock.seconds["acting"] += stats.acting_seconds
        self.clock.seconds["environment"] += stats.env_seconds
        self.episodes = stats.episodes
        return {**prefixed("train/", learnt), **rollout_metrics(stats)}


def checked_update(algorithm: Algorithm, batch: Batch) -> UpdateResult:
    """`algorithm.update`, with an explanation where it returns something else than an UpdateResult."""
    result: Any = algorithm.update(batch)
    if not isinstance(result, UpdateResult):
        name = type(algorithm).__name__
        raise ConfigError(f'{name}.update returned a {type(result).__name__}; return UpdateResult({{"loss": loss}})')
    return result


def prefixed(prefix: str, metrics: Metrics) -> Metrics:
    return {prefix + name: value for name, value in metrics.items()}


def rollout_metrics(stats: CollectStats) -> Metrics:
    """Means over the episodes that ended in a train step, and the frames so far where the environment counts them."""
    frames: Metrics = {"rollout/env_frames": stats.env_frames} if stats.env_frames else {}
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
