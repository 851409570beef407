"""The directory of a run is renamed, deleted or replaced while it trains: it stops at its next save."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from fault_runs import part_hashes

import rl_training
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.runs.directory import RunDir, metrics_sha256
from rl_training.system.place import Place
from rl_training.types import RunError

STEPS = 64
LANES: dict[str, dict[str, Any]] = {"torch": {}, "compiled": {"backend": "jax", "lane": "compiled"}}


def config(folder: Path, lane: str, how: str) -> dict[str, Any]:
    """Saved at every fourth rollout; the directory goes away at the sixth."""
    move = {"runs": str(folder / "runs"), "aside": str(folder / "aside"), "how": how, "at": 6 * STEPS}
    return {
        "algo": "ppo",
        "env_id": "CartPole-v1",
        "output_dir": str(folder / "runs"),
        "env": {"num_envs": 4},
        "hparams": {"num_steps": STEPS // 4},
        "training": {
            "total_timesteps": 12 * STEPS,
            "checkpoint_frequency": 4 * STEPS,
            "num_eval_episodes": 0,
        },
        "logging": {"terminal": False},
        "callbacks": [{"name": "moving_callbacks:TakeAway", "kwargs": move}],
        **LANES[lane],
    }


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])


@pytest.mark.filterwarnings("ignore:cannot write the index")
@pytest.mark.parametrize(
    ("lane", "how"), [("torch", "rename"), ("torch", "delete"), ("torch", "replace"), ("compiled", "replace")]
)
def test_it_stops_at_its_next_save(tmp_path: Path, lane: str, how: str) -> None:
    with pytest.raises(RunError, match="while the run was going on") as caught:
        rl_training.train(config(tmp_path, lane, how))
    left = {path for path in (tmp_path / "runs").rglob("*") if "index.sqlite" not in path.name}
    aside = tmp_path / "aside"
    if how == "replace":
        (run,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
        assert left == {run, run / "run.json", run / "checkpoints"}
        assert (run / "run.json").read_text() == '{"id": "somebody else"}'
        assert "was replaced by another folder" in str(caught.value)
    else:
        assert left == set()
        assert "was deleted or renamed" in str(caught.value)
    if how == "delete":
        assert "rl resume" not in str(caught.value)
        return
    assert f"rl resume {aside}" in str(caught.value)
    assert CheckpointManager(aside).latest_step() == 4 * STEPS
    assert "while the run was going on" in (aside / "logs" / "train.log").read_text()


@pytest.mark.filterwarnings("ignore:cannot write the index")
def test_what_was_renamed_goes_on_exactly(tmp_path: Path) -> None:
    straight = rl_training.train(config(tmp_path / "straight", "torch", "nothing"))
    with pytest.raises(RunError):
        rl_training.train(config(tmp_path, "torch", "rename"))
    resumed = rl_training.resume(tmp_path / "aside")
    hashes = [part_hashes(CheckpointManager(run).load_latest()) for run in (straight.run_dir, resumed.run_dir)]
    assert hashes[0] == hashes[1]
    logs = [metrics_sha256(run / "logs" / "metrics.jsonl") for run in (straight.run_dir, resumed.run_dir)]
    assert logs[0] == logs[1]


def test_a_folder_made_anew_under_the_name_is_not_taken_for_it(tmp_path: Path) -> None:
    """Not even where the file system would give it the same number."""
    path = tmp_path / "run"
    path.mkdir()
    place = Place(path)
    place.check()
    for _ in range(3):
        path.rmdir()
        with pytest.raises(RunError, match="deleted or renamed"):
            place.check()
        path.mkdir()
        with pytest.raises(RunError, match="replaced by another folder"):
            place.check()


def test_the_record_of_another_run_is_not_written(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    (run.path / "run.json").write_text("{}")
    with run.lock():
        run.update_info(status="running")
        run.path.rename(tmp_path / "aside")
        run.path.mkdir()
        (run.path / "run.json").write_text("{}")
        for write in (run.finish, lambda: run.write_summary({})):
            with pytest.raises(RunError, match=f"it is now '{tmp_path / 'aside'}'"):
                write()
    assert (run.path / "run.json").read_text() == "{}"
