"""The contract of an executor: where and how the runs of a group, a sweep or a search are started.

    executor = ...                       # local processes, threads, SLURM, Ray, or one of your own
    while there is work:
        for member in waiting[: executor.slots() - len(running)]:
            running[member] = executor.start(Task(...))      # returns at once
        for member, handle in running.items():
            handle.poll()                # None while it waits or runs, then its exit code, or LOST
    executor.close()

A member is an ordinary `rl train` or `rl resume` command. Everything that it learns and writes is in its run directory,
so an executor only starts processes, watches them and ends them; nothing is sent back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from rl_training.runs.holder import Holder
from rl_training.types import RunError

LOST = -256
"""Instead of an exit code: the place where the member ran is gone (node, actor or job), and how it ended is unknown."""


class ExecutorGoneError(RunError):
    """The executor has lost its cluster: nothing can be started any more, and running members stop by themselves."""


@dataclass(frozen=True)
class Resources:
    """What one member may use."""

    cpus: float = 1.0
    gpus: float = 0.0
    """A fraction lets several members share one GPU."""
    memory_mb: int | None = None
    wall_time: float | None = None
    """Seconds after which the member is stopped and saved; None without a limit."""


@dataclass(frozen=True)
class Task:
    """One member to start."""

    words: tuple[str, ...]
    """Arguments of `rl`."""
    env: Mapping[str, str]
    """Environment variables on top of those of the place where it runs; never secrets."""
    log: Path
    """File to which its output is appended; on the file system that all hosts share."""
    key: tuple[int | None, int]
    """Trial and seed, which identify the member."""
    label: str
    """Its name for people: `trial 3 seed 0`."""
    resources: Resources = field(default_factory=Resources)


@runtime_checkable
class Handle(Protocol):
    """A member that was started."""

    @property
    def where(self) -> str:
        """Where it runs: `vm:1234`, `ray node 850181`, `slurm 4711`."""

    @property
    def holder(self) -> Holder | None:
        """Its process, if that is on this host."""

    @property
    def is_running(self) -> bool:
        """False while it waits in a queue, and after its end."""

    def poll(self) -> int | None:
        """Its exit code (negative: killed by that signal), LOST, or None while it waits or runs."""

    def wait(self) -> int | None:
        """Wait for its end; the same as `poll` then."""

    def send_signal(self, number: int, /) -> None:
        """Pass a signal on: SIGTERM and SIGINT make it save and stop."""


@runtime_checkable
class Executor(Protocol):
    """Starts members. Called from one thread."""

    @property
    def name(self) -> str:
        """As in a config: local, threads, slurm, ray, or `module:attr`."""

    @property
    def is_remote(self) -> bool:
        """Whether members may run on other hosts: the parent then writes the index for them, and secrets stay here."""

    def slots(self) -> int:
        """How many members may run at a time now; asked at every look, so that a cluster may grow and shrink."""

    def start(self, task: Task, /) -> Handle:
        """Start a member and return at once."""

    def lost(self, holder: Holder, /) -> bool | None:
        """Whether that process, perhaps one of an earlier parent, is certainly gone; None where it cannot say."""

    def close(self) -> None:
        """Stop what still runs, as after SIGTERM. Called once."""
