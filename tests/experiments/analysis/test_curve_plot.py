"""Learning curves: read without what is half written, on one axis, and drawn so that a person can read them."""

from __future__ import annotations

import doctest
import struct
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from rl_training.experiments.analysis import plots
from rl_training.experiments.analysis.curves import MAX_POINTS, TRAINING, Curve, align, read_curve
from rl_training.experiments.analysis.plots import PALETTE, learning_curve, save_figure
from rl_training.types import ConfigError


def curve(*points: tuple[int, float]) -> Curve:
    return Curve(np.array([step for step, _ in points]), np.array([value for _, value in points]))


def test_a_curve_is_what_the_log_says(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    rows = [
        '{"env_steps": 20, "eval/return_mean": 2.5}',
        '{"env_steps": 30, "rollout/return_mean": 1.0}',
        '{"env_steps": 40, "eval/return_mean": null}',
        "damaged",
        '{"env_steps": 50, "eval/return_mean": 5}',
    ]
    (logs / "metrics.jsonl").write_text("\n".join(rows) + '\n{"env_steps": 60, "eval/return_mean": 6')
    found = read_curve(tmp_path)
    assert (found.steps.tolist(), found.values.tolist()) == ([20, 50], [2.5, 5.0])
    assert read_curve(tmp_path, TRAINING).steps.tolist() == [30]
    assert len(read_curve(tmp_path / "nowhere").steps) == 0


def test_equal_steps_stay_as_they_are() -> None:
    grid, values = align([curve((10, 1.0), (20, 3.0)), curve((10, 5.0), (20, 7.0))])
    assert grid.tolist() == [10.0, 20.0]
    assert values.tolist() == [[1.0, 3.0], [5.0, 7.0]]


def test_other_steps_are_interpolated_where_every_run_has_been() -> None:
    """Common to both is 10 to 30; the longer list of steps there has three, so does the grid: 10, 20, 30."""
    one, other = curve((0, 0.0), (10, 1.0), (25, 4.0), (30, 5.0)), curve((10, 0.0), (30, 10.0), (90, 0.0))
    grid, values = align([one, other])
    assert grid.tolist() == [10.0, 20.0, 30.0]
    assert values.tolist() == [[1.0, 3.0, 5.0], [0.0, 5.0, 10.0]]


def test_runs_without_a_common_step_have_no_grid() -> None:
    for curves in ([curve((0, 1.0), (5, 1.0)), curve((6, 1.0))], [curve((1, 1.0)), curve()]):
        grid, values = align(curves)
        assert (grid.shape, values.shape) == ((0,), (2, 0))


def test_long_logs_are_thinned_out() -> None:
    steps = np.arange(10_000)
    grid, values = align([Curve(steps, steps * 2.0)] * 2)
    assert len(grid) == MAX_POINTS
    np.testing.assert_allclose(values, [grid * 2.0] * 2)


def test_the_picture_has_line_band_and_every_seed(tmp_path: Path) -> None:
    curves = [curve((1000, 10.0 * k), (2000, 20.0 * k), (50_000, 500.0)) for k in (1, 2, 3)]
    figure = learning_curve(curves, "ppo on CartPole-v1, 3 seeds")
    (axes,) = figure.axes
    thin, main = axes.lines[:3], axes.lines[3]
    assert [line.get_ydata()[0] for line in thin] == [10.0, 20.0, 30.0]
    assert main.get_ydata().tolist() == [20.0, 40.0, 500.0]
    assert main.get_linewidth() > 2 * thin[0].get_linewidth()
    (band,) = axes.collections
    edges = band.get_paths()[0].vertices
    assert (edges[:, 1].min(), edges[:, 1].max()) == (10.0, 500.0)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("env steps", "evaluation return")
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["single seeds", "IQM of 3 seeds", "95% interval"]
    png, svg = save_figure(figure, tmp_path / "plots" / "learning_curve")
    assert struct.unpack(">II", png.read_bytes()[16:24]) == (1080, 600)
    text = svg.read_text()
    assert "ppo on CartPole-v1, 3 seeds" in text  # as text, not as outlines
    assert "50k" in text
    assert PALETTE[0].lower() in text


def test_the_same_runs_give_the_same_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    curves = [Curve(np.arange(1, 9), rng.normal(size=8)) for _ in range(5)]
    first, second = [
        save_figure(learning_curve(curves, "title"), tmp_path / name / "curve") for name in ("first", "second")
    ]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


@pytest.mark.parametrize("title", ["cost $x_1$ $", "a <b> & c", "a\x1b[31m\x00b", "日本語"])
def test_any_name_can_be_a_title(title: str, tmp_path: Path) -> None:
    _, svg = save_figure(learning_curve([curve((1, 2.0))], title), tmp_path / "curve")
    texts = [element.text for element in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert "".join(letter if letter.isprintable() else "?" for letter in title) in texts


def test_one_seed_and_one_point_are_drawn_as_such(tmp_path: Path) -> None:
    figure = learning_curve([curve((5, 1.0), (10, 2.0))], "one")
    assert not figure.axes[0].collections
    single = learning_curve([curve((5, 1.0)), curve((5, 2.0))], "points")
    assert [line.get_marker() for line in single.axes[0].lines] == [".", ".", "o"]
    apart = learning_curve([curve((1, 1.0), (2, 1.0)), curve((3, 1.0), (4, 1.0))], "apart")
    assert len(apart.axes[0].lines) == 2
    save_figure(single, tmp_path / "single")


def test_without_matplotlib_the_line_to_type_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"plots need an extra: pip install 'rl-training\[analysis\]'"):
        learning_curve([curve((1, 1.0))], "none")


def test_the_examples_in_the_docstrings() -> None:
    assert doctest.testmod(plots).failed == 0
