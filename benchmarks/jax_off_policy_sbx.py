"""Contestant: DQN, SAC or TD3 of SBX with the same settings, without evaluation and checkpoints.

    python benchmarks/jax_off_policy_sbx.py '{"algo": "sac", ...}'      # in the peers' environment

Prints one line of JSON: the speed of the training loop after the warm-up.
"""

from __future__ import annotations

import json
import sys

import torch
from flax import linen
from off_policy_sb3 import Laps, arguments
from sbx import DQN, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env


def main() -> None:
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    env = make_vec_env(settings["env_id"], n_envs=1, seed=settings["seed"])
    algorithm = {"dqn": DQN, "sac": SAC, "td3": TD3}[settings["algo"]]
    network = {"net_arch": settings["hidden_dims"], "activation_fn": linen.relu}
    model = algorithm("MlpPolicy", env, **{**arguments(settings), "policy_kwargs": network})
    laps = Laps(settings["warmup"])
    model.learn(settings["total_timesteps"], callback=laps)
    print(json.dumps(laps.watch.result()))


if __name__ == "__main__":
    main()
