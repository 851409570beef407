"""Scores beside Stable-Baselines3: the same hyperparameters, budget and evaluation, every seed, a row per finished run.

    python benchmarks/beside_sb3.py --only pong --seeds 0 --side ours --core 0      # one run, on one core
    python benchmarks/beside_sb3.py                                                 # whatever is still missing
    python benchmarks/beside_sb3.py --quick                                         # a trial: writes nothing
    python benchmarks/beside_sb3.py --page                                          # the page again, from the data

Rows are appended to docs/data/beside_sb3.jsonl as runs finish, so hours of them can be spread over days and over
processes; a run whose row is there is not repeated. Runs of this package are kept in runs/beside_sb3 and resumed
where they were stopped. The settings are those of a preset, which `sb3_translation.py` puts into the words of
Stable-Baselines3; a row remembers them, and rows of other settings are not shown.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import ROOT, run_process
from peers import peers_python
from sb3_translation import translated
from windows import mean_per_window

from rl_training.config.loading import config_to_mapping, load_config

DATA = ROOT / "docs" / "data" / "beside_sb3.jsonl"
RUNS = ROOT / "runs" / "beside_sb3"
WINDOWS = 20
"""Points of a learning curve."""
QUICK_STEPS = 1_200
SIDES = ("ours", "sb3")


@dataclass(frozen=True)
class Task:
    """A preset, its budget here, how many seeds, and how its final policy is judged."""

    preset: str
    budget: int
    """Decisions of a run, whatever the preset's own budget is; schedules end with it."""
    seeds: int
    episodes: int
    """100, or 20 where an episode has a thousand steps and more."""
    aggregated: bool = True
    """Whether its scores count in the aggregate over the tasks of continuous control."""


TASKS = {
    "ppo_halfcheetah": Task("ppo/halfcheetah", 200_000, seeds=5, episodes=20),
    "td3_halfcheetah": Task("td3/halfcheetah", 100_000, seeds=3, episodes=20),
    "sac_hopper": Task("sac/hopper", 100_000, seeds=3, episodes=100),
    "sac_cartpole_swingup": Task("sac/dmc_cartpole_swingup", 50_000, seeds=3, episodes=20),
    "pong": Task("ppo/pong_quick", 500_000, seeds=2, episodes=20, aggregated=False),
}


def overrides(task: Task, *, quick: bool = False) -> dict[str, Any]:
    """What differs from the preset."""
    if not quick:
        return {"training.total_timesteps": task.budget}
    starts = {} if task.preset.startswith("ppo/") else {"hparams.learning_starts": 1_000}
    return {**starts, "training.total_timesteps": QUICK_STEPS}


def settings_of(name: str, *, quick: bool = False) -> dict[str, Any]:
    """A task's settings in the words of Stable-Baselines3, which are all that the two sides share."""
    return translated(config_to_mapping(load_config(TASKS[name].preset, overrides(TASKS[name], quick=quick))))


def fingerprint(settings: dict[str, Any]) -> str:
    """Short name of the settings, so that rows of others are not mixed with theirs."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def read_rows(data: Path = DATA) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.read_text().splitlines()] if data.exists() else []


def current_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the settings that the tasks have now."""
    prints = {name: fingerprint(settings_of(name)) for name in TASKS}
    return [row for row in rows if prints.get(row["task"]) == row["settings"]]


def append(row: dict[str, Any], data: Path = DATA) -> None:
    """One line in one write: processes side by side do not mix theirs."""
    data.parent.mkdir(parents=True, exist_ok=True)
    with data.open("ab", buffering=0) as file:
        file.write((json.dumps(row) + "\n").encode())


def flags(changed: dict[str, Any]) -> list[str]:
    return [word for name, value in changed.items() for word in (f"--{name}", json.dumps(value))]


def earlier(folder: Path) -> tuple[Path, bool] | None:
    """The last run in a folder that has a checkpoint, and whether it is finished; None if there is none."""
    runs = [path.parent for path in sorted(folder.glob("*/run.json")) if (path.parent / "checkpoints/latest").exists()]
    return (runs[-1], json.loads((runs[-1] / "run.json").read_text())["status"] == "finished") if runs else None


