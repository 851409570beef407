"""What the trainers of the host lane share: a collector for Gymnasium environments, and the update of an algorithm."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, cast

import numpy as np

from rl_training.numerics.agents import AGENT_RETURN, POLICY_RETURN, TEAM_RETURN
from rl_training.training.collector import CollectStats
from rl_training.training.loop import NOTHING, RunSettings, Trainer
from rl_training.training.overlap.ahead import Ahead
from rl_training.types import (
    Algorithm,
    Batch,
    CheckpointError,
    ConfigError,
    Metrics,
    Policy,
    Progress,
    StateDict,
    Stateful,
    TransitionSink,
    UpdateResult,
    VectorStep,
)

Update = Callable[[Batch], UpdateResult]


class ResumableEnv(Stateful, Protocol):
    """What every vector environment of `envs.make_vector_env` has beside Gymnasium's methods."""

    @property
    def exact(self) -> bool:
        """Whether the open episodes go on exactly after a resume."""

    def close(self) -> None: ...


class CollectorLike(Stateful, Protocol):
    """What steps the environments of a trainer: `Collector` in this process, those of `remote/` in others."""

    num_envs: int

    @property
    def env(self) -> Any:
        """The environments, a `ResumableEnv`."""

    def watch(self, look: Callable[[VectorStep], None]) -> None: ...
    def collect(self, num_steps: int, sink: TransitionSink, policy: Policy | None = None) -> CollectStats: ...


class HostTrainer(Trainer):
    """Collects with an algorithm's policy and learns with its update; a subclass says when."""

    ahead: Ahead[Any] | None = None
    """Collects while the learner works, in the trainers of `overlap/`."""

    def __init__(self, algorithm: Algorithm, collector: CollectorLike, settings: RunSettings) -> None:
        super().__init__(algorithm, settings)
        self.collector = collector
        self.env = cast(ResumableEnv, collector.env)
        self.update: Update = partial(checked_update, algorithm)

    def wrap_update(self, wrap: Callable[[Update], Update]) -> None:
        """Learn with `wrap(update)` from now on: for debug mode, which watches each update."""
        self.update = wrap(self.update)

    def watch_steps(self, look: Callable[[VectorStep], None]) -> None:
        """Show every step of the environments to `look` from now on; with `env.overlap` in the thread that collects."""
        self.collector.watch(look)

    @property
    def exact(self) -> bool:
        return self.env.exact

    @abstractmethod
    def train_step(self, num_steps: int | None = None) -> Metrics:
        """Collect and learn once; `num_steps` replaces the usual number of steps per environment."""

    def parts(self) -> dict[str, Stateful]:
        ahead: dict[str, Stateful] = {} if self.ahead is None else {"ahead": self.ahead}
        return {
            "policy": self.algorithm.policy,
            "algorithm": self.algorithm,
            "collector": self.collector,
            "env": self.env,
            **ahead,
            "progress": self.progress,
        }

    def load_state_dict(self, state: dict[str, StateDict], /, beside: Mapping[str, Stateful] = NOTHING) -> None:
        if self.ahead is None and state.get("ahead"):
            raise CheckpointError(
                "the checkpoint holds steps that were collected ahead and not learnt from yet; they need "
                "env.overlap: true, with which it was saved"
            )
        super().load_state_dict(state, beside)

    def drop_open_episodes(self, parts: Iterable[Stateful]) -> None:
        """What was collected ahead continues the episodes that the learner knows: there they end later, behind it."""
        if self.ahead is None or self.ahead.pending is None:
            super().drop_open_episodes(parts)
            return
        self.ahead.break_off()
        learners = self.learning_parts()
        super().drop_open_episodes(part for part in parts if all(part is not learner for learner in learners))

    def end_broken_off(self) -> None:
        """Where the environments could not go on behind what was just learnt from, end its open episodes there."""
        if self.ahead is not None and self.ahead.was_broken_off():
            super().drop_open_episodes(self.learning_parts())

    def learning_parts(self) -> list[Stateful]:
        """The parts that have seen what was learnt from, and nothing that was collected since."""
        parts = self.parts()
        return [parts[name] for name in ("algorithm", "buffer") if name in parts]

    def is_enough(self, progress: Progress) -> bool:
        """Whether the budget of the run, where it has one, is spent at `progress`."""
        return bool(self.total_timesteps) and self.budget_spent(self.total_timesteps, progress)

    def close(self) -> None:
        if self.ahead is None:
            self.env.close()
        else:
            self.ahead.close(self.env.close)

    def finish_step(self, stats: CollectStats, learnt: Metrics) -> Metrics:
        """Account for what was collected in a train step; gives the metrics of the step."""
        if self.ahead is not None:
            self.guard.add_seconds(self.ahead.frozen.guard.take_seconds())
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
    if stats.agent_steps:
        frames["agent_steps"] = stats.agent_steps
    frames.update(stats.metrics)
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
        if metric := metric_of(name):
            metrics[f"rollout/{metric}"] = float(np.mean(values))
    return metrics


def metric_of(name: str) -> str | None:
    """The metric that averages a number of an episode; None for those of single agents, which only episodes.jsonl has.

    >>> [metric_of(name) for name in ("success", "x_position", "team_return", "policy_return/prey", "agent_return/a")]
    ['success_rate', 'info/x_position', 'team_return', 'prey/return_mean', None]
    """
    if name == "success":
        return "success_rate"
    if name.startswith(AGENT_RETURN):
        return None
    if name.startswith(POLICY_RETURN):
        return f"{name.removeprefix(POLICY_RETURN)}/return_mean"
    return name if name == TEAM_RETURN else f"info/{name}"
