"""PETS and MBPO learn Pendulum within few env steps, whatever the seed: two to four minutes each."""

from __future__ import annotations

from pathlib import Path

import pytest

import rl_training

QUIET = {"logging": {"terminal": False, "tensorboard": False}}


@pytest.mark.learning
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("preset", "goal"), [("pets/pendulum", -250.0), ("mbpo/pendulum", -200.0)])
def test_pendulum(preset: str, goal: float, seed: int, tmp_path: Path) -> None:
    result = rl_training.train(preset, seed=seed, output_dir=str(tmp_path), **QUIET)
    assert result.metrics["global_step"] <= (5_000 if preset.startswith("pets") else 10_000)
    assert rl_training.evaluate(result.run_dir, episodes=20)["return_mean"] >= goal
