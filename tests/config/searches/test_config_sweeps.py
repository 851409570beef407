"""Sweep files expand to their trials: grids, reproducible draws, lists; inconsistent files are refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from rl_training.config.searches.sweeps import RangeConfig, SweepConfig, load_sweep, parse_sweep, seeds_of, trials_of
from rl_training.types import ConfigError


def sweep(**fields: Any) -> SweepConfig:
    return parse_sweep({"base_config": "ppo/cartpole", **fields})


def test_a_grid_is_every_combination_and_seeds_are_apart() -> None:
    grid = sweep(sweep={"algorithm.lr": [1e-3, 3e-4], "hparams.gamma": [0.9, 0.99], "experiment.seed": [4, 5]})
    assert trials_of(grid) == [
        {"hparams.learning_rate": 1e-3, "hparams.gamma": 0.9},
        {"hparams.learning_rate": 1e-3, "hparams.gamma": 0.99},
        {"hparams.learning_rate": 3e-4, "hparams.gamma": 0.9},
        {"hparams.learning_rate": 3e-4, "hparams.gamma": 0.99},
    ]
    assert seeds_of(grid) == (4, 5)
    assert trials_of(sweep(sweep={"seed": [1, 2]})) == [{}]


def test_a_list_is_what_it_says() -> None:
    listed = sweep(trials=[{"algorithm.lr": 1e-3, "algorithm.clip_ratio": 0.1}, {"seed": 3}], seeds=[])
    assert trials_of(listed) == [{"hparams.learning_rate": 1e-3, "hparams.clip_coef": 0.1}, {"seed": 3}]


def test_draws_repeat_and_stay_inside() -> None:
    def drawn(**fields: Any) -> list[dict[str, Any]]:
        ranges = {"algorithm.lr": {"low": 1e-5, "high": 1e-1, "log": True}}
        ranges["hparams.num_steps"] = {"low": 16, "high": 64, "integer": True}
        return trials_of(sweep(sweep={"hparams.gamma": [0.9, 0.99]}, ranges=ranges, num_trials=200, **fields))

    trials = drawn()
    assert trials == drawn() != drawn(draw_seed=1)
    assert len(trials) == 200
    rates = [trial["hparams.learning_rate"] for trial in trials]
    assert all(1e-5 <= rate <= 1e-1 for rate in rates)
    assert 0.4 < sum(rate < 1e-3 for rate in rates) / 200 < 0.6  # half of the magnitudes lie below
    assert {trial["hparams.gamma"] for trial in trials} == {0.9, 0.99}
    steps = [trial["hparams.num_steps"] for trial in trials]
    assert all(isinstance(step, int) and 16 <= step <= 64 for step in steps)
    assert all(float(f"{rate:.6g}") == rate for rate in rates)
    few = trials_of(sweep(sweep={"hparams.gamma": [0.9, 0.95, 0.99]}, num_trials=50))
    assert sorted(trial["hparams.gamma"] for trial in few) == [0.9, 0.95, 0.99]  # no trial twice


def test_a_longer_search_begins_with_the_shorter_one() -> None:
    ranges = {"algorithm.lr": {"low": 0.1, "high": 0.2}}
    assert trials_of(sweep(ranges=ranges, num_trials=20))[:5] == trials_of(sweep(ranges=ranges, num_trials=5))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "'sweep' has no keys"),
        ({"sweep": {"seed": [1]}, "trials": [{"seed": 1}]}, "'trials' stands for itself"),
        ({"ranges": {"algorithm.lr": {"low": 0.1, "high": 0.2}}}, "say how often with 'num_trials'"),
        ({"trials": [{"seed": 1}], "num_trials": 3}, "the trials are written out"),
        ({"sweep": {"seed": [1]}, "seeds": [2]}, "are the same; keep one"),
        ({"sweep": {"algorithm.lr": [1e-3]}, "seeds": [2, 2]}, "a seed is there twice"),
        ({"sweep": {"algorithm.lr": [1e-3]}, "seeds": [-1]}, "'seeds' must be a whole number between 0"),
        ({"ranges": {"algorithm.lr": {"low": 2, "high": 1}}, "num_trials": 2}, "must be greater than low"),
        ({"ranges": {"algorithm.lr": {"low": 0, "high": 1, "log": True}}, "num_trials": 2}, "must be greater than 0"),
        ({"ranges": {"algorithm.lrr": {"low": 0, "high": 1}}, "num_trials": 2}, "unknown key 'ranges.algorithm.lrr'"),
        ({"ranges": {"hparams.gamma": {"low": 0.5, "high": 1.5}}, "num_trials": 2}, "'ranges.hparams.gamma' must be"),
        ({"trials": [{"seed": 1}, {"hparams.clip_coeff": 1}]}, "unknown key 'trials[1].hparams.clip_coeff'"),
        ({"trials": [{"hparams.lr": 1, "algorithm.lr": 2}]}, "are both 'hparams.learning_rate'"),
        ({"sweep": {"hparams.gamma": [0.9], "algorithm.gamma": [0.8]}}, "are both 'hparams.gamma'"),
        ({"sweep": {"seed": [1]}, "num_trials": 0}, "num_trials"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sweep(**fields)
    assert message in str(caught.value)


def test_a_grid_can_be_too_large() -> None:
    config = SweepConfig("ppo/cartpole", {"hparams.gamma": tuple(range(200)), "hparams.ent_coef": tuple(range(200))})
    with pytest.raises(ConfigError, match="40000 trials is too large"):
        trials_of(config)


def test_a_file_with_trials_alone_is_a_sweep(tmp_path: Path) -> None:
    file = tmp_path / "list.yaml"
    file.write_text("base_config: ppo/cartpole\ntrials:\n  - {algorithm.lr: 1e-3}\n  - {algorithm.lr: 3e-4, seed: 2}\n")
    assert [trial.get("hparams.learning_rate") for trial in load_sweep(file).trials] == [1e-3, 3e-4]


def test_ranges_by_hand() -> None:
    from rl_training.config.searches.sweeps import _drawn

    assert _drawn(RangeConfig(0.0, 10.0), 0.25) == 2.5
    assert _drawn(RangeConfig(1e-4, 1e-2, log=True), 0.5) == pytest.approx(1e-3)
    integers = RangeConfig(1, 4, integer=True)
    assert [_drawn(integers, share) for share in (0.0, 0.24, 0.26, 0.5, 0.76, 1.0)] == [1, 1, 2, 3, 4, 4]
    assert math.isclose(float(_drawn(RangeConfig(1, 8, log=True, integer=True), 0.99)), 8)
