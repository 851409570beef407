"""Program: run a scenario once for every fault point in it, kill it there, and check what is left each time.

    python kill_points.py FOLDER

A light process that forks: each child runs the scenario on its own copy of the run and kills itself at point n. Prints
one JSON object, scenario -> number of points.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from checkpoint_cases import assert_same, names_in, parts_of, saved_run

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.system.atomic_io import KillAtPoint, fault_hook

Scenario = Callable[[CheckpointManager], object]


def save(step: int, seed: int | None = None, best: bool = False) -> Scenario:
    parts = parts_of(step if seed is None else seed)
    return lambda manager: manager.save(parts, step=step, metadata={"score": float(step)}, best=best)


Found = tuple[int, int]
"""A step, and the seed of the state that is found there."""

# name -> the steps already there, what happens, what may be found if it is cut off, what must be found at its end
SCENARIOS: dict[str, tuple[tuple[int, ...], Scenario, Found | None, Found]] = {
    "the first": ((), save(0), None, (0, 0)),
    "the next": ((0, 10), save(20), (10, 10), (20, 20)),
    "a best that retires two": ((0, 10, 20), save(30, best=True), (20, 20), (30, 30)),
    "the same step again": ((0, 10), save(10, seed=99), (10, 10), (10, 99)),
    "the only step again": ((5,), save(5, seed=99), (5, 5), (5, 99)),
    "rewind": ((0, 10, 20), lambda manager: manager.rewind(10), (20, 20), (10, 10)),
}


def killed_at(point: int, run_dir: Path, scenario: Scenario) -> bool:
    """Run the scenario in a child that is killed at its point-th operation; False if it ended before that."""
    child = os.fork()
    if child == 0:
        with fault_hook(KillAtPoint(point)):
            scenario(CheckpointManager(run_dir, keep_last=2))
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), f"the scenario failed with status {status}"
    return status == signal.SIGKILL


def check(run_dir: Path, allowed: set[Found | None]) -> None:
    """Assert that a complete, allowed state is loaded, and that the next save works and leaves no temporary files."""
    lines: list[str] = []
    manager = CheckpointManager(run_dir, keep_last=2, report=lines.append)
    found = None
    if manager.steps():
        loaded = manager.load_latest()
        found = (loaded.step, loaded.parts["progress"]["env_steps"])
        assert_same(loaded.parts, parts_of(found[1]))
        assert not any("damaged" in line for line in lines), lines
        manager.rewind(loaded.step)
        assert manager.best_step() in (None, loaded.step)
    assert found in allowed
    manager.save(parts_of(40), step=40)
    assert_same(manager.load_latest().parts, parts_of(40))
    steps = manager.steps()
    assert len(steps) == (2 if found else 1)
    for step in steps:
        manager.load(step)
    assert names_in(run_dir) - {"latest", "best"} == {f"step_{step:012d}" for step in steps}


def main(folder: Path) -> None:
    assert "torch" not in sys.modules
    points = {}
    for name, (before, scenario, old, new) in SCENARIOS.items():
        prepared = folder / "prepared"
        (prepared / "checkpoints").mkdir(parents=True)
        saved_run(prepared, before)
        point, alive = 0, False
        while not alive:
            point += 1
            run_dir = folder / f"{name} {point}"
            shutil.copytree(prepared, run_dir)
            alive = not killed_at(point, run_dir, scenario)
            check(run_dir, {new} if alive else {old, new})
            shutil.rmtree(run_dir)
        shutil.rmtree(prepared)
        points[name] = point - 1
    sys.stdout.write(json.dumps(points))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
