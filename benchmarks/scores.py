"""Scores of the presets: train every seed with the preset's own budget, evaluate the final policy, write the table.

    python benchmarks/scores.py                       # every preset, seeds 0, 1, 2
    python benchmarks/scores.py --presets ppo/pendulum --jobs 2
    python benchmarks/scores.py --presets dqn/ape_x_cartpole --jobs 1 --output-dir runs  # rl cluster up --local 2
    python benchmarks/scores.py --backend jax         # the JAX lane on its presets, for a table beside torch
    python benchmarks/scores.py --peers --presets sac/halfcheetah      # Stable-Baselines3 instead, for another one

A score is the mean return of the run's final policy: greedy, 100 episodes on evaluation seeds, unmodified environment.
The seeds are fixed in advance and every one is reported. Results are merged into docs/data/scores.json (the peer's
into scores_sb3.json, those of the JAX lane into scores_jax.json), from which docs/scores.md and the pictures in
docs/assets are written.
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

import beside_sb3
import beside_sb3_page
import numpy as np
import offline_page
import team_page
import world_models
import world_models_page
from peers import peers_python

from rl_training.experiments.analysis.statistics import iqm

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "data" / "scores.json"
PAGE = ROOT / "docs" / "scores.md"
PEER_DATA = ROOT / "docs" / "data" / "scores_sb3.json"
JAX_DATA = ROOT / "docs" / "data" / "scores_jax.json"
PICTURES = {"ppo": "learning_curve.svg", "dqn": "dqn_curves.svg", "sac,td3,crossq": "actor_critic_curves.svg"}
"""Algorithms, and the picture of their presets."""
PANELS_PER_ROW = 3
PICTURE_FOLDER = ROOT / "docs" / "assets"
EPISODES = 100
SEEDS = ("0", "1", "2")

GOALS: dict[str, tuple[str, float | None]] = {
    "ppo/cartpole": ("every seed >= 475, mean >= 490", 475.0),
    "ppo/acrobot": ("every seed >= -90", -90.0),
    "ppo/pendulum": ("every seed >= -200", -200.0),
    "ppo/mountaincar_continuous": ("every seed >= 85", 85.0),
    "ppo/lunarlander": ("every seed >= 200", 200.0),
    "a2c/cartpole": ("every seed >= 475", 475.0),
    "impala/cartpole": ("every seed >= 475", 475.0),
    "reinforce/cartpole": ("every seed >= 475", 475.0),
    "dqn/cartpole": ("every seed >= 475, mean >= 490", 475.0),
    "dqn/ape_x_cartpole": ("every seed >= 475", 475.0),
    "dqn/mountaincar": ("every seed >= -120", -120.0),
    "dqn/lunarlander": ("every seed >= 180", 180.0),
    "dqn/bitflip": ("every seed >= -7", -7.0),
    "pqn/cartpole": ("every seed >= 475", 475.0),
    "sac/pendulum": ("every seed >= -180", -180.0),
    "td3/pendulum": ("every seed >= -180", -180.0),
    "sac/lunarlander_continuous": ("every seed >= 200", 200.0),
    "td3/lunarlander_continuous": ("every seed >= 180", 180.0),
    "ppo/cartpole_no_velocity": ("every seed >= 450", 450.0),
    "sac/pendulum_no_velocity": ("300 above the same without memory", None),
    "ppo/minigrid_doorkey": ("every seed >= 0.9", 0.9),
    "ppo/minigrid_memory": ("0.2 above the same network without memory", None),
    "ppo/pong_quick": ("best seed >= 10", None),
    "ppo/halfcheetah": ("not below Stable-Baselines3's", None),
    "td3/halfcheetah": ("not below Stable-Baselines3's", None),
    "sac/hopper": ("not below Stable-Baselines3's", None),
    "sac/dmc_cartpole_swingup": ("not below Stable-Baselines3's", None),
    "sac/halfcheetah": ("IQM not below Stable-Baselines3's", None),
    "crossq/halfcheetah": ("SAC's score of 100,000 steps in half of them", None),
}
"""What a preset wants to reach, in words and, where it is the same number for every seed, as a number."""
JAX_PRESETS = (
    "ppo/cartpole", "ppo/acrobot", "ppo/pendulum", "ppo/mountaincar_continuous", "reinforce/cartpole", "dqn/cartpole",
    "dqn/mountaincar", "pqn/cartpole", "sac/pendulum", "td3/pendulum", "ppo/lunarlander", "dqn/lunarlander",
)  # fmt: skip
"""What is compiled from end to end, and two that play Gymnasium's environment in the host lane."""
LONG = ("ppo/pong_quick",)
"""Run by name only."""
ON_A_CLUSTER = ("dqn/ape_x_cartpole",)
"""Run by name, with the --output-dir for which `rl cluster up --local 2` was started."""
LEFT_OUT = (*LONG, *ON_A_CLUSTER, "pqn/cartpole")  # PQN is there in JAX only
TORCH_PRESETS = tuple(preset for preset in GOALS if preset not in LEFT_OUT)
DIGITS = {"ppo/minigrid_doorkey": 2, "ppo/minigrid_memory": 2}
"""Digits behind the point of a return, where one is too few."""
PEER_RUNS = {"sac/halfcheetah": ("--algorithm", "sac", "--env-id", "HalfCheetah-v5", "--total-timesteps", "100000")}


