"""Program: save a growing log, killed at every single operation on the disk, and check what is left each time.

    python segment_kill_points.py FOLDER

A light process that forks, as `kill_points.py` does. Each child resumes a prepared run as a trainer would, goes on and
saves. Prints one JSON object, scenario -> number of points.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from checkpoint_cases import names_in
from kill_points import killed_at
from segment_cases import Ring, expected, needed_files, saved_ring, segment_files

from rl_training.checkpointing.manager import CheckpointManager

Scenario = Callable[[CheckpointManager], object]


def go_on(rows: int, *, best: bool = False) -> Scenario:
    """Resume, add rows, save."""

    def play(manager: CheckpointManager) -> None:
        ring = Ring.of(manager.load_latest().parts)
        manager.rewind(ring.written)
        ring.add(rows)
        manager.save(ring.parts(), step=ring.written, best=best)

    return play


# name -> rows at the checkpoints already there, what happens, rows that may be found at the latest one afterwards
SCENARIOS: dict[str, tuple[tuple[int, ...], Scenario, tuple[int, ...]]] = {
    "the first rows": ((0,), go_on(30), (0, 30)),
    "rows that are new": ((100, 200), go_on(20), (200, 220)),
    "over the end of the ring": ((200, 390), go_on(30), (390, 420)),
    "retiring all rows": ((400, 800), go_on(400), (800, 1200)),
    "a small last segment again": ((200, 202), go_on(1, best=True), (202, 203)),
    "rewind": ((100, 200, 300), lambda manager: manager.rewind(200), (200, 300)),
}


def check(run_dir: Path, allowed: tuple[int, ...]) -> int:
    """Assert that a complete, allowed state is loaded, that resuming from it is exact and leaves no temporary files."""
    lines: list[str] = []
    manager = CheckpointManager(run_dir, keep_last=2, report=lines.append)
    loaded = manager.load_latest()
    assert loaded.step in allowed, loaded.step
    assert lines == [], lines
    ring = Ring.of(loaded.parts)
    ring.assert_same(expected(loaded.step))
    manager.rewind(loaded.step)
    assert segment_files(run_dir) == needed_files(run_dir, manager.steps())
    ring.add(33)
    manager.save(ring.parts(), step=ring.written)
    for step in manager.steps():
        Ring.of(CheckpointManager(run_dir).load(step).parts).assert_same(expected(step))
    assert segment_files(run_dir) == needed_files(run_dir, manager.steps())
    folders = {f"step_{step:012d}" for step in manager.steps()}
    assert names_in(run_dir) - {"latest", "best"} == folders | {"segments"}
    return loaded.step


def main(folder: Path) -> None:
    assert "torch" not in sys.modules
    points = {}
    for name, (before, scenario, allowed) in SCENARIOS.items():
        prepared = folder / "prepared"
        saved_ring(prepared, before)
        point, alive, found = 0, False, set()
        while not alive:
            point += 1
            run_dir = folder / f"{name} {point}"
            shutil.copytree(prepared, run_dir)
            alive = not killed_at(point, run_dir, scenario)
            found.add(check(run_dir, allowed[-1:] if alive and name != "rewind" else allowed))
            shutil.rmtree(run_dir)
        assert found == set(allowed), (name, found)
        shutil.rmtree(prepared)
        points[name] = point - 1
    sys.stdout.write(json.dumps(points))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
