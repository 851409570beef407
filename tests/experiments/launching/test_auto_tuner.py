"""`AutoTuner`: learns from what it is told, wherever the scores come from."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rl_training.config.searches.sweeps import RangeConfig
from rl_training.experiments.launching.auto_tuner import (
    AutoTuner,
    decoded,
    distributions,
    encoded,
    make_pruner,
    make_sampler,
    optuna_here,
)
from rl_training.types import ConfigError

SPACE: dict[str, Any] = {
    "hparams.learning_rate": RangeConfig(1e-5, 1e-1, log=True),
    "hparams.num_epochs": RangeConfig(1, 8, integer=True),
    "network.actor.hidden_dims": [[64, 64], [256]],
}


def performance(config: dict[str, Any]) -> float:
    """Best at a learning rate of 1e-3 with wide layers; the epochs do not matter."""
    wide = 0.5 if config["network.actor.hidden_dims"] == [256] else 0.0
    return wide - abs(math.log10(config["hparams.learning_rate"]) + 3.0)


def search(tuner: AutoTuner, trials: int) -> list[float]:
    scores = []
    for _ in range(trials):
        config = tuner.suggest_next_config()
        scores.append(performance(config))
        tuner.update_with_result(config, scores[-1])
    return scores


def test_it_finds_what_is_good() -> None:
    tuner = AutoTuner(SPACE)
    scores = search(tuner, 40)
    assert sum(scores[-10:]) / 10 > sum(scores[:10]) / 10 + 0.5
    assert tuner.best is not None
    config, best = tuner.best
    assert best == max(scores)
    assert config["network.actor.hidden_dims"] == [256]
    assert abs(math.log10(config["hparams.learning_rate"]) + 3.0) < 0.2


def test_suggestions_are_in_the_space_and_the_same_for_the_same_seed() -> None:
    first, again, other = (AutoTuner(SPACE, seed=seed) for seed in (0, 0, 1))
    assert search(first, 12) == search(again, 12) != search(other, 12)
    config = first.suggest_next_config()
    assert 1e-5 <= config["hparams.learning_rate"] <= 1e-1
    assert config["hparams.num_epochs"] in range(1, 9)
    assert config["network.actor.hidden_dims"] in ([64, 64], [256])
    assert float(f"{config['hparams.learning_rate']:.6g}") == config["hparams.learning_rate"]


def test_history_from_elsewhere_counts_once_and_failures_do_not_count() -> None:
    tuner = AutoTuner(SPACE, direction="minimize")
    assert tuner.best is None
    known = {"hparams.learning_rate": 0.01, "hparams.num_epochs": 3, "network.actor.hidden_dims": [256], "seed": 4}
    history = [(known, 2.0)]
    suggested = tuner.suggest_next_config(history)
    tuner.suggest_next_config(history)
    assert len(tuner.study.trials) == 3
    tuner.update_with_result(suggested, math.nan)
    assert tuner.best == ({key: known[key] for key in SPACE}, 2.0)
    with pytest.raises(ConfigError, match="no value for hparams"):
        tuner.update_with_result({"hparams.learning_rate": 0.1, "network.actor.hidden_dims": [256]}, 1.0)


def test_values_survive_the_way_through_optuna() -> None:
    space = distributions(SPACE)
    config = {"hparams.learning_rate": 0.001, "hparams.num_epochs": 2, "network.actor.hidden_dims": [64, 64]}
    assert decoded(encoded(config, space)) == config
    assert decoded({"a": True, "b": None, "c": 0.1234567891}) == {"a": True, "b": None, "c": 0.123457}


def test_samplers_and_pruners_have_names() -> None:
    with optuna_here():
        assert type(make_sampler("tpe", 0)).__name__ == "TPESampler"
        assert type(make_sampler("random", 0)).__name__ == "RandomSampler"
        assert type(make_pruner("wilcoxon")).__name__ == "WilcoxonPruner"
    with pytest.raises(ConfigError, match="unknown sampler 'tpee'; did you mean 'tpe'"):
        make_sampler("tpee", 0)
    with pytest.raises(ConfigError, match="unknown pruner 'never'"):
        make_pruner("never")
