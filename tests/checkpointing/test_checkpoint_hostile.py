"""Malicious folders with valid checksums: no code runs, no file outside is touched, and memory stays bounded."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_cases import (
    assert_same,
    blob,
    folder_of,
    forge_file,
    forge_manifest,
    names_in,
    parts_of,
    refusal,
    saved_run,
)

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.checkpointing.verified_files import opened, read_file
from rl_training.system.atomic_io import CHUNK, FileRecord
from rl_training.types import CheckpointError

Attack = Callable[[Path, Path], None]
"""Takes the step folder and a folder outside the run, which must stay as it is."""


class Bomb:
    """Unpickling it would create a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


def manifest(change: Callable[[dict[str, Any]], object]) -> Attack:
    return lambda folder, outside: forge_manifest(folder, lambda m: (change(m), None)[1])


def state(value: Any) -> Attack:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return lambda folder, outside: forge_file(folder, "state.json", data)


def scalars(tree: Any, aliases: Any = None) -> Attack:
    part = {"scalars": tree, "aliases": {} if aliases is None else aliases}
    return state({"policy": part, "optimizer": part, "progress": part})


def policy(data: bytes) -> Attack:
    return lambda folder, outside: forge_file(folder, "policy.safetensors", data)


def link(name: str) -> Attack:
    def attack(folder: Path, outside: Path) -> None:
        shutil.copy(folder / name, outside / "target")
        (folder / name).unlink()
        (folder / name).symlink_to(outside / "target")

    return attack


def link_folder(folder: Path, outside: Path) -> None:
    shutil.move(folder, outside / "moved")
    folder.symlink_to(outside / "moved")


