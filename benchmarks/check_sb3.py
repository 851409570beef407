"""What a saved Stable-Baselines3 model is worth on CartPole-v1: greedy, fresh episodes. Reads the JSON of a run."""

from __future__ import annotations

import json
import sys

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

EPISODES = 100
SEED = 10_000


def main() -> None:
    torch.set_num_threads(1)
    model = PPO.load(json.load(sys.stdin)["run"], device="cpu")
    env = make_vec_env("CartPole-v1", n_envs=50, seed=SEED)
    returns, _ = evaluate_policy(model, env, EPISODES, deterministic=True, return_episode_rewards=True)
    print(json.dumps({"score": float(np.mean(returns)), "env_steps": model.num_timesteps}))


if __name__ == "__main__":
    main()
