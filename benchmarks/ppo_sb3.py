"""Contestant: PPO of Stable-Baselines3 with the same settings, DummyVecEnv, without evaluation and checkpoints.

    python benchmarks/ppo_sb3.py '{"env_id": "CartPole-v1", "num_envs": 4, ...}'      # in the peers' environment

Prints one line of JSON: the speed of the training loop after the warm-up, and the saved model.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from timing import Stopwatch, cpu_seconds_of


class Laps(BaseCallback):
    """Marks the moments when a rollout is about to begin: the update before it is done."""

    def __init__(self, warmup: int, workers: Sequence[int] = ()) -> None:
        super().__init__()
        self.watch = Stopwatch(warmup, lambda: cpu_seconds_of(workers))

    def _on_rollout_start(self) -> None:
        self.watch.mark(self.num_timesteps)

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self.watch.mark(self.num_timesteps)


def ppo_arguments(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a contest in the words of Stable-Baselines3."""
    batch = settings["num_steps"] * settings["num_envs"]
    return {
        "n_steps": settings["num_steps"],
        "n_epochs": settings["num_epochs"],
        "batch_size": batch // settings["num_minibatches"],
        "learning_rate": schedule(settings["learning_rate"]),
        "clip_range": schedule(settings["clip_coef"]),
        "gamma": settings["gamma"],
        "gae_lambda": settings["gae_lambda"],
        "ent_coef": settings["ent_coef"],
        # weights the mean squared error here, half of it in this package
        "vf_coef": settings["vf_coef"] / 2,
        "max_grad_norm": settings["max_grad_norm"],
        "policy_kwargs": {"net_arch": settings["hidden_dims"], "activation_fn": torch.nn.Tanh},
        "seed": settings["seed"],
        "device": "cpu",
        "verbose": 0,
    }


def schedule(value: Any) -> Any:
    """A number, or {start, end} as the function of the remaining budget (1 to 0) that the library takes."""
    if not isinstance(value, dict):
        return value
    assert value.get("type", "linear") == "linear", "only straight lines are translated"
    start, end = value["start"], value["end"]
    return lambda remaining: end + (start - end) * remaining


def main() -> None:
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    env = make_vec_env(settings["env_id"], n_envs=settings["num_envs"], seed=settings["seed"])
    model = PPO("MlpPolicy", env, **ppo_arguments(settings))
    laps = Laps(settings["warmup"])
    model.learn(settings["total_timesteps"], callback=laps)
    path = Path(settings["scratch"]) / "model.zip"
    model.save(path)
    print(json.dumps({**laps.watch.result(), "run": str(path)}))


if __name__ == "__main__":
    main()
