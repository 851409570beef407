"""Data-parallel loops: each rank collects and learns with its own shards; rank 0 leads.

Rank 0 runs the ordinary loop with all its callbacks. Other ranks `follow`: they wait for the next order (take a step,
send your state) and do it. Inside a step all ranks are equal. They exchange what concerns the whole run, in the order
of the shards: gradients, statistics, counts, errors, and requests to stop.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from rl_training.data.rollout_buffer import RolloutBuffer
from rl_training.distributed.ranks import RankShards
from rl_training.distributed.shard_state import ShardedPart
from rl_training.hparams.off_policy import block_steps
from rl_training.numerics.metrics import mean_metrics
from rl_training.training.collector import Collector, CollectStats, Episode
from rl_training.training.contract import ReplayTerms
from rl_training.training.host import ResumableEnv, Update, checked_update, prefixed, rollout_metrics
from rl_training.training.loop import RunSettings, Trainer, TrainerCallback
from rl_training.training.off_policy import SMALLEST_PRIORITY, PrioritizedReplay, Replay, Sink
from rl_training.types import (
    PARTS,
    Algorithm,
    LostRankError,
    Metrics,
    NonFiniteError,
    Policy,
    Progress,
    StateDict,
    Stateful,
    TransitionSink,
)

STEPS_BEFORE_WARNING = 20
"""Train steps after which it is judged whether several processes pay."""
REPLICATED = ("policy", "algorithm", "progress")
"""Parts that every rank has alike."""


@dataclass(frozen=True)
class Shard:
    """The environments of one shard and where their steps are stored."""

    number: int
    first_env: int
    """Index of its first environment among those of the run."""
    collector: Collector

    def collect(self, num_steps: int, sink: TransitionSink, policy: Policy | None = None) -> CollectStats:
        """Take steps; episodes are numbered as those of the run."""
        try:
            stats = self.collector.collect(num_steps, sink, policy)
        except NonFiniteError as error:
            raise NonFiniteError(f"{error} ({self.where})", error.name) from error
        stats.episodes = [replace(episode, env_index=episode.env_index + self.first_env) for episode in stats.episodes]
        return stats

    @property
    def where(self) -> str:
        """For messages: errors count the environments of a shard from 0."""
        return f"in shard {self.number}, whose environment 0 is environment {self.first_env} of the run"


class StepNews(NamedTuple):
    """What one rank tells the others after a train step."""

    asked: str | None
    """The signal that asks it to stop."""
    acting_seconds: float
    env_seconds: float
    shards: list[tuple[list[Episode], int, int]]
    """Of each shard: finished episodes, frames of the environment so far, transitions in its replay buffer."""


class ShardedTrainer(Trainer):
    """Collects and learns in shards; a subclass says when."""

    def __init__(self, algorithm: Algorithm, shards: RankShards, own: Sequence[Shard], settings: RunSettings) -> None:
        super().__init__(algorithm, settings)
        self.shards, self.own = shards, own
        self.ranks = shards.ranks
        self.update: Update = partial(checked_update, algorithm)
        self.asked: str | None = None
        """The signal that asked this rank to stop; all are told after the step."""
        self.steps_taken = 0
        self.in_step = False
        """Whether ranks are exchanging what a step needs, so that no order can be given."""
        self.split_parts = {
            "collector": self.part("collector", [shard.collector for shard in own]),
            "env": self.part("env", [shard.collector.env for shard in own]),
        }

    def part(self, name: str, own: Sequence[Any]) -> ShardedPart:
        return ShardedPart(name, self.shards, own, self.order)

    @property
    def exact(self) -> bool:
        return all(cast(ResumableEnv, shard.collector.env).exact for shard in self.own)

    def parts(self) -> dict[str, Stateful]:
        return {
            "policy": self.algorithm.policy,
            "algorithm": self.algorithm,
            **self.split_parts,
            "progress": self.progress,
        }

    @property
    def num_ranks(self) -> int:
        return self.ranks.count

    # -- leading and following ----------------------------------------------------------------------------------------

    def order(self, what: str, argument: Any = None) -> None:
        """Tell the other ranks what to do next."""
        if self.ranks.count > 1 and not self.ranks.is_over:
            self.ranks.tell((what, argument))

    def run(self, total_timesteps: int, callbacks: Sequence[TrainerCallback] = ()) -> str:
        parts = self.parts()
        self.order("begin", (total_timesteps, {name: parts[name].state_dict() for name in REPLICATED}))
        return super().run(total_timesteps, callbacks)

    def train_step(self, num_steps: int | None = None) -> Metrics:
        self.order("step", num_steps)
        return self._step(num_steps)

    def follow(self) -> Any:
        """Do what rank 0 says until it ends; returns what it gives the others then."""
        does: dict[str, Callable[[Any], object]] = {
            "begin": self._begin,
            "step": self._step,
            "save": lambda name: self.split_parts[name].send_state(),
            "rows": lambda what: self.split_parts[what[0]].send_rows(*what[1:]),
            "load": lambda name: self.split_parts[name].take_state(),
            "drop": lambda name: self.split_parts[name].drop(),
        }
        while True:
            order: tuple[str, Any] = self.ranks.tell()
            what, argument = order
            if what == "end":
                return argument
            does[what](argument)

    def ask(self, signal: str) -> None:
        """Remember a signal to this rank, until the step in progress is over."""
        self.asked = self.asked or signal

    def _begin(self, start: tuple[int, dict[str, StateDict]]) -> None:
        self.total_timesteps, states = start
        parts = self.parts()
        for name, state in states.items():
            parts[name].load_state_dict(state)

    def _step(self, num_steps: int | None) -> Metrics:
        self.in_step = True
        metrics = self.step(num_steps or self.num_steps)
        self.in_step = False
        return metrics

    @abstractmethod
    def step(self, num_steps: int) -> Metrics:
        """Collect `num_steps` steps per environment and learn, on every rank at the same time."""

    def finish_step(self, stats: Sequence[CollectStats], learnt: Metrics, sizes: Sequence[int]) -> Metrics:
        """Exchange what was collected in a step; gives the metrics of the whole run. `stats` and `sizes` (transitions
        in replay) are of each shard of this rank."""
        news = StepNews(
            self.asked,
            sum(one.acting_seconds for one in stats),
            sum(one.env_seconds for one in stats),
            [(one.episodes, one.env_frames, size) for one, size in zip(stats, sizes, strict=True)],
        )
        told = self.ranks.gather(news)
        # ranks work at the same time, so the slowest counts
        self.clock.seconds["acting"] += max(one.acting_seconds for one in told)
        self.clock.seconds["environment"] += max(one.env_seconds for one in told)
        if self.ranks.count > 1:
            self.clock.seconds["exchange"] = self.ranks.seconds
            self._warn_if_it_does_not_pay()
        self.episodes = [episode for one in told for shard in one.shards for episode in shard[0]]
        frames = sum(shard[1] for one in told for shard in one.shards)
        if self.ranks.leads:
            for one in told[1:]:
                if one.asked is not None:
                    self.hear(one.asked)
        metrics = prefixed("train/", learnt) | rollout_metrics(CollectStats(episodes=self.episodes, env_frames=frames))
        if self.schedule is not None:
            metrics["buffer/size"] = sum(shard[2] for one in told for shard in one.shards)
        return metrics

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Measure the time of updates, without that of their exchanges."""
        exchanged = self.ranks.seconds
        with self.clock.measure("learning"):
            yield
        self.clock.seconds["learning"] -= self.ranks.seconds - exchanged

    def _warn_if_it_does_not_pay(self) -> None:
        """Say once, after some steps, that most of the time goes into exchanges."""
        self.steps_taken += 1
        share = self.ranks.seconds / max(self.clock.elapsed, 1e-9)
        if self.ranks.leads and self.steps_taken == STEPS_BEFORE_WARNING and share > 0.5:
            warnings.warn(
                f"{share:.0%} of the time of rank 0 goes into exchanges with the other processes: this run is faster "
                "with fewer of them, and gives the same results",
                stacklevel=2,
            )

    def is_enough(self, progress: Progress) -> bool:
        return bool(self.total_timesteps) and self.budget_spent(self.total_timesteps, progress)

    def close(self) -> None:
        """Let the other ranks go, where they still listen, and release environments."""
        if self.ranks.leads and not self.in_step:
            with suppress(LostRankError):  # a rank that is gone needs no order
                self.order("end", self.outcome)
        for shard in self.own:
            shard.collector.env.close()


