"""Clocks for the contestants: standard library only, because every contestant imports it, in whatever environment."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


class Stopwatch:
    """Wall and CPU time of a training loop, from the first mark at or after `warmup` env steps to the last mark."""

    def __init__(self, warmup: int, workers: Callable[[], float] = lambda: 0.0) -> None:
        self.warmup = warmup
        self.workers = workers
        """CPU seconds so far of processes that work for this one."""
        self.first: tuple[int, float, float] | None = None
        self.last: tuple[int, float, float] | None = None

    def mark(self, env_steps: int) -> None:
        """So many env steps are done, collected and learnt from."""
        now = (env_steps, time.perf_counter(), time.process_time() + self.workers())
        if self.first is None:
            self.first = now if env_steps >= self.warmup else None
        else:
            self.last = now

    def result(self) -> dict[str, float]:
        """What the contest compares; CPU time is that of every thread of the process and of its workers."""
        if self.first is None or self.last is None:
            raise SystemExit("the run is too short: it must go on for some rollouts after the warm-up")
        steps, seconds, cpu_seconds = (end - start for start, end in zip(self.first, self.last, strict=True))
        return {
            "timed_env_steps": int(steps),
            "timed_seconds": seconds,
            "env_steps_per_second": steps / seconds,
            "cpu_us_per_step": 1e6 * cpu_seconds / steps,
        }


def cpu_seconds_of(processes: Iterable[int]) -> float:
    """User and system time of running processes, by their ids; Linux."""
    ticks = [Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13] for process in processes]
    return sum(int(tick) for pair in ticks for tick in pair) / os.sysconf("SC_CLK_TCK")


def calls_per_second(function: Callable[[], Any], calls: int, segments: int = 5) -> float:
    """The median of several segments of `calls` calls each."""
    rates = []
    for _ in range(segments):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        rates.append(calls / (time.perf_counter() - start))
    return statistics.median(rates)


def resident_mb() -> float | None:
    """Memory this process occupies now; None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
