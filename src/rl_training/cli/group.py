"""Several seeds of one config: plain `rl train` processes side by side, and a table at the end.

Members are separate processes, so one that fails or is killed does not touch the others, and each is an ordinary run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from rl_training.cli.arguments import UsageError
from rl_training.cli.output import note, print_json, table

MAX_SEED = 2**32 - 1
MAX_RUNS = 10_000
POLL_SECONDS = 0.1
ERROR_LINES = 20
STOP_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGUSR1: 75}
"""Signals that are passed on to the members, and what the group then exits with."""


def parse_seeds(text: str) -> list[int]:
    """The seeds of `3`, `1,2,3`, `0..9` (both ends) or a mix of them.

    >>> parse_seeds("0..2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        try:
            low, high = int(first), int(last if dots else first)
        except ValueError:
            raise UsageError(f"--seed takes 3, 1,2,3 or 0..9, not '{text}'") from None
        if not 0 <= low <= high <= MAX_SEED:
            raise UsageError(f"--seed {text}: seeds go up from 0 to {MAX_SEED}")
        if len(seeds) + high - low >= MAX_RUNS:
            raise UsageError(f"--seed {text} is more than {MAX_RUNS} runs")
        seeds.extend(range(low, high + 1))
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"--seed {text} names a seed twice")
    return seeds


@dataclass
class Member:
    """One run of the group."""

    seed: int
    process: subprocess.Popen[bytes]
    logs: Path
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    exit_code: int | None = None
    result: dict[str, Any] = field(default_factory=dict)

    def finish(self, exit_code: int) -> None:
        self.exit_code, self.seconds = exit_code, time.monotonic() - self.started
        try:
            self.result = json.loads(self.logs.joinpath("stdout").read_text())
        except ValueError:  # it ended before it had a result
            self.result = {}

    @property
    def status(self) -> str:
        if self.exit_code in STOP_CODES.values():
            return "stopped"
        if self.exit_code is not None and self.exit_code < 0:
            return f"killed by signal {-self.exit_code}"
        return "failed" if self.exit_code else "done"

    def last_words(self) -> str:
        """The end of what it wrote to stderr."""
        lines = self.logs.joinpath("stderr").read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-ERROR_LINES:])

    def row(self) -> list[str]:
        metrics = self.result.get("metrics", {})
        score = metrics.get("eval/return_mean", metrics.get("rollout/return_mean"))
        steps = metrics.get("env_steps")
        return [
            str(self.seed),
            self.status,
            "-" if score is None else f"{score:.1f}",
            "-" if steps is None else f"{steps:,}",
            f"{self.seconds:.0f} s",
            self.result.get("run", "-"),
        ]


class Group:
    """Runs one process per seed, at most `jobs` at a time; a stop signal reaches each running member once."""

    def __init__(self, seeds: Sequence[int], jobs: int, words: Callable[[int], list[str]], logs: Path) -> None:
        self.waiting = deque(seeds)
        self.jobs = jobs
        self.words = words
        self.logs = logs
        self.running: list[Member] = []
        self.finished: list[Member] = []
        self.stopped_by: int | None = None

    def run(self) -> int:
        """Until every member has ended; the exit code of the whole."""
        handlers = {number: signal.signal(number, self._stop) for number in STOP_CODES}
        try:
            while self.waiting or self.running:
                self._start_waiting()
                time.sleep(POLL_SECONDS)
                self._collect()
        finally:
            for member in self.running:
                member.process.terminate()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if self.stopped_by is not None:
            return STOP_CODES[signal.Signals(self.stopped_by)]
        return int(any(member.exit_code != 0 for member in self.finished))

    def _start_waiting(self) -> None:
        while self.waiting and len(self.running) < self.jobs and self.stopped_by is None:
            self._start(self.waiting.popleft())

    def _start(self, seed: int) -> None:
        folder = self.logs / str(seed)
        folder.mkdir()
        with open(folder / "stdout", "wb") as stdout, open(folder / "stderr", "wb") as stderr:
            # its own session: Ctrl-C reaches the parent alone, which passes it on once (a second one means "at once")
            process = subprocess.Popen(
                [sys.executable, "-m", "rl_training", "train", *self.words(seed)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        self.running.append(Member(seed, process, folder))
        if self.stopped_by is not None:  # the signal came while the process was being made
            process.send_signal(signal.SIGTERM)
        note(f"seed {seed}: started")

    def _collect(self) -> None:
        for member in list(self.running):
            exit_code = member.process.poll()
            if exit_code is None:
                continue
            member.finish(exit_code)
            self.running.remove(member)
            self.finished.append(member)
            _, status, score, steps, seconds, run = member.row()
            note(f"seed {member.seed}: {status} after {seconds}, {steps} env steps, return {score}, {run}")
            if status not in ("done", "stopped"):
                note(member.last_words())

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stopped_by = number
        self.waiting.clear()
        for member in self.running:
            member.process.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)


def run_group(seeds: Sequence[int], jobs: int, words: Callable[[int], list[str]], *, as_json: bool) -> int:
    """Train every seed; `words(seed)` is the command line after `rl train`, which must ask for the JSON result."""
    note(f"{len(seeds)} runs, {min(jobs, len(seeds))} at a time")
    with tempfile.TemporaryDirectory(prefix="rl-group-") as folder:
        group = Group(seeds, jobs, words, Path(folder))
        exit_code = group.run()
    members = sorted(group.finished, key=lambda member: seeds.index(member.seed))
    if as_json:
        runs = [{"seed": member.seed, "exit_code": member.exit_code, **member.result} for member in members]
        print_json({"runs": runs, "exit_code": exit_code})
        return exit_code
    print(table(["seed", "status", "return", "env steps", "time", "run"], [member.row() for member in members]))
    failed = sum(member.status not in ("done", "stopped") for member in members)
    if failed:
        note(f"{failed} of {len(seeds)} runs failed")
    if group.stopped_by is not None:
        note(f"stopped; {len(seeds) - len(members)} runs were not started; 'rl resume RUN' continues the others")
    return exit_code


def default_jobs() -> int:
    """One run per core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
