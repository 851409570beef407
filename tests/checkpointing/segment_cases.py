"""A growing ring whose rows hold their own number and the life (the n-th start of the run) that wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from checkpoint_cases import folder_of

from rl_training.checkpointing.manager import CheckpointManager
from rl_training.checkpointing.row_log import LogIdentity, RowLog, RowSource

CAPACITY = 400


class Ring:
    """A stand-in for a replay buffer."""

    def __init__(self, capacity: int = CAPACITY, life: int = 0) -> None:
        self.columns = {"obs": np.zeros((capacity, 3), np.float32), "row": np.zeros(capacity, np.int64)}
        self.capacity = capacity
        self.life = life
        self.written = 0
        self.identity = LogIdentity()

    @property
    def start(self) -> int:
        return max(0, self.written - self.capacity)

    def add(self, count: int) -> Ring:
        numbers = np.arange(self.written, self.written + count)
        index = numbers % self.capacity
        self.columns["obs"][index] = np.random.default_rng(self.life).random(3) + numbers[:, None]
        self.columns["row"][index] = numbers + 10**9 * self.life
        self.written += count
        return self

    def parts(self) -> dict[str, Any]:
        log = RowLog(self.columns, self.start, self.written, self.identity)
        return {"buffer": {"rows": log, "written": self.written}, "progress": {"env_steps": self.written}}

    @classmethod
    def of(cls, parts: dict[str, Any], life: int = 0, capacity: int = CAPACITY) -> Ring:
        """A ring restored from a checkpoint."""
        ring = cls(capacity, life)
        rows: RowSource = parts["buffer"]["rows"]
        assert parts["buffer"]["written"] == parts["progress"]["env_steps"] == rows.stop
        ring.written = rows.stop
        assert rows.start == ring.start
        ring.identity = rows.copy_into(ring.columns)
        return ring

    def assert_same(self, other: Ring) -> None:
        assert self.written == other.written
        index = np.arange(self.start, self.written) % self.capacity
        for name, column in self.columns.items():
            assert column[index].tobytes() == other.columns[name][index].tobytes(), name


def expected(written: int) -> Ring:
    """The ring of an uninterrupted first life."""
    return Ring().add(written)


def segment_files(run_dir: Path) -> set[str]:
    folder = run_dir / "checkpoints" / "segments"
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def needed_files(run_dir: Path, steps: list[int]) -> set[str]:
    """The files that the manifests of `steps` name."""
    names = set()
    for step in steps:
        manifest = json.loads((folder_of(run_dir, step) / "manifest.json").read_bytes())
        for segment in manifest["parts"]["buffer"]["rows"]["rows"]["segments"]:
            start, stop, _, sha256 = segment.split()
            stem = f"rows_{int(start):012d}_{int(stop):012d}_{sha256[:20]}"
            names |= {f"{stem}.a.safetensors", f"{stem}.b.safetensors"}
    return names


def saved_ring(run_dir: Path, writtens: tuple[int, ...], **keywords: Any) -> tuple[CheckpointManager, Ring]:
    """A run with a checkpoint at each of these numbers of written rows."""
    manager = CheckpointManager(run_dir, **keywords)
    ring = Ring()
    for written in writtens:
        ring.add(written - ring.written)
        manager.save(ring.parts(), step=written)
    return manager, ring
