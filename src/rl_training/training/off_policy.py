"""Off-policy loop: collect, then update from replay. Evaluation and checkpoints are callbacks.

A train step is a block of some 256 env steps with single steps and updates inside, so that logs, evaluation and
checkpoints cost the same however often the algorithm learns. The training path does not depend on where blocks end,
except that normaliser statistics move there and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol, cast

from rl_training.data.given_rows import given_rows
from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.guards import Guard
from rl_training.hparams.off_policy import ReplaySchedule, block_steps
from rl_training.numerics.metrics import mean_metrics
from rl_training.training.collector import CollectStats
from rl_training.training.contract import ReplayTerms
from rl_training.training.host import CollectorLike, HostTrainer
from rl_training.training.loop import RunSettings
from rl_training.types import Algorithm, Batch, Carry, Metrics, Obs, StateDict, Stateful, TransitionSink, VectorStep

SMALLEST_PRIORITY = 1e-6
"""Added to every error, so that transitions without one can still be drawn (Schaul et al. 2016, section 3.3)."""


class Replay(TransitionSink, Stateful, Protocol):
    """A buffer that transitions are drawn from."""

    def __len__(self) -> int: ...
    def sample(self, batch_size: int) -> Batch: ...


class PrioritizedReplay(Replay, Protocol):
    """A buffer that draws by priority: its batches have `indices`, which it takes back with new priorities."""

    def update_priorities(self, indices: Any, priorities: Any) -> None: ...


@dataclass(slots=True)
class Sink:
    """Checks every step before it is stored, and keeps a copy of the block where normaliser statistics need one."""

    replay: Replay
    guard: Guard
    block: RolloutBuffer | None = None
    is_closed: bool = False
    """Whether nothing is added to the buffer: a model learns from the rows of another run."""

    def close(self) -> None:
        """Add nothing to the buffer from now on; steps are still checked."""
        self.is_closed = True

    def begin(self, obs: Obs, carry: Carry) -> None:
        """Transitions are stored one by one, so there is nothing to begin."""

    def store(self, step: VectorStep) -> None:
        self.guard.check_step(step)
        if not self.is_closed:
            self.replay.store(step)
        if self.block is not None:
            self.block.store(step)


class OffPolicyTrainer(HostTrainer):
    """One environment step, then the updates it owes."""

    schedule: ReplaySchedule

    def __init__(
        self,
        algorithm: Algorithm,
        collector: CollectorLike,
        buffer: Replay,
        terms: ReplayTerms,
        settings: RunSettings,
        *,
        block: RolloutBuffer | None = None,
        anneal: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(algorithm, collector, settings)
        self.buffer = buffer
        self.terms = terms
        self.schedule = terms.schedule
        self.sink = Sink(buffer, settings.guard, block)
        self.anneal = anneal
        """Moves the importance-sampling exponent of a prioritised buffer, before each batch is drawn."""
        self.num_steps = block_steps(collector.num_envs)

    def train_step(self, num_steps: int | None = None) -> Metrics:
        totals = CollectStats()
        learnt: list[Metrics] = []
        if self.sink.block is not None:
            self.sink.block.begin({}, {})
        for _ in range(num_steps or self.num_steps):
            before = self.progress.env_steps
            policy = self.algorithm.policy if before >= self.learning_starts else self.terms.warmup
            stats = self.collector.collect(1, self.sink, policy)
            self.progress.advance(env_steps=stats.env_steps, episodes=len(stats.episodes))
            totals.add(stats)
            began = perf_counter()  # at every step, so without the context manager of `clock.measure`
            learnt += [self.learn() for _ in range(self.schedule.owed(before, self.progress.env_steps))]
            self.clock.seconds["learning"] += perf_counter() - began
            if self.is_enough(self.progress):
                break
        if self.sink.block is not None:
            self.algorithm.observe(self.sink.block.as_batch())
        return {**self.finish_step(totals, mean_metrics(learnt)), "buffer/size": len(self.buffer)}

    def learn_from(self, rows: StateDict) -> None:
        """Learn from the saved replay rows of another run; see `close_replay`."""
        self.buffer.load_state_dict(given_rows(rows, self.buffer.state_dict()))
        self.close_replay()

    def close_replay(self) -> None:
        """Add nothing to the replay buffer from now on; a resumed run that was given its rows is told so again."""
        self.sink.close()

    def learn(self) -> Metrics:
        """One update; nothing happens while the buffer is still empty."""
        if not len(self.buffer):
            return {}
        if self.anneal is not None:
            self.anneal()
        batch = self.buffer.sample(self.schedule.batch_size)
        result = self.update(batch)
        self.progress.advance(updates=self.terms.updates_per_learn)
        if result.priorities is not None and "indices" in batch:
            cast(PrioritizedReplay, self.buffer).update_priorities(
                batch["indices"], result.priorities + SMALLEST_PRIORITY
            )
        return result.metrics

    def parts(self) -> dict[str, Stateful]:
        parts = super().parts()
        progress = parts.pop("progress")
        return {**parts, "buffer": self.buffer, "progress": progress}
