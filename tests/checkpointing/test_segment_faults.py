"""Segments under faults: any file damaged, any operation killed or refused; no row is lost and none is wrong."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checkpoint_cases import folder_of, refusal
from segment_cases import Ring, expected, needed_files, saved_ring, segment_files

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.system.atomic_io import fault_hook
from rl_training.types import CheckpointError

HERE = Path(__file__).parent
STEPS = (150, 320, 440)


def flip_a_bit(path: Path, rng: np.random.Generator) -> None:
    data = bytearray(path.read_bytes())
    data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    path.write_bytes(data)


def cut(path: Path, rng: np.random.Generator) -> None:
    os.truncate(path, int(rng.integers(path.stat().st_size)))


def lose(path: Path, rng: np.random.Generator) -> None:
    path.unlink()


def swap(path: Path, rng: np.random.Generator) -> None:
    """The bytes of another segment, of the same length if there is one."""
    others = sorted(other for other in path.parent.iterdir() if other.name[:30] != path.name[:30])
    shutil.copy(others[int(rng.integers(len(others)))], path)


DAMAGES = {"flip": flip_a_bit, "cut": cut, "lose": lose, "swap": swap}


@pytest.fixture
def damaged_copies(run_dir: Path) -> tuple[Path, list[str]]:
    saved_ring(run_dir, STEPS)
    return run_dir, sorted(needed_files(run_dir, [440]))


@pytest.mark.parametrize("kind", DAMAGES)
def test_one_damaged_copy_of_any_segment_costs_nothing(damaged_copies: tuple[Path, list[str]], kind: str) -> None:
    run_dir, names = damaged_copies
    rng = np.random.default_rng(len(kind))
    folder = run_dir / "checkpoints" / "segments"
    for name in names:
        original = (folder / name).read_bytes()
        DAMAGES[kind](folder / name, rng)
        lines: list[str] = []
        manager = CheckpointManager(run_dir, report=lines.append)
        loaded = manager.load_latest()
        assert loaded.step == 440
        Ring.of(loaded.parts).assert_same(expected(440))
        (line,) = lines
        assert "a segment is damaged (" in line
        assert name in line
        assert line.endswith("using its other copy")
        (folder / name).write_bytes(original)


def test_every_copy_of_half_of_the_segments(damaged_copies: tuple[Path, list[str]]) -> None:
    run_dir, names = damaged_copies
    folder = run_dir / "checkpoints" / "segments"
    for number, name in enumerate(names):
        if name.endswith(".a.safetensors") == (number % 4 < 2):
            (folder / name).write_bytes(b"")
    loaded = CheckpointManager(run_dir, report=lambda line: None).load_latest()
    Ring.of(loaded.parts).assert_same(expected(440))


def test_the_next_save_writes_damaged_segments_again(damaged_copies: tuple[Path, list[str]]) -> None:
    run_dir, names = damaged_copies
    folder = run_dir / "checkpoints" / "segments"
    for name in names[::4]:
        (folder / name).write_bytes(b"damaged")
    manager = CheckpointManager(run_dir, keep_last=2, report=lambda line: None)
    ring = Ring.of(manager.load_latest().parts)
    for rows in (5, 6):
        manager.save(ring.add(rows).parts(), step=ring.written)
    lines: list[str] = []
    again = CheckpointManager(run_dir, report=lines.append)
    for step in again.steps():
        Ring.of(again.load(step).parts).assert_same(expected(step))
    assert lines == []


def test_both_copies_damaged_falls_back_to_a_checkpoint_that_does_not_need_them(run_dir: Path) -> None:
    saved_ring(run_dir, STEPS)
    newest = needed_files(run_dir, [440]) - needed_files(run_dir, [320])
    first, *_ = sorted(newest)
    for copy in (first, first.replace(".a.", ".b.")):
        (run_dir / "checkpoints" / "segments" / copy).write_bytes(b"gone")
    lines: list[str] = []
    manager = CheckpointManager(run_dir, keep_last=2, report=lines.append)
    loaded = manager.load_latest()
    assert loaded.step == 320
    assert "step 440 is damaged (both copies of a segment are damaged: " in lines[-1]
    assert "using step 320 instead" in lines[-1]
    assert "both copies" in refusal(lambda: manager.load(440))
    ring = Ring.of(loaded.parts)
    manager.rewind(320)
    for rows in (120, 10, 10):
        manager.save(ring.add(rows).parts(), step=ring.written)
    Ring.of(CheckpointManager(run_dir).load_latest().parts).assert_same(expected(460))
    assert segment_files(run_dir) == needed_files(run_dir, [450, 460])


def test_damaged_checkpoints_do_not_count_as_kept(run_dir: Path) -> None:
    saved_ring(run_dir, STEPS)
    for name in needed_files(run_dir, [440]) - needed_files(run_dir, [320]):
        (run_dir / "checkpoints" / "segments" / name).unlink()
    resumed = CheckpointManager(run_dir, keep_last=2)
    resumed.save(Ring(life=1).add(500).parts(), step=500)
    assert resumed.steps() == [320, 440, 500]  # 500 and 320 are the two that load


def test_damage_between_loading_and_reading_is_noticed(run_dir: Path) -> None:
    manager, _ = saved_ring(run_dir, (100,))
    rows = manager.load_latest().parts["buffer"]["rows"]
    for name in segment_files(run_dir):
        (run_dir / "checkpoints" / "segments" / name).write_bytes(b"")
    with pytest.raises(CheckpointError, match="both copies of a segment are damaged"):
        rows.arrays()


def test_killed_at_every_point(run_dir: Path) -> None:
    result = subprocess.run(
        [sys.executable, HERE / "segment_kill_points.py", run_dir],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    points = json.loads(result.stdout)
    # a save without arrays takes 15: folder 1, state 3, manifest 3, sync and rename 3, latest 5. A segment is written
    # twice: create, two columns and a header written, sync, rename
    copy = 1 + 3 + 1 + 1
    assert points["the first rows"] == 2 + 2 * copy + 1 + 15
    assert points["rows that are new"] == 2 * copy + 1 + 15 + 3
    assert points["a small last segment again"] == 2 * copy + 1 + 15 + 5 + 3
    # ten rows in front of the end of the ring, twenty behind it
    assert points["over the end of the ring"] == 4 * copy + 1 + 15 + 3
    # eight segments of fifty rows each take the place of eight others
    assert points["retiring all rows"] == 16 * copy + 1 + 15 + 3 + 16
    assert points["rewind"] == 5 + 3 + 4


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_the_disk_refuses_at_every_point(run_dir: Path, code: int) -> None:
    point, finished = 0, False
    while not finished:
        point += 1
        root = run_dir / str(point)
        lines: list[str] = []
        manager, ring = saved_ring(root, (150, 320), keep_last=2, report=lines.append)
        ring.add(280)
        calls: list[str] = []

        def refuse(operation: str, path: Path, calls: list[str] = calls, point: int = point) -> None:
            calls.append(operation)
            if len(calls) == point:
                raise OSError(code, os.strerror(code))

        message = ""
        with fault_hook(refuse):
            try:
                manager.save(ring.parts(), step=600)
            except CheckpointError as error:
                message = str(error)
        finished = len(calls) < point
        if message:
            assert "cannot save the checkpoint of step 600" in message
            assert os.strerror(code) in message
        elif not finished:
            assert "checkpoint of step 600 saved, but old ones" in lines[0]
        loaded = CheckpointManager(root, report=lines.append).load_latest()
        assert loaded.step in ({320, 600} if message else {600})
        Ring.of(loaded.parts).assert_same(expected(loaded.step))
        if message and 600 not in manager.steps():
            assert segment_files(root) == needed_files(root, manager.steps())
        manager.save(ring.parts(), step=600)
        Ring.of(CheckpointManager(root).load_latest().parts).assert_same(expected(600))
        assert segment_files(root) == needed_files(root, manager.steps())
    assert point > 50


def test_rows_that_change_during_the_save_are_noticed(run_dir: Path) -> None:
    manager, ring = saved_ring(run_dir, (100,))
    before = segment_files(run_dir)
    ring.add(50)

    def change(operation: str, path: Path) -> None:
        if operation == "rename" and path.name.startswith("rows_"):
            ring.columns["obs"][120] += 1

    with fault_hook(change):
        message = refusal(lambda: manager.save(ring.parts(), step=150))
    assert "read back differs from what was written" in message
    assert "step 100 is intact" in message
    assert segment_files(run_dir) == before
    assert folder_of(run_dir, 150).exists() is False
