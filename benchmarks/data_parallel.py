"""One run with several processes: where its time goes with 1, 2 and 4 of them, and that all give the same bits.

    python benchmarks/data_parallel.py [--ranks 1 2 4] [--step-ms 5] [--quick]

PPO in 4 shards of 4 environments each. With `--step-ms` every step of an environment sleeps that long, which is where
several processes pay; with 0 it is plain CartPole, where they do not. Times are wall seconds of the slowest process, so
idle cores are needed for everything but sleeping environments.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ENVIRONMENT = """
import time
from gymnasium.envs.classic_control import CartPoleEnv


class Sleeping(CartPoleEnv):
    def __init__(self, seconds=0.0):
        super().__init__()
        self.seconds = seconds

    def step(self, action):
        time.sleep(self.seconds)
        return super().step(action)
"""
TIMES = ("elapsed", "environment", "acting", "learning", "exchange")


def measured(ranks: int, step_ms: float, steps: int) -> dict[str, Any]:
    """The metrics of a finished run, and the hash of its log."""
    with tempfile.TemporaryDirectory() as folder:
        cfg = {
            "algo": "ppo",
            "env_id": "sleeping:Sleeping",
            "env": {"num_envs": 16, "max_episode_steps": 500, "kwargs": {"seconds": step_ms / 1e3}},
            "hparams": {"num_steps": 64},
            "training": {"total_timesteps": steps, "shards": 4, "num_eval_episodes": 0, "checkpoint_frequency": 0},
            "logging": {"tensorboard": False, "terminal": False},
        }
        Path(folder, "sleeping.py").write_text(ENVIRONMENT)
        Path(folder, "config.json").write_text(json.dumps(cfg))
        start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        words = ["-m", "rl_training", "train", "config.json"]
        command = [*start, *words] if ranks > 1 else [sys.executable, *words]
        subprocess.run(command, cwd=folder, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        (run,) = Path(folder, "runs").glob("ppo__*")
        metrics: dict[str, Any] = json.loads((run / "metrics.json").read_text())
        return {**metrics, "sha256": json.loads((run / "run.json").read_text())["metrics_sha256"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--step-ms", type=float, default=5.0)
    parser.add_argument("--quick", action="store_true", help="one rollout")
    options = parser.parse_args()
    steps = 1024 if options.quick else 4096
    hashes = set()
    print("ranks", *(f"{name:>12}" for name in TIMES))
    for ranks in options.ranks:
        found = measured(ranks, options.step_ms, steps)
        hashes.add(found["sha256"])
        print(f"{ranks:5}", *(f"{found.get(f'time/{name}_seconds', 0.0):12.2f}" for name in TIMES))
    print("all have the same metrics" if len(hashes) == 1 else f"their metrics differ: {sorted(hashes)}")
    return 0 if len(hashes) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
