"""`rl dataset plot`: what its panels show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.cli import main
from rl_training.data.datasets.dataset import Steps, joined
from rl_training.data.datasets.info import DatasetInfo
from rl_training.data.datasets.native import write_native
from rl_training.eval import record
from rl_training.experiments.analysis import dataset_figure as dataset_figure_module
from rl_training.experiments.analysis.dataset_figure import dataset_figure, features_of, main_directions
from rl_training.training.offline.recording import Amount
from rl_training.types import BoxSpec, DictSpec, DiscreteSpec, MultiBinarySpec

NUMBER = BoxSpec(np.full(1, -np.inf, np.float32), np.full(1, np.inf, np.float32), np.dtype(np.float32))


def test_directions_are_those_of_the_largest_variance() -> None:
    rng = np.random.default_rng(0)
    long, short = rng.normal(size=500), rng.normal(size=500)
    rows = np.stack([long, long + 0.01 * rng.normal(size=500), short], axis=1)
    places, names = main_directions(rows)
    assert abs(np.corrcoef(places[:, 0], long)[0, 1]) > 0.999
    assert abs(np.corrcoef(places[:, 1], short)[0, 1]) > 0.999
    assert names[0].startswith("direction 1 (67%")
    constant, _ = main_directions(np.ones((4, 1)))
    assert constant.tolist() == [[0.0, 0.0]] * 4


def test_large_observations_are_thinned_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Directions of every pixel would take a matrix of its count squared: 6 GB for four frames of 84 x 84."""
    space = BoxSpec(np.zeros((84, 84, 4), np.uint8), np.full((84, 84, 4), 255, np.uint8), np.dtype(np.uint8))
    spaces = DictSpec({"eye": space, "speed": NUMBER, "action_mask": MultiBinarySpec(2)}), DiscreteSpec(2)
    obs: Any = {"eye": np.zeros((11, 84, 84, 4), np.uint8), "speed": np.arange(11, dtype=np.float32)[:, None]}
    obs["action_mask"] = np.ones((11, 2), np.int8)
    end = np.arange(10) == 9
    data = joined(DatasetInfo("X-v0", spaces), [Steps(obs, np.zeros(10, np.int64), np.ones(10), end, end & ~end)])
    rows = features_of(data)
    assert rows.shape == (10, 512)
    assert rows[:, -1].tolist() == list(range(10))
    monkeypatch.setattr(dataset_figure_module, "MAX_ROWS", 4)
    assert features_of(data)[:, -1].tolist() == [0, 3, 6, 9]


def test_panels_show_returns_actions_and_coverage() -> None:
    data = record(None, Amount(episodes=4), random_env="CartPole-v1")
    returns, actions, coverage, _ = dataset_figure(data, "random").axes
    assert sum(patch.get_height() for patch in returns.patches) == 4
    np.testing.assert_allclose(sum(patch.get_height() for patch in actions.patches), 1.0)
    assert coverage.get_title() == "coverage of observations"


def test_from_the_command_line(tmp_path: Path, capsys: Any) -> None:
    data = record(None, Amount(steps=50), random_env="Pendulum-v1")
    folder = write_native(data, tmp_path / "data")
    target = tmp_path / "deep" / "figure.svg"
    assert main(["dataset", "plot", str(folder), "--output", str(target)]) == 0
    assert target.read_text().startswith("<?xml")
    assert main(["dataset", "plot", str(folder), "--output", str(tmp_path / "figure.txt")]) == 2
    assert "png" in capsys.readouterr().err
