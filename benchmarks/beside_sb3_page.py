"""The section of docs/scores.md on Stable-Baselines3, and its learning curves, from the rows of `beside_sb3.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
from beside_sb3 import SIDES, TASKS, current_rows, overrides, settings_of

from rl_training.experiments.analysis.statistics import Estimate, estimate

Rows = list[dict[str, Any]]
NAMES = {"ours": "rl_training", "sb3": "Stable-Baselines3"}
PICTURE = "beside_sb3_curves.svg"
LOWEST_RATIO = 0.75
"""What no task of continuous control may fall below, as a ratio to the peer's mean."""
PONG_MARGIN, PONG_FLOOR = 2.0, 10.0
"""How far the mean in Pong may lie below the peer's, and what the better seed must reach."""
CANNOT_BE_EQUAL = (
    "What settings cannot make equal: first weights of SAC and TD3 (orthogonal here, uniform there); TD3's critic loss "
    "(half the squared errors here); statistics of normalised observations and rewards (moved between rollouts here, "
    "at every step there); Atari's random start (FIRE, then up to 29 no-ops here; 1 to 30 no-ops, then FIRE there), "
    "the first frame stack (black here, the first frame repeated there) and what follows a lost life (the game goes "
    "on in both, with a no-op there); the generators, and with them every single number."
)


def scores(rows: Rows, task: str, side: str) -> dict[int, float]:
    """Mean returns of the final policies by seed."""
    return {row["seed"]: row["return_mean"] for row in rows if (row["task"], row["side"]) == (task, side)}


def ratios(rows: Rows, task: str) -> np.ndarray | None:
    """Our scores divided by the mean of the peer's; None while one side is missing."""
    ours, theirs = scores(rows, task, "ours"), scores(rows, task, "sb3")
    if not ours or not theirs:
        return None
    return np.array([ours[seed] for seed in sorted(ours)]) / float(np.mean(list(theirs.values())))


def aggregate(rows: Rows) -> tuple[Estimate, dict[str, float]] | None:
    """IQM of our ratios over the tasks with its interval, and the mean ratio of each task; None until all are there."""
    found = {name: ratios(rows, name) for name, task in TASKS.items() if task.aggregated}
    present = {name: values for name, values in found.items() if values is not None}
    if len(present) < len(found):
        return None
    interval = estimate(list(present.values()), rng=np.random.default_rng(0))
    return interval, {name: float(values.mean()) for name, values in present.items()}


def section(all_rows: Rows) -> list[str]:
    """Lines of Markdown; none where there are no rows of the present settings."""
    rows = current_rows(all_rows)
    if not rows:
        return []
    most = max(task.seeds for task in TASKS.values())
    lines = [
        "## MuJoCo, dm_control and Pong beside Stable-Baselines3",
        "",
        "The same hyperparameters, budget and evaluation on both sides (`benchmarks/beside_sb3.py`): final policy,",
        "greedy, 100 episodes, 20 where they have a thousand steps and more; raw rewards and whole games, every seed.",
        "",
        f"| task | decisions | by | {' | '.join(f'seed {seed}' for seed in range(most))} | mean | ratio of means |",
        "|---" * (most + 5) + "|",
    ]
    for name, task in TASKS.items():
        for side in SIDES:
            found = scores(rows, name, side)
            cells = [f"{found[seed]:,.1f}" if seed in found else missing(seed, task.seeds) for seed in range(most)]
            mean = f"{np.mean(list(found.values())):,.1f}" if found else ""
            ratio = ratios(rows, name) if side == "ours" else None
            shown = f"{ratio.mean():.2f}" if ratio is not None and task.aggregated else ""
            lines.append(f"| `{name}` | {task.budget:,} | {NAMES[side]} | {' | '.join(cells)} | {mean} | {shown} |")
    lines += ["", *verdicts(rows), "", f"![Learning curves](assets/{PICTURE})", ""]
    lines += ["Settings, as Stable-Baselines3 is given them:", "", *settings_lines(rows), "", CANNOT_BE_EQUAL, ""]
    return lines


def missing(seed: int, seeds: int) -> str:
    return "not run" if seed < seeds else ""


def verdicts(rows: Rows) -> list[str]:
    """The aggregate over continuous control, and Pong, against their goals."""
    lines = []
    if (summed := aggregate(rows)) is not None:
        interval, means = summed
        low, high = cast(float, interval.low), cast(float, interval.high)  # every task has several seeds
        worst = min(means, key=lambda name: means[name])
        reached = high >= 1.0 and means[worst] >= LOWEST_RATIO
        lines.append(
            f"- Continuous control, our scores divided by the peer's mean of the task: IQM {interval.value:.2f}, 95% "
            f"stratified bootstrap interval {low:.2f} to {high:.2f}; lowest task {means[worst]:.2f} "
            f"(`{worst}`). Goal, the interval reaches 1 and no task is below {LOWEST_RATIO}: {verdict(reached)}."
        )
    ours, theirs = (list(scores(rows, "pong", side).values()) for side in SIDES)
    if ours and theirs:
        behind = float(np.mean(theirs) - np.mean(ours))
        reached = behind <= PONG_MARGIN and max(ours) >= PONG_FLOOR
        lines.append(
            f"- Pong: mean {np.mean(ours):.1f} beside {np.mean(theirs):.1f}, the better seed {max(ours):.1f}. Goal, "
            f"not below by more than {PONG_MARGIN:g} and the better seed at {PONG_FLOOR:g} or more: {verdict(reached)}."
        )
    return lines or ["Not all runs are there yet."]


def verdict(reached: bool) -> str:
    return "reached" if reached else "not reached"


def settings_lines(rows: Rows) -> list[str]:
    """One line per task: the preset, what differs from it, and the translated arguments."""
    lines = []
    for name in [name for name in TASKS if any(row["task"] == name for row in rows)]:
        settings, task = settings_of(name), TASKS[name]
        shown = {**settings["arguments"], **settings["network"]}
        words = ", ".join(f"{key} {json.dumps(value)}" for key, value in shown.items() if value is not None)
        changed = ", ".join(f"{key} {json.dumps(value)}" for key, value in overrides(task).items())
        wrapped = settings["environment"]
        normalized = [what for what in ("obs", "reward") if wrapped["normalize"][what]]
        env = f"{wrapped['num_envs']} × {wrapped['env_id']}"
        env += f", normalised {' and '.join(normalized)}" if normalized else ""
        lines.append(f"- `{name}`: preset `{task.preset}` with {changed}; {env}; {words}.")
    return lines


def draw(all_rows: Rows, folder: Path) -> None:
    """Returns of training episodes over env steps: a panel per task, a line per run, a colour per side."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "rl-training"
    from matplotlib import pyplot

    rows = current_rows(all_rows)
    names = [name for name in TASKS if any(row["task"] == name for row in rows)]
    if not names:
        return
    figure, axes = pyplot.subplots(1, len(names), figsize=(3.0 * len(names), 2.8), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for side, colour in zip(SIDES, ("tab:blue", "tab:orange"), strict=True):
            runs = [row for row in rows if (row["task"], row["side"]) == (name, side)]
            for number, row in enumerate(runs):
                steps, returns = [point[0] for point in row["curve"]], [point[1] for point in row["curve"]]
                label = NAMES[side] if number == 0 else None
                axis.plot([step / 1000 for step in steps], returns, linewidth=1.4, color=colour, label=label)
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("env steps (thousands)", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("return of training episodes", fontsize=8)
    axes[0][-1].legend(fontsize=7, frameon=False)
    figure.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / PICTURE, metadata={"Date": None})
    pyplot.close(figure)
