"""Program: run every scenario of the kill tests, and simulate a power failure at its operations instead of a kill.

    python power_points.py FOLDER EVERY FATE...

At every EVERY-th disk operation an image of what could be left is made for each fate and checked as after a kill: it
must hold the previous checkpoint or the new one, complete. After the end of a save it must be the new one. Prints one
JSON object, scenario -> number of images.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kill_points
import segment_kill_points
from checkpoint_cases import saved_run
from power_loss import PowerLoss, fate_of
from segment_cases import saved_ring

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.system.atomic_io import fault_hook

Check = Callable[[Path], object]


def cut_in(
    scenario: Callable[[CheckpointManager], object], run_dir: Path, images: Path, every: int, fates: list[str]
) -> list[tuple[Path, bool]]:
    """Images of the run at the operations of the scenario, and whether each was taken at its end."""
    made: list[tuple[Path, bool]] = []
    disk = PowerLoss(run_dir.parent)
    count = 0

    def cut(is_end: bool) -> None:
        for fate in fates:
            made.append((images / f"{len(made)} {fate}", is_end))
            disk.image(made[-1][0], fate_of(fate))

    def hook(operation: str, path: Path) -> None:
        nonlocal count
        disk.look()
        count += 1
        if count % every == 0:
            cut(False)

    with disk.watching(), fault_hook(hook):
        scenario(CheckpointManager(run_dir, keep_last=2))
    cut(True)
    disk.close()
    return made


def play(
    folder: Path,
    prepare: Callable[[Path], object],
    scenario: Callable[[CheckpointManager], object],
    check: Callable[[Path, bool], object],
    *settings: Any,
) -> int:
    for name in ("disk", "images"):
        (folder / name).mkdir(parents=True)
    run_dir = folder / "disk" / "run"
    (run_dir / "checkpoints").mkdir(parents=True)
    prepare(run_dir)
    made = cut_in(scenario, run_dir, folder / "images", *settings)
    for image, is_end in made:
        try:
            check(image / "run", is_end)
        except BaseException as error:
            error.add_note(f"in {image.name} of {len(made)}")
            raise
    shutil.rmtree(folder)
    return len(made)


def main(folder: Path, every: int, fates: list[str]) -> None:
    counts = {}
    for name, (before, scenario, old, new) in kill_points.SCENARIOS.items():

        def check(run_dir: Path, is_end: bool, old: Any = old, new: Any = new) -> None:
            kill_points.check(run_dir, {new} if is_end else {old, new})

        def prepare(run_dir: Path, before: Any = before) -> None:
            saved_run(run_dir, before)

        counts[name] = play(folder / name, prepare, scenario, check, every, fates)
    for name, (rows, growing, allowed) in segment_kill_points.SCENARIOS.items():

        def check_rows(run_dir: Path, is_end: bool, allowed: Any = allowed, name: str = name) -> None:
            segment_kill_points.check(run_dir, allowed[-1:] if is_end and name != "rewind" else allowed)

        def prepare_rows(run_dir: Path, rows: Any = rows) -> None:
            saved_ring(run_dir, rows)

        counts[f"rows: {name}"] = play(folder / f"rows {name}", prepare_rows, growing, check_rows, every, fates)
    sys.stdout.write(json.dumps(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
