"""Program: train with each kind of part, found in each way, and print what the runs left behind as JSON.

    python extending_runs.py FOLDER

FOLDER is on sys.path and holds `decorated_parts.py` and an installed package with the entry point `installed_parts`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import own_parts

import rl_training
from rl_training.checkpointing.manager import CheckpointManager

KINDS = ("algorithm", "network", "environment", "wrapper", "buffer", "logger", "callback")
WAYS = ("dotted", "decorated", "installed")


def name_of(kind: str, way: str) -> str:
    return f"own_parts:{kind.capitalize()}" if way == "dotted" else f"{way}_{kind}"


def part_of(kind: str, name: str, rows: Path) -> dict[str, Any]:
    """The lines of a config that ask for the part."""
    return {
        "algorithm": {"algo": name},
        "network": {"network": {"actor": {"type": name, "kwargs": {"width": 5}}}},
        "environment": {"env_id": name},
        "wrapper": {"env": {"num_envs": 2, "wrappers": [{"name": name, "kwargs": {"factor": 2}}]}},
        "buffer": {"buffer": {"type": name}},
        "logger": {"logging": {"terminal": False, "sinks": [{"name": name, "kwargs": {"path": str(rows)}}]}},
        "callback": {"callbacks": [name]},
    }[kind]


def config(folder: Path, way: str, kinds: tuple[str, ...]) -> dict[str, Any]:
    mapping: dict[str, Any] = {
        "algo": "ppo",
        "env_id": "CartPole-v1",
        "output_dir": str(folder / "runs"),
        "name": f"{way}-{'-'.join(kinds)}",
        "plugins": ["decorated_parts"] if way == "decorated" else [],
        "env": {"num_envs": 2},
        "hparams": {"num_steps": 64},
        "training": {"total_timesteps": 256, "num_eval_episodes": 0},
        "logging": {"terminal": False, "tensorboard": False},
    }
    for kind in kinds:
        mapping |= part_of(kind, name_of(kind, way), folder / f"{way}-rows.jsonl")
    return mapping


def trace(run: Path, kind: str, rows: Path, handed_out: int) -> Any:
    """What only a run with the part can have left behind."""
    parts = CheckpointManager(run).load_latest().parts
    metrics = [json.loads(line) for line in (run / "logs" / "metrics.jsonl").read_text().splitlines()]
    episodes = [json.loads(line) for line in (run / "logs" / "episodes.jsonl").read_text().splitlines()]
    return {
        "algorithm": lambda: metrics[-1].get("train/own_metric"),
        "network": lambda: list(parts["policy"]["network"]["actor.own.weight"].shape),
        "environment": lambda: sorted({episode["return"] for episode in episodes}),
        "wrapper": lambda: sorted({episode["return"] / episode["length"] for episode in episodes}),
        "buffer": lambda: handed_out,
        "logger": lambda: [json.loads(line) for line in rows.read_text().splitlines()],
        "callback": lambda: parts["callback_0"]["count"],
    }[kind]()


def main(folder: Path) -> None:
    found: dict[str, Any] = {}
    for way in WAYS:
        for kind in KINDS:
            before = own_parts.Buffer.handed_out
            run = rl_training.train(config(folder, way, (kind,))).run_dir
            rows = folder / f"{way}-rows.jsonl"
            found[f"{way} {kind}"] = trace(run, kind, rows, own_parts.Buffer.handed_out - before)
    together = config(folder, "decorated", ("algorithm", "environment", "wrapper", "callback"))
    together["env"] |= {"vectorization": "async", "num_workers": 1}
    found["together"] = str(rl_training.train(together).run_dir)
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
