"""Dynamics of one's own: by dotted name and by short name, under the algorithm `dynamics` and under PlaNet."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import rl_training
from rl_training.testing import check_algorithm
from rl_training.types import ConfigError

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "size": "custom",
    "custom": {"deter": 8, "hidden": 8, "stoch": 2, "classes": 3, "units": 16, "layers": 1, "depth": 1, "bins": 5},
    "batch_size": 8,
    "sequence_length": 16,
    "learning_starts": 200,
}


@pytest.fixture(autouse=True)
def _plugin(monkeypatch: pytest.MonkeyPatch, registrations: None) -> None:
    """The module can be imported, and what its decorator registers is forgotten after the test."""
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.delitem(sys.modules, "examples.my_dynamics", raising=False)


def test_it_learns_by_its_dotted_name(tmp_path: Path) -> None:
    config = {
        "algo": "dynamics",
        "env_id": "Pendulum-v1",
        "output_dir": str(tmp_path),
        "hparams": {**SMALL, "train_ratio": 32, "dynamics": {"type": "examples.my_dynamics:Linear"}},
        "training": {"total_timesteps": 1600, "eval_frequency": 0, "num_eval_episodes": 2},
        "logging": {"terminal": False, "tensorboard": False},
    }
    result = rl_training.train(config)
    first = rl_training.evaluate(result.run_dir, checkpoint=0, episodes=2)
    last = rl_training.evaluate(result.run_dir, episodes=2)
    assert last["return_mean"] == pytest.approx(result.metrics["eval/return_mean"])
    assert last["open_loop_error_1"] < 0.7 * first["open_loop_error_1"]


def test_it_conforms_by_its_short_name_under_planet() -> None:
    search = {"plan_horizon": 2, "candidates": 4, "elites": 2, "iterations": 1}
    hparams = {**SMALL, **search, "train_ratio": 8, "learning_starts": 32, "dynamics": {"type": "linear"}}
    config = {"plugins": ["examples.my_dynamics"]}
    report = check_algorithm("planet", environments=["Pendulum-v1"], hparams=hparams, config=config)
    assert report.trained_on == ("Pendulum-v1",)


def test_arguments_it_does_not_take_are_refused() -> None:
    hparams = {**SMALL, "dynamics": {"type": "examples.my_dynamics:Linear", "kwargs": {"sise": 3}}}
    with pytest.raises(ConfigError, match="takes no 'sise'; did you mean 'size'"):
        rl_training.train({"algo": "dynamics", "env_id": "Pendulum-v1", "hparams": hparams})
