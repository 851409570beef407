"""Runs of version 0.1.0 keep their bits: today's code goes on with them, trains them again and plays their policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compat_cases import RUNS, SAMPLE, Case
from compat_runs import (
    Played,
    check_evaluated,
    check_listed,
    check_resumed,
    check_verified,
    control,
    differences,
    leaves,
)

Play = Callable[[str], Played]
SLOW = [pytest.mark.slow, pytest.mark.timeout(1800)]


def every_case() -> list[Any]:
    """The sample as it is, and all cases marked slow."""
    sample = [pytest.param(group, case, id=f"sample-{case.name}") for group in SAMPLE for case in SAMPLE[group]]
    return sample + [pytest.param(group, case, id=case.name, marks=SLOW) for group in RUNS for case in RUNS[group]]


def every_group(*, without: str = "") -> list[Any]:
    return [*SAMPLE, *(pytest.param(group, marks=SLOW) for group in RUNS if group != without)]


@pytest.mark.parametrize(("group", "case"), every_case())
def test_todays_code_goes_on_to_the_same_end(played: Play, group: str, case: Case) -> None:
    check_resumed(played(group), case)


@pytest.mark.parametrize(("group", "case"), every_case())
def test_todays_code_trains_the_same_run_again(played: Play, group: str, case: Case) -> None:
    check_verified(played(group), case)


@pytest.mark.parametrize(("group", "case"), every_case())
def test_todays_code_plays_the_same_episodes(played: Play, group: str, case: Case) -> None:
    check_evaluated(played(group), case)


@pytest.mark.parametrize("group", every_group())
def test_todays_code_lists_the_same_runs(played: Play, group: str) -> None:
    check_listed(played(group), {**SAMPLE, **RUNS}[group])


@pytest.mark.parametrize("group", every_group(without="torch-off-policy"))
def test_a_run_that_was_altered_in_the_middle_does_not_reach_the_same_end(played: Play, group: str) -> None:
    """Its weights were moved by one rounding step."""
    made, case = played(group), control({**SAMPLE, **RUNS}[group])
    assert case is not None
    assert made.today[f"resume altered {case.name}"].json()["metrics"]["env_steps"] >= case.total
    found = differences(made.whole(case), made.altered(case))
    assert any(place.startswith("/policy/") for place in found)
    assert any(place.startswith("metrics.jsonl") for place in found)


class Rows:
    """The rows of a replay buffer as a checkpoint gives them back."""

    def __init__(self, start: int, *rewards: float) -> None:
        self.start, self.stop, self.rewards = start, start + len(rewards), np.array(rewards)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"rewards": self.rewards}


STATE = {"net": {"weight": np.zeros(2, np.float32)}, "steps": 3, "rate": 0.1, "rows": Rows(5, 1.0, 2.0), "names": ["a"]}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"net": {"weight": np.array([0.0, -0.0], np.float32)}}, "/net/weight"),
        ({"net": {"weight": np.zeros(2)}}, "/net/weight"),
        ({"net": {"weight": np.zeros((2, 1), np.float32)}}, "/net/weight"),
        ({"net": {}}, "/net/weight"),
        ({"more": 1}, "/more"),
        ({"steps": 3.0}, "/steps"),
        ({"rate": float(np.nextafter(0.1, 1.0))}, "/rate"),
        ({"rows": Rows(5, 1.0, 2.5)}, "/rows/rewards"),
        ({"rows": Rows(6, 1.0, 2.0)}, "/rows/start"),
        ({"names": ["b"]}, "/names"),
    ],
)
def test_the_comparison_sees_every_difference(change: dict[str, Any], place: str) -> None:
    assert list(leaves(STATE, STATE)) == []
    first, *_ = leaves(STATE, {**STATE, **change})
    assert first.startswith(f"{place}:")
