"""Runs the contestants of a contest in turns and sums up what they did. Knows nothing about reinforcement learning."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contest_types import Contest, Contestant, Measure

ROOT = Path(__file__).resolve().parent.parent
ALWAYS_KEPT = ("process_seconds", "process_cpu_seconds", "peak_mb", "timed_env_steps", "timed_seconds")
"""Numbers that are kept of every run, whatever the contest compares."""
VERSIONS = """
import importlib.metadata as metadata, json, platform
found = {"python": platform.python_version()}
peers = ("stable-baselines3", "sb3-contrib", "tianshou", "cpprb", "rejax", "gymnax", "sbx-rl", "agilerl", "mpe2")
peers += ("sheeprl", "torchrl", "d3rlpy")
for name in ("rl-training", *peers, "torch", "jax", "numpy", "gymnasium", "ale-py"):
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        continue
print(json.dumps(found))
"""
LAUNCHER = """
import json, os, sys, time
started = time.perf_counter()
process = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(process, 0)
seconds = time.perf_counter() - started
with open(sys.argv[1], "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss], file)
"""
"""A small process between us and the command: a new process counts its parent's memory as its own first peak."""

Pythons = dict[str, str]
"""Interpreters by the name of their environment."""


@dataclass(frozen=True)
class Outcome:
    """What a process printed and what it used: wall time from start to end, CPU time and peak memory with children."""

    output: dict[str, Any]
    seconds: float
    cpu_seconds: float
    peak_mb: float


def run_process(command: Sequence[str], stdin: str = "") -> Outcome:
    """Run a command that prints one JSON object, from the root of the clone, with one thread per process."""
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    with (
        tempfile.TemporaryFile("w+") as given,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        tempfile.NamedTemporaryFile("r") as used,
    ):
        given.write(stdin)
        given.seek(0)
        launch = [sys.executable, "-I", "-S", "-c", LAUNCHER, used.name, *command]
        process = subprocess.Popen(
            launch, stdin=given, stdout=out, stderr=err, cwd=ROOT, env={**environment, **single}, process_group=0
        )
        try:
            process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        out.seek(0)
        err.seek(0)
        text = out.read()
        code, seconds, cpu_seconds, peak = json.loads(used.read() or "[1, 0, 0, 0]")
        if code != 0:
            raise SystemExit(f"exit code {code} of {' '.join(command)}\n{err.read()[-4000:]}")
    try:
        output = json.loads(text)
    except json.JSONDecodeError as error:
        raise SystemExit(f"no JSON from {' '.join(command)} ({error}):\n{text[-1000:]}") from error
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return Outcome(output, seconds, cpu_seconds, peak * unit / 1e6)


def fill(words: Sequence[str], contest: Contest, contestant: Contestant, seed: int, scratch: str) -> list[str]:
    """The arguments of one run."""
    settings = {**contest.settings, **contestant.settings, "seed": seed, "scratch": scratch}
    values = {f"{{{name}}}": str(value) for name, value in settings.items()} | {"{settings}": json.dumps(settings)}
    return [values.get(word, word) for word in words]


def call(contest: Contest, contestant: Contestant, seed: int, python: str, scratch: str) -> list[str]:
    """The whole command of one run; `taskset` keeps it on its cores, the first that this process may use."""
    usable = sorted(os.sched_getaffinity(0))
    if contestant.cores is not None and contestant.cores > len(usable):
        raise SystemExit(f"{contestant.name} needs {contestant.cores} cores; there are {len(usable)}")
    cores = [] if contestant.cores is None else ["taskset", "-c", ",".join(map(str, usable[: contestant.cores]))]
    return [*cores, python, *fill(contestant.command, contest, contestant, seed, scratch)]


def run_once(contest: Contest, contestant: Contestant, seed: int, pythons: Pythons) -> dict[str, Any]:
    """One run of a contestant and its check: the numbers that the contest is about."""
    python = pythons[contestant.venv]
    with tempfile.TemporaryDirectory() as scratch:
        outcome = run_process(call(contest, contestant, seed, python, scratch))
        checked: dict[str, Any] = {}
        if contestant.check:
            words = fill(contestant.check, contest, contestant, seed, scratch)
            checked = run_process([python, *words], stdin=json.dumps(outcome.output)).output
    found = {
        **outcome.output,
        **checked,
        "process_seconds": outcome.seconds,
        "process_cpu_seconds": outcome.cpu_seconds,
        "peak_mb": outcome.peak_mb,
    }
    kept = dict.fromkeys([*(measure.key for measure in contest.measures), *ALWAYS_KEPT])
    run: dict[str, Any] = {"seed": seed} | {key: found[key] for key in kept if found.get(key) is not None}
    if "stop_reason" in found:
        run["solved"] = str(found["stop_reason"]).startswith("solved")
    return run


def hold(contest: Contest, repeats: int, pythons: Pythons, report: Callable[[str], None]) -> dict[str, Any]:
    """A whole contest: A B C A B C ..., repetition k with seed k, so that what slows the machine slows everyone."""
    runs: dict[str, list[dict[str, Any]]] = {contestant.name: [] for contestant in contest.contestants}
    load = os.getloadavg()[0]
    for seed in range(repeats):
        for contestant in contest.contestants:
            run = run_once(contest, contestant, seed, pythons)
            runs[contestant.name].append(run)
            first = contest.measures[0]
            report(f"{contest.name}  {seed + 1}/{repeats}  {contestant.name}: {run[first.key]:,.{first.digits}f}")
    return {
        "measured": time.strftime("%Y-%m-%d"),
        "repeats": repeats,
        "machine": {**machine(), "load_before": round(load, 2)},
        "contestants": {
            contestant.name: {
                "peer": contestant.peer,
                "command": shown_command(contest, contestant),
                "median": medians(runs[contestant.name]),
                "runs": runs[contestant.name],
            }
            for contestant in contest.contestants
        },
    }


def medians(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The median of every number that all runs have."""
    keys = [key for key in runs[0] if key not in ("seed", "solved") and all(key in run for run in runs)]
    return {key: statistics.median(run[key] for run in runs) for key in keys}


def shortfalls(measures: Sequence[Measure], entry: dict[str, Any]) -> list[str]:
    """The runs of a contestant that did not reach what every run must: "seed 3 ended at 299.0"."""
    return [
        f"seed {run['seed']} ended at {run[measure.key]:,.{measure.digits}f}"
        for measure in measures
        if measure.floor is not None
        for run in entry["runs"]
        if run.get(measure.key, measure.floor) < measure.floor
    ]


def times_better(result: dict[str, Any], name: str, measure: Measure, floors: Sequence[Measure] = ()) -> float | None:
    """How many times better the median of `name` is than that of the best peer; None where there is no comparison.
    With `floors`, the measures of the contest, contestants with a run below one are not compared."""
    key, entries = measure.key, result["contestants"]
    if floors:
        entries = {other: entry for other, entry in entries.items() if not shortfalls(floors, entry)}
    peers = [entry["median"][key] for entry in entries.values() if entry["peer"] and key in entry["median"]]
    own = entries[name]["median"].get(key) if name in entries else None
    if not peers or own is None or measure.better is None:
        return None
    return float(own / max(peers) if measure.better == "higher" else min(peers) / own)


def shown_command(contest: Contest, contestant: Contestant) -> str:
    """The first run as somebody would type it in the clone."""
    words = call(contest, contestant, 0, f"{contestant.venv}/bin/python", "/tmp/bench")
    return " ".join(f"'{word}'" if " " in word else word for word in words)


def machine() -> dict[str, Any]:
    """What a reader needs to know to judge the numbers."""
    from rl_training.system.machine import hardware

    facts = hardware()
    memory = round(facts["memory_bytes"] / 2**30)
    return {"cpu": facts["cpu"], "cores": facts["usable_cores"], "memory_gib": memory, "platform": facts["platform"]}


def versions(python: str) -> dict[str, str]:
    """What is installed beside an interpreter."""
    return run_process([python, "-c", VERSIONS]).output
