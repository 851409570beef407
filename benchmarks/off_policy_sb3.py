"""Contestant: DQN, SAC or TD3 of Stable-Baselines3 with the same settings, without evaluation and checkpoints.

    python benchmarks/off_policy_sb3.py '{"algo": "sac", "env_id": "Pendulum-v1", ...}'      # in the peers' environment

Prints one line of JSON: the speed of the training loop after the warm-up.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from timing import Stopwatch

MARK_EVERY = 256
"""Env steps: the block of this package."""


class Laps(BaseCallback):
    """Marks the end of every 256 steps; the last update is not counted, one of thousands."""

    def __init__(self, warmup: int) -> None:
        super().__init__()
        self.watch = Stopwatch(warmup)

    def _on_step(self) -> bool:
        if self.num_timesteps % MARK_EVERY == 0:
            self.watch.mark(self.num_timesteps)
        return True


def arguments(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a contest in the words of Stable-Baselines3: one update every `train_freq` steps."""
    return {
        "learning_rate": settings["learning_rate"],
        "batch_size": settings["batch_size"],
        "learning_starts": settings["learning_starts"],
        "buffer_size": settings["buffer_size"],
        "train_freq": round(1 / settings["updates_per_step"]),
        "gradient_steps": 1,
        "policy_kwargs": {"net_arch": settings["hidden_dims"], "activation_fn": torch.nn.ReLU},
        "seed": settings["seed"],
        "device": "cpu",
        "verbose": 0,
    }


def main() -> None:
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    env = make_vec_env(settings["env_id"], n_envs=1, seed=settings["seed"])
    algorithm = {"dqn": DQN, "sac": SAC, "td3": TD3}[settings["algo"]]
    model = algorithm("MlpPolicy", env, **arguments(settings))
    laps = Laps(settings["warmup"])
    model.learn(settings["total_timesteps"], callback=laps)
    print(json.dumps(laps.watch.result()))


if __name__ == "__main__":
    main()
