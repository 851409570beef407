"""The rule `no_progress` on returns recorded from real runs, and on returns made by hand.

Each file in `recorded_returns` has the command that it was recorded from, then a line per train step in which episodes
ended: env steps and the returns.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.assembly.running.user_parts import solved_at
from rl_training.config.loading import load_config, parse_config
from rl_training.config.monitor import MonitorConfig
from rl_training.monitoring.alerts import TrainingMonitor
from rl_training.monitoring.progress_rule import no_progress, standard_error

FOLDER = Path(__file__).parent / "recorded_returns"
RECORDED = sorted(path.stem for path in FOLDER.glob("*.txt"))
STUCK = {name for name in RECORDED if name.startswith(("random_", "stuck_"))} | {"ppo_mountaincar"}
Rows = list[dict[str, Any]]


def recorded(name: str) -> tuple[dict[str, Any], Rows]:
    """What was run, and its rows; between two with episodes there is one without, as in most rollouts."""
    first, *lines = (FOLDER / f"{name}.txt").read_text().splitlines()
    rows: Rows = []
    for line in lines:
        env_steps, _, returns = line.partition(": ")
        rows.append({"env_steps": int(env_steps), "rollout/returns": [float(value) for value in returns.split()]})
        rows.append({"env_steps": int(env_steps), "rollout/returns": []})
    return json.loads(first), rows


def told(rows: Rows, total: int, goal: float | None = None, patience: float = 0.5) -> list[int]:
    """Where the rule alerts in a run that is never silenced by the interval."""
    cfg = MonitorConfig(progress_patience=patience, alert_interval=0.0)
    monitor = TrainingMonitor(cfg, total_timesteps=total, solved_at=goal)
    found = [alert for row in rows for alert in monitor.check_alerts(row)]
    return [alert.env_steps for alert in found if alert.rule == "no_progress"]


def goal_of(run: dict[str, Any]) -> float | None:
    return solved_at(parse_config({"env_id": run["env_id"]}))


@pytest.mark.parametrize("name", [name for name in RECORDED if name not in STUCK])
def test_a_run_that_learns_or_has_learnt_is_silent(name: str) -> None:
    run, rows = recorded(name)
    total = run["total_timesteps"]
    # also without a known goal, and with half the patience that is usual
    assert [told(rows, total, goal_of(run)), told(rows, total), told(rows, total, patience=0.25)] == [[], [], []]


@pytest.mark.parametrize("name", sorted(STUCK))
def test_a_run_that_is_stuck_is_told_once(name: str) -> None:
    run, rows = recorded(name)
    total = run["total_timesteps"]
    (env_steps,) = told(rows, total, goal_of(run))
    assert 0.5 * total < env_steps < 0.85 * total


def test_several_algorithms_and_tasks_were_recorded() -> None:
    assert {"ppo", "a2c", "dqn", "sac", "random"} <= {name.partition("_")[0] for name in RECORDED}
    tasks = {recorded(name)[0]["env_id"] for name in RECORDED}
    assert {"CartPole-v1", "Pendulum-v1", "MountainCar-v0", "Acrobot-v1"} <= tasks
    assert len(STUCK) >= 4


def test_half_a_log_and_a_resume_give_the_same_alerts() -> None:
    run, rows = recorded("ppo_mountaincar")
    total = run["total_timesteps"]
    for cut in range(0, len(rows), 97):
        first, second = (TrainingMonitor(total_timesteps=total) for _ in range(2))
        before = [alert for row in rows[:cut] for alert in first.check_alerts(row)]
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        after = [alert for row in rows[cut:] for alert in second.check_alerts(row)]
        assert [alert.env_steps for alert in before + after] == told(rows, total)


# -- by hand ----------------------------------------------------------------------------------------------------------


def steps(*parts: tuple[float, int], every: int = 100) -> Rows:
    """A row per episode: each part is a return and how often it comes."""
    returns = [value for value, count in parts for _ in range(count)]
    return [{"env_steps": (i + 1) * every, "rollout/returns": [value]} for i, value in enumerate(returns)]


@pytest.mark.parametrize(
    ("parts", "goal", "expected"),
    [
        ([(-200, 1000)], None, 1),
        ([(-200, 1000)], -110.0, 1),
        ([(500, 1000)], 475.0, 0),  # began with a solved policy
        ([(20, 100), (500, 900)], None, 0),  # at the maximum, whatever that is
        ([(20, 100), (500, 200), (490, 700)], None, 0),  # noise at the top
        ([(20, 100), (500, 200), (300, 700)], None, 1),  # fell back
        ([(20, 100), (500, 200), (300, 700)], 295.0, 0),  # but is still solved
        ([(-500, 100), (-80, 200), (-500, 700)], None, 1),
        ([(20, 100), (500, 100), (20, 650), (500, 100), (20, 50)], None, 1),  # recovered, not yet fallen for long
        ([(0, 1000)], None, 1),
        ([(1e9, 100), (2e9, 900)], None, 0),
        ([(1e-9, 100), (2e-9, 900)], None, 0),
        ([(20, 10)], None, 0),
    ],
    ids=str,
)
def test_stuck_fallen_and_solved(parts: list[tuple[float, int]], goal: float | None, expected: int) -> None:
    assert len(told(steps(*parts), 100_000, goal)) == expected


def test_it_is_told_again_only_after_a_recovery() -> None:
    rows = steps((20, 100), (500, 100), (20, 800), (500, 200), (20, 800))
    first, second = told(rows, 120_000, patience=0.5)
    assert 70_000 < first < 90_000  # a patience after the best
    assert second > 120_000 + 10_000  # fell again, and stayed there


def test_a_slow_learner_with_noise_is_silent() -> None:
    rng = np.random.default_rng(0)
    rows: Rows = [
        {"env_steps": 100 * i, "rollout/returns": [-1000 + 0.5 * i + 200 * rng.standard_normal()]} for i in range(2000)
    ]
    assert told(rows, 200_000, patience=0.25) == []


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_is_no_progress(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows: Rows = [{"env_steps": 100 * i, "rollout/returns": [rng.normal(-1000, 300)]} for i in range(2000)]
    assert len(told(rows, 200_000)) == 1


def test_rows_without_an_episode_change_nothing() -> None:
    rows = steps((-200, 60))
    memory: dict[str, Any] = {}
    said = [no_progress(row, memory, patience=3000) for row in rows]
    assert said[-1] is not None
    before = json.dumps(memory)
    for row in ({"env_steps": 6100}, {"env_steps": 6200, "rollout/returns": []}, {"rollout/returns": [float("nan")]}):
        assert no_progress(row, memory, patience=3000) == said[-1]
    assert json.dumps(memory) == before


def test_an_evaluation_that_reaches_the_goal_counts_as_solved() -> None:
    memory: dict[str, Any] = {}
    for row in steps((-200, 60)):
        no_progress(row, memory, patience=3000, solved_at=-110.0)
    assert no_progress({"env_steps": 6001}, memory, patience=3000, solved_at=-110.0) is not None
    assert no_progress({"env_steps": 6002, "eval/return_mean": -105.0}, memory, patience=3000, solved_at=-110.0) is None


def test_rows_with_means_alone_are_judged_too() -> None:
    rows: Rows = [{"env_steps": 100 * i, "rollout/return_mean": -200.0, "rollout/episodes": 3} for i in range(1, 200)]
    assert len(told(rows, 20_000)) == 1


def test_the_memory_of_an_older_version_is_taken_over() -> None:
    memory: dict[str, Any] = {"worst": -200.0, "best": -100.0, "best_at": 5, "total": -200.0, "count": 1}
    said = [no_progress(row, memory, patience=5000) for row in steps((-200, 100))]
    assert [bool(text) for text in said].count(True) > 0


def test_the_goal_of_a_run() -> None:
    assert solved_at(load_config("ppo/cartpole")) == 475.0
    assert solved_at(parse_config({"env_id": "CartPole-v1", "training": {"stop_at_return": 200}})) == 200.0
    assert solved_at(parse_config({"env_id": "CartPole-v1", "training": {"stop_at_return": 500}})) == 475.0
    assert solved_at(parse_config({"env_id": "Pendulum-v1"})) is None
    assert solved_at(parse_config({"env_id": "no_such_module:Env-v0"})) is None  # and nothing is imported
    assert solved_at(parse_config({"env_id": "CartPole-v1"}), known=False) is None  # another environment by env_fn


def test_the_standard_error_of_a_mean() -> None:
    assert standard_error([1.0, 3.0]) == pytest.approx(1.0)
    assert standard_error([7.0]) == standard_error([7.0, 7.0]) == 0.0
