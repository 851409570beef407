"""`rl dataset plot`: what its panels show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rl_training.cli import main
from rl_training.data.datasets.native import write_native
from rl_training.eval import record
from rl_training.experiments.analysis.dataset_figure import dataset_figure, main_directions
from rl_training.training.offline.recording import Amount


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
