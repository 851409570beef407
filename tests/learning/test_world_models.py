"""Dreamer and PlaNet reach their goals within the budgets of their presets: greedy evaluation, several seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rl_training
from rl_training.config.loading import load_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def best_evaluation(preset: str, tmp_path: Path, **overrides: Any) -> float:
    """The last evaluation of a run that stops where its goal is reached over a hundred episodes."""
    cfg = load_config(preset, {"output_dir": str(tmp_path), "logging.terminal": False, **overrides})
    run = Path(rl_training.train(cfg).run_dir)
    rows = [json.loads(line) for line in (run / "logs" / "evals.jsonl").read_text().splitlines()]
    return float(rows[-1]["return_mean"])


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("preset", "goal"),
    [
        ("dreamer/catch", 0.95),
        ("dreamer/cartpole", 475.0),
        ("dreamer/pendulum", -200.0),
        ("dreamer/cue_memory", 0.95),
        ("dreamer/catch_pixels", 0.9),
        ("planet/pendulum", -250.0),
    ],
)
def test_reaches_its_goal(preset: str, goal: float, seed: int, tmp_path: Path) -> None:
    assert best_evaluation(preset, tmp_path, **{"seed": seed, "training.stop_at_return": goal}) >= goal


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("lane", ["host", "compiled"])
def test_dreamer_reaches_the_goal_of_catch_in_jax(lane: str, seed: int, tmp_path: Path) -> None:
    jax = {"backend": "jax", "lane": lane, "seed": seed, "training.stop_at_return": 0.95}
    assert best_evaluation("dreamer/catch", tmp_path, **jax) >= 0.95
