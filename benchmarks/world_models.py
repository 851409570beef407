"""Scores of the algorithms that learn a model of the environment: every seed, a row per finished run.

    python benchmarks/world_models.py --only catch --seeds 1     # one run
    python benchmarks/world_models.py                            # whatever is still missing
    python benchmarks/world_models.py --quick                    # a trial of each: writes nothing
    python benchmarks/world_models.py --page                     # then the pages, from the data

A score is that of the policy after the last step of the preset's budget, or where a task stops at its goal after the
last step taken, on evaluation episodes of the unmodified environment. Rows are appended to
docs/data/world_models.jsonl as runs finish; a run whose row is there is not repeated, and one that was stopped is
resumed from runs/world_models. A row remembers its settings; rows of others are not shown. `world_models_page.py`
writes the tables into docs/scores.md and the pages of the algorithms.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beside_sb3 import append, earlier, fingerprint, flags, read_rows
from harness import ROOT, run_process

from rl_training.config.loading import config_to_mapping, load_config

DATA = ROOT / "docs" / "data" / "world_models.jsonl"
RUNS = ROOT / "runs" / "world_models"
SEEDS = (1, 2, 3)
JAX = {"backend": "jax"}
QUICK = {"training.total_timesteps": 600, "hparams.learning_starts": 500, "training.num_eval_episodes": 0}
SHARED = ("algo", "env_id", "env", "hparams", "network", "buffer", "backend", "lane")
"""Parts of a config that decide about a score, beside the budget."""


def stopping(goal: float, episodes: int) -> dict[str, Any]:
    """End where so many episodes reach the goal, for runs that are dear."""
    return {"training.stop_at_return": goal, "training.stop_episodes": episodes}


@dataclass(frozen=True)
class Task:
    """A preset, what is changed in it, how its last policy is judged, and what it wants to reach."""

    preset: str
    goal: str
    changed: dict[str, Any] = field(default_factory=dict)
    episodes: int = 100
    """100, or fewer where an episode has a thousand steps or every action is a search."""
    stochastic: bool = False
    """Whether sampled actions count, as in published scores; the greedy score stands beside."""
    frames_per_step: int = 1
    """Physics steps per decision, where budgets are published in those."""


TASKS = {
    "catch": Task("dreamer/catch", "every seed >= 0.95", JAX),
    "cartpole": Task("dreamer/cartpole", "every seed >= 475", JAX),
    "cue_memory": Task("dreamer/cue_memory", "every seed >= 0.95", JAX),
    "pendulum": Task("dreamer/pendulum", "every seed >= -200", JAX),
    "catch_pixels": Task("dreamer/catch_pixels", "every seed >= 0.9"),
    "cartpole_balance": Task(
        "dreamer/dmc_cartpole_balance", "mean >= 821", JAX, episodes=10, stochastic=True, frames_per_step=2
    ),
    "cartpole_swingup": Task(
        "dreamer/dmc_cartpole_swingup", "mean >= 513", JAX, episodes=10, stochastic=True, frames_per_step=2
    ),
    "walker_stand": Task(
        "dreamer/dmc_walker_stand", "mean >= 400", JAX, episodes=10, stochastic=True, frames_per_step=2
    ),
    "reacher_easy": Task(
        "dreamer/dmc_reacher_easy", "mean >= 631", JAX, episodes=50, stochastic=True, frames_per_step=2
    ),
    "planet_pendulum": Task("planet/pendulum", "every seed >= -250", stopping(-250.0, 20), episodes=20),
    "pets_pendulum": Task("pets/pendulum", "every seed >= -250", episodes=20),
    "mbpo_pendulum": Task("mbpo/pendulum", "every seed >= -200"),
}


def config_of(name: str) -> dict[str, Any]:
    return config_to_mapping(load_config(TASKS[name].preset, TASKS[name].changed))


def settings(name: str) -> str:
    """Short name of what decides about a task's score."""
    config = config_of(name)
    return fingerprint({**{part: config[part] for part in SHARED}, "budget": config["training"]["total_timesteps"]})


def command(name: str) -> str:
    """What trains the task, for the page."""
    words = [f"--{key} {value}" for key, value in TASKS[name].changed.items()]
    return " ".join(["rl train", TASKS[name].preset, *words, "--seed 1,2,3"])


def current_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the settings that the tasks have now."""
    prints = {name: settings(name) for name in TASKS}
    return [row for row in rows if prints.get(row["task"]) == row["settings"]]


def trained(name: str, seed: int, folder: Path, changed: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """A finished run, trained now, or gone on with, or found; and what that took."""
    rl, found = [sys.executable, "-m", "rl_training"], earlier(folder)
    if found is not None and found[1]:
        return found[0], {}
    start = ["train", TASKS[name].preset, "--seed", str(seed), *flags(changed), "--output-dir", str(folder)]
    outcome = run_process([*rl, *(start if found is None else ["resume", str(found[0])]), "--json"])
    used = {"cpu_seconds": round(outcome.cpu_seconds, 1)} if found is None else {}
    return Path(outcome.output["run"]), used


def judged(run: Path, episodes: int, *words: str) -> dict[str, Any]:
    """The last policy's returns."""
    evaluate = [sys.executable, "-m", "rl_training", "eval", str(run), "--episodes", str(episodes), *words, "--json"]
    return run_process(evaluate).output


def run(name: str, seed: int, folder: Path, *, quick: bool) -> dict[str, Any]:
    """Train and judge one seed, as a row."""
    task = TASKS[name]
    path, used = trained(name, seed, folder, task.changed | (QUICK if quick else {}))
    episodes = 2 if quick else task.episodes
    greedy = judged(path, episodes)
    sampled = {"sampled_mean": judged(path, episodes, "--stochastic")["return_mean"]} if task.stochastic else {}
    evaluations = [json.loads(line) for line in (path / "logs" / "evals.jsonl").read_text().splitlines()]
    return {
        "task": name,
        "seed": seed,
        "settings": settings(name),
        "date": time.strftime("%Y-%m-%d"),
        "return_mean": greedy["return_mean"],
        "return_std": greedy["return_std"],
        **sampled,
        "episodes": episodes,
        "env_steps": greedy["env_steps"],
        **used,
        "curve": [[row["env_steps"], round(row["return_mean"], 3)] for row in evaluations],
    }


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"comma-separated, of {', '.join(TASKS)}; all by default")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--quick", action="store_true", help="a few hundred steps of each, shown and not written")
    parser.add_argument("--page", action="store_true", help="train nothing: write the pages from the rows there are")
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    names = arguments.only.split(",") if arguments.only else list(TASKS)
    if unknown := [name for name in names if name not in TASKS]:
        raise SystemExit(f"no task {', '.join(unknown)}; there are {', '.join(TASKS)}")
    for name in [] if arguments.page else names:
        for seed in [0] if arguments.quick else map(int, arguments.seeds.split(",")):
            if arguments.quick:
                with tempfile.TemporaryDirectory() as folder:
                    print(json.dumps(run(name, seed, Path(folder), quick=True)), flush=True)
                continue
            if (name, seed) in {(row["task"], row["seed"]) for row in current_rows(read_rows(DATA))}:
                continue
            row = run(name, seed, RUNS / f"{name}-{settings(name)}" / f"seed{seed}", quick=False)
            print(json.dumps(row), flush=True)
            append(row, DATA)
    if arguments.page:
        from scores import rewrite_page

        rewrite_page()


if __name__ == "__main__":
    main()
