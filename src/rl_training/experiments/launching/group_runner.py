"""`GroupRunner`: trains the members of a group, a sweep or a search in parallel, each started by an executor.

The parent forwards signals; a second Ctrl-C stops the members at once. Members stop by themselves when the parent dies.
A member that fails does not affect the others.

| end of a member | what follows |
|---|---|
| exit code 0 | finished |
| 130, 143, 75 | stopped: saved, to be resumed |
| another code, or a signal | failed or killed; tried again `retries` times, from its last checkpoint |
| LOST: node, actor or job is gone | goes on elsewhere once its run is free; counts in `max_losses`, not in `retries` |
| the executor lost its cluster | members stop by themselves; the group ends with code 1, any executor may resume it |
"""

from __future__ import annotations

import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from rl_training.config.schema import TrainConfig
from rl_training.distributed.executors import LOST, Executor, ExecutorGoneError, Handle, Resources, Task
from rl_training.distributed.local_executor import LocalExecutor
from rl_training.experiments.launching.group_display import GroupView, Row
from rl_training.experiments.launching.member import Member
from rl_training.experiments.launching.members import CONFIG_CODE, RunSet
from rl_training.experiments.launching.membership import NAME_VARIABLE, PAUSE_VARIABLE, membership_variables
from rl_training.experiments.launching.progress import RunProgress
from rl_training.runs import index
from rl_training.runs.directory import RunDir
from rl_training.runs.holder import LOST_VARIABLE, read_holder
from rl_training.runs.names import release
from rl_training.system.atomic_io import atomic_write
from rl_training.system.machine import usable_cores
from rl_training.system.signals import requeue_under_slurm
from rl_training.types import RLTrainingError, TrustError

Key = tuple[int | None, int]
"""Trial and seed of a member, which identify it."""
POLL_SECONDS = 0.1
LOOK_SECONDS = 0.5
"""Shortest interval at which the members' logs are read; with many members it is longer."""
LOOKS_PER_SECOND = 100
"""Logs that are read in a second at most."""
ROWS_PER_SECOND = 5000
"""Rows of the table that are made in a second at most."""
INDEX_SECONDS = 1.0
"""Shortest interval at which a parent writes the rows of members that do not write their own."""
ERROR_LINES = 20
STOP_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGUSR1: 75}
"""Signals that are forwarded to the members, and the exit code of the group after each."""


@dataclass
class Job:
    """A member that was started."""

    member: Member
    handle: Handle
    log: Path
    log_start: int
    """Offset in the log at which the output of this process begins."""
    started: float = field(default_factory=time.monotonic)
    running_since: float | None = None
    """When it left the queue of its executor; None while it waits there."""
    timed_out: bool = False
    """It was told to stop because its wall time is over."""
    is_indexed: bool = False
    """Its run has a row in the index, where the parent writes that."""
    progress: RunProgress = field(default_factory=RunProgress)

    def new_lines(self) -> list[str]:
        """The lines that this process has printed."""
        try:
            with open(self.log, "rb") as file:
                file.seek(self.log_start)
                return file.read().decode(errors="replace").splitlines()
        except FileNotFoundError:
            return []


