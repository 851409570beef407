"""`SlurmExecutor`: members as jobs of a SLURM queue, submitted with `sbatch` and followed with `squeue`.

A job writes its exit code into a file, so that no accounting database is needed; a job that is gone without one was
lost with its node. Jobs do not follow their parent: it may be ended, and `rl sweep --resume` waits for the runs that
jobs of an earlier parent still hold. SLURM never starts a job a second time (`--no-requeue`): going on with a run is a
decision of the parent.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from rl_training.config.sections.executor import ExecutorConfig
from rl_training.distributed.executors import LOST, Resources, Task
from rl_training.distributed.local_executor import member_command
from rl_training.runs.holder import WHERE_VARIABLE, Holder
from rl_training.runs.secret_names import is_secret_key
from rl_training.types import ConfigError, RunError

MAX_SLOTS = 100
"""Jobs in the queue at a time, unless `max_slots` says otherwise."""
QUEUE_SECONDS = 2.0
"""Shortest interval between two looks at the queue."""
GONE_SECONDS = 15.0
"""How long the exit code of a job that has left the queue may take to arrive over a network file system."""
CLOSE_SECONDS = 60.0
"""How long members may take to save and stop when the parent ends."""
WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED"})
SIGNALLED = 128
"""A shell reports a process that was killed by signal n as 128 + n."""
OWN_CODES = frozenset({129, 130, 143})
"""Codes above 128 with which a run that was stopped ends by itself."""


class SlurmHandle:
    """A member as a job."""

    holder: Holder | None = None

    def __init__(self, executor: SlurmExecutor, job: str, exit_file: Path) -> None:
        self._executor, self.job, self._exit_file = executor, job, exit_file
        self.where = f"slurm {job}"
        self._gone_since: float | None = None
        self._cancelled = False

    @property
    def is_running(self) -> bool:
        state = self._executor.queue().get(self.job)
        return state is not None and state not in WAITING

    def poll(self) -> int | None:
        if self.job in self._executor.queue():
            return None
        code = self._code()
        if code is not None:
            return code
        if self._cancelled:
            return SIGNALLED + signal.SIGTERM
        now = time.monotonic()
        self._gone_since = self._gone_since or now
        return LOST if now - self._gone_since > GONE_SECONDS else None

    def wait(self) -> int | None:
        deadline = time.monotonic() + CLOSE_SECONDS
        while (code := self.poll()) is None and time.monotonic() < deadline:
            time.sleep(QUEUE_SECONDS / 2)
        return LOST if code is None else code

    def send_signal(self, number: int, /) -> None:
        if self.is_running:
            self._executor.run("scancel", f"--signal={signal.Signals(number).name[3:]}", "--batch", self.job)
        else:
            self._cancelled = True
            self._executor.run("scancel", self.job)

    def _code(self) -> int | None:
        try:
            code = int(self._exit_file.read_text())
        except (OSError, ValueError):
            return None
        return code if code <= SIGNALLED or code in OWN_CODES else SIGNALLED - code


class SlurmExecutor:
    """Submits members to a SLURM cluster from one of its hosts."""

    name = "slurm"
    is_remote = True

    def __init__(self, config: ExecutorConfig, *, output_dir: Path, name: str) -> None:
        missing = [command for command in ("sbatch", "squeue", "scancel") if shutil.which(command) is None]
        if missing:
            raise ConfigError(f"executor slurm: there is no {missing[0]} here; run this on a host of a SLURM cluster")
        if config.gpus != int(config.gpus):
            raise ConfigError(f"executor slurm: it gives whole GPUs, not {config.gpus:g}; set gpus to 0 or 1")
        self._slots = config.max_slots or MAX_SLOTS
        self._options = dict(config.options)
        self._name = name
        self._scripts = output_dir / ".cluster" / "slurm" / name
        self._scripts.mkdir(parents=True, exist_ok=True)
        self._folder = os.getcwd()
        self._handles: list[SlurmHandle] = []
        self._queue: dict[str, str] = {}
        self._next_look = 0.0
        self._lost: dict[str, tuple[float, bool]] = {}

    def slots(self) -> int:
        return self._slots

    def start(self, task: Task, /) -> SlurmHandle:
        stem = self._scripts / uuid.uuid4().hex[:12]
        script, exit_file = stem.with_suffix(".sh"), stem.with_suffix(".exit")
        script.write_text(job_script(task, self._folder, exit_file))
        script.chmod(0o700)
        flags = [*resource_flags(task.resources), *option_flags(self._options)]
        said = self.run(
            "sbatch",
            "--parsable",
            f"--job-name={self._name}",
            f"--output={task.log}",
            "--open-mode=append",
            "--no-requeue",
            f"--export={','.join(exported(os.environ))}",
            *flags,
            str(script),
        )
        job = said.strip().partition(";")[0]
        if not job.isdecimal():
            raise RunError(f"sbatch did not say which job it has submitted for {task.label}: {said[:200]!r}")
        self._queue[job] = "PENDING"
        handle = SlurmHandle(self, job, exit_file)
        self._handles.append(handle)
        return handle

    def lost(self, holder: Holder, /) -> bool | None:
        """SLURM knows whether the job of an earlier parent is still there."""
        kind, _, job = holder.where.partition("slurm ")
        if kind or not job.isdecimal():
            return None
        asked, is_gone = self._lost.get(job, (-QUEUE_SECONDS, False))
        if time.monotonic() - asked >= QUEUE_SECONDS:
            done = _completed("squeue", "--noheader", "--format=%i", f"--jobs={job}")
            known = done is not None and (done.returncode == 0 or "Invalid job id" in done.stderr)
            is_gone = known and done is not None and job not in done.stdout.split()
            self._lost[job] = (time.monotonic(), is_gone)
        return True if is_gone else None

    def close(self) -> None:
        for handle in self._handles:
            if handle.job in self.queue():
                handle.send_signal(signal.SIGTERM)

    def queue(self) -> dict[str, str]:
        """The jobs of this sweep that are in the queue, with their states; asked at most every two seconds."""
        now = time.monotonic()
        if now >= self._next_look:
            done = _completed("squeue", "--noheader", "--format=%i %T", f"--name={self._name}")
            if done is not None and done.returncode == 0:  # else the controller is away: the last answer stands
                self._queue = dict(line.split()[:2] for line in done.stdout.splitlines() if line.strip())
            self._next_look = now + QUEUE_SECONDS
        return self._queue

    def run(self, *words: str) -> str:
        """What a command of SLURM has printed; RunError with its own words if it fails."""
        done = _completed(*words)
        if done is None:
            raise RunError(f"{words[0]} did not answer; is the SLURM controller running?")
        if done.returncode and words[0] == "sbatch":
            raise RunError(f"sbatch refused a job: {done.stderr.strip()[:300]}")
        return done.stdout


def job_script(task: Task, folder: str, exit_file: Path) -> str:
    """The batch script of one member: signals are passed on to it, and its exit code is written at the end."""
    temporary = shlex.quote(f"{exit_file}.tmp")
    lines = [
        "#!/bin/bash",
        *(f"export {name}={shlex.quote(value)}" for name, value in task.env.items()),
        f'export {WHERE_VARIABLE}="slurm $SLURM_JOB_ID"',
        f"cd {shlex.quote(folder)} || exit 1",
        f"{shlex.join(member_command(task.words))} &",
        "child=$!",
        *(f"trap 'kill -{name} $child' {name}" for name in ("TERM", "INT", "USR1")),
        "wait $child; code=$?",
        "while kill -0 $child 2> /dev/null; do wait $child; code=$?; done",
        f"echo $code > {temporary} && mv {temporary} {shlex.quote(str(exit_file))}",
        "exit $code",
    ]
    return "\n".join([*lines, ""])


def resource_flags(resources: Resources) -> list[str]:
    """What one member may use, as flags of sbatch."""
    flags = ["--ntasks=1", f"--cpus-per-task={math.ceil(resources.cpus)}"]
    if resources.gpus:
        flags.append(f"--gres=gpu:{int(resources.gpus)}")
    if resources.memory_mb is not None:
        flags.append(f"--mem={resources.memory_mb}M")
    if resources.wall_time is not None:  # the parent stops it in time; this is for a parent that is gone
        flags.append(f"--time={math.ceil(resources.wall_time / 60) + 2}")
    return flags


def option_flags(options: Mapping[str, object]) -> list[str]:
    """`{partition: gpu, exclusive: true}` as flags of sbatch.

    >>> option_flags({"partition": "gpu", "exclusive": True, "nice": None})
    ['--partition=gpu', '--exclusive']
    """
    flags = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            flags.append(flag)
        elif value is not None and value is not False:
            flags.append(f"{flag}={value}")
    return flags


def exported(environ: Mapping[str, str]) -> list[str]:
    """Names of the variables that a job gets from here: none that names a secret."""
    return [name for name in environ if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and not is_secret_key(name)]


def _completed(*words: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
