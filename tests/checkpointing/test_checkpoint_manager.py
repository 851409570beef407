"""Saving, loading, best, retention and rewinding, on intact disks."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from checkpoint_cases import assert_same, folder_of, forge_manifest, names_in, parts_of, refusal, saved_run
from hypothesis import HealthCheck, given, settings
from test_state_tree import STATES

from rl_training.checkpointing.manager import Checkpoint, CheckpointManager
from rl_training.types import CheckpointError, ConfigError
from rl_training.version import __version__


def test_a_checkpoint_at_step_0_and_what_is_on_the_disk(run_dir: Path) -> None:
    manager = CheckpointManager(run_dir)
    metadata = {"score": float("-inf"), "exact": True, "note": ["a", None, np.float64(0.5)]}
    path = manager.save(parts_of(0), step=0, metadata=metadata)
    assert path == folder_of(run_dir, 0)
    assert path.name == "step_000000000000"
    assert names_in(run_dir) == {"step_000000000000", "latest"}
    assert {p.name for p in path.iterdir()} == {
        "manifest.json",
        "state.json",
        "policy.safetensors",
        "optimizer.safetensors",
    }
    assert (run_dir / "checkpoints" / "latest").read_text() == "step_000000000000\n"
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["format"] == 1
    assert manifest["step"] == 0
    assert manifest["version"] == __version__
    assert manifest["files"]["policy.safetensors"]["bytes"] == (path / "policy.safetensors").stat().st_size
    assert set(safetensors.numpy.load_file(path / "policy.safetensors")) == {"net/0.weight", "net/0.bias"}
    loaded = manager.load_latest()
    assert isinstance(loaded, Checkpoint)
    assert (loaded.step, loaded.path) == (0, path)
    assert_same(loaded.metadata, {"score": float("-inf"), "exact": True, "note": ["a", None, 0.5]})
    assert_same(loaded.parts, parts_of(0))
    assert loaded.parts["policy"]["tied"] is loaded.parts["policy"]["net"]["0.weight"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(state=STATES)
def test_any_state_survives_the_disk(run_dir: Path, state: dict[str, Any]) -> None:
    manager = CheckpointManager(run_dir)
    manager.save({"part": state, "empty": {}}, step=7)
    assert_same(manager.load(7).parts, {"part": state, "empty": {}})


def test_loaded_arrays_may_be_written_to(run_dir: Path) -> None:
    loaded = saved_run(run_dir, (5,)).load_latest()
    loaded.parts["policy"]["net"]["0.weight"][:] = 0.0
    assert_same(loaded.parts["policy"]["net"]["0.bias"], parts_of(5)["policy"]["net"]["0.bias"])


def test_load_by_name_and_by_step(run_dir: Path) -> None:
    manager = saved_run(run_dir, (0, 10, 20))
    manager.mark_best(10)
    assert manager.steps() == [0, 10, 20]
    assert [manager.load(which).step for which in ("latest", "best", 0, "20")] == [20, 10, 0, 20]
    assert (run_dir / "checkpoints" / "best").read_text() == "step_000000000010\n"
    reader = CheckpointManager(run_dir)
    assert (reader.latest_step(), reader.best_step()) == (20, 10)


def test_best_moves_with_the_save(run_dir: Path) -> None:
    manager = CheckpointManager(run_dir)
    manager.save(parts_of(1), step=1, best=True)
    manager.save(parts_of(2), step=2)
    assert (manager.latest_step(), manager.best_step()) == (2, 1)
    manager.save(parts_of(3), step=3, best=True)
    assert manager.best_step() == 3


def test_a_part_alone_needs_only_its_own_file(run_dir: Path) -> None:
    manager = saved_run(run_dir, (5,))
    (folder_of(run_dir, 5) / "optimizer.safetensors").unlink()
    loaded = manager.load_latest(parts={"policy"})
    assert_same(loaded.parts, {"policy": parts_of(5)["policy"]})
    assert_same(manager.load(5, parts=["progress"]).parts, {"progress": parts_of(5)["progress"]})
    assert "optimizer.safetensors is missing" in refusal(lambda: manager.load(5))
    for load in (manager.load_latest, lambda parts: manager.load(5, parts)):
        message = refusal(lambda load=load: load({"buffer"}))  # type: ignore[misc]
        assert "no part 'buffer'; it has: policy, optimizer, progress" in message


def test_what_is_not_there_is_said_with_what_is(run_dir: Path) -> None:
    empty = CheckpointManager(run_dir)
    assert empty.steps() == []
    assert "this is not a run directory" in refusal(empty.load_latest)
    manager = saved_run(run_dir, (0, 10))
    assert "no checkpoint of step 7" in refusal(lambda: manager.load(7))
    assert "there are latest, 0, 10" in refusal(lambda: manager.load(7))
    assert "no best checkpoint" in refusal(lambda: manager.load("best"))
    assert "'newest'" in refusal(lambda: manager.load("newest"))
    assert "cannot mark step 7" in refusal(lambda: manager.mark_best(7))
    assert "cannot go back to step -1" in refusal(lambda: manager.rewind(-1))
    manager.mark_best(10)
    assert "there are latest, best, 0, 10" in refusal(lambda: manager.load(7))
    assert not (run_dir / "nowhere").exists()
    assert CheckpointManager(run_dir / "nowhere").steps() == []
    assert not (run_dir / "nowhere").exists()


def test_nonsense_is_refused_before_the_disk_is_touched(run_dir: Path) -> None:
    manager = CheckpointManager(run_dir)
    assert "must be from 0" in refusal(lambda: manager.save({}, step=-1))
    assert "must be from 0" in refusal(lambda: manager.save({}, step=10**12))
    for name in ("", "../x", "a/b", ".hidden", "x" * 101, "a\nb"):
        assert "a part cannot be named" in refusal(lambda name=name: manager.save({name: {}}, step=1))  # type: ignore[misc]
    message = refusal(lambda: manager.save({"optimizer": {"state": {0: 1}}}, step=1))
    assert "the part 'optimizer' cannot be saved: state 'state' has the key 0" in message
    assert not (run_dir / "checkpoints").exists()
    assert "'metadata/f'" in refusal(lambda: manager.save({}, step=1, metadata={"f": np.zeros(2)}))
    assert "put long lists into arrays" in refusal(lambda: manager.save({"p": {"x": "y" * 33 * 2**20}}, step=1))
    assert names_in(run_dir) == set()
    for keywords in ({"keep_last": 1}, {"keep_every": -1}):
        with pytest.raises(ConfigError, match=r"checkpoint\.keep_"):
            CheckpointManager(run_dir, **keywords)  # type: ignore[arg-type]


def test_a_newer_format_is_said_and_never_passed_over(run_dir: Path) -> None:
    manager = saved_run(run_dir, (0, 10))
    forge_manifest(folder_of(run_dir, 10), lambda m: m.update(format=2, version="9.0"))
    message = refusal(manager.load_latest)
    assert "rl-training 9.0 in format 2" in message
    assert "upgrade" in message


# -- retention --------------------------------------------------------------------------------------------------------


def kept(run_dir: Path, steps: range, best: int | None = None, **keywords: Any) -> list[int]:
    manager = CheckpointManager(run_dir, **keywords)
    for step in steps:
        manager.save({"p": {"step": step}}, step=step, best=step == best)
    return manager.steps()


@pytest.mark.parametrize(
    ("keywords", "best", "expected"),
    [
        ({}, None, [80, 90, 100]),
        ({"keep_last": 2}, None, [90, 100]),
        ({"keep_last": 2}, 30, [30, 90, 100]),
        ({"keep_last": 2, "keep_best": False}, 30, [90, 100]),
        ({"keep_last": 2, "keep_every": 25}, None, [0, 30, 50, 80, 90, 100]),
        ({"keep_last": 2, "keep_every": 40}, 20, [0, 20, 40, 80, 90, 100]),
        ({"keep_last": 50}, None, list(range(0, 101, 10))),
    ],
)
def test_which_checkpoints_stay(run_dir: Path, keywords: dict[str, Any], best: int | None, expected: list[int]) -> None:
    assert kept(run_dir, range(0, 101, 10), best, **keywords) == expected
    manager = CheckpointManager(run_dir)
    dropped = keywords.get("keep_best") is False
    assert manager.best_step() == (None if dropped else best)
    assert names_in(run_dir) == {"latest"} | {f"step_{s:012d}" for s in expected} | (
        {"best"} if best and not dropped else set()
    )


def test_damaged_checkpoints_do_not_count_as_kept(run_dir: Path) -> None:
    saved_run(run_dir, (0, 10, 20, 30), keep_last=4)
    for step in (20, 30):
        (folder_of(run_dir, step) / "policy.safetensors").write_bytes(b"")
    resumed = CheckpointManager(run_dir, keep_last=2)
    resumed.save(parts_of(40), step=40)
    assert resumed.steps() == [10, 20, 30, 40]  # 40 and 10 are the two that load
    resumed.save(parts_of(50), step=50)
    assert resumed.steps() == [40, 50]


def test_segments_and_strange_files_are_never_touched(run_dir: Path) -> None:
    manager = saved_run(run_dir, (0,))
    folder = run_dir / "checkpoints"
    (folder / "segments").mkdir()
    (folder / "segments" / "000.bin").write_bytes(b"replay")
    (folder / "notes.txt").write_text("mine")
    (folder / "step_1").mkdir()
    for step in (1, 2, 3, 4):
        manager.save({"p": {}}, step=step)
    manager.rewind(3)
    assert names_in(run_dir) == {"segments", "notes.txt", "step_1", "latest", *(f"step_{s:012d}" for s in (2, 3))}
    assert (folder / "segments" / "000.bin").read_bytes() == b"replay"


# -- going back -------------------------------------------------------------------------------------------------------


def test_saving_a_step_again_replaces_it(run_dir: Path) -> None:
    manager = saved_run(run_dir, (0, 10))
    manager.save(parts_of(99), step=10, metadata={"life": 2})
    loaded = CheckpointManager(run_dir).load_latest()
    assert_same(loaded.parts, parts_of(99))
    assert loaded.metadata == {"life": 2}
    assert names_in(run_dir) == {"latest", "step_000000000000", "step_000000000010"}


def test_rewind_drops_what_is_newer(run_dir: Path) -> None:
    manager = saved_run(run_dir, (0, 10, 20, 30), keep_last=9)
    manager.mark_best(30)
    manager.rewind(15)
    assert manager.steps() == [0, 10]
    assert manager.load_latest().step == 10
    assert manager.best_step() == 10  # scores are 0 and 10
    manager.rewind(10)
    assert manager.steps() == [0, 10]


def test_rewind_keeps_an_older_best_and_removes_one_without_successor(run_dir: Path) -> None:
    manager = CheckpointManager(run_dir, keep_last=9)
    for step in (0, 10, 20):
        manager.save(parts_of(step), step=step, best=True)
    manager.mark_best(0)
    manager.rewind(10)
    assert manager.best_step() == 0
    manager.mark_best(10)
    manager.rewind(0)
    assert manager.best_step() is None  # no scores in the metadata
    assert names_in(run_dir) == {"latest", "step_000000000000"}


def test_rewind_finds_the_first_of_equal_scores_and_ignores_nan(run_dir: Path) -> None:
    manager = CheckpointManager(run_dir, keep_last=9)
    for step, score in ((0, float("nan")), (1, 5), (2, 5.0), (3, "high"), (4, 4.5), (5, 9.0)):
        manager.save({}, step=step, metadata={"score": score}, best=step == 5)
    manager.rewind(4)
    assert manager.best_step() == 1


# -- other processes --------------------------------------------------------------------------------------------------


def test_readers_never_clean_up(run_dir: Path) -> None:
    saved_run(run_dir, (0,))
    busy = run_dir / "checkpoints" / ".tmp-0123456789abcdef"
    busy.mkdir()
    reader = CheckpointManager(run_dir)
    reader.load_latest()
    reader.load(0)
    assert busy.is_dir()
    CheckpointManager(run_dir).save({}, step=1)
    assert not busy.exists()


def test_a_reader_beside_a_writer_always_gets_a_whole_checkpoint(run_dir: Path) -> None:
    manager = saved_run(run_dir, (0,), keep_last=2)
    stop = threading.Event()
    seen: list[int] = []
    faults: list[BaseException] = []

    def read() -> None:
        try:
            while not stop.is_set():
                loaded = CheckpointManager(run_dir, report=lambda line: None).load_latest()
                assert_same(loaded.parts, parts_of(loaded.step))
                seen.append(loaded.step)
        except BaseException as error:
            faults.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(1, 41):
        manager.save(parts_of(step), step=step)
        manager.save(parts_of(step), step=step)
    stop.set()
    reader.join()
    assert faults == []
    assert len(set(seen)) > 3
    assert seen == sorted(seen)


def test_memory_saving_copies_nothing_and_loading_copies_once(run_dir: Path) -> None:
    size = 32 * 2**20
    parts = {"buffer": {"rewards": np.ones(size // 8), "lr": 1.0}}
    manager = CheckpointManager(run_dir)
    tracemalloc.start()
    manager.save(parts, step=0)
    saving = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    loaded = manager.load_latest()
    loading = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert loaded.parts["buffer"]["rewards"].nbytes == size
    assert saving < 0.3 * size  # the chunks of the reading back
    assert loading < 1.1 * size


def test_importing_checkpoints_imports_nothing_heavy() -> None:
    program = (
        "import sys, rl_training.checkpointing.manager as c; c.flatten({'a': 1});"
        "print([m for m in ('torch', 'jax', 'gymnasium', 'safetensors', 'rich', 'psutil') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_error_is_one_a_user_can_catch() -> None:
    with pytest.raises(CheckpointError):
        CheckpointManager("no such run").load_latest()