@dataclass(frozen=True)
class Limits:
    """What one member may use, and how often it may lose its node."""

    resources: Resources = field(default_factory=Resources)
    max_losses: int = 10
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the members."""


class GroupRunner:
    """Runs the given members, or every one that is not finished, at most `jobs` at a time.

    `executor` starts them, by default as processes of this host. A member that fails is retried up to `retries` times,
    from its last checkpoint. `feed` is polled for further members to run; `pauses` says at which step a member is to
    pause.
    """

    def __init__(
        self,
        group: RunSet,
        jobs: int | None,
        view: GroupView,
        *,
        members: Sequence[Member] | None = None,
        retries: int = 0,
        feed: Callable[[GroupRunner], list[Member]] | None = None,
        executor: Executor | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.group = group
        self.jobs = jobs
        self.executor = executor or LocalExecutor(jobs or usable_cores(), secrets=group.redactor.needed_values)
        self.limits = limits or Limits()
        self.view = view
        self.retries = retries
        self.feed = feed
        self.waiting = deque(group.unfinished() if members is None else members)
        self.totals = {member.key: group.total(member) for member in self.waiting}
        self.running: list[Job] = []
        self.ended: dict[Key, Job] = {}
        self.exit_code: int | None = None
        """What `run` returned, once it has."""
        self.executor_is_gone = False
        self.stopped_by: signal.Signals | None = None
        self.pauses: dict[Key, int] = {}
        """Env steps at which a member is to pause, set by a scheduler."""
        self._failures: Counter[Key] = Counter()
        self._losses: Counter[Key] = Counter()
        self._announced: set[Key] = set()
        self._reasons: set[str] = set()
        self._unindexed: dict[str, Path] = {}
        self._stop_announced = False
        self._next_look = self._next_index = 0.0
        self._save_error = ""

    def run(self) -> int:
        """Run until every member has ended; returns the exit code of the group."""
        for member in self.waiting:
            member.status, member.reason = "waiting", None
        handlers = {number: signal.signal(number, self._stop) for number in STOP_CODES}
        try:
            while self._has_work():
                self._start_waiting()
                self._look()
                time.sleep(POLL_SECONDS)
                self._announce_stop()
                self._collect()
        except ExecutorGoneError as error:
            self.executor_is_gone = True
            self._tell(self.view.message, f"{error}; `rl resume {self.group.path}` goes on, with any executor")
        finally:
            self.executor.close()  # members that still run stop by themselves
            for job in self.running:
                job.handle.wait()
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for member in [*self.waiting, *(job.member for job in self.running)]:
                self.group.observe_member(member)
            self._tell(self.view.close)
            self._index(now=None)
            self._save()
        if self.executor_is_gone:
            return 1
        if self.stopped_by is None:
            left = self.group.unfinished()
            is_config = bool(left) and all(member.exit_code == CONFIG_CODE for member in self.group.members)
            return CONFIG_CODE if is_config else int(bool(left))
        if self.stopped_by is signal.SIGUSR1 and (requeued := requeue_under_slurm()):
            self._tell(self.view.message, requeued)
        return STOP_CODES[self.stopped_by]

    def parallel(self) -> int:
        """Members that may run at a time now."""
        slots = self.executor.slots()
        return slots if self.jobs is None else min(self.jobs, slots)

    def _has_work(self) -> bool:
        if self.feed is not None and self.stopped_by is None:
            new = self.feed(self)
            self.waiting.extend(new)
            self.totals |= {member.key: self.group.total(member) for member in new}
        return bool(self.running or (self.waiting and self.stopped_by is None))

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stopped_by = signal.Signals(number)
        for job in self.running:
            job.handle.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)

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
            self._cannot_save(error)

    def _cannot_save(self, error: RLTrainingError) -> None:
        """Say once that the record cannot be written."""
        if self._save_error != str(error):
            self._tell(self.view.message, str(error))
        self._save_error = str(error)

    # -- starting -----------------------------------------------------------------------------------------------------

    def _start_waiting(self) -> None:
        held_back: list[Member] = []
        free = self.parallel() - len(self.running) if self.waiting else 0
        while self.waiting and free > 0 and self.stopped_by is None:
            member = self.waiting.popleft()
            if holder := self.group.busy(member, self.executor.lost):
                if member.key not in self._announced:
                    text = f"process {holder.pid} on {holder.host} has its run; waiting until that ends"
                    self._tell(self.view.message, f"{self.group.label(member)}: {text}")
                self._announced.add(member.key)
                held_back.append(member)
                continue
            self.group.observe_member(member)
            if member.status == "finished":  # by the process that had it
                self._tell(self.view.event, f"{self.group.label(member)}: finished")
                continue
            free -= self._start(member)
        self.waiting.extendleft(reversed(held_back))

    def _start(self, member: Member) -> bool:
        """Start a member; False if it cannot even be started."""
        log = self.group.log(member)
        self._redact(log)
        try:
            words = self.group.command(member)
            task = self._task(member, words, log)
        except TrustError:
            raise
        except RLTrainingError as error:
            member.status, member.reason = "failed", self.group.redactor.values(str(error))
            self._tell(self.view.message, f"{self.group.label(member)}: failed, {error}")
            return False
        log_start = log.stat().st_size if log.exists() else 0
        member.status, member.exit_code, member.reason, member.process = "running", None, None, None
        member.words = ["rl", *words]
        member.run = task.env.get(NAME_VARIABLE, member.run)
        self._note(member)  # before the process exists: whatever is killed now, its run is known by name
        handle = self.executor.start(task)
        job = Job(member, handle, log, log_start)
        self.running.append(job)
        if self.stopped_by is not None:  # the signal arrived while the process was being started
            handle.send_signal(signal.SIGTERM)
        member.process = handle.holder
        self._note_place(job)
        if member.process is not None:
            self._note(member)
        self._tell(self.view.event, f"{self.group.label(member)}: {'resumed' if words[0] == 'resume' else 'started'}")
        return True

    def _task(self, member: Member, words: Sequence[str], log: Path) -> Task:
        group, consent = self.group, self.group.consent(member)
        variables = membership_variables(group.group_of(member), group.path, group.sweep, consent)
        if words[0] == "train":
            variables[NAME_VARIABLE] = group.planned_run(member)
        elif words[0] == "resume":
            holder = read_holder(Path(words[1]) / ".lock")
            if holder is not None and self.executor.lost(holder):
                variables[LOST_VARIABLE] = holder.token  # the new process must not wait for the silence of a dead node
        if member.key in self.pauses:
            variables[PAUSE_VARIABLE] = str(self.pauses[member.key])
        if self.executor.is_remote:
            variables[index.INDEX_VARIABLE] = "0"
        env = {**self.limits.env, **variables}
        return Task(tuple(words), env, log.absolute(), member.key, group.label(member), self.limits.resources)

    def _note(self, member: Member) -> None:
        """Append to the journal. It can be rebuilt from the runs, so a full disk must not stop the group."""
        try:
            self.group.note(member)
        except RLTrainingError as error:
            self._cannot_save(error)

    # -- watching -----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        now = time.monotonic()
        if now < self._next_look:
            return
        many = max(len(self.running) / LOOKS_PER_SECOND, len(self.group.members) / ROWS_PER_SECOND)
        self._next_look = now + max(LOOK_SECONDS, many)
        for job in self.running:
            run = self.group.find_run(job.member)
            if run is not None:
                job.progress.measure(run.logs / "metrics.jsonl", now)
                if not job.is_indexed:  # once when it appears, once more when it has ended
                    job.is_indexed = True
                    self._to_index(run)
        self._index(now)
        self._tell(self.view.show, self.rows())

    def rows(self) -> list[Row]:
        """The current state of every member."""
        jobs = {job.member.key: job for job in [*self.ended.values(), *self.running]}
        return [self._row(member, jobs.get(member.key)) for member in self.group.members]

    def _row(self, member: Member, job: Job | None) -> Row:
        label = self.group.label(member)
        if job is None:
            return Row(label, member.status)
        return job.progress.row(label, member.status, self.totals[member.key], member.where or "")

    def _note_place(self, job: Job) -> None:
        """Remember where a member runs on another host; that may be known only some time after its start."""
        if self.executor.is_remote and job.handle.where != (job.member.where or ""):
            job.member.where = job.handle.where
            self._note(job.member)

    def _to_index(self, run: RunDir) -> None:
        """Remember to write the row of a run whose process does not write it."""
        if self.executor.is_remote:
            self._unindexed[run.path.name] = run.path

    def _index(self, now: float | None) -> None:
        """Write the rows that wait, at most once a second; `None` writes them at once."""
        if self._unindexed and (now is None or now >= self._next_index):
            index.record_all(self.group.output_dir, list(self._unindexed.values()))
            self._unindexed.clear()
            self._next_index = (now or time.monotonic()) + INDEX_SECONDS

    def _collect(self) -> None:
        still_running = []
        for job in self.running:
            exit_code = job.handle.poll()
            if exit_code is None:
                still_running.append(job)
                self._note_place(job)
                self._check_wall_time(job)
                continue
            self.ended[job.member.key] = job
            self._end(job, exit_code)
            self._note(job.member)
        self.running = still_running

    def _check_wall_time(self, job: Job) -> None:
        if job.running_since is None and job.handle.is_running:
            job.running_since = time.monotonic()
        limit = self.limits.resources.wall_time
        if limit is None or job.running_since is None or job.timed_out:
            return
        if time.monotonic() - job.running_since > limit:
            job.timed_out = True
            job.handle.send_signal(signal.SIGTERM)

    def _end(self, job: Job, exit_code: int) -> None:
        member = job.member
        planned = member.run
        self.group.observe_member(member)
        run = self.group.find_run(member)
        if run is None and planned is not None and exit_code != LOST:
            release(self.group.output_dir, planned)
        if run is not None:
            job.progress.read(run.logs / "metrics.jsonl")
            self._to_index(run)
        member.exit_code = None if exit_code == LOST else exit_code
        if exit_code == 0:
            member.status = "finished"
        elif exit_code in STOP_CODES.values():
            member.status = "stopped"
            if job.timed_out:
                member.reason = f"stopped at its wall-time limit of {self.limits.resources.wall_time:g} s"
        elif exit_code == LOST:
            # its process may still be saving; the name stays on record, in case it makes its run only now
            member.run, member.status, member.reason = planned, "killed", f"{job.handle.where} is gone"
        elif exit_code < 0:
            member.status, member.reason = "killed", f"killed by signal {-exit_code}"
        else:
            member.status, member.reason = "failed", self.group.redactor.text(error_line(job.new_lines()))
        facts = [f"{member.status} after {time.monotonic() - job.started:.0f} s", *self._row(member, job).facts()]
        self._tell(self.view.event, f"{self.group.label(member)}: {', '.join(facts)}")
        if member.reason is not None:
            self._explain(job, member.reason)
        self._redact(job.log)
        self._try_again(member, lost=exit_code == LOST)

    def _try_again(self, member: Member, *, lost: bool) -> None:
        """Put a member back into the queue, if it has tries left: losses are counted by themselves."""
        if member.status not in ("failed", "killed") or self.stopped_by is not None:
            return
        counter, most = (self._losses, self.limits.max_losses) if lost else (self._failures, self.retries)
        counter[member.key] += 1
        if counter[member.key] <= most:
            how = "goes on elsewhere, once its run is free" if lost else "trying again"
            self._tell(self.view.message, f"{self.group.label(member)}: {how}")
            self.waiting.append(member)

    def _explain(self, job: Job, reason: str) -> None:
        """Say why a member failed; its last lines only for the first member with this reason."""
        label, status = self.group.label(job.member), job.member.status
        lines = job.new_lines()[-ERROR_LINES:] if status == "failed" and reason not in self._reasons else []
        self._reasons.add(reason)
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
    """Members that run in parallel on this host: `jobs`, by default one per core, and never fewer than one program
    holds."""
    return min(max(jobs or usable_cores(), cfg.training.runs_per_program), count)
