"""Off-policy loop: collect, then update from replay. Evaluation and checkpoints are callbacks.

A train step is a block of some 256 env steps with single steps and updates inside, so that logs, evaluation and
checkpoints cost the same whatever the rhythm of learning. The training path does not depend on where blocks end,
except that normaliser statistics move there and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.guards import Guard
from rl_training.hparams.off_policy import ReplaySchedule, block_steps
from rl_training.training.collector import Collector, CollectStats
from rl_training.training.loop import Trainer
from rl_training.training.on_policy import prefixed, rollout_metrics, update
from rl_training.types import (
    Algorithm,
    Batch,
    Carry,
    Metrics,
    Obs,
    Policy,
    Progress,
    Stateful,
    TransitionSink,
    VectorStep,
)

SMALLEST_PRIORITY = 1e-6
"""Added to every error, so that transitions without one can still be drawn (Schaul et al. 2016, section 3.3)."""


class Replay(TransitionSink, Stateful, Protocol):
    """A buffer that transitions are drawn from."""

    def __len__(self) -> int: ...
    def sample(self, batch_size: int) -> Batch: ...


@dataclass(slots=True)
class Sink:
    """Checks every step before it is stored, and keeps the block apart where statistics want to see it."""

    replay: Replay
    guard: Guard
    block: RolloutBuffer | None = None

    def begin(self, obs: Obs, carry: Carry) -> None:
        """Transitions stand for themselves."""

    def store(self, step: VectorStep) -> None:
        self.guard.check_step(step)
        self.replay.store(step)
        if self.block is not None:
            self.block.store(step)


class OffPolicyTrainer(Trainer):
    """One environment step, then the updates it owes."""

    def __init__(
        self,
        algorithm: Algorithm,
        collector: Collector,
        buffer: Replay,
        progress: Progress,
        schedule: ReplaySchedule,
        guard: Guard,
        *,
        warmup: Policy,
    ) -> None:
        super().__init__(progress)
        self.algorithm = algorithm
        self.collector = collector
        self.buffer = buffer
        self.schedule = schedule
        self.learning_starts = schedule.learning_starts
        self.guard = guard
        self.warmup = warmup
        """Acts until `learning_starts`."""
        self.sink = Sink(buffer, guard)
        self.beta: Callable[[], float] | None = None
        """How far the weights of a prioritised buffer make up for its choice, now; None leaves that to the buffer."""
        self.num_steps = block_steps(collector.num_envs)

    @property
    def exact(self) -> bool:
        return bool(getattr(self.collector.env, "exact", False))

    def train_step(self) -> Metrics:
        totals = CollectStats()
        learnt: list[Metrics] = []
        if self.sink.block is not None:
            self.sink.block.begin({}, {})
        for _ in range(self.num_steps):
            before = self.progress.env_steps
            self.collector.policy = self.algorithm.policy if before >= self.learning_starts else self.warmup
            stats = self.collector.collect(1, self.sink)
            self.progress.advance(env_steps=stats.env_steps, episodes=len(stats.episodes))
            add(totals, stats)
            with self.clock.measure("learning"):
                learnt += [self.learn() for _ in range(self.schedule.owed(before, self.progress.env_steps))]
            if self.total_timesteps and self.budget_spent(self.total_timesteps):
                break
        if self.sink.block is not None:
            self.algorithm.observe(self.sink.block.as_batch())
        self.clock.seconds["acting"] += totals.acting_seconds
        self.clock.seconds["environment"] += totals.env_seconds
        self.episodes = totals.episodes
        metrics = {**prefixed("train/", means(learnt)), **rollout_metrics(totals)}
        return {**metrics, "buffer/size": len(self.buffer)}

    def learn(self) -> Metrics:
        """One update; nothing happens while the buffer is still empty."""
        if not len(self.buffer):
            return {}
        if self.beta is not None:
            self.buffer.priorities.beta = self.beta()  # type: ignore[attr-defined]
        batch = self.buffer.sample(self.schedule.batch_size)
        result = update(self.algorithm, batch)
        self.progress.advance(updates=getattr(self.algorithm, "updates_per_learn", 1))
        if result.priorities is not None and "indices" in batch:
            priorities = result.priorities + SMALLEST_PRIORITY
            self.buffer.update_priorities(batch["indices"], priorities)  # type: ignore[attr-defined]
        return result.metrics

    def parts(self) -> dict[str, Stateful]:
        return {
            "policy": self.algorithm.policy,
            "algorithm": self.algorithm,
            "collector": self.collector,
            "env": self.collector.env,  # type: ignore[dict-item]  # every environment of ours is Stateful
            "buffer": self.buffer,
            "progress": self.progress,
        }

    def close(self) -> None:
        self.collector.env.close()


def add(totals: CollectStats, stats: CollectStats) -> None:
    totals.env_steps += stats.env_steps
    totals.env_frames = stats.env_frames
    totals.episodes += stats.episodes
    totals.acting_seconds += stats.acting_seconds
    totals.env_seconds += stats.env_seconds


def means(records: list[Metrics]) -> Metrics:
    """The mean of every metric over the updates that reported it."""
    names = {name: None for record in records for name in record}
    columns = {name: [record[name] for record in records if name in record] for name in names}
    return {name: sum(column[1:], column[0]) / len(column) for name, column in columns.items()}
