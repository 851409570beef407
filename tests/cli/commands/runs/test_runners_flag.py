"""`rl resume --runners`: what it refuses, and that it stays with the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.cli import main
from rl_training.trainer import resume, train
from rl_training.types import ConfigError

QUICK = {
    "env": {"num_envs": 2},
    "hparams": {"num_steps": 8},
    "training": {"total_timesteps": 16, "num_eval_episodes": 0},
    "logging": {"terminal": False, "tensorboard": False},
}


def test_a_run_that_steps_its_environments_itself_has_no_runners(tmp_path: Path) -> None:
    run = train({**QUICK, "algo": "a2c", "env_id": "CartPole-v1", "output_dir": str(tmp_path)}).run_dir
    with pytest.raises(ConfigError, match=r"runners is for runners: it needs env\.collector: ray"):
        resume(run, runners=2, total_timesteps=64)
    assert main(["resume", str(run), "--runners", "2", "--total-timesteps", "64"]) == 2