def run_json(*arguments: str) -> Any:
    """The JSON that an `rl` command prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "rl_training", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)} failed ({done.returncode}):\n{done.stderr}")
    return json.loads(done.stdout)


def score(preset: str, seed: int, output_dir: str, backend: str) -> dict[str, Any]:
    """Train one seed and evaluate its final policy."""
    started = time.monotonic()
    trained = run_json("train", preset, "--seed", str(seed), "--output-dir", output_dir, "--backend", backend)
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


def peer_score(preset: str, seed: int) -> dict[str, Any]:
    """The same for Stable-Baselines3, in its own environment."""
    script = str(ROOT / "benchmarks" / "score_sb3.py")
    command = [str(peers_python(".venv-peers")), script, *PEER_RUNS[preset], "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    print(f"{preset} of Stable-Baselines3, seed {seed}: {result['return_mean']:.1f}", flush=True)
    return result


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def write(path: Path, scores: dict[str, Any]) -> None:
    """The data, and the page and the pictures made of all there is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(scores, indent=1, sort_keys=True) + "\n")
    rewrite_page()


def rewrite_page() -> None:
    """docs/scores.md and the pictures from all the data there are."""
    write_page(read(DATA), read(PEER_DATA), read(JAX_DATA))
    beside_sb3_page.draw(beside_sb3.read_rows(), PICTURE_FOLDER)
    world_models_page.rewrite_algorithm_pages()
    for algorithms, picture in PICTURES.items():
        draw(read(DATA), algorithms.split(","), PICTURE_FOLDER / picture)


def write_page(scores: dict[str, Any], peers: dict[str, Any], compiled: dict[str, Any]) -> None:
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
        seconds = max(run["seconds"] for run in scores[preset].values())
        lines.append(f"| `{preset}` | {row(preset, scores[preset])} | {seconds:.0f} |")
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
    if compiled:
        lines += beside_torch(scores, compiled)
    if any(preset in scores for preset in peers):
        lines += beside_peers(scores, peers)
    lines += beside_sb3_page.section(beside_sb3.read_rows())
    lines += world_models_page.section(beside_sb3.read_rows(world_models.DATA))
    lines += offline_page.section(offline_page.read_rows())
    lines += team_page.section(team_page.read_rows())
    shown = [name for algorithms, name in PICTURES.items() if drawn_presets(scores, algorithms.split(","))]
    lines += [f"![Learning curves](assets/{name})\n" for name in shown]
    PAGE.write_text("\n".join(lines))


def row(preset: str, seeds: dict[str, Any]) -> str:
    """The cells of one preset: env steps, the score of each seed, their mean, the goal."""
    returns = [seeds[seed]["return_mean"] for seed in sorted(seeds)]
    digits = DIGITS.get(preset, 1)
    cells = " | ".join(f"{seeds[seed]['return_mean']:.{digits}f}" if seed in seeds else "not run" for seed in SEEDS)
    steps = next(iter(seeds.values()))["env_steps"]
    return f"{steps:,} | {cells} | {sum(returns) / len(returns):.{digits}f} | {GOALS[preset][0]}"


