"""Pictures of comparisons: what is drawn is what was computed, and every name fits on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from comparison_cases import by_algorithm, scored_run, two_algorithms

from rl_training.experiments.analysis.compare import compare, parse_metric
from rl_training.experiments.analysis.entries import find_entries
from rl_training.experiments.analysis.figures import (
    MAX_ENTRIES,
    comparison_figure,
    curves_figure,
    sensitivity_figure,
    varied,
)
from rl_training.experiments.analysis.plots import PALETTE, write_figure
from rl_training.experiments.analysis.plotter import Plotter
from rl_training.types import ConfigError


def with_learning_rate(run: Path, value: str) -> None:
    path = run / "configs" / "resolved.yaml"
    lines = path.read_text().splitlines()
    changed = [f"  learning_rate: {value}" if line.startswith("  learning_rate:") else line for line in lines]
    assert changed != lines
    path.write_text("\n".join(changed) + "\n")


def test_curves_of_two_entries_on_two_environments(tmp_path: Path) -> None:
    two_algorithms(tmp_path, tasks=["CartPole-v1", "Acrobot-v1"])
    figure = curves_figure(by_algorithm(tmp_path).metrics[0])
    left, right = figure.axes
    assert [axes.get_title() for axes in (left, right)] == ["Acrobot-v1", "CartPole-v1"]
    thick = [line for line in right.lines if line.get_linewidth() > 2]
    assert [line.get_ydata().tolist() for line in thick] == [[13.75, 27.5, 55.0], [6.25, 12.5, 25.0]]
    assert [line.get_color() for line in thick] == list(PALETTE[:2])
    assert len(right.lines) == 2 + 8  # every run behind
    assert len(right.collections) == 2  # a band each
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ppo (8)", "a2c (8)"]
    assert legend.get_title().get_text() == "IQM of (n) runs, 95% interval"
    assert (right.get_xlabel(), right.get_ylabel()) == ("env steps", "evaluation return")


def test_bars_are_the_intervals(tmp_path: Path) -> None:
    two_algorithms(tmp_path)
    result = by_algorithm(tmp_path).metrics[0]
    iqm, median, mean, profile, better = comparison_figure(result).axes
    assert [axes.get_title() for axes in (iqm, median, mean)] == ["IQM", "median", "mean"]
    assert [line.get_xdata().tolist() for line in iqm.lines] == [[55.0], [25.0]]
    edges = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in iqm.patches]
    assert edges == [pytest.approx((one.iqm.low, one.iqm.high)) for one in result.summaries]
    assert [text.get_text() for text in iqm.get_yticklabels()] == ["ppo", "a2c"]
    assert profile.lines[1].get_ydata().tolist() == list(result.profiles[1].share)
    assert better.lines[0].get_xdata().tolist() == [13.5 / 16]
    assert [text.get_text() for text in better.get_yticklabels()] == ["ppo\n> a2c"]


def test_sensitivity_over_the_values(tmp_path: Path) -> None:
    """Two runs at each of three learning rates: the IQM of two is their mean."""
    for number, rate in enumerate(("1e-4", "1e-3", "1e-2")):
        for seed in (0, 1):
            run = scored_run(tmp_path, 10 * number + seed, [1.0, 2.0, 10.0 * (number + 1) + seed], seed=seed)
            with_learning_rate(run, rate)
    entries = find_entries(["algorithm=ppo"], tmp_path).entries
    runs = [run for entry in entries for run in entry.runs]
    assert varied(runs) == ["hparams.learning_rate"]
    figure = sensitivity_figure(entries, parse_metric("reward", runs))
    (axes,) = figure.axes
    (line,) = [line for line in axes.lines if line.get_linewidth() == 2.0]
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([1e-4, 1e-3, 1e-2], [10.5, 20.5, 30.5])
    assert (axes.get_xscale(), axes.get_xlabel()) == ("log", "hparams.learning_rate")
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0.0001", "0.001", "0.01"]
    by_alias = sensitivity_figure(entries, parse_metric("reward", runs), ["algorithm.lr"])
    assert by_alias.axes[0].lines[-1].get_xdata().tolist() == [1e-4, 1e-3, 1e-2]
    words = sensitivity_figure(entries, parse_metric("reward", runs), ["algo"])
    assert [text.get_text() for text in words.axes[0].get_xticklabels()] == ["ppo"]


def test_equal_configs_have_no_sensitivity(tmp_path: Path) -> None:
    run = scored_run(tmp_path, 0, [1.0, 2.0, 3.0])
    entries = find_entries([run], tmp_path).entries
    with pytest.raises(ConfigError, match="no field of the config differs"):
        sensitivity_figure(entries, parse_metric("reward", entries[0].runs))


def test_of_many_entries_the_best_are_drawn(tmp_path: Path) -> None:
    for number in range(MAX_ENTRIES + 3):
        scored_run(tmp_path, number, [1.0, 2.0, 100.0 - number], seed=number)
    result = compare(find_entries(["seed>=0"], tmp_path, by=["seed"])).metrics[0]
    figure = curves_figure(result)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [f"{i} (1)" for i in range(MAX_ENTRIES)]
    assert figure.legends[0].get_title().get_text().endswith("(the best 12 of 15)")
    assert len(comparison_figure(result).axes[0].lines) == MAX_ENTRIES


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    two_algorithms(tmp_path)
    scored_run(tmp_path, 50, [1.0, 2.0, 3.0], algo="random", env_id="Acrobot-v1")
    with pytest.raises(ConfigError, match="no environment in common"):
        comparison_figure(by_algorithm(tmp_path).metrics[0])
    with pytest.raises(ConfigError, match="no curve to draw"):
        curves_figure(by_algorithm(tmp_path, "seconds").metrics[0])


def test_long_and_strange_labels_fit(tmp_path: Path) -> None:
    """A layout that collapses, or a letter that cannot be set, would be a warning; warnings are errors here."""
    names = ["n" * 300, "$x_1$ \x1b[31m <b>", "日本語 " * 30]
    for number, name in enumerate(names):
        scored_run(tmp_path, number, [1.0, 2.0, 3.0], env_id="CartPole-v1", seed=number)
        record = next(tmp_path.glob(f"*seed{number}__*")) / "run.json"
        record.write_text(record.read_text().replace('"name": null', f'"name": {json.dumps(name)}'))
    result = compare(find_entries(sorted(tmp_path.iterdir()), tmp_path)).metrics[0]
    for figure in (curves_figure(result), comparison_figure(result)):
        for ending in ("png", "svg", "pdf"):
            assert len(write_figure(figure, ending)) > 1000
    with pytest.raises(ConfigError, match="a plot is one of png, svg, pdf, not 'gif'"):
        write_figure(figure, "gif")


def test_the_plotter_keeps_what_it_draws(tmp_path: Path) -> None:
    two_algorithms(tmp_path / "runs")
    plotter = Plotter(tmp_path / "runs", by=["algorithm"])
    plotter.plot_learning_curves(["seed>=0"], "train/loss")
    plotter.plot_algorithm_comparison(["seed>=0"])
    plotter.plot_hyperparameter_sensitivity(["seed>=0"], ["hparams.gamma"])
    written = plotter.save_plots(tmp_path / "figures", ["svg", "pdf"])
    assert [path.name for path in written] == [
        *("curves_train-loss.svg", "curves_train-loss.pdf", "compare_reward.svg", "compare_reward.pdf"),
        *("sensitivity_reward.svg", "sensitivity_reward.pdf"),
    ]
    again = Plotter(tmp_path / "runs", by=["algorithm"])
    again.plot_algorithm_comparison(["seed>=0"])
    (svg, pdf) = again.save_plots(tmp_path / "again", ["svg", "pdf"])
    assert [svg.read_bytes(), pdf.read_bytes()] == [path.read_bytes() for path in written[2:4]]
