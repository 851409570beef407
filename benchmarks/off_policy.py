"""Contestant: DQN, SAC or TD3 of this package, an ordinary run with its directory and logs, no evaluation.

With `"backend": "jax"` it is a run of the compiled lane, or of the host lane with `"lane": "host"`.

    python benchmarks/off_policy.py '{"algo": "sac", "env_id": "Pendulum-v1", ...}'      # the settings of a contest

Prints one line of JSON: the speed of the training loop after the warm-up, and the run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from laps import timed

from rl_training import train


def config(settings: dict[str, Any], laps: Path) -> dict[str, Any]:
    """A run of these settings, timed."""
    hparams = ("learning_rate", "batch_size", "learning_starts", "updates_per_step")
    network = {"hidden_dims": settings["hidden_dims"], "activation": "relu"}
    return {
        "algo": settings["algo"],
        "backend": settings.get("backend", "torch"),
        "lane": settings.get("lane", "auto"),
        "env_id": settings["env_id"],
        "env": {"num_envs": 1},
        "hparams": {name: settings[name] for name in hparams} | settings.get("hparams", {}),
        "network": {"actor": network, "critic": network},
        "buffer": {"size": settings["buffer_size"]},
        **timed(settings, laps),
    }


def main() -> None:
    settings = json.loads(sys.argv[1])
    laps = Path(settings["scratch"]) / "laps.json"
    result = train(config(settings, laps))
    print(json.dumps({**json.loads(laps.read_text()), "run": str(result.run_dir)}))


if __name__ == "__main__":
    main()
