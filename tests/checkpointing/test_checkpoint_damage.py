"""Flipped bits and truncated, missing or swapped files never load wrong values; the newest intact checkpoint loads."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checkpoint_cases import assert_same, folder_of, forge_manifest, parts_of, refusal, saved_run

from rl_training.checkpointing.manager import CheckpointManager, DamagedCheckpointError

STEPS = (100, 200, 300)


class Run:
    """A run with three checkpoints, and what a load says and gives."""

    def __init__(self, run_dir: Path) -> None:
        saved_run(run_dir, STEPS)
        self.path = run_dir
        self.files = sorted(folder_of(run_dir, 300).iterdir())
        self.lines: list[str] = []

    def assert_falls_back_to(self, step: int, *damaged: int) -> None:
        self.lines.clear()
        loaded = CheckpointManager(self.path, report=self.lines.append).load_latest()
        assert loaded.step == step
        assert_same(loaded.parts, parts_of(step))
        assert loaded.metadata == {"score": float(step)}
        (line,) = self.lines
        assert "\n" not in line
        assert line.endswith(f"; using step {step} instead")
        assert [int(word) for word in re.findall(r"step (\d+) is damaged \(", line)] == list(damaged)

    def assert_whole(self) -> None:
        self.lines.clear()
        loaded = CheckpointManager(self.path, report=self.lines.append).load_latest()
        assert_same(loaded.parts, parts_of(300))
        assert self.lines == []


@pytest.fixture
def run(run_dir: Path) -> Run:
    return Run(run_dir)


def test_1000_flipped_bits(run: Run) -> None:
    rng = np.random.default_rng(0)
    for i in range(1000):
        path = run.files[i % len(run.files)]  # each file equally often, however small
        data = bytearray(path.read_bytes())
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        original = path.read_bytes()
        path.write_bytes(data)
        run.assert_falls_back_to(200, 300)
        path.write_bytes(original)
    run.assert_whole()


def test_100_truncations(run: Run) -> None:
    rng = np.random.default_rng(1)
    for i in range(100):
        path = run.files[i % len(run.files)]
        original = path.read_bytes()
        os.truncate(path, int(rng.integers(len(original))) if i >= 4 else len(original) - 1)
        run.assert_falls_back_to(200, 300)
        path.write_bytes(original)
    run.assert_whole()


def test_50_deleted_blobs(run: Run) -> None:
    rng = np.random.default_rng(2)
    aside = run.path / "aside"
    for i in range(50):
        victims = run.files if i == 0 else rng.choice(np.array(run.files), size=1 + i % 2, replace=False)
        shutil.copytree(folder_of(run.path, 300), aside)
        for path in victims:
            path.unlink()
        run.assert_falls_back_to(200, 300)
        shutil.rmtree(folder_of(run.path, 300))
        aside.rename(folder_of(run.path, 300))
    run.assert_whole()


def swap(first: Path, second: Path) -> None:
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def test_50_swapped_blobs(run: Run) -> None:
    rng = np.random.default_rng(3)
    for i in range(50):
        first = run.files[i % len(run.files)]
        if i % 2:
            second, damaged = folder_of(run.path, 200) / first.name, [300, 200]
        else:
            others = [path for path in run.files if path != first]
            second, damaged = others[rng.integers(len(others))], [300]
        swap(first, second)
        run.assert_falls_back_to(100 if len(damaged) == 2 else 200, *damaged)
        swap(first, second)
    run.assert_whole()


def test_swapped_folders_are_recognised(run: Run) -> None:
    swap(folder_of(run.path, 300), folder_of(run.path, 200))
    run.assert_falls_back_to(100, 300, 200)
    assert "manifest.json is that of step 200" in run.lines[0]


def test_bytes_added_at_the_end(run: Run) -> None:
    for path in run.files:
        original = path.read_bytes()
        path.write_bytes(original + b"\n")
        run.assert_falls_back_to(200, 300)
        path.write_bytes(original)


def test_an_empty_or_missing_folder(run: Run) -> None:
    shutil.rmtree(folder_of(run.path, 300))
    run.assert_falls_back_to(200)
    assert "'latest' is missing or names no checkpoint" in run.lines[0]
    folder_of(run.path, 300).mkdir()
    run.assert_falls_back_to(200, 300)
    assert "manifest.json is missing" in run.lines[0]


@pytest.mark.parametrize("text", [b"", b"\xff\x00", b"step_3", b"step_000000000999\n", b"step_00000000030O\n"])
def test_a_damaged_pointer_leads_to_the_newest(run: Run, text: bytes) -> None:
    (run.path / "checkpoints" / "latest").write_bytes(text)
    run.assert_falls_back_to(300)


def test_a_damaged_best_or_step_is_not_replaced_behind_the_users_back(run: Run) -> None:
    manager = CheckpointManager(run.path)
    manager.mark_best(300)
    run.files[-1].write_bytes(b"")
    for which in ("best", 300):
        with pytest.raises(
            DamagedCheckpointError, match=r"step 300 is damaged .*there are latest, best, 100, 200, 300"
        ):
            manager.load(which)
    assert manager.load(200).step == 200


def test_damage_outside_the_wanted_part_does_not_matter(run: Run) -> None:
    (folder_of(run.path, 300) / "optimizer.safetensors").write_bytes(b"")
    lines: list[str] = []
    loaded = CheckpointManager(run.path, report=lines.append).load_latest(parts={"policy"})
    assert (loaded.step, lines) == (300, [])
    (folder_of(run.path, 300) / "policy.safetensors").write_bytes(b"")
    assert CheckpointManager(run.path, report=lines.append).load_latest(parts={"policy"}).step == 200


def test_if_none_loads_all_are_named(run: Run) -> None:
    for step in STEPS:
        (folder_of(run.path, step) / "state.json").unlink()
    message = refusal(CheckpointManager(run.path).load_latest)
    positions = [message.index(f"step {step} is damaged (state.json is missing)") for step in (300, 200, 100)]
    assert positions == sorted(positions)


def test_a_run_goes_on_after_a_fallback(run: Run) -> None:
    run.files[-1].unlink()
    manager = CheckpointManager(run.path, report=run.lines.append)
    step = manager.load_latest().step
    manager.rewind(step)
    assert manager.steps() == [100, 200]
    manager.save(parts_of(300), step=300, metadata={"score": 300.0})
    run.assert_whole()


def test_the_line_goes_to_stderr_by_default(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run.files[0].unlink()
    CheckpointManager(run.path).load_latest()
    captured = capsys.readouterr()
    assert captured.out == ""
    damage = "step 300 is damaged (manifest.json is missing); using step 200 instead"
    assert captured.err == f"checkpoints in {run.path}/checkpoints: {damage}\n"


def drop(key: str) -> Callable[[dict[str, object]], None]:
    return lambda manifest: manifest.__delitem__(key)


@pytest.mark.parametrize("key", ["format", "step", "metadata", "files", "parts"])
def test_a_manifest_without_a_field(run: Run, key: str) -> None:
    forge_manifest(folder_of(run.path, 300), drop(key))
    run.assert_falls_back_to(200, 300)
