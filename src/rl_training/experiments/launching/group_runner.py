"""`GroupRunner`: trains the members of a group or sweep in parallel, each in its own `rl` process.

Compiled runs are threads over one program instead (`member_threads`). Member processes have sessions of their own, so
Ctrl-C reaches only the parent, which forwards it; a second Ctrl-C stops them at once. Members stop by themselves when
the parent dies (`membership`). A member that fails does not affect the others.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from rl_training.config.schema import TrainConfig
from rl_training.experiments.launching.group_display import GroupView, Row
from rl_training.experiments.launching.members import CONFIG_CODE, Member, RunSet
from rl_training.experiments.launching.membership import Lifeline, consent_variable
from rl_training.experiments.launching.progress import RunProgress
from rl_training.runs.lock import holder_of
from rl_training.system.atomic_io import atomic_write
from rl_training.system.signals import requeue_under_slurm
from rl_training.types import RLTrainingError, TrustError

Key = tuple[int | None, int]
"""Trial and seed of a member, which identify it."""
POLL_SECONDS = 0.1
LOOK_SECONDS = 0.5
"""Interval at which the members' logs are read."""
ERROR_LINES = 20
STOP_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGUSR1: 75}
"""Signals that are forwarded to the members, and the exit code of the group after each."""


class Process(Protocol):
    """What runs a member: a process, or a thread with the same interface."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self) -> int | None: ...
    def send_signal(self, number: int, /) -> None: ...


Start = Callable[[Member, Sequence[str], Path], Process]
"""Starts a member: (member, words of its command, file for its output)."""


@dataclass
class Job:
    """A member and its running process."""

    member: Member
    process: Process
    log: Path
    log_start: int
    """Offset in the log at which the output of this process begins."""
    started: float = field(default_factory=time.monotonic)
    progress: RunProgress = field(default_factory=RunProgress)

    def new_lines(self) -> list[str]:
        """The lines that this process has printed."""
        with open(self.log, "rb") as file:
            file.seek(self.log_start)
            return file.read().decode(errors="replace").splitlines()


class GroupRunner:
    """Runs the given members, or every one that is not finished, at most `jobs` at a time.

    A member that fails is retried up to `retries` times, from its last checkpoint. `feed` is polled for further members
    to run. `thread`, if given, starts a member as a thread of this process instead of a process of its own.
    """

    def __init__(
        self,
        group: RunSet,
        jobs: int,
        view: GroupView,
        *,
        members: Sequence[Member] | None = None,
        retries: int = 0,
        feed: Callable[[GroupRunner], list[Member]] | None = None,
        thread: Start | None = None,
    ) -> None:
        self.group = group
        self.thread = thread
        self.jobs = jobs
        self.view = view
        self.retries = retries
        self.feed = feed
        self.waiting = group.unfinished() if members is None else list(members)
        self.totals = {member.key: group.total(member) for member in self.waiting}
        self.running: list[Job] = []
        self.ended: dict[Key, Job] = {}
        self.stopped_by: signal.Signals | None = None
        self._failures: Counter[Key] = Counter()
        self._announced: set[Key] = set()
        self._stop_announced = False
        self._next_look = 0.0
        self._save_error = ""

    def run(self) -> int:
        """Run until every member has ended; returns the exit code of the group."""
        for member in self.waiting:
            member.status, member.reason = "waiting", None
        self.lifeline = Lifeline()
        handlers = {number: signal.signal(number, self._stop) for number in STOP_CODES}
        try:
            while self._has_work():
                self._start_waiting()
                self._look()
                time.sleep(POLL_SECONDS)
                self._announce_stop()
                self._collect()
        finally:
            self.lifeline.close()  # members that still run stop by themselves
            for job in self.running:
                job.process.wait()
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for member in self.waiting:
                self.group.observe_member(member)
            self._tell(self.view.close)
            self._save()
        if self.stopped_by is None:
            left = self.group.unfinished()
            is_config = bool(left) and all(member.exit_code == CONFIG_CODE for member in self.group.members)
            return CONFIG_CODE if is_config else int(bool(left))
        if self.stopped_by is signal.SIGUSR1 and (requeued := requeue_under_slurm()):
            self._tell(self.view.message, requeued)
        return STOP_CODES[self.stopped_by]

    def _has_work(self) -> bool:
        if self.feed is not None and self.stopped_by is None:
            new = self.feed(self)
            self.waiting += new
            self.totals |= {member.key: self.group.total(member) for member in new}
        return bool(self.running or (self.waiting and self.stopped_by is None))

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stopped_by = signal.Signals(number)
        for job in self.running:
            job.process.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)

    def _announce_stop(self) -> None:
        if self.stopped_by is not None and not self._stop_announced:
            again = "; once more stops them at once" if self.stopped_by is signal.SIGINT else ""
            count = len(self.running)
            text = f"stopping {count} running member{'s' if count != 1 else ''}, which save first{again}"
            self._tell(self.view.message, f"{self.stopped_by.name}: {text}")
            self._stop_announced = True

    def _tell(self, show: Callable[..., None], *arguments: Any) -> None:
        """Call a method of the view; a terminal that is gone must not stop the group."""
        with suppress(OSError, ValueError):
            show(*arguments)

    def _save(self) -> None:
        """Write the record. It can be rebuilt from the runs, so a full disk must not stop the group."""
        try:
            self.group.save()
        except RLTrainingError as error:
            if self._save_error != str(error):
                self._tell(self.view.message, str(error))
            self._save_error = str(error)

    # -- starting -----------------------------------------------------------------------------------------------------

    def _start_waiting(self) -> None:
        for member in list(self.waiting):
            if len(self.running) >= self.jobs or self.stopped_by is not None:
                return
            if holder := self.group.busy(member):
                if member.key not in self._announced:
                    text = f"process {holder.pid} on {holder.host} has its run; waiting until that ends"
                    self._tell(self.view.message, f"{self.group.label(member)}: {text}")
                self._announced.add(member.key)
                continue
            self.waiting.remove(member)
            self.group.observe_member(member)
            if member.status == "finished":  # by the process that had it
                self._tell(self.view.event, f"{self.group.label(member)}: finished")
                continue
            self._start(member)

    def _start(self, member: Member) -> None:
        log = self.group.log(member)
        self._redact(log)
        try:
            words = self.group.command(member)
        except TrustError:
            raise
        except RLTrainingError as error:
            member.status, member.reason = "failed", self.group.redactor.values(str(error))
            self._tell(self.view.message, f"{self.group.label(member)}: failed, {error}")
            return
        with open(log, "ab") as output:
            log_start = output.tell()
        start = self._process if self.thread is None else self.thread
        process = start(member, words, log)
        self.running.append(Job(member, process, log, log_start))
        if self.stopped_by is not None:  # the signal arrived while the process was being started
            process.send_signal(signal.SIGTERM)
        member.status, member.exit_code, member.reason = "running", None, None
        # a thread's run is protected by its own lock, and this process outlives it
        member.words, member.process = ["rl", *words], None if self.thread is not None else holder_of(process.pid)
        self._save()
        self._tell(self.view.event, f"{self.group.label(member)}: {'resumed' if words[0] == 'resume' else 'started'}")

    def _process(self, member: Member, words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        secrets = self.group.redactor.needed_values
        with open(log, "ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "rl_training", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[self.lifeline.descriptor],
                env={**os.environ, **secrets, **self._membership(member)},
            )

    def _membership(self, member: Member) -> dict[str, str]:
        variables = self.lifeline.variables(self.group.group_of(member), self.group.path, sweep=self.group.sweep)
        return variables | consent_variable(self.group.consent(member))

    # -- watching -----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        for job in self.running:
            run = self.group.find_run(job.member)
            if run is not None:
                job.member.run = run.path.name
                job.progress.measure(run.logs / "metrics.jsonl", now)
        self._tell(self.view.show, self.rows())

    def rows(self) -> list[Row]:
        """The current state of every member."""
        jobs = {job.member.key: job for job in [*self.ended.values(), *self.running]}
        return [self._row(member, jobs.get(member.key)) for member in self.group.members]

    def _row(self, member: Member, job: Job | None) -> Row:
        label = self.group.label(member)
        if job is None:
            return Row(label, member.status)
        return job.progress.row(label, member.status, self.totals[member.key])

    def _collect(self) -> None:
        for job in list(self.running):
            exit_code = job.process.poll()
            if exit_code is None:
                continue
            self.running.remove(job)
            self.ended[job.member.key] = job
            self._end(job, exit_code)
            self._save()

    def _end(self, job: Job, exit_code: int) -> None:
        member = job.member
        self.group.observe_member(member)
        run = self.group.find_run(member)
        if run is not None:
            job.progress.read(run.logs / "metrics.jsonl")
        member.exit_code = exit_code
        if exit_code == 0:
            member.status = "finished"
        elif exit_code in STOP_CODES.values():
            member.status = "stopped"
        elif exit_code < 0:
            member.status, member.reason = "killed", f"killed by signal {-exit_code}"
        else:
            member.status, member.reason = "failed", self.group.redactor.text(error_line(job.new_lines()))
        facts = [f"{member.status} after {time.monotonic() - job.started:.0f} s", *self._row(member, job).facts()]
        self._tell(self.view.event, f"{self.group.label(member)}: {', '.join(facts)}")
        if member.reason is not None:
            self._explain(job, member.reason)
        self._redact(job.log)
        self._failures[member.key] += member.status in ("failed", "killed")
        if member.status in ("failed", "killed") and self._failures[member.key] <= self.retries:
            self._tell(self.view.message, f"{self.group.label(member)}: trying again")
            self.waiting.append(member)

    def _explain(self, job: Job, reason: str) -> None:
        """Say why a member failed; its last lines only for the first member with this reason."""
        label, status = self.group.label(job.member), job.member.status
        is_known = any(member.reason == reason for member in self.group.members if member is not job.member)
        lines = job.new_lines()[-ERROR_LINES:] if status == "failed" and not is_known else []
        lines = [self.group.redactor.text(line) for line in lines]
        self._tell(self.view.message, "\n".join([f"{label}: {status}; {reason}", *(f"  {line}" for line in lines)]))
        self._tell(self.view.message, f"  see {job.log}")

    def _redact(self, log: Path) -> None:
        """Remove secrets of the config or the environment from what a member printed."""
        with suppress(FileNotFoundError):
            text = log.read_bytes().decode(errors="surrogateescape")
            public = self.group.redactor.text(text)
            if public != text:
                atomic_write(log, public.encode(errors="surrogateescape"))


def error_line(lines: Sequence[str]) -> str:
    """The line that says what went wrong: the last "error: ..." or, if unexpected, the end of its traceback."""
    said = [line.strip() for line in lines if line.strip()] or ["it printed nothing"]
    errors = [number for number, line in enumerate(said) if line.startswith("error: ")]
    if not errors:
        return said[-1]
    number = errors[-1]
    is_unexpected = said[number].startswith("error: unexpected ") and number > 0
    return said[number - 1] if is_unexpected else said[number].removeprefix("error: ")


def at_a_time(cfg: TrainConfig, jobs: int | None, count: int) -> int:
    """Members that run in parallel: `jobs`, by default one per core, and never fewer than one program holds."""
    return min(max(jobs or default_jobs(), cfg.training.runs_per_program), count)


def default_jobs() -> int:
    """One run per core available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
