"""Collecting ahead: a thread that collects the next rollout or block with a frozen copy of the policy (`env.overlap`).

Everything changes hands at one point, before an update begins: the learner takes what was collected, the frozen copy
takes weights and statistics from the learner's policy, and the thread collects what comes next. Both sides have ended
before the train step returns, so nothing that callbacks, evaluations or checkpoints see depends on which was faster.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import asdict, dataclass
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from rl_training.guards import Guard
from rl_training.training.collector import CollectStats, Episode
from rl_training.training.loop import Clock
from rl_training.types import Carry, Obs, Policy, Progress, StateDict, Stateful, TransitionSink, VectorStep

Begin = Callable[[], None]
"""Called once in the collecting thread, with its first job: sets it up as the learner's thread is."""
PATIENCE = 10.0
"""Seconds that a failed run waits for the step its environments are in, before it ends without them."""


class Cancelled(BaseException):
    """Raised in the collecting thread between two steps, where the learner has failed."""


# -- the thread -------------------------------------------------------------------------------------------------------


class CollectorThread:
    """One background thread for one job at a time; the errors of a job are raised where its end is waited for."""

    def __init__(self, begin: Begin) -> None:
        self.begin = begin
        self.cancelled = threading.Event()
        self.busy = False
        self._jobs: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, job: Callable[[], Any]) -> None:
        """Run `job` in the background."""
        self.busy = True
        if self._thread is None:  # not before it is needed: a run that is only planned has no thread
            run = copy_context().run
            self._thread = threading.Thread(target=run, args=(self._work,), name="collector", daemon=True)
            self._thread.start()
            self._jobs.put(lambda: (self.begin(), job())[1])
        else:
            self._jobs.put(job)

    def wait(self) -> Any:
        """The result of the job; raises its error. Stop signals are handled meanwhile."""
        result, error = self._results.get()
        self.busy = False
        if error is not None:
            raise error
        return result

    def cancel(self) -> BaseException | None:
        """End the job, if there is one, at its next step; returns the error that it had itself, or None."""
        if not self.busy:
            return None
        self.cancelled.set()
        try:
            _, error = self._results.get(timeout=PATIENCE)
        except Empty:  # the environments do not come back: the thread stays busy, and ends with the process
            return None
        self.busy = False
        self.cancelled.clear()
        return None if isinstance(error, Cancelled) else error

    def close(self, last: Callable[[], None]) -> None:
        """End the thread. `last` is its last job, since some environments may be closed only where they were used."""
        self.cancel()
        thread, self._thread = self._thread, None
        if thread is None or self.busy:
            last()
            return
        self._jobs.put(last)
        self._jobs.put(None)
        thread.join()
        self.wait()

    def check_cancelled(self) -> None:
        """Called by jobs between two steps."""
        if self.cancelled.is_set():
            raise Cancelled

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._results.put((job(), None))
            except BaseException as error:  # raised again in the thread that waits for the result
                self._results.put((None, error))
            del job


@dataclass(frozen=True, slots=True)
class CancellableSink:
    """A sink that ends a collection between two steps."""

    sink: TransitionSink
    thread: CollectorThread

    def begin(self, obs: Obs, carry: Carry) -> None:
        self.sink.begin(obs, carry)

    def store(self, step: VectorStep) -> None:
        self.thread.check_cancelled()
        self.sink.store(step)


# -- what is collected ------------------------------------------------------------------------------------------------


class Store(TransitionSink, Stateful, Protocol):
    """What a rollout or block is collected in: a rollout buffer, or a list of steps."""


AnyStore = TypeVar("AnyStore", bound=Store)


@dataclass(frozen=True)
class Frozen:
    """A second policy of the same kind, whose weights and statistics change only where they are handed over."""

    policy: Policy
    warmup: Policy
    """Acts before learning starts."""
    guard: Guard
    """Checks what is collected; its progress counts everything that was collected, learnt or not."""

    @property
    def progress(self) -> Progress:
        return self.guard.progress


