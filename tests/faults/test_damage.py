"""Flipped bits, cut, lost and swapped files in a real run's checkpoints: nothing wrong is used, the run ends equal.

`tests/checkpointing` does the same to the manager alone; here are the files of a training run and its resume.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL

import numpy as np
import pytest
from fault_runs import CASES, Reference, Shell, flags, part_hashes, the_run

from rl_training.checkpointing.manager import CheckpointManager

NEWEST, BEFORE = 768, 640
Damage = Callable[["Victim", np.random.Generator], None]


class Victim:
    """A run that was killed with checkpoints at 512, 640 and 768, and a way to get it back as it was."""

    def __init__(self, shell: Shell, folder: Path) -> None:
        words = flags(CASES["cartpole-sync"], {"output_dir": folder / "runs"})
        kill = ("kill", "rename checkpoints/step_000000000896 1")
        assert shell.start(folder, ["train", *words], fault=kill).wait() == 128 + SIGKILL
        self.run = the_run(folder / "runs")
        self.sound = folder / "sound"
        shutil.copytree(self.run, self.sound)
        self.checkpoint = self.run / "checkpoints" / f"step_{NEWEST:012d}"
        self.files = sorted(self.checkpoint.iterdir())
        assert CheckpointManager(self.run).steps()[-3:] == [512, BEFORE, NEWEST]

    def any_file(self, rng: np.random.Generator) -> Path:
        """Each equally often, however small."""
        return self.files[rng.integers(len(self.files))]

    def heal(self) -> None:
        shutil.rmtree(self.run)
        shutil.copytree(self.sound, self.run)


def flip_a_bit(victim: Victim, rng: np.random.Generator) -> None:
    path = victim.any_file(rng)
    data = bytearray(path.read_bytes())
    data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    path.write_bytes(data)


def truncate(victim: Victim, rng: np.random.Generator) -> None:
    path = victim.any_file(rng)
    os.truncate(path, int(rng.integers(path.stat().st_size)))


def delete(victim: Victim, rng: np.random.Generator) -> None:
    victim.any_file(rng).unlink()


def swap(victim: Victim, rng: np.random.Generator) -> None:
    """Two files of the checkpoint, or one with its namesake of the checkpoint at 512."""
    first = victim.any_file(rng)
    others = [path for path in victim.files if path != first]
    namesake = victim.run / "checkpoints" / "step_000000000512" / first.name
    second = others[rng.integers(len(others))] if rng.integers(2) else namesake
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def check_fallbacks(victim: Victim, expected: Reference, damage: Damage, count: int, seed: int) -> None:
    """Damaged `count` times: always found out, named in one line, and the checkpoint before it loads bit for bit."""
    rng = np.random.default_rng(seed)
    fallbacks = 0
    for _ in range(count):
        damage(victim, rng)
        lines: list[str] = []
        loaded = CheckpointManager(victim.run, report=lines.append).load_latest()
        assert loaded.step == BEFORE
        assert part_hashes(loaded) == expected.states[BEFORE]
        (line,) = lines
        assert re.search(rf"step {NEWEST} is damaged \(.+; using step {BEFORE} instead", line)
        fallbacks += 1
        shutil.rmtree(victim.run / "checkpoints")
        shutil.copytree(victim.sound / "checkpoints", victim.run / "checkpoints")
    assert fallbacks == count
    assert part_hashes(CheckpointManager(victim.run).load_latest()) == expected.states[NEWEST]


def check_finishes(shell: Shell, folder: Path, expected: Reference, victim: Victim, line_from: int = BEFORE) -> None:
    """Resumed, a damaged run says what it does and ends as the reference."""
    command = shell.start(folder, ["resume", str(victim.run)])
    assert command.wait() == 0, command.err()
    assert f"step {NEWEST} is damaged" in command.err()
    assert f"using step {line_from} instead" in command.err()
    assert f"using step {line_from} instead" in (victim.run / "logs" / "train.log").read_text()
    expected.assert_equal(victim.run)


@pytest.fixture
def victim(shell: Shell, folder: Path) -> Victim:
    return Victim(shell, folder)


@pytest.fixture
def expected(reference: Callable[..., Reference]) -> Reference:
    return reference("cartpole")


def test_a_sample_of_every_damage(shell: Shell, folder: Path, expected: Reference, victim: Victim) -> None:
    for seed, (damage, count) in enumerate([(flip_a_bit, 60), (truncate, 10), (delete, 10), (swap, 10)]):
        check_fallbacks(victim, expected, damage, count, seed)
    flip_a_bit(victim, np.random.default_rng(10))
    check_finishes(shell, folder, expected, victim)
    victim.heal()
    swap(victim, np.random.default_rng(0))
    check_finishes(shell, folder, expected, victim)


def test_the_two_newest_damaged(shell: Shell, folder: Path, expected: Reference, victim: Victim) -> None:
    """The third is used, and at the end two sound ones are there again."""
    delete(victim, np.random.default_rng(0))
    (victim.run / "checkpoints" / f"step_{BEFORE:012d}" / "manifest.json").write_bytes(b"{}")
    check_finishes(shell, folder, expected, victim, line_from=512)
    manager = CheckpointManager(victim.run)
    assert [part_hashes(manager.load(step)) == expected.states[step] for step in manager.steps()[-2:]] == [True, True]


def test_none_left(shell: Shell, folder: Path, victim: Victim) -> None:
    """Every one is named with its damage; the run is not started over behind the user's back."""
    for path in victim.run.glob("checkpoints/step_*/state.json"):
        path.unlink()
    before = sorted(path for path in victim.run.rglob("*") if path.name != "train.log")
    command = shell.start(folder, ["resume", str(victim.run)])
    assert command.wait() == 1
    for step in (512, BEFORE, NEWEST):
        assert f"step {step} is damaged (state.json is missing)" in command.err()
    assert "Traceback" not in command.err()
    assert sorted(path for path in victim.run.rglob("*") if path.name != "train.log") == before


# -- all of it --------------------------------------------------------------------------------------------------------

ALL = {"flips": (flip_a_bit, 1000), "truncations": (truncate, 100), "deletions": (delete, 50), "swaps": (swap, 50)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ALL)
def test_all_damage_is_found_and_ten_of_each_finished(
    shell: Shell, folder: Path, expected: Reference, victim: Victim, kind: str
) -> None:
    """1,000 flipped bits, 100 truncations, 50 deleted and 50 swapped files; 10 of each resumed to the end."""
    damage, count = ALL[kind]
    check_fallbacks(victim, expected, damage, count, seed=100)
    rng = np.random.default_rng(200)
    for _ in range(10):
        damage(victim, rng)
        check_finishes(shell, folder, expected, victim)
        victim.heal()
