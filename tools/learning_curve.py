"""Draw the picture of the README from finished runs: greedy evaluation return over env steps, each seed and their mean.

rl train ppo/cartpole --seed 0..4 --training.eval-frequency 2500 --training.num-eval-episodes 20
python tools/learning_curve.py runs/ppo__CartPole-v1__seed* [--output docs/assets/learning_curve.svg]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SOLVED = {"CartPole-v1": 475.0}


def evaluations(run: Path) -> dict[int, float]:
    """Env steps to the mean return of each evaluation of a run."""
    rows = [json.loads(line) for line in (run / "logs" / "evals.jsonl").read_text().splitlines()]
    return {row["env_steps"]: row["return_mean"] for row in rows}


def draw(runs: list[Path], output: Path) -> None:
    """One line per run, their mean in bold, the mark at which the task counts as solved."""
    algo, env_id = runs[0].name.split("__")[:2]
    curves = [evaluations(run) for run in runs]
    shared = sorted(set.intersection(*(set(curve) for curve in curves)))
    # the same file for the same runs: no date, no random ids
    plt.rcParams.update({"svg.hashsalt": "rl_training", "svg.fonttype": "none", "font.family": "sans-serif"})
    figure, axes = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    for curve in curves:
        axes.plot(list(curve), list(curve.values()), color="tab:blue", alpha=0.3, linewidth=1)
    axes.plot(shared, [np.mean([curve[step] for curve in curves]) for step in shared], color="tab:blue", linewidth=2.2)
    if env_id in SOLVED:
        axes.axhline(SOLVED[env_id], color="tab:green", linestyle="--", linewidth=1)
        axes.text(
            0.995, SOLVED[env_id] - 28, "solved", color="tab:green", ha="right", transform=axes.get_yaxis_transform()
        )
    axes.set(
        title=f"{algo.upper()} on {env_id}, {len(runs)} seeds and their mean",
        xlabel="env steps",
        ylabel="greedy return",
    )
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k")
    axes.set_ylim(bottom=min(0.0, *(min(curve.values()) for curve in curves)))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, metadata={"Date": None, "Creator": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="run directories of one algorithm and environment")
    parser.add_argument("--output", type=Path, default=Path("docs/assets/learning_curve.svg"), help="file to write")
    arguments = parser.parse_args()
    draw(sorted(arguments.runs), arguments.output)
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
