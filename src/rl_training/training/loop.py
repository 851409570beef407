"""The loop that every lane shares: train, report, call back, until the budget is spent or a stop is requested.

Logging, evaluation, checkpoints, progress and videos are callbacks. A trainer only knows how to take a step and which
parts make up its state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from types import MappingProxyType
from typing import Protocol

from rl_training.checkpointing.seal import fitting
from rl_training.guards import Guard
from rl_training.hparams.off_policy import ReplaySchedule
from rl_training.runs.budgets import Budget, taken_over
from rl_training.training.collector import Episode
from rl_training.types import (
    Algorithm,
    Array,
    CheckpointError,
    FollowsEpisodes,
    Metrics,
    Progress,
    SpaceSpec,
    StartsAfresh,
    StateDict,
    Stateful,
)

NOTHING: Mapping[str, Stateful] = MappingProxyType({})


@dataclass(slots=True)
class Report:
    """What one train step did, as callbacks see it. They may add metrics before the row is written."""

    before: Progress
    after: Progress
    metrics: Metrics
    episodes: Sequence[Episode] = ()
    final: bool = False
    """Whether the budget is spent, so that no step follows."""
    history: Sequence[Report] = ()
    """Each update by itself, oldest first, where the step took several at once (compiled lane)."""

    @property
    def updates(self) -> Sequence[Report]:
        """Every update of this step; the last one shares its metrics with the report itself."""
        return self.history or (self,)


class TrainerCallback(Protocol):
    """What the trainer calls; see `callbacks.Callback` for a base with empty methods."""

    def on_start(self, trainer: Trainer) -> None: ...
    def on_step(self, trainer: Trainer, report: Report) -> None: ...
    def on_end(self, trainer: Trainer) -> None: ...


@dataclass(slots=True)
class Clock:
    """Where the wall time went. Never part of a checkpoint: the clock is not part of what is reproduced."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    started: float = field(default_factory=perf_counter)

    @contextmanager
    def measure(self, what: str) -> Iterator[None]:
        begin = perf_counter()
        try:
            yield
        finally:
            self.seconds[what] += perf_counter() - begin

    @property
    def elapsed(self) -> float:
        return perf_counter() - self.started


@dataclass(frozen=True)
class RunSettings:
    """What every trainer is told, whichever lane it runs in."""

    guard: Guard
    """The NaN guard; its `progress` is the live progress of the run."""
    spaces: tuple[SpaceSpec, SpaceSpec]
    """Observation space and action space."""
    total_episodes: int | None = None
    """Episodes after which the run ends; None where only env steps count."""
    budgets: Sequence[Budget] = ()
    """The budget that the run starts with."""


