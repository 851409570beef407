"""The tables of `world_models.py`: a section of docs/scores.md, and the same rows on the pages of the algorithms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from beside_sb3 import read_rows
from world_models import DATA, SEEDS, TASKS, command, current_rows

Rows = list[dict[str, Any]]
PAGES = Path(__file__).resolve().parents[1] / "docs" / "algorithms"
BEGIN, END = "<!-- scores: begin, written by benchmarks/world_models.py -->", "<!-- scores: end -->"


def returns(rows: Rows, name: str) -> dict[int, float]:
    """The score of each seed: of sampled actions where those count."""
    key = "sampled_mean" if TASKS[name].stochastic else "return_mean"
    return {row["seed"]: row[key] for row in rows if row["task"] == name}


def digits(name: str) -> int:
    """Digits behind the point: two where a return is at most 1."""
    return 2 if ">= 0." in TASKS[name].goal else 1


def table_row(rows: Rows, name: str) -> str:
    """One line: steps, seeds, mean, goal, CPU seconds."""
    task, found = TASKS[name], returns(rows, name)
    mine = [row for row in rows if row["task"] == name]
    cells = " | ".join(f"{found[seed]:.{digits(name)}f}" if seed in found else "not run" for seed in SEEDS)
    used = {row["seed"]: f"{row['cpu_seconds']:.0f}" for row in mine if "cpu_seconds" in row}
    times = ", ".join(used.get(seed, "?") for seed in SEEDS if seed in found)
    kind = "sampled" if task.stochastic else "greedy"
    steps = dict.fromkeys(f"{row['env_steps']:,}" for row in sorted(mine, key=by_seed))  # one, if all took the same
    what = f"{task.changed.get('backend', 'torch')} | {'; '.join(steps)} | {kind}, {mine[0]['episodes']}"
    mean = f"{np.mean(list(found.values())):.{digits(name)}f}"
    return f"| `{task.preset}` | {what} | {cells} | {mean} | {task.goal}: {verdict(name, found)} | {times} |"


def verdict(name: str, found: dict[int, float]) -> str:
    """Whether the goal of a task is reached."""
    which, _, number = TASKS[name].goal.rpartition(" >= ")
    values = list(found.values())
    score = float(np.mean(values)) if which == "mean" else min(values)
    return ("reached" if score >= float(number) else "not reached") + ("" if len(found) == len(SEEDS) else " so far")


def lines(rows: Rows, names: list[str]) -> list[str]:
    """The table of some tasks, the greedy scores where sampled ones count, and the commands."""
    greedy = []
    for name in (name for name in names if TASKS[name].stochastic):
        scores = ", ".join(f"{row['return_mean']:.1f}" for row in sorted(rows, key=by_seed) if row["task"] == name)
        greedy.append(f"`{TASKS[name].preset}` with greedy actions: {scores}.")
    return [
        f"| preset | backend | env steps | actions, episodes | {' | '.join(f'seed {seed}' for seed in SEEDS)} "
        "| mean | goal | CPU seconds |",
        "|---" * (7 + len(SEEDS)) + "|",
        *(table_row(rows, name) for name in names),
        "",
        *([" ".join(greedy), ""] if greedy else []),
        "```bash",
        *(command(name) for name in names),
        "```",
    ]


def by_seed(row: dict[str, Any]) -> int:
    seed: int = row["seed"]
    return seed


def section(all_rows: Rows) -> list[str]:
    """Lines for docs/scores.md; none where there are no rows of the present settings."""
    rows = current_rows(all_rows)
    names = [name for name in TASKS if any(row["task"] == name for row in rows)]
    if not names:
        return []
    return [
        "## World models",
        "",
        "The policy after the last step of the preset's budget, every seed (`benchmarks/world_models.py`); PlaNet ends",
        "where 20 episodes reach its goal. CPU seconds are those of one core for the whole `rl train`, evaluations and",
        "compiling included, with other work on the machine. dm_control counts decisions of two physics steps each,",
        "and sampled actions, as published scores do.",
        "",
        *lines(rows, names),
        "",
    ]


def rewrite_algorithm_pages() -> None:
    """The marked part of each algorithm's page."""
    rows = current_rows(read_rows(DATA))
    for page in sorted({TASKS[row["task"]].preset.split("/")[0] for row in rows}):
        names = [n for n in TASKS if TASKS[n].preset.startswith(f"{page}/") and any(row["task"] == n for row in rows)]
        path = PAGES / f"{page}.md"
        before, _, rest = path.read_text().partition(BEGIN)
        if not rest:
            raise SystemExit(f"{path.name} has no line {BEGIN}")
        after = rest.partition(END)[2]
        path.write_text("\n".join([before + BEGIN, "", *lines(rows, names), "", END]) + after)
