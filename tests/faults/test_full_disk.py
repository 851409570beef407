"""A full disk at any write: exit code 1, a message that says what to do, the checkpoint before stands, exact resume."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_runs import CASES, ROLLOUT, Command, Reference, Shell, flags, info, latest_step, run_directories, the_run

FindReference = Callable[..., Reference]
Resize = Callable[[int], Path]
SHORT = {"training.total_timesteps": 5 * ROLLOUT, "checkpoint.keep_last": 2}
SAMPLE = [
    "create .. 1",
    "create logs/tensorboard 1",
    "write configs/* 2",
    "create * 2",
    "create checkpoints/* 1",
    "write checkpoints/*/policy.safetensors 20",
    "fsync checkpoints/*/env.safetensors 2",
    "write logs/metrics.jsonl 3",
    "write * 4",
]


CAUSES = {"No space left on device": "free", "File too large": "ulimit -f"}
"""What the system says, and a word of what to do about it."""


def assert_explained(command: Command, cause: str = "No space left on device") -> None:
    assert command.wait() == 1
    assert "Traceback" not in command.err()
    message = command.err().splitlines()[-1]
    assert message.startswith("error: cannot ")
    assert cause in message
    assert CAUSES[cause] in message.lower()


def check_full_from(shell: Shell, folder: Path, expected: Reference, point: str) -> bool:
    """The disk is full from `point` on until somebody makes room; False if the run never came to that point."""
    runs = folder / "runs"
    words = ["train", *flags(CASES["cartpole-sync"], SHORT, {"output_dir": runs})]
    command = shell.start(folder, words, fault=("full", point))
    code = command.wait()
    if code != 0:
        assert_explained(command)
        if not runs.exists():  # there was no room for the output directory itself
            return True
        folders = [path for path in runs.iterdir() if path.is_dir()]
        assert all((run / "run.json").is_file() for run in folders), "half a directory was left"
        for run in run_directories(runs):
            if latest_step(run) >= 0:
                expected.assert_on_the_way(run)
            expected.assert_finishes(shell, folder, run)
    shutil.rmtree(runs)
    return code != 0


@pytest.mark.parametrize("point", SAMPLE)
def test_full_from_one_operation_on(shell: Shell, folder: Path, reference: FindReference, point: str) -> None:
    assert check_full_from(shell, folder, reference("cartpole", SHORT), point)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_full_from_every_operation_on(shell: Shell, folder: Path, reference: FindReference) -> None:
    expected = reference("cartpole", SHORT)
    words = ["train", *flags(CASES["cartpole-sync"], SHORT, {"output_dir": folder / "recorded"})]
    shell.run(folder, words, fault=("record", str(folder / "operations")))
    points = (folder / "operations").read_text().splitlines()
    refused = [point for point in points if check_full_from(shell, folder, expected, point)]
    print(f"full from {len(refused)} of {len(points)} operations on")
    # what comes later needs no space, or is flushed by the clock
    assert all("logs/" in point or points.index(point) > len(points) - 3 for point in set(points) - set(refused))


# -- real limits ------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Resize | None]:
    """Mounts a file system of so many bytes, or gives the mounted one another size; None where that is not allowed."""
    place = folder / "disk"
    place.mkdir()

    def resize(size: int) -> Path:
        how = f"{'remount,' if place.is_mount() else ''}size={size}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", how, "tmpfs", place], capture_output=True, check=True)
        return place

    try:
        resize(2**20)
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    try:
        yield resize
    finally:
        subprocess.run(["umount", place], check=True)


def check_small_disk(shell: Shell, folder: Path, expected: Reference, resize: Resize | None, size: int) -> None:
    """Train on a disk of `size` bytes (with files of that size where none can be mounted), make room, and go on."""
    runs = folder / "runs" if resize is None else resize(size) / "runs"
    # the trace is there to be too large for a limit on single files
    words = flags(CASES["cartpole-sync"], {"output_dir": runs, "checkpoint.keep_last": 2, "logging.trace": True})
    command = shell.start(folder, ["train", *words], limit=size if resize is None else None)
    assert_explained(command, "File too large" if resize is None else "No space left on device")
    run = the_run(runs)
    if latest_step(run) >= 0:
        expected.assert_on_the_way(run)
    if resize is not None:
        resize(2**24)
    expected.assert_finishes(shell, folder, run)
    shutil.rmtree(runs)


def test_a_small_file_system(shell: Shell, folder: Path, reference: FindReference, small_disk: Resize | None) -> None:
    check_small_disk(shell, folder, reference("cartpole"), small_disk, size=500_000)


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", range(60, 600, 30))
def test_small_file_systems_of_many_sizes(
    shell: Shell, folder: Path, reference: FindReference, small_disk: Resize | None, kilobytes: int
) -> None:
    check_small_disk(shell, folder, reference("cartpole"), small_disk, size=kilobytes * 1000)


def test_a_limit_on_the_size_of_files(shell: Shell, folder: Path, reference: FindReference) -> None:
    """Large enough for the checkpoints, too small for the trace."""
    check_small_disk(shell, folder, reference("cartpole"), None, size=100_000)


def test_a_run_that_failed_says_so(shell: Shell, folder: Path) -> None:
    words = flags(CASES["cartpole-sync"], SHORT, {"output_dir": folder / "runs"})
    command = shell.start(folder, ["train", *words], limit=50_000)
    assert command.wait() == 1
    recorded = info(the_run(folder / "runs"))
    assert (recorded["status"], recorded["exit_code"]) == ("failed", 1)
