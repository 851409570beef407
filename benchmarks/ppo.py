"""Contestant: PPO of this package, an ordinary run with its directory and logs, without evaluation and checkpoints.

With `"backend": "jax"` it is a run of the compiled lane; `env` and `network` go into the config as they are.

    python benchmarks/ppo.py '{"env_id": "CartPole-v1", "num_envs": 4, ...}'      # the settings of a contest

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
    hparams = "num_steps num_epochs num_minibatches learning_rate gamma gae_lambda clip_coef ent_coef vf_coef"
    layers = {"hidden_dims": settings["hidden_dims"], "activation": "tanh"}
    return {
        "algo": "ppo",
        "backend": settings.get("backend", "torch"),
        "env_id": settings["env_id"],
        "env": {
            "num_envs": settings["num_envs"],
            "vectorization": settings.get("vectorization", "sync"),
            **settings.get("env", {}),
        },
        "hparams": {name: settings[name] for name in (*hparams.split(), "max_grad_norm")} | settings.get("hparams", {}),
        "network": settings.get("network", {"actor": layers, "critic": layers}),
        **timed(settings, laps, threads=settings.get("threads", 1)),
    }


def main() -> None:
    settings = json.loads(sys.argv[1])
    laps = Path(settings["scratch"]) / "laps.json"
    result = train(config(settings, laps))
    print(json.dumps({**json.loads(laps.read_text()), "run": str(result.run_dir)}))


if __name__ == "__main__":
    main()
