"""The section of docs/scores.md on several agents and games, from the rows of `team_scores.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

Rows = list[dict[str, Any]]
DATA = Path(__file__).resolve().parents[1] / "docs" / "data" / "team_scores.jsonl"
SPREAD = tuple(f"{algo}/simple_spread" for algo in ("ippo", "mappo", "vdn", "qmix", "pqn_vdn"))
"""Presets of the team task whose ends of the scale are known."""
GAMES = {
    "ppo/tictactoe": ("random", "perfect_tictactoe"),
    "ppo/connect_four": ("random", "connect_four_lookahead"),
}
"""Presets of games, with the opponents that they are scored against."""


def read_rows(data: Path = DATA) -> Rows:
    """Finished runs; none where there is no file."""
    return [json.loads(line) for line in data.read_text().splitlines()] if data.exists() else []


def of(rows: Rows, preset: str, backend: str) -> Rows:
    """The rows of a preset, by seed."""
    found = (row for row in rows if (row["preset"], row["backend"]) == (preset, backend))
    return sorted(found, key=lambda row: int(row["seed"]))


def kinds(rows: Rows) -> list[tuple[str, str]]:
    """(preset, backend), as they came."""
    return list(dict.fromkeys((row["preset"], row["backend"]) for row in rows))


def team_lines(rows: Rows, last: str) -> list[str]:
    """A row per preset and backend: the return of every seed, and beside it how good that is. `last` is the title of
    the last column before the seconds."""
    lines = [f"| preset | backend | env steps | every seed, from 0 | mean | {last} | seconds |", "|---" * 7 + "|"]
    for preset, backend in kinds(rows):
        seeds = of(rows, preset, backend)
        cells = ", ".join(f"{row['return_mean']:.{digits(row)}f}" for row in seeds)
        mean = np.mean([row["return_mean"] for row in seeds])
        seconds = max(row["seconds"] for row in seeds)
        ends = ", ".join(f"{row['share']:.0%}" for row in seeds if "share" in row)
        beside = ends or f"{seeds[0]['random_mean']:.{digits(seeds[0])}f}"
        steps, mean = f"{seeds[0]['env_steps']:,}", f"{mean:.{digits(seeds[0])}f}"
        lines.append(f"| `{preset}` | {backend} | {steps} | {cells} | {mean} | {beside} | {seconds:,} |")
    return lines


def digits(row: dict[str, Any]) -> int:
    """Digits behind the point: two where a return is at most 1."""
    return 2 if abs(row["return_mean"]) < 1 else 1


def score_of(tally: list[int]) -> float:
    """Wins and half of the draws, as a share of all games."""
    wins, draws, losses = tally
    return (wins + draws / 2) / (wins + draws + losses)


def game_lines(rows: Rows) -> list[str]:
    """A row per run, opponent and seat."""
    lines = [
        "| preset | seed | env steps | against | seat | wins | draws | losses | score |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for preset, backend in kinds(rows):
        for row in of(rows, preset, backend):
            for opponent, seats in row["matches"].items():
                for seat, tally in seats.items():
                    counts = " | ".join(map(str, tally))
                    lines.append(
                        f"| `{preset}` | {row['seed']} | {row['env_steps']:,} | `{opponent}` | {seat} | {counts} | "
                        f"{score_of(tally):.1%} |"
                    )
    return lines


def exploited(rows: Rows) -> list[str]:
    """What the best response to each seed's policy wins, where it was computed."""
    values = {
        preset: [row["exploitability"] for row in of(rows, preset, backend) if "exploitability" in row]
        for preset, backend in kinds(rows)
    }
    return [
        f"Exploitability of `{preset}`, exact: {', '.join(f'{value:.3g}' for value in found)}."
        for preset, found in values.items()
        if found
    ]


def section(rows: Rows) -> list[str]:
    """Lines of Markdown; none where there are no rows."""
    if not rows:
        return []
    spread = [row for row in rows if row["preset"] in SPREAD]
    teams = [row for row in rows if row["preset"] not in (*SPREAD, *GAMES)]
    games = [row for row in rows if row["preset"] in GAMES]
    lines = [
        "## Several agents",
        "",
        "Written by `python benchmarks/team_scores.py`, which trains what has no row yet.",
        "",
    ]
    if spread:
        lines += [
            "simple_spread of mpe2, 3 agents, 25 steps: mean return per agent, greedy, 200 episodes (standard errors",
            "about 0.3), and the way from random actions (-26.6) to the best assignment (-9.2). Seconds are those of",
            "the longest run, by the clock of a shared core.",
            "",
            *team_lines(spread, "share of the way"),
            "",
        ]
    if teams:
        lines += ["Other teams, greedy, 200 episodes, beside random actions.", "", *team_lines(teams, "random"), ""]
    if games:
        lines += [
            "Games, greedy, 500 from each seat; the score is wins + draws / 2.",
            "",
            *game_lines(games),
            "",
            *exploited(games),
            "",
        ]
    return lines
