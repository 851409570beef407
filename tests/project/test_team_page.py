"""The section of docs/scores.md on several agents and games. Nothing is trained."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
page: Any = importlib.import_module("team_page")

RUN = {"backend": "torch", "env_steps": 1_000_000, "curve": []}
TEAM = {**RUN, "preset": "ippo/simple_spread", "standard_error": 0.3}
ROWS = [
    {**TEAM, "seed": 1, "seconds": 300, "return_mean": -11.0, "share": 0.9},
    {**TEAM, "seed": 0, "seconds": 200, "return_mean": -10.0, "share": 0.954},
]
SEATS = {"player_0": [490, 4, 6], "player_1": [500, 0, 0]}
GAME = {**RUN, "preset": "ppo/connect_four", "seed": 3, "seconds": 1, "matches": {"random": SEATS}}


def test_teams_have_every_seed_in_order_and_their_mean() -> None:
    row = page.team_lines(ROWS, "share of the way")[-1]
    assert row == "| `ippo/simple_spread` | torch | 1,000,000 | -10.0, -11.0 | -10.5 | 95%, 90% | 300 |"


def test_teams_whose_best_is_not_known_stand_beside_random_actions() -> None:
    found = {**RUN, "preset": "ippo/lbf", "seed": 0, "seconds": 9, "return_mean": 0.4567, "random_mean": 0.031}
    assert "best assignment" not in "\n".join(page.section([found]))
    assert page.section([found])[-2] == "| `ippo/lbf` | torch | 1,000,000 | 0.46 | 0.46 | 0.03 | 9 |"


def test_games_have_a_row_per_seat_and_count_draws_half() -> None:
    first, second = page.game_lines([GAME])[-2:]
    assert first == "| `ppo/connect_four` | 3 | 1,000,000 | `random` | player_0 | 490 | 4 | 6 | 98.4% |"
    assert second.endswith("| player_1 | 500 | 0 | 0 | 100.0% |")


def test_parts_without_rows_are_left_out() -> None:
    assert page.section([]) == []
    assert "Games" not in "\n".join(page.section(ROWS))
    assert "simple_spread" not in "\n".join(page.section([GAME]))


def test_the_page_has_the_rows_that_are_kept() -> None:
    text = (ROOT / "docs" / "scores.md").read_text()
    for line in page.section(page.read_rows()):
        assert line in text
