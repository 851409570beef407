"""Learning tables of the offline algorithms: Pendulum, Hopper and CartPole, three seeds, the last and the best score.

By hand; resumable, since a finished run is a line of docs/data/offline_scores.jsonl, from which `offline_page.py` makes
a section of docs/scores.md:

    python benchmarks/offline_scores.py                 # everything that has no row yet
    taskset -c 1 python benchmarks/offline_scores.py --task hopper --by d3rlpy --algorithms td3_bc,iql --sets medium
    python benchmarks/offline_scores.py --page          # only the page again

`offline_tasks.py` has the settings of both sides, `offline_sets.py` records the datasets, once per machine: a set that
has rows of another recording is left alone.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from offline_page import DATA, Rows, read_rows, section
from offline_sets import recorded
from offline_tasks import GREEDY, PEER, SEEDS, TASKS, algorithm_of
from peers import peers_python

from rl_training import train
from rl_training.config.schema import DatasetConfig
from rl_training.data.datasets.dataset_replay import DatasetReplay
from rl_training.data.datasets.opening import open_dataset
from rl_training.seeding import episode_seed
from rl_training.system.json_lines import read_rows as read_json_rows
from rl_training.types import BoxSpec

CONTESTANT = Path(__file__).with_name("offline_scores_d3rlpy.py")
FOLDER = Path("runs/offline_scores")
"""Teachers, datasets and runs."""
EVALUATIONS = 10
TORCH_ONLY = ("dt",)


def config(
    name: str, data: Path, seed: int, folder: Path, backend: str, updates: int, task: str = "pendulum"
) -> dict[str, Any]:
    """One run of this package."""
    algo, asked = algorithm_of(name), TASKS[task].settings(name)
    hparams: dict[str, Any] = {"learning_rate": asked.learning_rate, "batch_size": asked.batch_size, **asked.hparams}
    layers = {"hidden_dims": list(asked.hidden_dims), "activation": "relu"}
    network: dict[str, Any] = {"actor": layers, "critic": {**layers, "layer_norm": asked.critic_layer_norm}}
    if algo == "dt":
        shape = {key: hparams.pop(key) for key in ("size", "layers", "heads", "window")}
        network = {"actor": {"memory": {"type": "transformer", **shape}}}
    return {
        "algo": algo,
        "env_id": TASKS[task].env_id,
        "seed": seed,
        "backend": backend,
        "output_dir": str(folder / "runs"),
        "dataset": {"path": str(data), "top_fraction": asked.top_fraction, "reward": asked.reward},
        "env": {"normalize_obs": asked.normalize_obs},
        "hparams": hparams,
        "network": network,
        "training": {
            "total_updates": updates,
            "eval_frequency": max(updates // EVALUATIONS, 1),
            "num_eval_episodes": TASKS[task].episodes,
        },
        "logging": {"terminal": False, "tensorboard": False},
    }


def backend_of(name: str, by: str) -> str:
    """The Decision Transformer has torch only."""
    return "torch" if algorithm_of(name) in TORCH_ONLY else by


@dataclass(frozen=True)
class Side:
    """One library on one task, and where its runs and rows go."""

    task: str
    by: str
    """torch, jax or the peer."""
    updates: int
    folder: Path
    output: Path
    peers: Path | None
    """The peer's Python; None for the peers' environment of the clone."""


def ours(name: str, data: Path, seed: int, side: Side) -> list[float]:
    """Scores of every evaluation of a run of this package."""
    run = train(config(name, data, seed, side.folder / side.task, side.by, side.updates, side.task)).run_dir
    return [float(row["score"]) for row in read_json_rows(run / "logs" / "evals.jsonl")]


def peers(name: str, data: Path, seed: int, side: Side) -> list[float]:
    """Scores of every evaluation of a run of d3rlpy, on the same rows and the same episodes."""
    task, asked = TASKS[side.task], TASKS[side.task].settings(name)
    cfg = DatasetConfig(top_fraction=asked.top_fraction, reward=asked.reward)
    replay = DatasetReplay(open_dataset(str(data)), np.random.default_rng(0), cfg, ("next_actions",))
    every = np.arange(len(replay))
    returns, space = replay.data.returns[replay.data.whole], replay.data.info.spaces[1]
    bounds = (float(space.low.flat[0]), float(space.high.flat[0])) if isinstance(space, BoxSpec) else None
    python = side.peers or peers_python(".venv-peers-offline")
    with TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.npz"
        np.savez(
            rows,
            obs=np.asarray(replay.data.obs_of(every)),
            next_obs=np.asarray(replay.data.next_obs_of(every)),
            actions=replay.actions,
            rewards=replay.rewards,
            terminated=replay.terminated,
            ended=replay.terminated | replay.truncated,
            next_actions=replay.extra["next_actions"],
            known=replay.extra["next_known"],
        )
        told: dict[str, Any] = {"algo": algorithm_of(name), "env_id": task.env_id, "bounds": bounds}
        told |= {"rows": str(rows), "seed": seed, "updates": side.updates, "evaluations": EVALUATIONS}
        told |= {"episode_seeds": [episode_seed(seed, k) for k in range(task.episodes)]}
        told |= {"max_episode_steps": task.max_episode_steps, "settings": asked.as_json()}
        told |= {"target_return": float(returns.max()), "return_scale": float(np.abs(returns).max())}
        command = [str(python), str(CONTESTANT), json.dumps(told)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"d3rlpy failed:\n{done.stderr[-2000:]}")
    returns = np.array(json.loads(done.stdout.strip().splitlines()[-1])["returns"])
    return [float(score) for score in replay.score(returns)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default=",".join(TASKS), help="comma-separated; default: all")
    parser.add_argument("--output", type=Path, default=DATA)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--by", default=f"jax,{PEER}", help=f"comma-separated, of torch, jax, {PEER}")
    parser.add_argument("--algorithms", help="comma-separated; default: those of the task")
    parser.add_argument("--sets", help=f"comma-separated; default: the task's; pendulum has also {', '.join(GREEDY)}")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--updates", type=int, help="default: those of the task")
    parser.add_argument("--peers", type=Path, help="Python with d3rlpy; default: the peers' environment of the clone")
    parser.add_argument("--record", action="store_true", help="only record the datasets")
    parser.add_argument("--page", action="store_true", help="only write docs/scores.md again, from the rows there are")
    given = parser.parse_args()
    for task in [] if given.page else given.task.split(","):
        if given.record:
            recorded(task, given.folder)
            continue
        for by in given.by.split(","):
            side = Side(task, by, given.updates or TASKS[task].updates, given.folder, given.output, given.peers)
            names, sets = given.algorithms or ",".join(TASKS[task].algorithms), given.sets or ",".join(TASKS[task].sets)
            seeds = [int(seed) for seed in given.seeds.split(",")]
            run(side, missing(side, names.split(","), sets.split(","), seeds))
    print("\n".join(section(read_rows(given.output))))
    if given.page:
        from scores import rewrite_page

        rewrite_page()


def missing(side: Side, names: list[str], sets: list[str], seeds: list[int]) -> Rows:
    """What is asked for and has no row in the output file yet."""
    done, wanted = read_rows(side.output), []
    for which, name, seed in product(sets, names, seeds):
        by = side.by if side.by == PEER else backend_of(name, side.by)
        key = {"task": side.task, "algo": name, "set": which, "seed": seed, "updates": side.updates, "by": by}
        if not any(all(row[k] == v for k, v in key.items()) for row in done):
            wanted.append(key)
    return wanted


def run(side: Side, wanted: Rows) -> None:
    """Train, except on sets whose rows are of another recording."""
    found = recorded(side.task, side.folder) if wanted else {}
    for key in wanted:
        data = found[key["set"]]
        digest = open_dataset(str(data)).sha256[:12]
        others = {row["data"] for row in read_rows(side.output) if (row["task"], row["set"]) == (side.task, key["set"])}
        if others - {digest}:
            print(f"no run of {key}: the rows of this set are of {', '.join(others)}, not of {digest}: remove them")
            continue
        learn = peers if side.by == PEER else ours
        scores = learn(key["algo"], data, key["seed"], replace(side, by=key["by"]))
        row = {**key, "data": digest, "last": scores[-1], "best": max(scores)}
        append({**row, "scores": [round(score, 2) for score in scores]}, side.output)


def append(row: dict[str, Any], output: Path) -> None:
    """Add a line, also while other processes do."""
    with output.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
