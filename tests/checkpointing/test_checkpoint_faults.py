"""A kill or a disk error at any operation of a save leaves the old checkpoint or the new one, complete."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checkpoint_cases import assert_same, folder_of, names_in, parts_of, refusal, saved_run

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.system.atomic_io import FAULT_VARIABLE, TEMPORARY, fault_hook
from rl_training.types import CheckpointError

HERE = Path(__file__).parent


def recorded(action: object, root: Path) -> list[tuple[str, str]]:
    """The operations on the disk, with paths relative to the checkpoints folder and temporary names as `*`."""
    seen: list[tuple[str, str]] = []

    def hook(operation: str, path: Path) -> None:
        relative = path.relative_to(root / "checkpoints")
        seen.append((operation, "/".join("*" if TEMPORARY.fullmatch(part) else part for part in relative.parts)))

    with fault_hook(hook):
        action()  # type: ignore[operator]
    return seen


def test_killed_at_every_point(run_dir: Path) -> None:
    result = subprocess.run(
        [sys.executable, HERE / "kill_points.py", run_dir],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    # folder 1, state 3, policy 5, optimizer 4, manifest 3, sync and rename 3, latest 5; best 5; retiring n: 2n + 1
    assert json.loads(result.stdout) == {
        "the first": 24,
        "the next": 24 + 3,
        "a best that retires two": 24 + 5 + 5,
        "the same step again": 24 + 1 + 3,
        "the only step again": 24 + 1 + 3,
        "rewind": 5 + 3,
    }


@pytest.mark.parametrize("point", [3, 19, 23])
def test_killed_through_the_environment_variable(run_dir: Path, point: int) -> None:
    saved_run(run_dir, (10,))
    program = (
        "import sys; from checkpoint_cases import parts_of; from rl_training.checkpointing import CheckpointManager;"
        "CheckpointManager(sys.argv[1]).save(parts_of(20), step=20)"
    )
    environment = {**os.environ, FAULT_VARIABLE: str(point), "PYTHONPATH": str(HERE)}
    result = subprocess.run([sys.executable, "-c", program, run_dir], env=environment, check=False)
    assert result.returncode == -9
    loaded = CheckpointManager(run_dir).load_latest()
    assert_same(loaded.parts, parts_of(loaded.step))


def test_a_save_asks_the_disk_in_the_order_that_survives_a_power_cut(run_dir: Path) -> None:
    manager = saved_run(run_dir, (0, 10, 20))
    seen = recorded(lambda: manager.save(parts_of(30), step=30, best=True), run_dir)
    published = seen.index(("rename", "step_000000000030"))
    for name in ("state.json", "policy.safetensors", "optimizer.safetensors", "manifest.json"):
        writes = [i for i, (operation, path) in enumerate(seen) if operation == "write" and path == f"*/{name}"]
        assert writes[-1] < seen.index(("fsync", f"*/{name}")) < seen.index(("fsync", "*")) < published
    assert seen[published + 1] == ("fsync", "")
    assert [path for operation, path in seen if operation == "rename"] == ["step_000000000030", "best", "latest", "*"]
    retired = seen.index(("rename", "*"))
    assert seen[retired - 1][0] == "fsync"
    assert seen[retired + 1][0] == "fsync"
    assert seen[retired + 2 :] == [("remove", "*")]


def test_every_announced_sync_is_a_sync_of_that_file(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def recording_fsync(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        fsync(fd)

    announced: list[int] = []
    monkeypatch.setattr(os, "fsync", recording_fsync)
    manager = CheckpointManager(run_dir, keep_last=2)
    with fault_hook(lambda operation, path: announced.append(path.stat().st_ino) if operation == "fsync" else None):
        for step in (0, 10, 20):
            manager.save(parts_of(step), step=step)
    assert synced == announced
    assert len(synced) == 1 + 3 * 8 + 1  # the new folder; 4 files, 2 folders, `latest` and its folder; one retired


def test_nothing_is_written_when_there_is_nothing_to_rewind(run_dir: Path) -> None:
    manager = saved_run(run_dir, (0, 10))
    assert recorded(lambda: manager.rewind(10), run_dir) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("step", [40, 30])
def test_the_disk_refuses_at_every_point(run_dir: Path, code: int, step: int) -> None:
    """Step 40 is new and retires an old one; step 30 is there already and is replaced."""
    new = parts_of(99)
    point, finished = 0, False
    while not finished:
        point += 1
        root = run_dir / str(point)
        lines: list[str] = []
        manager = saved_run(root, (10, 20, 30), report=lines.append)
        calls: list[str] = []

        def refuse(operation: str, path: Path, calls: list[str] = calls, point: int = point) -> None:
            calls.append(operation)
            if len(calls) == point:
                raise OSError(code, os.strerror(code))

        message = ""
        with fault_hook(refuse):
            try:
                manager.save(new, step=step, best=True)
            except CheckpointError as error:
                message = str(error)
        finished = len(calls) < point
        if message:
            assert f"cannot save the checkpoint of step {step}" in message
            assert os.strerror(code) in message
            assert ("Free disk space" in message) == (code == errno.ENOSPC)
            assert "is intact" in message
            assert not [name for name in names_in(root) if TEMPORARY.fullmatch(name)]
        elif not finished:
            (line,) = lines
            assert f"checkpoint of step {step} saved, but old ones" in line
        loaded = CheckpointManager(root, report=lines.append).load_latest()
        env_steps = loaded.parts["progress"]["env_steps"]
        assert (loaded.step, env_steps) in ({(30, 30), (step, 99)} if message else {(step, 99)})
        assert_same(loaded.parts, parts_of(env_steps))
        manager.save(new, step=step)
        assert_same(manager.load_latest().parts, new)
        assert names_in(root) - {"latest", "best"} == {folder_of(root, s).name for s in manager.steps()}
    assert point > 30


def test_a_full_file_system(tmp_path: Path) -> None:
    """On a real tmpfs of one megabyte in a mount namespace of its own; where that is not allowed, by a file limit."""
    size = 2**20
    command = (
        f"mount -t tmpfs -o size={size} tmpfs '{tmp_path}' && exec '{sys.executable}' full_disk.py '{tmp_path}' {size}"
    )
    flags = "-m" if os.geteuid() == 0 else "-rm"
    attempt = f"unshare {flags} mount -t tmpfs tmpfs '{tmp_path}'"
    allowed = subprocess.run(["sh", "-c", attempt], capture_output=True, check=False).returncode == 0
    if allowed:
        program = ["unshare", flags, "sh", "-c", command]
    else:
        program = [sys.executable, "full_disk.py", str(tmp_path), str(size), "limit"]
    result = subprocess.run(program, capture_output=True, text=True, check=False, cwd=HERE)
    assert result.returncode == 0, result.stderr
    assert "cannot save the checkpoint of step 2" in result.stdout
    assert bool(list(tmp_path.iterdir())) is not allowed


def test_a_file_size_limit(tmp_path: Path) -> None:
    program = [sys.executable, "full_disk.py", str(tmp_path), str(2**20), "limit"]
    result = subprocess.run(program, capture_output=True, text=True, check=False, cwd=HERE)
    assert result.returncode == 0, result.stderr


def test_a_file_in_the_way(run_dir: Path) -> None:
    (run_dir / "checkpoints").write_text("not a folder")
    manager = CheckpointManager(run_dir)
    assert manager.steps() == []
    assert "cannot save the checkpoint of step 0" in refusal(lambda: manager.save({}, step=0))
    assert (run_dir / "checkpoints").read_text() == "not a folder"


def test_a_folder_that_may_not_be_written(run_dir: Path) -> None:
    """As an ordinary user, in another process: root may write anywhere."""
    saved_run(run_dir, (0,))
    for path in (run_dir, run_dir / "checkpoints", folder_of(run_dir, 0)):
        path.chmod(0o555)
    program = """
