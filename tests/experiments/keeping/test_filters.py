"""Filters say of a row what their words mean, and what they cannot read they refuse at its place."""

from __future__ import annotations

from typing import Any

import pytest

from rl_training.config.expressions import holds
from rl_training.experiments.keeping.filters import Filter, find_key, sorted_rows
from rl_training.types import ConfigError

ROW: dict[str, Any] = {
    "directory": "ppo__CartPole-v1__seed3__20260101-000000",
    "status": "finished",
    "algorithm": "ppo",
    "environment": "CartPole-v1",
    "seed": 3,
    "tags": ["keep", "Paper 2"],
    "group": None,
    "started": "2026-01-05T10:00:00.000+00:00",
    "dirty": True,
    "reward": 450.0,
    "results": {"eval/return_iqm": 460.5},
    "config": {"hparams": {"learning_rate": 3e-4}, "env": {"num_envs": 4}},
}

TRUE = [
    "",
    "algorithm=ppo",
    "algo == PPO",
    "reward>400",
    "reward >= 450",
    "seed=3",
    "seed!=4",
    "seed=3.0",
    "env~cartpole",
    "tag=keep",
    "tag='paper 2'",
    'tags="Paper 2" and not tag=gone',
    "tag!=gone",
    "status=failed or reward>400",
    "(status=failed or reward>400) and algorithm=ppo",
    "status=failed and seed=1 or seed=3",
    "not (status=failed or status=killed)",
    "NOT status=failed AND seed<5",
    "group=none",
    "group!=other",
    "started>2026-01-01",
    "dirty=true",
    "eval/return_iqm>460",
    "hparams.learning_rate=3e-4",
    "algorithm.lr<1e-3",
    "env.num_envs=4",
]
FALSE = [
    "algorithm=dqn",
    "reward>450",
    "reward<400 or status=failed",
    "status=finished and reward<400",
    "not algorithm=ppo",
    "group=other",
    "group>1",
    "group!=none",
    "tag!=keep",
    "loss>0",
    "loss<=0",
    "eval/nothing>0",
    "hparams.gamma=0.99",
    "started>2026-02-01",
]


@pytest.mark.parametrize("text", TRUE)
def test_what_passes(text: str) -> None:
    assert Filter.parse(text).accepts(ROW)


@pytest.mark.parametrize("text", FALSE)
def test_what_does_not_pass(text: str) -> None:
    assert not Filter.parse(text).accepts(ROW)


def test_several_filters_must_all_hold() -> None:
    assert Filter.parse("seed=3", "", "reward>1").accepts(ROW)
    assert not Filter.parse("seed=3", "reward<1").accepts(ROW)


def test_a_filter_says_which_large_columns_it_needs() -> None:
    keys = Filter.parse("train/loss<1 or hparams.gamma=0.9 or seed=1").keys
    assert [key.column for key in keys] == ["results", "config", "seed"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("algoritm=ppo", r"unknown key 'algoritm'; did you mean 'algorithm'\?"),
        ("reward>", r"at its end: a value is missing after 'reward>'"),
        ("reward", r"at its end: an operator .* is missing after 'reward'"),
        ("reward>>3", r"near '>3' \(character 8\): a value cannot begin with '>'"),
        ("reward=>3", r"near '>3' \(character 8\)"),
        ("reward>3=4", r"near '=4' \(character 9\): a key is missing"),
        ("reward=high", r"near 'high' .*'reward' is a number and 'high' is not"),
        ("reward>nan", r"nan compares with nothing"),
        ("tag='x", r"near ''x' \(character 5\): this quote is not closed"),
        ('tag=x"', r"near '\"' \(character 6\)"),
        ("(seed=1 seed=2)", r"'and', 'or' or '\)' is missing before it"),
        ("seed=1 or )", r"near '\)' .*a comparison is missing"),
        ("(reward>1", r"at its end"),
        ("reward>1)", r"near '\)'"),
        ("and reward>1", r"near 'and reward>1'"),
        ("reward>1 seed=2", r"near 'seed=2'"),
        ("reward>1 and", r"at its end"),
        ("=5", r"near '=5'"),
        ("; DROP TABLE runs", r"near '; DROP"),
        ("(" * 5000 + "seed=1" + ")" * 5000, r"too long|too deeply"),
        ("not " * 2400 + "seed=1", r"too deeply"),
    ],
)
def test_what_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Filter.parse(text)


def test_comparisons_of_single_values() -> None:
    assert holds(1.5, "~", ".5")
    assert holds(float("nan"), "!=", "1")
    assert not holds(float("nan"), ">", "1")
    assert not holds([], "=", "x")
    assert holds([1, 2], ">", "1")


def test_order() -> None:
    rows = [
        {"seed": 1, "reward": 5.0, "started": "2026-01-01", "name": "b"},
        {"seed": 2, "reward": None, "started": "2026-01-03", "name": "a"},
        {"seed": 3, "reward": 7.0, "started": "2026-01-02", "name": None},
    ]

    def seeds(by: str) -> list[int]:
        return [row["seed"] for row in sorted_rows(rows, by)]

    assert seeds("reward") == [3, 1, 2]
    assert seeds("-reward") == [1, 3, 2]
    assert seeds("started") == [2, 3, 1]
    assert seeds("-started") == [1, 3, 2]
    assert seeds("name") == [2, 1, 3]
    assert seeds("-name") == [1, 2, 3]
    with pytest.raises(ConfigError, match="unknown key 'rewrd'"):
        seeds("rewrd")


def test_keys() -> None:
    assert find_key("env").column == "environment"
    assert find_key("Return").column == "reward"
    assert find_key("experiment.seed").inside == ("seed",)