class Trainer(ABC):
    """One run in motion."""

    schedule: ReplaySchedule | None = None
    """When an algorithm learns from replay; None where it learns from rollouts."""
    num_steps: int
    """Steps per environment in one train step, or in one rollout where a train step takes several."""
    normalized_score: Callable[[Array], Array] | None = None
    """Normalised scores of returns, where a dataset says which returns count as 0 and as 100."""

    def __init__(self, algorithm: Algorithm, settings: RunSettings) -> None:
        self.algorithm = algorithm
        self.guard = settings.guard
        self.progress = settings.guard.progress
        self.spaces = settings.spaces
        self.total_episodes = settings.total_episodes
        self.budgets = list(settings.budgets)
        """Which budget was in force from which step on; saved with every checkpoint."""
        self.clock = Clock()
        self.stop_reason: str | None = None
        self.decided: str | None = None
        """Why the run itself chose to end (goal reached, a callback); saved, so that a resumed run ends there too."""
        self.interrupted = False
        self.total_timesteps = 0
        self.episodes: list[Episode] = []
        """Episodes that the latest train step finished."""
        self.history: list[Report] = []
        """The updates of the latest train step, where it takes several at once."""
        self.hear: Callable[[str], None] = lambda signal: self.request_stop(signal, interrupted=True)
        self.outcome: object = None
        """What other processes of the run are given at its end; None after an error."""
        self.stops: list[int] = []
        """Env steps at whose multiples a train step that takes several updates at once is to end."""

    @property
    def learning_starts(self) -> int:
        """Env steps before the first update."""
        return 0 if self.schedule is None else self.schedule.learning_starts

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether a resumed run is the uninterrupted one, bit for bit: the environments say so."""

    @abstractmethod
    def train_step(self) -> Metrics:
        """Collect and learn once; moves `progress`."""

    @abstractmethod
    def parts(self) -> dict[str, Stateful]:
        """Everything that a checkpoint holds of the training itself, by name."""

    @abstractmethod
    def close(self) -> None:
        """Release environments."""

    def state_dict(self, beside: Mapping[str, Stateful] = NOTHING) -> dict[str, StateDict]:
        """The whole checkpoint: the state of every part by name, and of those `beside` them (logs, callbacks)."""
        parts = {name: part.state_dict() for name, part in {**self.parts(), **beside}.items()}
        return {**parts, "stop": {"decided": self.decided}}

    def load_state_dict(self, state: dict[str, StateDict], /, beside: Mapping[str, Stateful] = NOTHING) -> None:
        """Go back to a checkpoint, with the parts that were saved `beside` those of the trainer."""
        self.decided = state.get("stop", {}).get("decided")
        parts = {**self.parts(), **beside}
        for name, part in parts.items():
            if name not in state and isinstance(part, StartsAfresh) and part.may_start_afresh:
                continue
            if name not in state:
                raise CheckpointError(f"the checkpoint has no part '{name}' (it has {', '.join(sorted(state))})")
            with fitting(f"the checkpoint's part '{name}'"):
                part.load_state_dict(state[name])
        if not self.exact:
            self.drop_open_episodes(parts.values())

    def drop_open_episodes(self, parts: Iterable[Stateful]) -> None:
        """End the episodes in progress, in all parts that follow them: the environments start new ones."""
        for part in parts:
            if isinstance(part, FollowsEpisodes):
                part.drop_open_episodes()

    def take_over(self, saved: Sequence[Budget], total_timesteps: int, *, asked: bool) -> None:
        """Go on from a checkpoint, under whose `saved` budgets the run had trained, with one of `total_timesteps`.

        A run that had decided to end goes on only with a new budget, or where that was `asked` for.
        """
        is_new = bool(saved) and saved[-1].total_timesteps != total_timesteps
        goes_on = self.decided is not None and (asked or is_new)
        self.budgets = taken_over(saved, self.progress.position, total_timesteps, goes_on=goes_on)
        if asked or is_new:
            self.decided = None

    @property
    def num_ranks(self) -> int:
        """Processes that train this run together."""
        return 1

    def hear_signals(self, hear: Callable[[str], None]) -> None:
        """Call `hear` with the name of a signal to another process of the run, where there are any."""
        self.hear = hear

    def conclude(self, outcome: object) -> None:
        """Give the other processes of the run what it led to, where there are any."""
        self.outcome = outcome

    def request_stop(self, why: str, *, interrupted: bool = False) -> None:
        """End after the current step. An interrupted run is saved as it stands and can go on as if nothing happened."""
        self.stop_reason = self.stop_reason or why
        self.interrupted = self.interrupted or interrupted
        if not interrupted:
            self.decided = self.decided or why

    def run(self, total_timesteps: int, callbacks: Sequence[TrainerCallback] = ()) -> str:
        """Train until `total_timesteps` env steps are done, with `callbacks` in their order; returns why it stopped."""
        self.total_timesteps = total_timesteps
        self.stop_reason = self.stop_reason or self.decided
        for callback in callbacks:
            callback.on_start(self)
        while self.stop_reason is None and not self.budget_spent(total_timesteps):
            before = self.progress.copy()
            metrics = self.train_step()
            spent = self.budget_spent(total_timesteps)
            report = Report(before, self.progress.copy(), metrics, self.episodes, spent, self.history)
            for callback in callbacks:
                callback.on_step(self, report)
        reason = self.stop_reason or "budget spent"
        self.stop_reason = reason
        for callback in callbacks:
            callback.on_end(self)
        return reason

    def budget_spent(self, total_timesteps: int, progress: Progress | None = None) -> bool:
        """Whether no step of a run of `total_timesteps` env steps is left, now or at another `progress`."""
        progress = self.progress if progress is None else progress
        enough_episodes = self.total_episodes is not None and progress.episodes >= self.total_episodes
        return progress.position >= total_timesteps or enough_episodes
