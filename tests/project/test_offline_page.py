"""The section of docs/scores.md on offline learning. Nothing is trained."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
page: Any = importlib.import_module("offline_page")
PENDULUM = page.TASKS["pendulum"]


def row(algo: str, which: str, seed: int, last: float, best: float, by: str = "jax") -> dict[str, Any]:
    key = {
        "task": "pendulum",
        "algo": algo,
        "set": which,
        "seed": seed,
        "updates": 20_000,
        "by": by,
        "data": "5ca1ab1e",
    }
    return {**key, "last": last, "best": best, "scores": [best, last]}


def cell(algo: str, which: str, by: str, *lasts: float) -> list[dict[str, Any]]:
    return [row(algo, which, seed, last, 90.0, by) for seed, last in enumerate(lasts)]


ROWS = [row("iql", "medium-replay", seed, last, 90.0) for seed, last in ((1, 40.0), (0, 70.0), (2, 91.0))]


def test_a_cell_has_means_and_every_seed() -> None:
    lines = page.table(PENDULUM, [*ROWS, *cell("iql", "medium", "d3rlpy", 1.0)])
    assert lines[-2] == "| `iql` | rl_training | not run | not run | **67** (90): 70, 40, 91 | not run |"
    assert lines[-1] == "| `iql` | d3rlpy | not run | **1** (90): 1 | not run | not run |"


def test_the_goal_waits_for_all_seeds() -> None:
    assert "67.0. Goal, 60 or more: reached." in "\n".join(page.section(ROWS))
    assert "not reached" in page.verdict(PENDULUM, cell("iql", "medium-replay", "torch", 59.0, 59.0, 59.0))[0]
    assert page.verdict(PENDULUM, ROWS[:2]) == []
    assert page.section([]) == []


def test_below_the_peer_is_further_than_the_margin_and_outside_of_the_intervals() -> None:
    """The interval of 50, 51, 52 is 51 +- 4.303 / sqrt(3) = 48.5 to 53.5."""
    assert page.interval([50.0, 51.0, 52.0]) == pytest.approx((48.516, 53.484), abs=1e-3)
    assert page.is_below([50.0, 51.0, 52.0], [60.0, 61.0, 62.0])
    assert not page.is_below([50.0, 51.0, 52.0], [55.0, 55.5, 56.0])  # within the margin
    assert not page.is_below([50.0, 51.0, 52.0], [40.0, 60.0, 90.0])  # nobody knows
    assert not page.is_below([90.0, 91.0, 92.0], [60.0, 61.0, 62.0])


def test_algorithms_are_compared_with_the_peer_and_with_imitation() -> None:
    rows = [*cell("bc", "medium", "jax", 50.0, 51.0, 52.0), *cell("bc", "medium", "d3rlpy", 50.0, 51.0, 52.0)]
    rows += [*cell("awac", "medium", "jax", 40.0, 41.0, 42.0), *cell("awac", "medium", "d3rlpy", 60.0, 61.0, 62.0)]
    text = "\n".join(page.verdict(PENDULUM, rows))
    assert "2 cells" in text
    assert "apart: not reached by `awac` on medium." in text
    assert "Above our BC wherever d3rlpy's is above its own: not reached by `awac` on medium." in text
    better = [*rows[:6], *cell("awac", "medium", "jax", 58.0, 59.0, 60.0), *rows[9:]]
    assert "not reached" not in "\n".join(page.verdict(PENDULUM, better))


def test_rows_of_two_recordings_are_not_mixed(tmp_path: Path) -> None:
    other = {**ROWS[0], "data": "0ddba11"}
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*ROWS, other]))
    with pytest.raises(ValueError, match="different datasets 'medium-replay'"):
        page.read_rows(tmp_path / "rows.jsonl")


def test_the_page_has_the_rows_that_are_kept() -> None:
    text = (ROOT / "docs" / "scores.md").read_text()
    for line in page.section(page.read_rows()):
        assert line in text
