"""What a finished run suggests to type next."""

from __future__ import annotations

from pathlib import Path

import pytest

import rl_training
from rl_training.runs import RunDir
from rl_training.training import summary


@pytest.mark.parametrize(("encoder", "flags"), [(None, ""), (object(), " --video")], ids=["core", "video extra"])
def test_a_video_is_suggested_where_it_can_be_made(
    encoder: object, flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary, "find_spec", lambda name: encoder)
    cfg = {"algo": "random", "env_id": "CartPole-v1", "output_dir": str(tmp_path), "logging": {"terminal": False}}
    result = rl_training.train(cfg, total_timesteps=64, **{"training.num_eval_episodes": 1})
    assert summary.evaluate_next(RunDir.open(result.run_dir)) == f"rl eval {result.run_dir}{flags}"


def test_a_match_is_suggested_after_a_game(tmp_path: Path) -> None:
    cfg = {"algo": "random", "env_id": "RLGame/TicTacToe-v0", "output_dir": str(tmp_path)}
    quiet = {"logging.terminal": False, "training.num_eval_episodes": 0, "league.latest": 0.0}
    result = rl_training.train(cfg, total_timesteps=64, **quiet, **{"league.snapshot_frequency": 0})
    assert summary.evaluate_next(RunDir.open(result.run_dir)) == f"rl eval {result.run_dir} --opponent random"
