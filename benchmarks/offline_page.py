"""The section of docs/scores.md on offline learning, from the rows of `offline_scores.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

Rows = list[dict[str, Any]]
DATA = Path(__file__).resolve().parents[1] / "docs" / "data" / "offline_scores.jsonl"
SETS = ("random", "medium", "medium-replay", "expert")
SEEDS = (0, 1, 2)
GOAL = 60.0
"""What IQL is to reach on medium-replay, as a mean of the last scores."""


def read_rows(data: Path = DATA) -> Rows:
    """Finished runs; none where there is no file."""
    return [json.loads(line) for line in data.read_text().splitlines()] if data.exists() else []


def cell(rows: Rows, algo: str, which: str) -> str:
    """Mean of the last scores, that of the best in brackets, and every last score."""
    of = sorted((row for row in rows if (row["algo"], row["set"]) == (algo, which)), key=lambda row: row["seed"])
    if not of:
        return "not run"
    last, best = (np.mean([row[name] for row in of]) for name in ("last", "best"))
    every = ", ".join(f"{row['last']:.0f}" for row in of)
    return f"**{last:.0f}** ({best:.0f}): {every}"


def table(rows: Rows) -> list[str]:
    """A row per algorithm, a column per dataset."""
    names = dict.fromkeys(row["algo"] for row in rows)
    return [
        f"| algorithm | {' | '.join(SETS)} |",
        "|---" * (len(SETS) + 1) + "|",
        *(f"| `{algo}` | {' | '.join(cell(rows, algo, which) for which in SETS)} |" for algo in names),
    ]


def verdict(rows: Rows) -> list[str]:
    """IQL on medium-replay against its goal; nothing while seeds are missing."""
    found = [row["last"] for row in rows if (row["algo"], row["set"]) == ("iql", "medium-replay")]
    if len(found) < len(SEEDS):
        return []
    reached = "reached" if np.mean(found) >= GOAL else "not reached"
    return [f"IQL on medium-replay: {np.mean(found):.1f}. Goal, {GOAL:g} or more: {reached}.", ""]


def section(rows: Rows) -> list[str]:
    """Lines of Markdown; none where there are no rows."""
    if not rows:
        return []
    updates = max(row["updates"] for row in rows)
    return [
        "## Offline learning on Pendulum",
        "",
        f"Normalised scores after {updates:,} updates of 64 × 64 networks (`benchmarks/offline_scores.py`): 0 is the",
        "mean return of random actions, 100 that of the SAC policy that made the datasets. In each cell the mean of",
        "the last scores, the mean of the best scores of a run in brackets, and the last score of every seed; 20",
        "greedy episodes each. The datasets are `random` (uniform actions), `medium` (the policy halfway),",
        "`medium-replay` (the replay rows of 1,000 steps later) and `expert` (the last policy); 5,000 rows each, of",
        "the replay those that were stored.",
        "",
        *table(rows),
        "",
        *verdict(rows),
    ]