class ShardedOnPolicyTrainer(ShardedTrainer):
    """Collect a rollout in every shard, learn from all of them, forget them."""

    def __init__(
        self,
        algorithm: Algorithm,
        shards: RankShards,
        own: Sequence[Shard],
        buffers: Sequence[RolloutBuffer],
        num_steps: int,
        settings: RunSettings,
    ) -> None:
        super().__init__(algorithm, shards, own, settings)
        self.buffers = buffers
        self.num_steps = num_steps

    def step(self, num_steps: int) -> Metrics:
        def collect() -> list[CollectStats]:
            stats = [shard.collect(num_steps, buffer) for shard, buffer in zip(self.own, self.buffers, strict=True)]
            for shard, buffer in zip(self.own, self.buffers, strict=True):
                try:
                    self.guard.check_batch(buffer.as_batch())
                except NonFiniteError as error:
                    raise NonFiniteError(f"{error} ({shard.where})", error.name) from error
            return stats

        stats, (env_steps, episodes) = self.ranks.attempt(collect, counts)
        batch = {PARTS: [buffer.as_batch() for buffer in self.buffers]}
        with self.learning():
            result = self.update(batch)
            self.algorithm.observe(batch)
        self.progress.advance(env_steps=env_steps, updates=1, episodes=episodes)
        return self.finish_step(stats, result.metrics, [0] * len(stats))


