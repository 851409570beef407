"""CheckpointManager.auto_save fires where progress crosses a multiple, whatever the size of the steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.checkpointing import CheckpointManager
from rl_training.types import CheckpointError, Progress


def state(step: int) -> dict[str, dict[str, int]]:
    return {"progress": Progress(env_steps=step).state_dict()}


def test_it_saves_when_a_multiple_was_crossed(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, keep_last=10)
    saved = [step for step in range(0, 40_001, 2048) if manager.auto_save(state(step), 10_000) is not None]
    assert saved == [10_240, 20_480, 30_720]
    assert manager.steps() == saved


def test_a_new_process_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    CheckpointManager(tmp_path).auto_save(state(10_240), 10_000)
    later = CheckpointManager(tmp_path)
    assert later.auto_save(state(12_288), 10_000) is None
    path = later.auto_save({"mine": {"x": 1}}, 10_000, step=20_480)
    assert path is not None
    assert later.load_latest().parts == {"mine": {"x": 1}}


def test_zero_never_saves_and_a_state_without_progress_needs_a_step(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    assert manager.auto_save(state(10_240), 0) is None
    with pytest.raises(CheckpointError, match="needs `step`"):
        manager.auto_save({"mine": {"x": 1}}, 10)
