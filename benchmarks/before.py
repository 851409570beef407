"""CPU time per env step of today's source beside that of version 0.1.0, in turns: PPO, DQN, SAC and TD3, torch and JAX.

    python benchmarks/before.py                      # some ten minutes of one core
    python benchmarks/before.py --only ppo,jax_ppo --repeats 5

The old source is the archive that the compatibility tests run. Both versions use the same interpreter and libraries,
train with small MLPs and are pinned to one core; the medians and their ratio are printed, nothing is written.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from contests import ACTOR_CRITIC_SETTINGS, DQN_SETTINGS, JAX_ACTOR_CRITIC_SETTINGS, JAX_PPO_SETTINGS, PPO_SETTINGS
from harness import ROOT, run_process

ARCHIVE = ROOT / "tests" / "compat" / "rl_training-0.1.0.tar.gz"
PPO, OFF_POLICY = "benchmarks/ppo.py", "benchmarks/off_policy.py"
JAX = {"backend": "jax"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": (PPO, {**PPO_SETTINGS, "env_id": "CartPole-v1", "num_envs": 4}),
    "dqn": (OFF_POLICY, DQN_SETTINGS),
    "sac": (OFF_POLICY, {**ACTOR_CRITIC_SETTINGS, "algo": "sac"}),
    "td3": (OFF_POLICY, {**ACTOR_CRITIC_SETTINGS, "algo": "td3"}),
    "jax_ppo": (PPO, {**JAX_PPO_SETTINGS, "num_envs": 4, **JAX}),
    "jax_dqn": (OFF_POLICY, {**DQN_SETTINGS, "total_timesteps": 153_600, **JAX}),
    "jax_sac": (OFF_POLICY, {**JAX_ACTOR_CRITIC_SETTINGS, "algo": "sac", **JAX}),
    "jax_td3": (OFF_POLICY, {**JAX_ACTOR_CRITIC_SETTINGS, "algo": "td3", **JAX}),
}


def cpu_per_step(source: Path, script: str, settings: dict[str, Any], seed: int) -> float:
    """CPU microseconds of an env step after the warm-up, with the package in `source`."""
    with tempfile.TemporaryDirectory() as scratch:
        words = json.dumps({**settings, "seed": seed, "scratch": scratch})
        output = run_process(["env", f"PYTHONPATH={source}", sys.executable, script, words]).output
    return float(output["cpu_us_per_step"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"comma-separated, of {', '.join(CASES)}")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each version (default 3)")
    parser.add_argument("--core", type=int, default=0, help="the core to stay on (default 0)")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.core})
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(folder, filter="data")
        sources = {"0.1.0": Path(folder) / "src", "today": ROOT / "src"}
        for name in arguments.only.split(",") if arguments.only else CASES:
            times: dict[str, list[float]] = {version: [] for version in sources}
            for seed in range(arguments.repeats):
                for version, source in sources.items():
                    times[version].append(cpu_per_step(source, *CASES[name], seed))
            old, new = (statistics.median(values) for values in times.values())
            print(f"{name:8} 0.1.0 {old:8.1f}  today {new:8.1f} CPU µs per step  {new / old:.3f} of it", flush=True)


if __name__ == "__main__":
    main()