import os, sys
from checkpoint_cases import refusal
from rl_training.checkpointing.manager import CheckpointManager
if os.geteuid() == 0:
    os.setuid(65534)
manager = CheckpointManager(sys.argv[1])
print(refusal(lambda: manager.save({}, step=1)))
print(refusal(lambda: manager.mark_best(0)))
"""
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    result = subprocess.run(
        [sys.executable, "-c", program, run_dir], capture_output=True, text=True, check=False, env=environment
    )
    for path in (run_dir, run_dir / "checkpoints", folder_of(run_dir, 0)):
        path.chmod(0o755)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("Permission denied") == 2
    assert result.stdout.count("Make the folder yours") == 2
    assert_same(CheckpointManager(run_dir).load_latest().parts, parts_of(0))


def test_a_state_that_changes_during_the_save_is_noticed(run_dir: Path) -> None:
    manager = saved_run(run_dir, (0,))
    moving = np.zeros(1000)

    def change(operation: str, path: Path) -> None:
        if operation == "write" and path.name == "p.safetensors":
            moving[:] += 1

    with fault_hook(change):
        message = refusal(lambda: manager.save({"p": {"a": moving}}, step=1))
    assert "read back differs from what was written (p.safetensors: checksum differs)" in message
    assert "step 0 is intact" in message
    assert names_in(run_dir) == {"latest", "step_000000000000"}


def test_an_interrupt_leaves_nothing_behind(run_dir: Path) -> None:
    manager = saved_run(run_dir, (0, 10))

    def interrupt(operation: str, path: Path) -> None:
        if (operation, path.name) == ("rename", "step_000000000010"):
            raise KeyboardInterrupt

    with fault_hook(interrupt), pytest.raises(KeyboardInterrupt):
        manager.save(parts_of(99), step=10)
    assert names_in(run_dir) == {"latest", "step_000000000000", "step_000000000010"}
    assert_same(manager.load_latest().parts, parts_of(10))


def power_points(folder: Path, every: int, fates: list[str]) -> dict[str, int]:
    result = subprocess.run(
        [sys.executable, HERE / "power_points.py", folder, str(every), *fates],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    counts: dict[str, int] = json.loads(result.stdout)
    return counts


FATES = ["all lost", "names kept", "contents kept"]


def test_the_power_goes_at_a_sample_of_points(run_dir: Path) -> None:
    """Everything since the last fsync is lost, or any part of it."""
    counts = power_points(run_dir / "power", 7, [*FATES, "chance 1"])
    assert sum(counts.values()) > 100


@pytest.mark.slow
def test_the_power_goes_at_every_point(run_dir: Path) -> None:
    counts = power_points(run_dir / "power", 1, [*FATES, *(f"chance {seed}" for seed in range(8))])
    print(f"{sum(counts.values())} images")
    assert sum(counts.values()) > 3000
