"""The sections of docs/scores.md on offline learning, one per task, from the rows of `offline_scores.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from offline_tasks import GREEDY, PEER, SEEDS, TASKS, Task

Rows = list[dict[str, Any]]
DATA = Path(__file__).resolve().parents[1] / "docs" / "data" / "offline_scores.jsonl"
GOAL = 60.0
"""What IQL is to reach on Pendulum's medium-replay, as a mean of the last scores."""
MARGIN = 5.0
"""How far below the peer a mean may be, in points of the score, unless the intervals overlap."""
STUDENT = 4.303
"""97.5% quantile of Student's distribution for three seeds."""
GREEDY_TEXT = (
    "The two `greedy` sets are of the same policies without sampling: one action per state, and nothing on what others "
    "lead to."
)


def read_rows(data: Path = DATA) -> Rows:
    """Finished runs; none where there is no file. ValueError where a set was recorded twice: its rows say nothing
    about each other."""
    rows: Rows = [json.loads(line) for line in data.read_text().splitlines()] if data.exists() else []
    digests: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        digests.setdefault((row["task"], row["set"]), set()).add(row["data"])
    for (task, which), found in digests.items():
        if len(found) > 1:
            names = ", ".join(sorted(found))
            raise ValueError(f"'{data}' has rows of different datasets '{which}' of {task} ({names}): remove the older")
    return rows


def who(row: dict[str, Any]) -> str:
    """The library of a row, whatever the backend."""
    return PEER if row["by"] == PEER else "rl_training"


def of(rows: Rows, algo: str, which: str, by: str) -> Rows:
    """The runs of a cell, by seed."""
    found = [row for row in rows if (row["algo"], row["set"], who(row)) == (algo, which, by)]
    return sorted(found, key=lambda row: row["seed"])


def cell(found: Rows) -> str:
    """Mean of the last scores, that of the best in brackets, and every last score."""
    if not found:
        return "not run"
    last, best = (np.mean([row[name] for row in found]) for name in ("last", "best"))
    every = ", ".join(f"{row['last']:.0f}" for row in found)
    return f"**{last:.0f}** ({best:.0f}): {every}"


def table(task: Task, rows: Rows) -> list[str]:
    """A row per algorithm and library, a column per dataset; greedy ones where there are any."""
    sets = (*task.sets, *(which for which in GREEDY if any(row["set"] == which for row in rows)))
    lines = [f"| algorithm | by | {' | '.join(sets)} |", "|---" * (len(sets) + 2) + "|"]
    for algo in task.algorithms:
        for by in ("rl_training", PEER):
            if any(row["algo"] == algo and who(row) == by for row in rows):
                cells = " | ".join(cell(of(rows, algo, which, by)) for which in sets)
                lines.append(f"| `{algo}` | {by} | {cells} |")
    return lines


def means(rows: Rows, algo: str, which: str) -> tuple[list[float], list[float]] | None:
    """Last scores of both libraries; None while seeds are missing."""
    both = [[row["last"] for row in of(rows, algo, which, by)] for by in ("rl_training", PEER)]
    return (both[0], both[1]) if min(map(len, both)) >= len(SEEDS) else None


def interval(scores: list[float]) -> tuple[float, float]:
    """95% interval of the mean."""
    half = STUDENT * float(np.std(scores, ddof=1)) / len(scores) ** 0.5
    return float(np.mean(scores)) - half, float(np.mean(scores)) + half


def is_below(ours: list[float], theirs: list[float]) -> bool:
    """Whether a mean is lower by more than MARGIN, and the 95% intervals are apart."""
    return bool(np.mean(ours) < np.mean(theirs) - MARGIN) and interval(ours)[1] < interval(theirs)[0]


def verdict(task: Task, rows: Rows) -> list[str]:
    """The goals, as far as their seeds are there."""
    lines = []
    found = [row["last"] for row in of(rows, "iql", "medium-replay", "rl_training")]
    if task is TASKS["pendulum"] and len(found) >= len(SEEDS):
        reached = "reached" if np.mean(found) >= GOAL else "not reached"
        lines.append(f"IQL on medium-replay: {np.mean(found):.1f}. Goal, {GOAL:g} or more: {reached}.")
    cells = [(algo, which) for algo in task.algorithms for which in task.sets]
    both = {key: pair for key in cells if (pair := means(rows, *key)) is not None}
    if both:
        below = [f"`{a}` on {s}" for (a, s), pair in both.items() if is_below(*pair)]
        lines.append(
            f"Beside {PEER}, {len(both)} cells. Goal, no mean lower by more than {MARGIN:g} points with the 95% "
            f"intervals apart: {'reached' if not below else 'not reached by ' + ', '.join(below)}."
        )
        behind = [f"`{a}` on {s}" for a, s in both if a != "bc" and loses_to_imitation(both, a, s)]
        lines.append(
            f"Above our BC wherever {PEER}'s is above its own: "
            f"{'reached' if not behind else 'not reached by ' + ', '.join(behind)}."
        )
    return [line for text in lines for line in (text, "")]


def loses_to_imitation(both: dict[tuple[str, str], Any], algo: str, which: str) -> bool:
    """Whether the peer's algorithm beats its BC, and ours does not beat ours."""
    if ("bc", which) not in both:
        return False
    ours, theirs = (np.mean(both[algo, which][side]) - np.mean(both["bc", which][side]) for side in (0, 1))
    return bool(theirs > 0.0 and ours <= 0.0)


def peer_text(rows: Rows) -> list[str]:
    """What the rows of the peer are, where there are any."""
    if not any(who(row) == PEER for row in rows):
        return []
    return [f"{PEER} 2.8.1 learns from the same rows with the same settings and plays the same episodes."]


def section(rows: Rows) -> list[str]:
    """Lines of Markdown; none where there are no rows."""
    lines = []
    for name, task in TASKS.items():
        if found := [row for row in rows if row["task"] == name]:
            lines += task_section(task, found)
    return lines


def task_section(task: Task, rows: Rows) -> list[str]:
    """The table of a task, what its numbers are and what they should be."""
    updates, width = max(row["updates"] for row in rows), task.hidden_dims[0]
    has_greedy = any(row["set"] in GREEDY for row in rows)
    return [
        f"## Offline learning on {task.title}",
        "",
        f"Normalised scores after {updates:,} updates of {width} x {width} networks (`benchmarks/offline_scores.py`).",
        task.text,
        "In each cell the mean of the last scores, in brackets that of the best scores of a run, then the last score",
        f"of every seed; {task.episodes} greedy episodes each.",
        *([GREEDY_TEXT] if has_greedy else []),
        *peer_text(rows),
        "",
        *table(task, rows),
        "",
        *verdict(task, rows),
    ]