@dataclass(slots=True)
class Collected(Generic[AnyStore]):
    """A rollout or block that waits to be learnt from."""

    store: AnyStore
    acting: StateDict
    """State of the policy that acted."""
    stats: CollectStats

    def state_dict(self) -> StateDict:
        episodes = json.dumps([asdict(episode) for episode in self.stats.episodes])
        counts = {"env_steps": self.stats.env_steps, "env_frames": self.stats.env_frames}
        return {"steps": self.store.state_dict(), "policy": self.acting, "episodes": episodes, **counts}

    @classmethod
    def restored(cls, store: AnyStore, state: StateDict) -> Collected[AnyStore]:
        """The inverse of `state_dict`; the steps are loaded into `store`."""
        store.load_state_dict(state["steps"])
        episodes = [Episode(**episode) for episode in json.loads(state["episodes"])]
        stats = CollectStats(int(state["env_steps"]), episodes, env_frames=int(state["env_frames"]))
        return cls(store, copy.deepcopy(state["policy"]), stats)


# -- collecting and learning side by side -----------------------------------------------------------------------------


class Ahead(Generic[AnyStore]):
    """What is collected while the learner works. Its state is the collected steps that no update has used yet, with the
    state of the policy that acted."""

    may_start_afresh = True

    def __init__(
        self, frozen: Frozen, stores: Sequence[AnyStore], collect: Callable[[AnyStore], CollectStats], begin: Begin
    ) -> None:
        self.frozen = frozen
        self.thread = CollectorThread(begin)
        self.collect = collect
        """Fills a store with one rollout or block."""
        self.free = list(stores)
        self.pending: Collected[AnyStore] | None = None
        self._broken_off = False

    @contextmanager
    def learning(
        self, policy: Policy, progress: Progress, is_enough: Callable[[Progress], bool], clock: Clock
    ) -> Iterator[Collected[AnyStore]]:
        """Inside, learn from what this gives, while what comes next is collected with `policy` as it is now.

        Nothing is collected once `is_enough` of the progress that includes what is being learnt: the run ends with it.
        """
        acting = copy.deepcopy(policy.state_dict())
        if self.pending is None:
            self._start(acting, progress.copy())
            self._finish(clock)
        current = self.pending
        assert current is not None
        self.pending = None
        reached = Progress(progress.env_steps, progress.updates + 1, progress.episodes)
        reached.advance(env_steps=current.stats.env_steps, episodes=len(current.stats.episodes))
        try:
            if not is_enough(reached):
                self._start(acting, reached)
            yield current
            if self.thread.busy:
                self._finish(clock)
        except BaseException as error:
            other = self.thread.cancel()
            if other is not None:
                error.add_note(f"meanwhile collecting had failed, too: {type(other).__name__}: {other}")
            raise
        self.free.append(current.store)

    def _start(self, acting: StateDict, reached: Progress) -> None:
        """Hand the policy over and begin to collect with it; `reached` is where collecting stands."""
        self.frozen.policy.load_state_dict(acting)
        self.frozen.progress.load_state_dict(reached.state_dict())
        store = self.free.pop()
        self.thread.start(lambda: Collected(store, acting, self.collect(store)))

    def _finish(self, clock: Clock) -> None:
        with clock.measure("waiting"):
            self.pending = self.thread.wait()

    def break_off(self) -> None:
        """The environments could not go on behind what waits to be learnt from: its open episodes end with it."""
        self._broken_off = True

    def was_broken_off(self) -> bool:
        """Whether `break_off` was called since this was last asked."""
        broken, self._broken_off = self._broken_off, False
        return broken

    def close(self, environments: Callable[[], None]) -> None:
        """End the thread, in which `environments` is called to close them."""
        self.thread.close(environments)

    def state_dict(self) -> StateDict:
        return {} if self.pending is None else self.pending.state_dict()

    def load_state_dict(self, state: StateDict, /) -> None:
        if self.pending is not None:
            self.free.append(self.pending.store)
        self.pending = Collected.restored(self.free.pop(), state) if state else None
