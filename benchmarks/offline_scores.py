"""Learning table of the offline algorithms on Pendulum: four datasets, three seeds, the last and the best score.

By hand; resumable, since a finished run is a line of docs/data/offline_scores.jsonl, from which `offline_page.py` makes
a section of docs/scores.md:

    taskset -c 1 python benchmarks/offline_scores.py
    taskset -c 1 python benchmarks/offline_scores.py --by d3rlpy --algorithms td3_bc,iql --sets medium
    python benchmarks/offline_scores.py --page          # only the page again

Datasets come from one SAC run: `random` (uniform actions), `medium` (its policy where its evaluations pass half of the
way), `medium-replay` (its replay rows 1,000 steps later: a few good episodes beside the first bad ones) and `expert`
(its last policy), actions sampled; 5,000 rows each, the replay what the run had stored. `medium-greedy` and
`expert-greedy` are the same policies without sampling: one action per state, which says nothing of what others lead to.
A score of 0 is the mean return of random actions, 100 that of the last policy's greedy actions, over 100 episodes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from offline_page import DATA, GREEDY, PEER, SETS, read_rows, table
from peers import peers_python

from rl_training import train
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.config.schema import DatasetConfig
from rl_training.data.datasets.dataset_replay import DatasetReplay
from rl_training.data.datasets.native import write_native
from rl_training.data.datasets.opening import open_dataset
from rl_training.eval import evaluate, record, record_replay
from rl_training.seeding import episode_seed
from rl_training.system.json_lines import read_rows as read_json_rows
from rl_training.training.offline.recording import Amount, Behaviour

ALGORITHMS = ("bc", "bc-10%", "td3_bc", "iql", "cql", "rebrac", "awac", "dt")
ROWS = 5_000
EPISODES = 20
"""Greedy episodes of an evaluation."""
CONTESTANT = Path(__file__).with_name("offline_scores_d3rlpy.py")
FOLDER = Path("runs/offline_scores")
"""Teacher, datasets and runs."""
SAMPLED = Behaviour(stochastic=True)
"""As in D4RL."""
LAYERS = {"hidden_dims": [64, 64], "activation": "relu"}


def teacher(folder: Path) -> Path:
    """A SAC run with a checkpoint every 500 steps."""
    done = folder / "teacher.json"
    if done.exists():
        return Path(json.loads(done.read_text()))
    training = {"total_timesteps": 10_000, "eval_frequency": 500, "checkpoint_frequency": 500}
    cfg: dict[str, Any] = {"algo": "sac", "env_id": "Pendulum-v1", "seed": 0, "output_dir": str(folder / "runs")}
    cfg |= {"network": {"actor": LAYERS, "critic": LAYERS}, "checkpoint": {"keep_last": 30}, "training": training}
    cfg |= {"hparams": {"learning_rate": 1e-3}, "env": {"num_envs": 1}}
    run = train(cfg).run_dir
    done.write_text(json.dumps(str(run)))
    return run


def datasets(folder: Path) -> dict[str, Path]:
    """The sets, recorded once, with the same reference scores."""
    found = {name: folder / name for name in (*SETS, *GREEDY)}
    if all((path / "dataset.json").exists() for path in found.values()):
        return found
    run, amount = teacher(folder), Amount(steps=ROWS)
    expert = record(run, amount, how=SAMPLED)
    low, high = expert.info.ref_min, expert.info.ref_max
    assert low is not None
    assert high is not None
    steps = CheckpointManager(run).steps()
    means = {step: evaluate(run, checkpoint=step, episodes=20)["return_mean"] for step in steps}
    medium = next((step for step in steps if means[step] >= low + 0.5 * (high - low)), steps[-1])
    later = next((step for step in steps if step >= medium + 1000), steps[-1])
    parts = {
        "random": record(None, amount, random_env="Pendulum-v1"),
        "medium": record(run, amount, checkpoint=medium, how=SAMPLED, reference_episodes=0),
        "medium-replay": record_replay(run, checkpoint=later, reference_episodes=0),
        "expert": expert,
        "medium-greedy": record(run, amount, checkpoint=medium, reference_episodes=0),
        "expert-greedy": record(run, amount, reference_episodes=0),
    }
    for name, data in parts.items():
        if not (found[name] / "dataset.json").exists():
            info = replace(data.info, ref_min=low, ref_max=high, reference=expert.info.reference)
            write_native(replace(data, info=info), found[name])
    return found


def config(name: str, data: Path, seed: int, folder: Path, backend: str, updates: int) -> dict[str, Any]:
    """One run: 64 x 64 networks, learning rate 1e-3, rewards a tenth."""
    algo = name.partition("-")[0]
    hparams: dict[str, Any] = {"learning_rate": 1e-3}
    if algo == "cql":
        hparams |= {"num_sampled": 4, "actor_learning_rate": 3e-4}
    if algo == "rebrac":
        hparams |= {"batch_size": 256, "actor_beta": 0.05, "critic_beta": 0.01}
    if algo == "awac":
        hparams["temperature"] = 0.333
    dataset: dict[str, Any] = {"path": str(data), "top_fraction": 0.1 if name == "bc-10%" else 1.0}
    if algo not in ("bc", "dt"):
        dataset["reward"] = 0.1
    network: dict[str, Any] = {"actor": LAYERS, "critic": LAYERS}
    if algo == "dt":
        memory = {"type": "transformer", "size": 64, "layers": 2, "heads": 2, "window": 10}
        network = {"actor": {"memory": memory}}
    return {
        "algo": algo,
        "env_id": "Pendulum-v1",
        "seed": seed,
        "backend": backend,
        "output_dir": str(folder / "runs"),
        "dataset": dataset,
        "env": {"normalize_obs": True},
        "hparams": hparams,
        "network": network,
        "training": {"total_updates": updates, "eval_frequency": max(updates // 10, 1), "num_eval_episodes": EPISODES},
        "logging": {"terminal": False, "tensorboard": False},
    }


def backend_of(name: str, by: str) -> str:
    """The Decision Transformer has torch only."""
    return "torch" if name == "dt" else by


def ours(name: str, data: Path, seed: int, options: argparse.Namespace) -> list[float]:
    """Scores of every evaluation of a run of this package."""
    run = train(config(name, data, seed, options.folder, backend_of(name, options.by), options.updates)).run_dir
    return [float(row["score"]) for row in read_json_rows(run / "logs" / "evals.jsonl")]


def peers(name: str, data: Path, seed: int, options: argparse.Namespace) -> list[float]:
    """Scores of every evaluation of a run of d3rlpy, on the same rows and the same episodes."""
    fraction = 0.1 if name == "bc-10%" else 1.0
    cfg, unused = DatasetConfig(top_fraction=fraction), np.random.default_rng(0)
    replay = DatasetReplay(open_dataset(str(data)), unused, cfg, ("next_actions",))
    every = np.arange(len(replay))
    python = options.peers or peers_python(".venv-peers-offline")
    with TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.npz"
        np.savez(
            rows,
            obs=np.asarray(replay.data.obs_of(every)),
            next_obs=np.asarray(replay.data.next_obs_of(every)),
            actions=replay.actions,
            rewards=replay.rewards,
            terminated=replay.terminated,
            next_actions=replay.extra["next_actions"],
            known=replay.extra["next_known"],
        )
        given: dict[str, Any] = {"algo": name.partition("-")[0], "rows": str(rows), "seed": seed}
        given |= {"updates": options.updates, "episode_seeds": [episode_seed(seed, k) for k in range(EPISODES)]}
        command = [str(python), str(CONTESTANT), json.dumps(given)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"d3rlpy failed:\n{done.stderr[-2000:]}")
    returns = np.array(json.loads(done.stdout.strip().splitlines()[-1])["returns"])
    return [float(score) for score in replay.score(returns)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=DATA)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--by", choices=("torch", "jax", "d3rlpy"), default="jax")
    parser.add_argument("--algorithms", default=",".join(ALGORITHMS))
    parser.add_argument("--sets", default=",".join(SETS), help=f"also {', '.join(GREEDY)}")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--updates", type=int, default=20_000)
    parser.add_argument("--peers", type=Path, help="Python with d3rlpy; default: the peers' environment of the clone")
    parser.add_argument("--page", action="store_true", help="only write docs/scores.md again, from the rows there are")
    options = parser.parse_args()
    if not options.page:
        run_missing(options)
    print("\n".join(table(read_rows(options.output))))
    if options.output == DATA:
        from scores import rewrite_page

        rewrite_page()


def run_missing(options: argparse.Namespace) -> None:
    """Train what is asked for and not in the output file yet."""
    options.folder.mkdir(parents=True, exist_ok=True)
    found = datasets(options.folder)
    digests = {which: open_dataset(str(path)).sha256[:12] for which, path in found.items()}
    for name in options.algorithms.split(","):
        for which in options.sets.split(","):
            for seed in map(int, options.seeds.split(",")):
                key = {"algo": name, "set": which, "seed": seed, "updates": options.updates}
                key["by"] = options.by if options.by == PEER else backend_of(name, options.by)
                key["data"] = digests[which]
                if any(all(row[k] == v for k, v in key.items()) for row in read_rows(options.output)):
                    continue
                scores = (peers if options.by == PEER else ours)(name, found[which], seed, options)
                row = {**key, "last": scores[-1], "best": max(scores), "scores": [round(score, 2) for score in scores]}
                with options.output.open("a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
