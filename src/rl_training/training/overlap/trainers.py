"""Overlapped loops: learn from one rollout or block while the next is collected with the policy from before the update.

Rollout k + 1 is collected with weights and statistics from before update k, always: exactly one update of delay,
whatever the timing. `progress` counts what was learnt from. The last rollout is learnt from and nothing is collected
after it; a stop between two train steps leaves one collected rollout in the checkpoint, from which a resume goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.data.step_block import StepBlock
from rl_training.guards import Guard
from rl_training.numerics.metrics import mean_metrics
from rl_training.training.collector import CollectStats
from rl_training.training.contract import ReplayTerms
from rl_training.training.host import CollectorLike
from rl_training.training.loop import RunSettings
from rl_training.training.off_policy import OffPolicyTrainer, Replay
from rl_training.training.on_policy import OnPolicyTrainer
from rl_training.training.overlap.ahead import Ahead, Begin, CancellableSink, Frozen
from rl_training.types import ACTING_POLICY, Algorithm, Carry, Metrics, Obs, VectorStep


@dataclass(frozen=True)
class Beside:
    """What an overlapped trainer has beside an ordinary one."""

    frozen: Frozen
    begin: Begin


class OverlappedOnPolicyTrainer(OnPolicyTrainer):
    """Two rollout buffers that change places before every update."""

    def __init__(
        self,
        algorithm: Algorithm,
        collector: CollectorLike,
        buffers: Sequence[RolloutBuffer],
        num_steps: int,
        settings: RunSettings,
        beside: Beside,
    ) -> None:
        super().__init__(algorithm, collector, buffers[0], num_steps, settings)
        self.ahead = self.rollouts = Ahead(beside.frozen, buffers, self.collect, beside.begin)
        self.collected_steps = num_steps

    def collect(self, buffer: RolloutBuffer) -> CollectStats:
        """In the collecting thread: one rollout."""
        stats = self.collector.collect(self.collected_steps, CancellableSink(buffer, self.rollouts.thread))
        self.rollouts.frozen.guard.check_batch(buffer.as_batch())
        return stats

    def train_step(self, num_steps: int | None = None) -> Metrics:
        self.collected_steps = num_steps or self.num_steps
        with self.rollouts.learning(self.algorithm.policy, self.progress, self.is_enough, self.clock) as rollout:
            batch = rollout.store.as_batch()
            with self.clock.measure("learning"):
                result = self.update({**batch, ACTING_POLICY: rollout.acting})
                self.algorithm.observe(batch)
            self.progress.advance(env_steps=rollout.stats.env_steps, updates=1, episodes=len(rollout.stats.episodes))
        self.end_broken_off()
        return self.finish_step(rollout.stats, result.metrics)


@dataclass(frozen=True, slots=True)
class CheckedSink:
    """Checks every step before it is kept, as `off_policy.Sink` does before it is stored."""

    block: StepBlock
    guard: Guard

    def begin(self, obs: Obs, carry: Carry) -> None:
        """Steps are collected one by one, so there is nothing to begin."""

    def store(self, step: VectorStep) -> None:
        self.guard.check_step(step)
        self.block.store(step)


class OverlappedOffPolicyTrainer(OffPolicyTrainer):
    """A block goes into replay as a whole, then come the updates that its steps owe."""

    def __init__(
        self,
        algorithm: Algorithm,
        collector: CollectorLike,
        buffer: Replay,
        terms: ReplayTerms,
        settings: RunSettings,
        beside: Beside,
        *,
        block: RolloutBuffer | None = None,
        anneal: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(algorithm, collector, buffer, terms, settings, block=block, anneal=anneal)
        self.ahead = self.blocks = Ahead(beside.frozen, (StepBlock(), StepBlock()), self.collect, beside.begin)
        self.collected_steps = self.num_steps

    def collect(self, block: StepBlock) -> CollectStats:
        """In the collecting thread: one block, cut where the budget of the run ends."""
        frozen, totals = self.blocks.frozen, CollectStats()
        sink = CancellableSink(CheckedSink(block, frozen.guard), self.blocks.thread)
        block.clear()
        for _ in range(self.collected_steps):
            policy = frozen.policy if frozen.progress.env_steps >= self.learning_starts else frozen.warmup
            stats = self.collector.collect(1, sink, policy)
            frozen.progress.advance(env_steps=stats.env_steps, episodes=len(stats.episodes))
            block.count(stats.env_steps, len(stats.episodes))
            totals.add(stats)
            if self.is_enough(frozen.progress):
                break
        return totals

    def train_step(self, num_steps: int | None = None) -> Metrics:
        self.collected_steps = num_steps or self.num_steps
        with self.blocks.learning(self.algorithm.policy, self.progress, self.is_enough, self.clock) as block:
            if self.sink.block is not None:
                self.sink.block.begin({}, {})
            for step in block.store.steps:
                self.sink.store(step)
            learnt: list[Metrics] = []
            with self.clock.measure("learning"):
                for env_steps, episodes in block.store.counts:
                    before = self.progress.env_steps
                    self.progress.advance(env_steps=env_steps, episodes=episodes)
                    learnt += [self.learn() for _ in range(self.schedule.owed(before, self.progress.env_steps))]
                if self.sink.block is not None:
                    self.algorithm.observe(self.sink.block.as_batch())
        self.end_broken_off()
        return {**self.finish_step(block.stats, mean_metrics(learnt)), "buffer/size": len(self.buffer)}
