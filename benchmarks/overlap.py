"""Contestant: a run of this package in an environment that waits 5 ms in every step, with `env.overlap` or without it.

    python benchmarks/overlap.py '{"algo": "ppo", "overlap": true, ...}'      # the settings of a contest

Prints one line of JSON: the speed of the training loop after the warm-up, how dear learning was beside collecting, and
a hash of the final policy, which must not depend on the timing.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv
from laps import timed

from rl_training import train
from rl_training.checkpointing.manager import CheckpointManager

SECONDS = 5e-3


class WaitingCartPole(CartPoleEnv):
    """As slow as an environment that waits for another program, a device or the network."""

    def step(self, action: Any) -> Any:
        time.sleep(SECONDS)
        return super().step(action)  # type: ignore[no-untyped-call]


class WaitingPendulum(PendulumEnv):
    """The same with continuous actions."""

    def step(self, u: Any) -> Any:
        time.sleep(SECONDS)
        return super().step(u)  # type: ignore[no-untyped-call]


def config(settings: dict[str, Any], laps: Path) -> dict[str, Any]:
    """A run of these settings, timed."""
    network = {"hidden_dims": settings["hidden_dims"]}
    return {
        "algo": settings["algo"],
        "env_id": f"overlap:{settings['env']}",
        "env": {"num_envs": settings["num_envs"], "max_episode_steps": 200, "overlap": settings["overlap"]},
        "hparams": settings["hparams"],
        "network": {"actor": network, "critic": network},
        **timed(settings, laps),
    }


def policy_hash(run: Path) -> str:
    """SHA-256 of the final weights."""
    network = CheckpointManager(run).load_latest(("policy",)).parts["policy"]["network"]
    return hashlib.sha256(b"".join(network[name].tobytes() for name in sorted(network))).hexdigest()


def main() -> None:
    settings = json.loads(sys.argv[1])
    laps = Path(settings["scratch"]) / "laps.json"
    result = train(config(settings, laps))
    seconds = {name: result.metrics[f"time/{name}_seconds"] for name in ("learning", "acting", "environment")}
    shares = {"learning_per_collecting": seconds["learning"] / (seconds["acting"] + seconds["environment"])}
    print(json.dumps({**json.loads(laps.read_text()), **shares, "policy": policy_hash(result.run_dir)}))


if __name__ == "__main__":
    main()