class ReplayShard(NamedTuple):
    """Replay of one shard."""

    buffer: Replay
    sink: Sink
    anneal: Callable[[], None] | None
    """Moves the importance-sampling exponent of a prioritised buffer, before each batch is drawn."""


class ShardedOffPolicyTrainer(ShardedTrainer):
    """One step of every shard's environments, then the updates it owes, each from an equal share of every shard."""

    def __init__(
        self,
        algorithm: Algorithm,
        shards: RankShards,
        own: Sequence[Shard],
        replays: Sequence[ReplayShard],
        terms: ReplayTerms,
        settings: RunSettings,
    ) -> None:
        super().__init__(algorithm, shards, own, settings)
        self.replays, self.terms, self.schedule = replays, terms, terms.schedule
        self.split_parts["buffer"] = self.part("buffer", [replay.buffer for replay in replays])
        self.num_steps = block_steps(own[0].collector.num_envs * shards.count)
        self.blocks = [replay.sink.block for replay in replays if replay.sink.block is not None]

    def step(self, num_steps: int) -> Metrics:
        totals = [CollectStats() for _ in self.own]
        learnt: list[Metrics] = []
        for block in self.blocks:
            block.begin({}, {})
        for _ in range(num_steps):
            before = self.progress.env_steps
            policy = self.algorithm.policy if before >= self.learning_starts else self.terms.warmup
            stats, (env_steps, episodes, empty) = self.ranks.attempt(partial(self._collect, policy), self._counts)
            self.progress.advance(env_steps=env_steps, episodes=episodes)
            for total, one in zip(totals, stats, strict=True):
                total.add(one)
            with self.learning():
                owed = 0 if empty else self.terms.schedule.owed(before, self.progress.env_steps)
                learnt += [self._learn() for _ in range(owed)]
            if self.is_enough(self.progress):
                break
        if self.blocks:
            self.algorithm.observe({PARTS: [block.as_batch() for block in self.blocks]})
        return self.finish_step(totals, mean_metrics(learnt), [len(replay.buffer) for replay in self.replays])

    def _collect(self, policy: Policy) -> list[CollectStats]:
        pairs = zip(self.own, self.replays, strict=True)
        return [shard.collect(1, replay.sink, policy) for shard, replay in pairs]

    def _counts(self, stats: Sequence[CollectStats]) -> list[int]:
        """Env steps, episodes, and shards that have nothing to learn from yet."""
        return [*counts(stats), sum(not len(replay.buffer) for replay in self.replays)]

    def _learn(self) -> Metrics:
        """One update, from as many transitions of every shard."""
        each = self.terms.schedule.batch_size // self.shards.count
        batches = []
        for replay in self.replays:
            if replay.anneal is not None:
                replay.anneal()
            batches.append(replay.buffer.sample(each))
        result = self.update({PARTS: batches})
        self.progress.advance(updates=self.terms.updates_per_learn)
        if result.priorities is not None:
            shares = np.split(result.priorities + SMALLEST_PRIORITY, len(self.replays))
            for replay, batch, priorities in zip(self.replays, batches, shares, strict=True):
                if "indices" in batch:
                    cast(PrioritizedReplay, replay.buffer).update_priorities(batch["indices"], priorities)
        return result.metrics


def counts(stats: Sequence[CollectStats]) -> list[int]:
    """Env steps and finished episodes."""
    return [sum(one.env_steps for one in stats), sum(len(one.episodes) for one in stats)]
