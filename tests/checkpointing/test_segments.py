"""Row logs: a checkpoint writes new rows, reuses existing segments, and restores every row bit for bit."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_cases import folder_of, forge_manifest, names_in, refusal
from segment_cases import CAPACITY, Ring, expected, needed_files, saved_ring, segment_files

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.checkpointing.row_log import LogIdentity, RowLog
from rl_training.data import PrioritizedReplayBuffer, ReplayBuffer
from rl_training.system.atomic_io import fault_hook
from rl_training.types import CheckpointError

QUIET: Callable[[str], None] = lambda line: None  # noqa: E731


def bytes_written(action: Callable[[], object], under: str = "") -> int:
    """Bytes that an action puts on the disk, in files whose path contains `under`."""
    total = 0
    sizes: dict[Path, int] = {}

    def hook(operation: str, path: Path) -> None:
        if operation == "fsync" and path.is_file() and under in str(path):
            sizes[path] = path.stat().st_size

    with fault_hook(hook):
        action()
    total += sum(sizes.values())
    return total


def entry(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest["parts"]["buffer"]["rows"]["rows"]  # type: ignore[no-any-return]


# -- what is written --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [7, 50, 130, 399, 400, 401, 1000])
def test_rows_come_back_through_many_rounds_of_the_ring(run_dir: Path, step: int) -> None:
    manager, ring = saved_ring(run_dir, tuple(range(0, 8 * step, step)))
    loaded = CheckpointManager(run_dir).load_latest()
    Ring.of(loaded.parts).assert_same(ring)
    rows = loaded.parts["buffer"]["rows"].arrays()
    assert rows["row"].tolist() == list(range(ring.start, ring.written))
    Ring.of(manager.load(manager.steps()[0]).parts).assert_same(expected(manager.steps()[0]))
    assert segment_files(run_dir) == needed_files(run_dir, manager.steps())


def test_an_empty_log_needs_no_file(run_dir: Path) -> None:
    manager, _ = saved_ring(run_dir, (0,))
    assert names_in(run_dir) == {"latest", "step_000000000000"}
    loaded = manager.load_latest().parts["buffer"]["rows"]
    assert (loaded.start, loaded.stop, loaded.arrays()) == (0, 0, {})
    assert Ring.of(manager.load_latest().parts).written == 0


def test_only_what_is_new_is_written_and_old_files_are_not_touched(run_dir: Path) -> None:
    manager, ring = saved_ring(run_dir, (300,))
    folder = run_dir / "checkpoints" / "segments"
    before = {name: (folder / name).stat() for name in segment_files(run_dir)}
    row = 3 * 4 + 8
    ring.add(10)
    written = bytes_written(lambda: manager.save(ring.parts(), step=310), "segments")
    assert 2 * 10 * row < written < 2 * 10 * row + 2 * 300  # two copies, each with its header
    for name, status in before.items():
        again = (folder / name).stat()
        assert (again.st_ino, again.st_mtime_ns) == (status.st_ino, status.st_mtime_ns)
    assert bytes_written(lambda: manager.save(ring.parts(), step=311), "segments") == 0


def test_many_small_saves_make_few_segments(run_dir: Path) -> None:
    capacity = 1024
    manager, ring = CheckpointManager(run_dir, keep_last=2), Ring(capacity)
    for _ in range(300):
        ring.add(5)
        manager.save(ring.parts(), step=ring.written)
        manifest = json.loads((folder_of(run_dir, ring.written) / "manifest.json").read_bytes())
        segments = [line.split() for line in entry(manifest)["segments"]]
        assert len(segments) <= 128 + 8
        assert sum(int(stop) - int(start) for start, stop, *_ in segments) <= capacity + capacity // 8
    Ring.of(CheckpointManager(run_dir).load_latest().parts, capacity=capacity).assert_same(ring)


def test_one_percent_of_a_replay_buffer_costs_little(run_dir: Path) -> None:
    """100,000 transitions of 17 and 6 numbers, 1% new, an old and a full ring: at most 5% of the bytes of a dump."""
    buffer = ReplayBuffer(100_000, (17,), (6,), rng=np.random.default_rng(0))
    rng = np.random.default_rng(1)

    def fill(count: int) -> None:
        obs, action = rng.random((count, 17)), rng.random((count, 6))
        buffer.add(obs, action, rng.random(count), obs, np.zeros(count))

    manager = CheckpointManager(run_dir)
    fill(100_000)
    full = bytes_written(lambda: manager.save({"buffer": buffer.state_dict()}, step=0))
    assert full > buffer.memory_bytes
    for step in range(1, 12):
        fill(1000)
        new = bytes_written(lambda step=step: manager.save({"buffer": buffer.state_dict()}, step=step))  # type: ignore[misc]
        assert new <= 0.05 * buffer.memory_bytes
    assert segment_files(run_dir) != set()


# -- going on ---------------------------------------------------------------------------------------------------------


def test_a_resumed_log_leans_on_what_is_there(run_dir: Path) -> None:
    saved_ring(run_dir, (100, 200))
    manager = CheckpointManager(run_dir)
    ring = Ring.of(manager.load_latest().parts)
    ring.add(250)
    written = bytes_written(lambda: manager.save(ring.parts(), step=450), "segments")
    assert written < 2 * 250 * 20 + 2000
    Ring.of(CheckpointManager(run_dir).load_latest().parts).assert_same(expected(450))


def test_rows_of_another_life_are_never_taken_for_ours(run_dir: Path) -> None:
    """After a rewind the rows after that point are written again and may differ; the old ones must not come back."""
    saved_ring(run_dir, (100, 200, 300))
    manager = CheckpointManager(run_dir)
    ring = Ring.of(manager.load(200).parts, life=1)
    manager.rewind(200)
    assert segment_files(run_dir) == needed_files(run_dir, [100, 200])
    ring.add(100)
    manager.save(ring.parts(), step=300)
    again = Ring.of(CheckpointManager(run_dir).load_latest().parts)
    again.assert_same(ring)
    assert again.columns["row"][199:202].tolist() == [199, 10**9 + 200, 10**9 + 201]


def test_two_logs_from_one_checkpoint_part_ways(run_dir: Path) -> None:
    saved_ring(run_dir, (100,))
    manager = CheckpointManager(run_dir)
    parts = manager.load_latest().parts
    first, second = Ring.of(parts, life=1), Ring.of(parts, life=2)
    third = Ring.of(first.parts(), life=3)  # a copy in memory
    for number, ring in enumerate((first, second, third)):
        ring.add(50)
        manager.save(ring.parts(), step=200 + number)
        Ring.of(manager.load_latest().parts).assert_same(ring)


def test_a_log_that_went_back_is_written_again(run_dir: Path) -> None:
    manager, ring = saved_ring(run_dir, (100, 200))
    ring.written = 150
    ring.life = 1
    ring.add(10)
    manager.save(ring.parts(), step=300)
    Ring.of(CheckpointManager(run_dir).load_latest().parts).assert_same(ring)


@pytest.mark.parametrize("kind", ["uniform", "prioritized", "n-step"])
def test_a_replay_buffer_resumed_from_the_disk_goes_on_bit_for_bit(run_dir: Path, kind: str) -> None:
    """Saved, killed and resumed again and again through three rounds of the ring, against one that never stopped."""

    def build() -> Any:
        keywords: dict[str, Any] = {"num_envs": 2, "rng": np.random.default_rng(7)}
        if kind == "prioritized":
            return PrioritizedReplayBuffer(101, {"a": (2,), "b": ()}, (), **keywords)
        n_step = {"n_step": 3, "gamma": 0.9} if kind == "n-step" else {}
        return ReplayBuffer(101, {"a": (2,), "b": ()}, (), **keywords, **n_step)

    rng, straight, resumed = np.random.default_rng(0), build(), build()
    manager = CheckpointManager(run_dir, keep_last=2)
    for step in range(25):
        for _ in range(7):
            obs = {"a": rng.random((2, 2)), "b": rng.random(2)}
            row = (obs, rng.random(2), rng.random(2), obs, rng.random(2) < 0.2, rng.random(2) < 0.2)
            straight.add(*row)
            resumed.add(*row)
        one, other = straight.sample(16), resumed.sample(16)
        assert one["obs"]["a"].tobytes() == other["obs"]["a"].tobytes()
        assert all(one[name].tobytes() == other[name].tobytes() for name in one if name not in ("obs", "next_obs"))
        if kind == "prioritized":
            priorities = rng.random(16)
            straight.update_priorities(one["indices"], priorities)
            resumed.update_priorities(one["indices"], priorities)
        manager.save({"buffer": resumed.state_dict()}, step=step)
        if step % 4 == 3:
            manager, resumed = CheckpointManager(run_dir, keep_last=2), build()
            resumed.load_state_dict(manager.load_latest().parts["buffer"])
            manager.rewind(step)
    assert straight._laps == 3


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_segments_live_as_long_as_a_checkpoint_names_them(run_dir: Path) -> None:
    manager, ring = saved_ring(run_dir, (100,), keep_last=2)
    manager.mark_best(100)
    old = segment_files(run_dir)
    for _ in range(10):
        ring.add(100)
        manager.save(ring.parts(), step=ring.written)
    assert old <= segment_files(run_dir)  # the best one needs them, though none of their rows is alive any more
    assert manager.steps() == [100, 1000, 1100]
    Ring.of(manager.load("best").parts).assert_same(expected(100))
    manager.mark_best(1100)
    ring.add(100)
    manager.save(ring.parts(), step=1200)
    assert not old & segment_files(run_dir)
    assert segment_files(run_dir) == needed_files(run_dir, [1100, 1200])


def test_segments_are_removed_after_the_manifest_is_in_place(run_dir: Path) -> None:
    manager, ring = saved_ring(run_dir, (400, 800), keep_last=2)
    ring.add(400)
    seen: list[tuple[str, str]] = []

    def hook(operation: str, path: Path) -> None:
        seen.append((operation, path.name if "segments" in path.parent.name else path.parent.name + "/" + path.name))

    with fault_hook(hook):
        manager.save(ring.parts(), step=1200)
    place = seen.index(("rename", "checkpoints/step_000000001200"))
    writes = [i for i, (operation, name) in enumerate(seen) if operation == "rename" and name.startswith("rows_")]
    removals = [i for i, (operation, name) in enumerate(seen) if operation == "remove" and name.startswith("rows_")]
    synced = seen.index(("fsync", "checkpoints/segments"))
    assert len(writes) == 16
    assert len(removals) == 16
    assert max(writes) < synced < place < min(removals)


def test_stale_segments_are_removed_by_the_next_writer_only(run_dir: Path) -> None:
    manager, ring = saved_ring(run_dir, (100,))
    folder = run_dir / "checkpoints" / "segments"
    name = sorted(segment_files(run_dir))[0]
    stale = name.replace("rows_000000000000", "rows_000000000003")
    (folder / stale).write_bytes(b"stale")
    (folder / ".tmp-0123456789abcdef").write_bytes(b"half")
    (folder / "notes.txt").write_text("mine")
    reader = CheckpointManager(run_dir)
    reader.load_latest()
    assert stale in segment_files(run_dir)
    reader.save(ring.add(1).parts(), step=101)
    assert segment_files(run_dir) == needed_files(run_dir, [100, 101]) | {"notes.txt"}
    Ring.of(manager.load(100).parts)


def test_a_checkpoint_of_a_newer_version_keeps_its_segments(run_dir: Path) -> None:
    saved_ring(run_dir, (100, 200), keep_last=2)
    forge_manifest(folder_of(run_dir, 100), lambda manifest: manifest.update(format=2))
    kept = segment_files(run_dir)
    other = CheckpointManager(run_dir, keep_last=9)
    other.save(Ring().add(5).parts(), step=300)
    assert kept <= segment_files(run_dir)


def test_the_policy_alone_needs_no_segment(run_dir: Path) -> None:
    manager = CheckpointManager(run_dir)
    manager.save({**Ring().add(50).parts(), "policy": {"w": np.ones(3)}}, step=1)
    shutil.rmtree(run_dir / "checkpoints" / "segments")
    assert manager.load_latest(parts={"policy"}).parts["policy"]["w"].tolist() == [1, 1, 1]
    assert "No such file or directory" in refusal(lambda: manager.load(1))


# -- what is refused --------------------------------------------------------------------------------------------------


def test_logs_that_cannot_be_are_refused() -> None:
    columns = {"a": np.zeros(4), "b": np.zeros(3)}
    with pytest.raises(CheckpointError, match="do not fit into rings"):
        RowLog(columns, 0, 2)
    with pytest.raises(CheckpointError, match="do not fit into rings"):
        RowLog({"a": np.zeros(4)}, 0, 5)


def test_columns_that_cannot_be_saved_are_refused_by_name(run_dir: Path) -> None:
    manager = CheckpointManager(run_dir)
    for column in (np.zeros((4, 3), order="F"), np.zeros(4, complex), np.zeros(4, ">f4")):
        state = {"rows": RowLog({"obs": column}, 0, 2)}
        assert "'rows/obs' has dtype" in refusal(lambda state=state: manager.save({"buffer": state}, step=0))  # type: ignore[misc]
    assert "is a RowLog" in refusal(lambda: manager.save({}, step=0, metadata={"x": RowLog({"a": np.zeros(2)}, 0, 1)}))


def test_rows_of_another_layout_are_refused(run_dir: Path) -> None:
    manager, _ = saved_ring(run_dir, (10,))
    rows = manager.load_latest().parts["buffer"]["rows"]
    with pytest.raises(CheckpointError, match=r"saved 'obs' has rows float32\[3\], this run needs float64\[3\]"):
        rows.copy_into({"obs": np.zeros((CAPACITY, 3)), "row": np.zeros(CAPACITY, np.int64)})
    with pytest.raises(CheckpointError, match="this run needs"):
        rows.copy_into({"obs": np.zeros((CAPACITY, 3), np.float32)})


@pytest.mark.parametrize(
    "forge",
    [
        lambda log: log.update(start=-1),
        lambda log: log.update(stop=10**30),
        lambda log: log.update(segments=[]),
        lambda log: log.update(segments=log["segments"][1:]),
        lambda log: log.update(segments=log["segments"][::-1]),
        lambda log: log.update(segments=["../../../etc/passwd"]),
        lambda log: log.update(segments=[5]),
        lambda log: log.update(segments=7),
        lambda log: log["segments"].append("320 320 0 " + "0" * 64),
        lambda log: log["segments"].append("320 330 100 " + "0" * 64),
        lambda log: log.update(segments=[log["segments"][0] + " 1", *log["segments"][1:]]),
        lambda log: log.update(stop=330, segments=[*log["segments"], "320 330 100 " + "0" * 64]),
        lambda log: log.pop("start"),
    ],
)
def test_a_forged_list_of_segments_is_damage(run_dir: Path, forge: Callable[[dict[str, Any]], object]) -> None:
    saved_ring(run_dir, (150, 320))
    forge_manifest(folder_of(run_dir, 320), lambda manifest: (forge(entry(manifest)), None)[1])
    loaded = CheckpointManager(run_dir, report=QUIET).load_latest()
    assert loaded.step == 150
    Ring.of(loaded.parts).assert_same(expected(150))


def test_a_link_in_the_place_of_the_folder_is_refused(run_dir: Path, tmp_path: Path) -> None:
    manager, ring = saved_ring(run_dir, (100,))
    folder = run_dir / "checkpoints" / "segments"
    shutil.move(folder, tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert "segments is a symbolic link" in refusal(lambda: CheckpointManager(run_dir).load_latest())
    assert "symbolic link" in refusal(lambda: manager.save(ring.add(1).parts(), step=101))
    assert len(os.listdir(tmp_path / "elsewhere")) == 2 * 2


def test_an_identity_that_is_given_up_is_forgotten(run_dir: Path) -> None:
    manager, ring = saved_ring(run_dir, (100,))
    assert len(manager.segments._known) == 1
    ring.identity = LogIdentity()
    assert len(manager.segments._known) == 0