def trained(name: str, seed: int, folder: Path, changed: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """A finished run of this package, trained now, or gone on with, or found; and what that took."""
    rl, found = [sys.executable, "-m", "rl_training"], earlier(folder)
    if found is not None and found[1]:
        return found[0], {"resumed": True}
    start = ["train", TASKS[name].preset, "--seed", str(seed), *flags(changed), "--output-dir", str(folder)]
    outcome = run_process([*rl, *(start if found is None else ["resume", str(found[0])]), "--json"])
    used = {"seconds": round(outcome.seconds, 1), "cpu_seconds": round(outcome.cpu_seconds, 1)}
    return Path(outcome.output["run"]), used if found is None else {**used, "resumed": True}


def ours(name: str, seed: int, folder: Path, *, quick: bool) -> dict[str, Any]:
    """Train one seed of this package and play its final policy."""
    changed = overrides(TASKS[name], quick=quick) | {"training.num_eval_episodes": 0}
    run, used = trained(name, seed, folder, changed)
    episodes = 2 if quick else TASKS[name].episodes
    judge = [sys.executable, "-m", "rl_training", "eval", str(run), "--episodes", str(episodes), "--json"]
    judged = run_process(judge).output
    log = [json.loads(line) for line in (run / "logs" / "episodes.jsonl").read_text().splitlines()]
    ended = [(row["env_steps"], row["return"]) for row in log]
    return {
        "return_mean": judged["return_mean"],
        "return_std": judged["return_std"],
        "returns": [round(value, 2) for value in judged["returns"]],
        "length_mean": judged["length_mean"],
        "env_steps": judged["env_steps"],
        **used,
        "curve": mean_per_window(ended, changed["training.total_timesteps"], WINDOWS),
    }


def theirs(name: str, seed: int, *, quick: bool) -> dict[str, Any]:
    """The same of Stable-Baselines3, in its own environment."""
    episodes = 2 if quick else TASKS[name].episodes
    asked = {**settings_of(name, quick=quick), "seed": seed, "episodes": episodes, "windows": WINDOWS}
    script = str(ROOT / "benchmarks" / "beside_sb3_peer.py")
    return run_process([str(peers_python(".venv-peers")), script, json.dumps(asked)]).output


def run(name: str, side: str, seed: int, *, quick: bool) -> dict[str, Any]:
    """One run of one side, as a row."""
    settings = fingerprint(settings_of(name, quick=quick))
    if side == "sb3":
        result = theirs(name, seed, quick=quick)
    elif quick:
        with tempfile.TemporaryDirectory() as folder:
            result = ours(name, seed, Path(folder), quick=True)
    else:
        result = ours(name, seed, RUNS / f"{name}-{settings}" / f"seed{seed}", quick=False)
    return {"task": name, "side": side, "seed": seed, "settings": settings, "date": time.strftime("%Y-%m-%d"), **result}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"comma-separated, of {', '.join(TASKS)}; all by default")
    parser.add_argument("--seeds", help="comma-separated; by default as many as the task has")
    parser.add_argument("--side", choices=SIDES, help="one library only")
    parser.add_argument("--core", type=int, help="stay on this core")
    parser.add_argument("--quick", action="store_true", help="a few thousand steps of each, shown and not written")
    parser.add_argument("--page", action="store_true", help="only write docs/scores.md again, from the rows there are")
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    if arguments.core is not None:
        os.sched_setaffinity(0, {arguments.core})
    names = arguments.only.split(",") if arguments.only else list(TASKS)
    if unknown := [name for name in names if name not in TASKS]:
        raise SystemExit(f"no task {', '.join(unknown)}; there are {', '.join(TASKS)}")
    sides = (arguments.side,) if arguments.side else SIDES
    for name in [] if arguments.page else names:
        seeds = [0] if arguments.quick else range(TASKS[name].seeds)
        for seed in map(int, arguments.seeds.split(",")) if arguments.seeds else seeds:
            for side in sides:
                done = {(row["task"], row["side"], row["seed"]) for row in current_rows(read_rows())}
                if (name, side, seed) in done and not arguments.quick:
                    continue
                row = run(name, side, seed, quick=arguments.quick)
                print(
                    f"{name} {side} seed {seed}: {row['return_mean']:.1f}", row.get("cpu_seconds"), "CPU s", flush=True
                )
                if not arguments.quick:
                    append(row)
    if not arguments.quick:
        from scores import rewrite_page

        rewrite_page()


if __name__ == "__main__":
    main()