def beside_torch(scores: dict[str, Any], compiled: dict[str, Any]) -> list[str]:
    """The table of the presets that were trained with `--backend jax` as well."""
    lines = [
        "## The JAX lane beside torch",
        "",
        "The same presets with `--backend jax`: environment, agent and loop in one program, LunarLander in the host",
        "lane. The final policy plays the same Gymnasium episodes. How fast it is: [Benchmarks](benchmarks.md).",
        "",
        "| preset | backend | env steps | seed 0 | seed 1 | seed 2 | mean | goal |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for preset in sorted(compiled, key=list(GOALS).index):
        for backend, seeds in (("torch", scores.get(preset)), ("jax", compiled[preset])):
            if seeds:
                lines.append(f"| `{preset}` | {backend} | {row(preset, seeds)} |")
    return [*lines, ""]


def beside_peers(scores: dict[str, Any], peers: dict[str, Any]) -> list[str]:
    """The table of the presets that were trained with another library as well."""
    lines = [
        "## Beside Stable-Baselines3",
        "",
        "The same hyperparameters, budget and evaluation; IQM over the seeds.",
        "",
        "| preset | by | seed 0 | seed 1 | seed 2 | IQM |",
        "|---|---|---|---|---|---|",
    ]
    for preset in peers:
        for name, seeds in (("rl_training", scores.get(preset, {})), ("Stable-Baselines3", peers[preset])):
            cells = " | ".join(f"{seeds[seed]['return_mean']:.0f}" if seed in seeds else "not run" for seed in SEEDS)
            middle = f"{iqm(np.array([run['return_mean'] for run in seeds.values()])):.0f}" if seeds else ""
            lines.append(f"| `{preset}` | {name} | {cells} | {middle} |")
    return [*lines, ""]


def drawn_presets(scores: dict[str, Any], algorithms: list[str]) -> list[str]:
    """Presets of these algorithms that have learning curves."""
    return [preset for preset in GOALS if preset in scores and preset.split("/")[0] in algorithms]


def draw(scores: dict[str, Any], algorithms: list[str], path: Path) -> None:
    """Learning curves of the presets of some algorithms: evaluation return over env steps, one line per seed."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "rl-training"
    from matplotlib import pyplot

    presets = drawn_presets(scores, algorithms)
    if not presets:
        return
    columns = min(len(presets), PANELS_PER_ROW)
    rows = -(-len(presets) // columns)
    figure, grid = pyplot.subplots(rows, columns, figsize=(3.1 * columns, 2.8 * rows), squeeze=False)
    axes = grid.ravel()
    for axis in axes[len(presets) :]:
        axis.remove()
    for axis, preset in zip(axes, presets, strict=False):
        for seed, run in sorted(scores[preset].items()):
            steps, returns = zip(*run["curve"], strict=True)
            axis.plot([step / 1000 for step in steps], returns, linewidth=1.6, label=f"seed {seed}")
        goal = GOALS[preset][1]
        if goal is not None:
            axis.axhline(goal, color="0.6", linestyle="--", linewidth=1, label="goal")
        axis.set_title(preset, fontsize=10)
        axis.set_xlabel("env steps (thousands)", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in grid[:, 0]:
        axis.set_ylabel("evaluation return", fontsize=9)
    axes[len(presets) - 1].legend(fontsize=8, frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", help="comma-separated; by default all that the backend has a table for")
    parser.add_argument("--seeds", default=",".join(SEEDS))
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    parser.add_argument("--backend", choices=("torch", "jax"), default="torch")
    parser.add_argument("--output-dir", help="keep the run directories here")
    parser.add_argument("--peers", action="store_true", help="train Stable-Baselines3 instead, where it is a goal")
    arguments = parser.parse_args()
    presets, path = (JAX_PRESETS, JAX_DATA) if arguments.backend == "jax" else (TORCH_PRESETS, DATA)
    presets = arguments.presets.split(",") if arguments.presets else presets
    work = [(preset, int(seed)) for preset in presets for seed in arguments.seeds.split(",")]
    if arguments.peers:
        for preset, seed in work:
            peers = read(PEER_DATA)
            peers.setdefault(preset, {})[str(seed)] = peer_score(preset, seed)
            write(PEER_DATA, peers)
        return 0
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(arguments.jobs) as pool:
        output_dir = arguments.output_dir or scratch
        results = pool.map(lambda job: score(job[0], job[1], output_dir, arguments.backend), work)
        for (preset, seed), result in zip(work, results, strict=True):
            scores = read(path)
            scores.setdefault(preset, {})[str(seed)] = result
            write(path, scores)  # after every run: hours of them are not lost with the last
    scores = read(path)
    goals = {preset: GOALS[preset][1] for preset, _ in work}
    missed = [
        f"{preset} seed {seed}"
        for preset, seed in work
        if (goal := goals[preset]) is not None and scores[preset][str(seed)]["return_mean"] < goal
    ]
    print(f"missed the goal: {', '.join(missed)}" if missed else "every goal reached")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
