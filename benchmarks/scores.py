"""Scores of the presets: train every seed with the preset's own budget, evaluate the final policy, write the table.

    python benchmarks/scores.py                       # every preset, seeds 0, 1, 2
    python benchmarks/scores.py --presets ppo/pendulum --jobs 2

A score is the mean return of the run's final policy: greedy, 100 episodes on evaluation seeds, unmodified environment.
The seeds are fixed in advance and every one is reported. Results are merged into docs/data/scores.json, from which
docs/scores.md and docs/assets/learning_curve.svg are written.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "data" / "scores.json"
PAGE = ROOT / "docs" / "scores.md"
PICTURE = ROOT / "docs" / "assets" / "learning_curve.svg"
EPISODES = 100
SEEDS = ("0", "1", "2")

GOALS = {
    "ppo/cartpole": ("every seed >= 475, mean >= 490", 475.0),
    "ppo/acrobot": ("every seed >= -90", -90.0),
    "ppo/pendulum": ("every seed >= -200", -200.0),
    "ppo/mountaincar_continuous": ("every seed >= 85", 85.0),
    "ppo/lunarlander": ("every seed >= 200", 200.0),
    "a2c/cartpole": ("every seed >= 475", 475.0),
    "reinforce/cartpole": ("every seed >= 475", 475.0),
}


def run_json(*arguments: str) -> Any:
    """The JSON that an `rl` command prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "rl_training", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)} failed ({done.returncode}):\n{done.stderr}")
    return json.loads(done.stdout)


def score(preset: str, seed: int, output_dir: str) -> dict[str, Any]:
    """Train one seed and evaluate its final policy."""
    started = time.monotonic()
    trained = run_json("train", preset, "--seed", str(seed), "--output-dir", output_dir)
    seconds = time.monotonic() - started
    result = run_json("eval", trained["run"], "--episodes", str(EPISODES))
    curve = [json.loads(line) for line in (Path(trained["run"]) / "logs" / "evals.jsonl").read_text().splitlines()]
    print(
        f"{preset} seed {seed}: {result['return_mean']:.1f} +- {result['return_std']:.1f}  ({seconds:.0f} s)",
        flush=True,
    )
    return {
        "return_mean": result["return_mean"],
        "return_std": result["return_std"],
        "env_steps": result["env_steps"],
        "seconds": round(seconds, 1),
        "curve": [[row["env_steps"], row["return_mean"]] for row in curve],
    }


def write(scores: dict[str, Any]) -> None:
    """The data, and the page and the picture made of it."""
    DATA.parent.mkdir(parents=True, exist_ok=True)
    DATA.write_text(json.dumps(scores, indent=1, sort_keys=True) + "\n")
    write_page(scores)
    draw(scores)


def write_page(scores: dict[str, Any]) -> None:
    """docs/scores.md from the collected scores."""
    lines = [
        "# Scores of the presets",
        "",
        f"Mean return of the final policy: greedy, {EPISODES} episodes on evaluation seeds, unmodified environment,",
        "the preset's own budget. Seeds were fixed in advance; every one is reported. Written by `make bench-scores`;",
        "times are wall seconds on two shared cores and say little.",
        "",
        "| preset | env steps | seed 0 | seed 1 | seed 2 | mean | goal | seconds per run |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for preset in sorted(scores, key=list(GOALS).index):
        seeds = scores[preset]
        returns = [seeds[seed]["return_mean"] for seed in sorted(seeds)]
        cells = " | ".join(f"{seeds[seed]['return_mean']:.1f}" if seed in seeds else "not run" for seed in SEEDS)
        steps = next(iter(seeds.values()))["env_steps"]
        seconds = max(run["seconds"] for run in seeds.values())
        mean = sum(returns) / len(returns)
        lines.append(f"| `{preset}` | {steps:,} | {cells} | {mean:.1f} | {GOALS[preset][0]} | {seconds:.0f} |")
    lines += [
        "",
        "Each cell is",
        "",
        "```bash",
        "rl train ppo/cartpole --seed 0",
        "rl eval latest --episodes 100",
        "```",
        "",
    ]
    lines += ["![Learning curves of PPO](assets/learning_curve.svg)", ""]
    PAGE.write_text("\n".join(lines))


def draw(scores: dict[str, Any]) -> None:
    """Learning curves of the PPO presets: evaluation return over env steps, one line per seed."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "rl-training"
    from matplotlib import pyplot

    presets = [preset for preset in GOALS if preset in scores and preset.startswith("ppo/")]
    figure, axes = pyplot.subplots(1, len(presets), figsize=(3.1 * len(presets), 2.8), squeeze=False)
    for axis, preset in zip(axes[0], presets, strict=True):
        for seed, run in sorted(scores[preset].items()):
            steps, returns = zip(*run["curve"], strict=True)
            axis.plot([step / 1000 for step in steps], returns, linewidth=1.6, label=f"seed {seed}")
        axis.axhline(GOALS[preset][1], color="0.6", linestyle="--", linewidth=1, label="goal")
        axis.set_title(preset, fontsize=10)
        axis.set_xlabel("env steps (thousands)", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("evaluation return", fontsize=9)
    axes[0][-1].legend(fontsize=8, frameon=False)
    figure.tight_layout()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", default=",".join(GOALS), help="comma-separated; all by default")
    parser.add_argument("--seeds", default=",".join(SEEDS))
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    parser.add_argument("--output-dir", help="keep the run directories here")
    arguments = parser.parse_args()
    work = [(preset, int(seed)) for preset in arguments.presets.split(",") for seed in arguments.seeds.split(",")]
    scores: dict[str, Any] = json.loads(DATA.read_text()) if DATA.exists() else {}
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(arguments.jobs) as pool:
        output_dir = arguments.output_dir or scratch
        for (preset, seed), result in zip(work, pool.map(lambda job: score(*job, output_dir), work), strict=True):
            scores.setdefault(preset, {})[str(seed)] = result
            write(scores)  # after every run: hours of them are not lost with the last
    missed = [f"{p} seed {s}" for p, s in work if scores[p][str(s)]["return_mean"] < GOALS[p][1]]
    print(f"missed the goal: {', '.join(missed)}" if missed else "every goal reached")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
