"""The workers of one vector environment: starts, replaces and ends them, and collects answers and failures."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from rl_training.envs.workers.memory import WorkerMemory, anonymous_file, building_of, clear_building
from rl_training.envs.workers.protocol import (
    ATTACH,
    BUILD,
    CLOSE,
    FAILED,
    RESET,
    STEP,
    Built,
    Failure,
    Setup,
    dumps_by_value,
    loads,
)
from rl_training.envs.workers.server import ONE_THREAD, WorkerProcess, acquire_server, release_server
from rl_training.seeding import reset_seed
from rl_training.system.error_text import describe
from rl_training.trust.consent import current
from rl_training.types import EnvError, RLTrainingError

START_TIMEOUT = 60.0
"""Seconds a worker may take to import and build one environment; longer where the step timeout is longer."""
NOTICE_SECONDS = 10.0
"""Build time after which a line names the slow environment."""
TICKS = 20
MAX_TICK = 0.5
"""A silent worker is checked TICKS times per timeout, and at least every MAX_TICK seconds."""


class EnvWorkerError(EnvError):
    """An environment in a worker failed: which one, how, and what reproduces it."""

    def __init__(
        self,
        env_index: int,
        cause: str,
        *,
        seed: int | None = None,
        step: int | None = None,
        action: Any = None,
        worker_traceback: str = "",
    ) -> None:
        super().__init__(env_index, cause)
        self.env_index = env_index
        self.cause = cause
        self.seed = seed
        """Seed of the episode; None if it is not known."""
        self.step = step
        """Step of the episode at which it failed, from 1; 0 is the reset, None is neither."""
        self.action = action
        """The action of that step."""
        self.worker_traceback = worker_traceback

    def __str__(self) -> str:
        when = {None: "", 0: " at its reset"}.get(self.step, f" at step {self.step} of its episode")
        known = [] if self.seed is None else [f"seed {self.seed}"]
        if self.action is not None:
            known.append(f"action {np.array2string(np.asarray(self.action), threshold=20)}")
        text = f"environment {self.env_index} {self.cause}{when}"
        if known:
            text += f" ({', '.join(known)})"
        if self.worker_traceback:
            text += f"\nin the worker:\n{self.worker_traceback}"
        return text


class Answer(NamedTuple):
    """Outcome of one command in one worker."""

    worker: WorkerProcess
    value: Any = None
    error: RLTrainingError | None = None
    lost: bool = False
    """The worker is dead or hung and will not answer again."""


class WorkerPool:
    """Worker processes, each with a contiguous range of environments, over one shared memory."""

    def __init__(self, env_fns: Sequence[bytes], ranges: Sequence[range]) -> None:
        self.memory: WorkerMemory | None = None
        self.streams: list[tuple[int, int] | None] = []
        self._env_fns = env_fns
        self._ranges = ranges
        self._consent = current()  # restarted workers get the same
        self._owner = os.getpid()
        self._closed = False
        self._memory_fd = anonymous_file()
        self._server = acquire_server()
        self.workers: list[WorkerProcess] = []
        try:
            for index in range(len(ranges)):
                self.workers.append(self._start(index))
        except BaseException:
            self.close(0.0)
            raise

    def _start(self, index: int) -> WorkerProcess:
        return WorkerProcess(self._server, index, self._ranges[index], self._memory_fd)

    def replace(self, index: int) -> WorkerProcess:
        """Start a new process in place of a worker, which is killed if it is still alive."""
        self.workers[index].close(0.0)
        clear_building(self._memory_fd, index)
        if not self._server.alive:
            release_server(self._server)
            self._server = acquire_server()
        self.workers[index] = self._start(index)
        if self.memory is not None:
            self.memory.busy[index] = -1
        return self.workers[index]

    def close(self, grace: float) -> None:
        """Give the workers `grace` seconds in total to close their environments, then kill them; idempotent."""
        if self._closed or self._owner != os.getpid():
            return
        self._closed = True
        self.memory = None
        for worker in self.workers:
            worker.send(CLOSE, timeout=0.0)
        deadline = time.monotonic() + grace
        for worker in self.workers:
            worker.close(deadline)
        os.close(self._memory_fd)
        release_server(self._server)

    # -- construction -------------------------------------------------------------------------------------------------

    def build(
        self, workers: Sequence[WorkerProcess], timeout: float, reset_counts: tuple[int, ...] = ()
    ) -> list[Built]:
        """Build the environments of these workers in parallel; raises the first error."""
        environ = {**ONE_THREAD, **os.environ}
        payloads = [
            Setup(
                worker=worker.index,
                first_env=worker.envs.start,
                env_fns=tuple(self._env_fns[index] for index in worker.envs),
                sys_path=tuple(sys.path),
                cwd=os.getcwd(),
                environ=environ,
                consent=self._consent,
                reset_counts=reset_counts,
            )
            for worker in workers
        ]
        return self.ask(BUILD, workers, payloads, max(timeout, START_TIMEOUT))

    def attach(self, workers: Sequence[WorkerProcess], built: Built, num_envs: int) -> None:
        """Map the shared memory in these workers and, the first time, in this process."""
        counts = (num_envs, len(self.workers))
        if self.memory is None:
            memory = WorkerMemory(self._memory_fd, built.observation_space, built.action_space, counts)
            memory.busy[:] = memory.seeds[:] = -1
            self.memory = memory
        self.ask(ATTACH, workers, [counts] * len(workers), START_TIMEOUT)

    # -- commands and answers -----------------------------------------------------------------------------------------

    def ask(self, kind: bytes, workers: Sequence[WorkerProcess], payloads: Sequence[Any], timeout: float) -> list[Any]:
        """Send a command to these workers and wait for all of them; raises the first error."""
        for worker, payload in zip(workers, payloads, strict=True):
            worker.send(kind, dumps_by_value(payload), timeout=timeout)
        values = {}
        for answer in self.answers(kind, workers, timeout):
            if answer.error is not None:
                raise answer.error
            values[answer.worker.index] = answer.value
        return [values[worker.index] for worker in workers]

    def answers(self, kind: bytes, workers: Sequence[WorkerProcess], timeout: float) -> Iterator[Answer]:
        """One answer per worker, as they arrive. `timeout` bounds the seconds without progress, per worker.

        Time in which this process itself was suspended does not count.
        """
        pending = {worker.fd: worker for worker in workers}
        poll = select.poll()
        for fd in pending:
            poll.register(fd, select.POLLIN)
        tick = min(timeout / TICKS, MAX_TICK)
        milliseconds = max(int(tick * 1000), 1)
        checked = time.monotonic()
        silent: dict[int, tuple[int, float]] = {}
        for worker in workers:
            if worker.stuck:
                poll.unregister(worker.fd)
                yield self._hung(kind, pending.pop(worker.fd), timeout)
        while pending:
            for fd, _ in poll.poll(milliseconds):
                poll.unregister(fd)
                yield self._answer(kind, pending.pop(fd), timeout)
            now = time.monotonic()
            if now - checked < tick:
                continue
            elapsed = min(now - checked, 2 * tick)
            checked = now
            for fd, worker in list(pending.items()):
                beats, seconds = silent.get(fd, (self._beats(worker), 0.0))
                seconds = seconds + elapsed if beats == self._beats(worker) else 0.0
                silent[fd] = self._beats(worker), seconds
                if kind == BUILD and seconds >= NOTICE_SECONDS > seconds - elapsed:
                    say_slow(f"environment {self._building(worker)} (of worker {worker.index})", seconds, timeout)
                if seconds >= timeout:
                    poll.unregister(fd)
                    del pending[fd]
                    yield self._hung(kind, worker, timeout)

    def _beats(self, worker: WorkerProcess) -> int:
        if self.memory is None:
            return building_of(self._memory_fd, worker.index) or 0
        return int(self.memory.beats[worker.index])

    def _building(self, worker: WorkerProcess) -> int:
        """The environment that a worker is building, as far as it has reported."""
        index = building_of(self._memory_fd, worker.index)
        return worker.envs.start if index is None else index

    def _answer(self, kind: bytes, worker: WorkerProcess, timeout: float) -> Answer:
        try:
            result, payload = worker.receive(timeout)
        except ConnectionError:
            error = self._error(kind, worker, worker.how_it_ended(), worker.trace())
            return Answer(worker, error=error, lost=True)
        except TimeoutError:
            return self._hung(kind, worker, timeout)
        try:
            value = loads(payload) if payload else None
        except Exception as error:
            cause = f"sent something that cannot be read here ({describe(error)})"
            return Answer(worker, error=self._error(kind, worker, cause, ""))
        if result != FAILED:
            return Answer(worker, value)
        failure = cast(Failure, value)
        if failure.error is not None and kind != STEP:
            # written for users: raised as it would be without workers
            return Answer(worker, error=failure.error)
        return Answer(worker, error=self._error(kind, worker, failure.cause, failure.traceback, failure.env_index))

    def _hung(self, kind: bytes, worker: WorkerProcess, timeout: float) -> Answer:
        state, trace = worker.how_it_hangs()
        worker.signal(signal.SIGKILL)
        cause = f"{state}: no answer for {timeout:g} s"
        return Answer(worker, error=self._error(kind, worker, cause, trace), lost=True)

    def _error(
        self, kind: bytes, worker: WorkerProcess, cause: str, trace: str, env_index: int | None = None
    ) -> EnvWorkerError:
        memory = self.memory
        if kind == BUILD or memory is None:
            index = self._building(worker) if env_index is None else env_index
            return EnvWorkerError(index, f"{cause} while it was built", worker_traceback=trace)
        idle = False
        if env_index is None:
            env_index = int(memory.busy[worker.index])
            if idle := env_index not in worker.envs:
                env_index = worker.envs.start
        step, seed = int(memory.steps[env_index]), int(memory.seeds[env_index])
        if kind == STEP and idle:
            step += 1  # the worker died before it began the step
        stream = self.streams[env_index]
        if seed < 0 and stream is not None:
            # failed inside a reset, before the log could report its seed
            seed = reset_seed(*stream, max(int(memory.resets[env_index]) - 1, 0))
        return EnvWorkerError(
            env_index,
            cause,
            seed=seed if seed >= 0 else None,
            step=step if kind in (STEP, RESET) else None,
            worker_traceback=trace,
        )


def say_slow(environment: str, seconds: float, timeout: float) -> None:
    """Tell the user which environment is slow to build."""
    sys.stderr.write(f"{environment} has been in its constructor for {seconds:.0f} s; it has {timeout:g} s\n")
