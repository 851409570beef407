"""The tables of world-model scores: which runs count, verdicts, and that the pages are what the rows give."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
scores, page = map(importlib.import_module, ("world_models", "world_models_page"))


def row(task: str, seed: int, score: float, **more: Any) -> dict[str, Any]:
    shared = {"settings": scores.settings(task), "env_steps": 24_000, "episodes": 100, "cpu_seconds": 61.4}
    return {"task": task, "seed": seed, "return_mean": score, **shared, **more}


def test_rows_of_other_settings_are_not_shown() -> None:
    rows = [row("catch", 1, 1.0), row("catch", 2, 0.5) | {"settings": "000000000000"}]
    assert [kept["seed"] for kept in scores.current_rows(rows)] == [1]


def test_the_settings_are_told_by_what_decides_about_a_score(monkeypatch: pytest.MonkeyPatch) -> None:
    before = scores.settings("catch")
    task = scores.TASKS["catch"]
    monkeypatch.setitem(scores.TASKS, "catch", scores.Task(task.preset, task.goal, {**task.changed, "seed": 7}))
    assert scores.settings("catch") == before
    changed = {**task.changed, "training.total_timesteps": 1_000}
    monkeypatch.setitem(scores.TASKS, "catch", scores.Task(task.preset, task.goal, changed))
    assert scores.settings("catch") != before


def test_a_line_has_every_seed_the_mean_the_verdict_and_the_times() -> None:
    rows = [row("catch", 1, 1.0), row("catch", 3, 0.94, cpu_seconds=70.2)]
    assert page.table_row(rows, "catch") == (
        "| `dreamer/catch` | jax | 24,000 | greedy, 100 | 1.00 | not run | 0.94 | 0.97 "
        "| every seed >= 0.95: not reached so far | 61, 70 |"
    )


def test_a_goal_of_the_mean_is_judged_by_the_mean_of_sampled_scores() -> None:
    sampled = (700.0, 900.0, 880.0)
    rows = [row("cartpole_balance", seed, 100.0, sampled_mean=sampled[seed - 1]) for seed in (1, 2, 3)]
    assert page.verdict("cartpole_balance", page.returns(rows, "cartpole_balance")) == "reached"
    assert "`dreamer/dmc_cartpole_balance` with greedy actions: 100.0, 100.0, 100.0." in page.lines(
        rows, ["cartpole_balance"]
    )


def test_every_task_loads_and_has_a_command() -> None:
    for name, task in scores.TASKS.items():
        assert scores.config_of(name)["training"]["total_timesteps"] > 0
        assert scores.command(name).startswith(f"rl train {task.preset} ")
        assert float(task.goal.rpartition(" >= ")[2]) is not None


def test_the_pages_are_what_the_rows_give() -> None:
    rows = scores.current_rows(scores.read_rows(scores.DATA))
    for name in {row["task"] for row in rows}:
        line = page.table_row(rows, name)
        algorithm = scores.TASKS[name].preset.split("/")[0]
        assert line in (ROOT / "docs" / "scores.md").read_text()
        assert line in (ROOT / "docs" / "algorithms" / f"{algorithm}.md").read_text()