def pipe(name: str) -> Attack:
    def attack(folder: Path, outside: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return attack


def directory(name: str) -> Attack:
    def attack(folder: Path, outside: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return attack


def pickled(name: str) -> Attack:
    return lambda folder, outside: forge_file(folder, name, pickle.dumps(Bomb(outside / "exploded")))


def pickled_manifest(folder: Path, outside: Path) -> None:
    (folder / "manifest.json").write_bytes(pickle.dumps(Bomb(outside / "exploded")))


def sparse(name: str, size: int) -> Attack:
    """A file that claims to be huge, with the manifest agreeing."""

    def attack(folder: Path, outside: Path) -> None:
        os.truncate(folder / name, size)
        if name != "manifest.json":
            forge_manifest(folder, lambda m: m["files"][name].update(bytes=size))

    return attack


def other_file(name: str) -> Attack:
    record = {"sha256": "0" * 64, "bytes": 5}
    return manifest(lambda m: m["files"].update({name: record}))


def entry(shape: list[int], offsets: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


ATTACKS: dict[str, Attack] = {
    "pickle as arrays": pickled("policy.safetensors"),
    "pickle as state": pickled("state.json"),
    "pickle as manifest": pickled_manifest,
    "linked arrays": link("policy.safetensors"),
    "linked state": link("state.json"),
    "linked manifest": link("manifest.json"),
    "linked folder": link_folder,
    "pipe as arrays": pipe("policy.safetensors"),
    "pipe as manifest": pipe("manifest.json"),
    "folder as arrays": directory("policy.safetensors"),
    "folder as manifest": directory("manifest.json"),
    "file outside by relative path": other_file("../../../outside/secret"),
    "file outside by absolute path": other_file("/etc/passwd"),
    "file of no part": other_file("extra.safetensors"),
    "part outside": manifest(lambda m: m["parts"].update({"../../outside/secret": {"dtypes": {}}})),
    "part with a slash": manifest(lambda m: m["parts"].update({"a/b": {"dtypes": {}}})),
    "part named as a hidden file": manifest(lambda m: m["parts"].update({"..": {"dtypes": {}}})),
    "no state file": manifest(lambda m: m["files"].pop("state.json")),
    "files as a list": manifest(lambda m: m.update(files=["policy.safetensors"])),
    "records as text": manifest(lambda m: m["files"].update({"state.json": "x"})),
    "records with code": manifest(lambda m: m["files"]["state.json"].update(__class__="os.system")),
    "length as text": manifest(lambda m: m["files"]["state.json"].update(bytes="311")),
    "negative length": manifest(lambda m: m["files"]["state.json"].update(bytes=-1)),
    "checksum as number": manifest(lambda m: m["files"]["state.json"].update(sha256=0)),
    "parts as a list": manifest(lambda m: m.update(parts=["policy"])),
    "dtypes as a list": manifest(lambda m: m["parts"].update(policy={"dtypes": ["bfloat16"]})),
    "dtype as number": manifest(lambda m: m["parts"].update(policy={"dtypes": {"net/0.bias": 3}})),
    "dtype of objects": manifest(lambda m: m["parts"].update(policy={"dtypes": {"net/0.bias": "object"}})),
    "dtype of another width": manifest(lambda m: m["parts"].update(policy={"dtypes": {"net/0.bias": "bfloat16"}})),
    "dtype without array": manifest(lambda m: m["parts"].update(policy={"dtypes": {"x": "bfloat16"}})),
    "metadata as a list": manifest(lambda m: m.update(metadata=[1])),
    "metadata with an array": manifest(lambda m: m.update(metadata={"a": {"$array": "a"}})),
    "step as text": manifest(lambda m: m.update(step="10")),
    "step of another": manifest(lambda m: m.update(step=11)),
    "format as text": manifest(lambda m: m.update(format="1")),
    "format 0": manifest(lambda m: m.update(format=0)),
    "manifest of 33 MB": sparse("manifest.json", 33 * 2**20),
    "state of 33 MB": sparse("state.json", 33 * 2**20),
    "arrays of ten terabytes": sparse("policy.safetensors", 10**13),
    "state as a list": state([1]),
    "state without the part": state({}),
    "state of nothing": state(b""),
    "state with NaN": state(b'{"policy": NaN}'),
    "state 200,000 levels deep": state(b"[" * 200_000 + b"]" * 200_000),
    "state 5,000 digits long": state(b'{"policy": ' + b"9" * 5000 + b"}"),
    "scalars as a list": scalars([1]),
    "scalars 70 levels deep": scalars(json.loads('{"a":' * 70 + "1" + "}" * 70)),
    "scalars with a mark": scalars({"$object": "os.system"}),
    "scalars with a missing array": scalars({"a": {"$array": "/etc/passwd"}}),
    "aliases as a list": scalars({}, ["a"]),
    "aliases as numbers": scalars({}, {"a": 1}),
    "aliases in a circle": scalars({"a": {"$array": "a"}}, {"a": "b", "b": "a"}),
    "arrays that no one asked for": scalars({}),
    "shape of an exabyte": policy(blob(entry([2**30, 2**30], [0, 2**62]))),
    "shape beyond 64 bit": policy(blob(entry([2**62, 2**62], [0, 8]), bytes(8))),
    "empty shape beyond all bounds": policy(blob(entry([0, 10**30], [0, 0]))),
    "dtype of Python objects": policy(blob(entry([1], [0, 8], "O"), bytes(8))),
    "header length beyond the file": policy(b"\xff" * 8 + b"{}"),
    "header 200,000 levels deep": policy(blob(b'{"a":' * 200_000)),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_checkpoint_is_refused(run_dir: Path, name: str) -> None:
    outside = run_dir / "outside"
    outside.mkdir()
    (outside / "secret").write_text("12345")
    root = run_dir / "run"
    saved_run(root, (5, 10))
    ATTACKS[name](folder_of(root, 10), outside)
    before = {path: path.lstat().st_mtime_ns for path in outside.rglob("*")}
    lines: list[str] = []
    manager = CheckpointManager(root, report=lines.append)
    tracemalloc.start()
    message = refusal(lambda: manager.load(10))
    loaded = manager.load_latest()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "12345" not in message
    assert len(message) < 1000
    assert loaded.step == 5
    assert_same(loaded.parts, parts_of(5))
    assert len(lines) == 1
    assert peak < 64 * 2**20
    manager.rewind(5)
    manager.save(parts_of(10), step=10)
    assert_same(manager.load_latest().parts, parts_of(10))
    assert {path: path.lstat().st_mtime_ns for path in outside.rglob("*")} == before
    assert (outside / "secret").read_text() == "12345"


POINTERS: dict[str, Callable[[Path, Path], object]] = {
    "relative path": lambda pointer, outside: pointer.write_text("../../outside/step_000000000099"),
    "absolute path": lambda pointer, outside: pointer.write_text(str(outside / "step_000000000099")),
    "digits of another script": lambda pointer, outside: pointer.write_text("step_" + "\u0661" * 12),
    "nul bytes": lambda pointer, outside: pointer.write_bytes(b"step_000000000010\x00/../.."),
    "two lines": lambda pointer, outside: pointer.write_text("step_000000000005\nstep_000000000010\n"),
    "a gigabyte": lambda pointer, outside: os.truncate(pointer, 2**30),
    "a link": lambda pointer, outside: (pointer.unlink(), pointer.symlink_to(outside / "pointer")),
    "a pipe": lambda pointer, outside: (pointer.unlink(), os.mkfifo(pointer)),
}


@pytest.mark.parametrize("name", POINTERS)
def test_a_hostile_pointer_leads_nowhere_else(run_dir: Path, name: str) -> None:
    outside = run_dir / "outside"
    root = run_dir / "run"
    saved_run(root, (5, 10))
    shutil.copytree(folder_of(root, 5), outside / "step_000000000099")
    (outside / "pointer").write_text("step_000000000005")
    for which in ("latest", "best"):
        pointer = root / "checkpoints" / which
        pointer.touch()
        POINTERS[name](pointer, outside)
    lines: list[str] = []
    manager = CheckpointManager(root, report=lines.append)
    assert (manager.latest_step(), manager.best_step()) == (None, None)
    assert manager.load_latest().step == 10
    assert len(lines) == 1
    assert "no best checkpoint" in refusal(lambda: manager.load("best"))
    manager.save(parts_of(20), step=20, best=True)
    assert (manager.latest_step(), manager.best_step()) == (20, 20)
    assert (outside / "pointer").read_text() == "step_000000000005"


def test_a_folder_as_pointer_gives_a_clear_error(run_dir: Path) -> None:
    manager = saved_run(run_dir, (5,))
    (run_dir / "checkpoints" / "latest").unlink()
    (run_dir / "checkpoints" / "latest").mkdir()
    assert CheckpointManager(run_dir, report=lambda line: None).load_latest().step == 5
    assert "cannot save the checkpoint of step 6" in refusal(lambda: manager.save({}, step=6))


def test_a_linked_checkpoints_folder_is_neither_read_nor_written(run_dir: Path) -> None:
    saved_run(run_dir / "other", (5,))
    root = run_dir / "run"
    root.mkdir()
    (root / "checkpoints").symlink_to(run_dir / "other" / "checkpoints")
    manager = CheckpointManager(root)
    for action in (
        manager.steps,
        manager.load_latest,
        lambda: manager.load(5),
        lambda: manager.save({}, step=6),
        lambda: manager.rewind(5),
        lambda: manager.mark_best(5),
    ):
        assert "is a symbolic link; move or link the whole run directory" in refusal(action)
    assert names_in(run_dir / "other") == {"latest", "step_000000000005"}


def test_a_run_directory_may_be_reached_through_a_link(run_dir: Path) -> None:
    saved_run(run_dir / "run", (5,))
    (run_dir / "shortcut").symlink_to(run_dir / "run")
    assert CheckpointManager(run_dir / "shortcut").load_latest().step == 5


def test_retiring_a_linked_step_leaves_its_target_alone(run_dir: Path) -> None:
    manager = saved_run(run_dir, (5, 10), keep_last=2)
    shutil.move(folder_of(run_dir, 5), run_dir / "precious")
    folder_of(run_dir, 5).symlink_to(run_dir / "precious")
    for step in (20, 30):
        manager.save(parts_of(step), step=step)
    assert manager.steps() == [20, 30]
    assert len(list((run_dir / "precious").iterdir())) == 4


def test_files_beside_the_listed_ones_are_not_read(run_dir: Path) -> None:
    manager = saved_run(run_dir, (5,))
    (folder_of(run_dir, 5) / "policy.pkl").write_bytes(pickle.dumps(Bomb(run_dir / "exploded")))
    (folder_of(run_dir, 5) / "code.py").write_text("raise SystemExit")
    assert_same(manager.load_latest().parts, parts_of(5))
    assert not (run_dir / "exploded").exists()


def test_only_checkpoint_errors_whatever_the_bytes(run_dir: Path) -> None:
    """Each file is replaced by random bytes with a valid checksum."""
    manager = saved_run(run_dir, (5,))
    pristine = run_dir / "pristine"
    shutil.copytree(folder_of(run_dir, 5), pristine)
    rng = np.random.default_rng(0)
    for i in range(300):
        name = ("state.json", "policy.safetensors")[i % 2]
        data = bytearray((pristine / name).read_bytes())
        for _ in range(1 + i % 4):
            data[rng.integers(len(data))] = rng.integers(256)
        forge_file(folder_of(run_dir, 5), name, bytes(data))
        try:
            loaded = manager.load(5)
            assert set(loaded.parts) == {"policy", "optimizer", "progress"}
        except CheckpointError:
            pass
        shutil.rmtree(folder_of(run_dir, 5))
        shutil.copytree(pristine, folder_of(run_dir, 5))


def test_a_damaged_file_is_told_by_its_checksum_before_there_is_memory_for_it(run_dir: Path) -> None:
    size = 32 * 2**20
    manager = CheckpointManager(run_dir)
    manager.save({"policy": {"weights": np.zeros(size, np.uint8)}}, step=1)
    file = folder_of(run_dir, 1) / "policy.safetensors"
    with open(file, "r+b") as blob_file:
        blob_file.seek(-1, os.SEEK_END)
        blob_file.write(b"x")
    tracemalloc.start()
    try:
        assert "checksum differs" in refusal(lambda: CheckpointManager(run_dir).load(1))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size / 2


def test_a_segment_is_told_by_its_checksum_before_there_is_memory_for_it(tmp_path: Path) -> None:
    size = 32 * 2**20
    data = bytes(size)
    (tmp_path / "rows").write_bytes(data[:-1] + b"x")
    record = FileRecord(hashlib.sha256(data).hexdigest(), size)
    tracemalloc.start()
    try:
        with opened(tmp_path) as folder, pytest.raises(CheckpointError, match="checksum differs"):
            read_file(folder, "rows", record)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size / 2


def test_what_is_read_after_the_check_is_checked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that changes between the two readings is refused too."""
    data = bytes(CHUNK + 1)
    path = tmp_path / "rows"
    path.write_bytes(data)
    seek = os.lseek

    def change_and_seek(fd: int, *where: int) -> int:
        path.write_bytes(b"x" * len(data))
        return seek(fd, *where)

    monkeypatch.setattr(os, "lseek", change_and_seek)
    record = FileRecord(hashlib.sha256(data).hexdigest(), len(data))
    with opened(tmp_path) as folder, pytest.raises(CheckpointError, match="checksum differs"):
        read_file(folder, "rows", record)
