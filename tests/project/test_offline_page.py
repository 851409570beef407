"""The section of docs/scores.md on offline learning. Nothing is trained."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
page: Any = importlib.import_module("offline_page")


def row(algo: str, which: str, seed: int, last: float, best: float) -> dict[str, Any]:
    return {"algo": algo, "set": which, "seed": seed, "updates": 20_000, "backend": "jax", "last": last, "best": best}


ROWS = [row("iql", "medium-replay", seed, last, 90.0) for seed, last in ((1, 40.0), (0, 70.0), (2, 91.0))]


def test_a_cell_has_means_and_every_seed() -> None:
    assert page.cell(ROWS, "iql", "medium-replay") == "**67** (90): 70, 40, 91"
    assert page.table(ROWS)[-1] == "| `iql` | not run | not run | **67** (90): 70, 40, 91 | not run |"


def test_the_goal_waits_for_all_seeds() -> None:
    assert "67.0. Goal, 60 or more: reached." in "\n".join(page.section(ROWS))
    low = [row("iql", "medium-replay", seed, 59.0, 90.0) for seed in range(3)]
    assert "not reached" in page.verdict(low)[0]
    assert page.verdict(ROWS[:2]) == []
    assert page.section([]) == []


def test_the_page_has_the_rows_that_are_kept() -> None:
    text = (ROOT / "docs" / "scores.md").read_text()
    for line in page.section(page.read_rows()):
        assert line in text
