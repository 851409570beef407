"""What Stable-Baselines3 reaches: trains one seed with our preset's hyperparameters, evaluates as our scores do.

    python benchmarks/score_sb3.py --algorithm sac --env-id HalfCheetah-v5 --seed 0 --total-timesteps 100000

Greedy final policy, fresh episodes, unmodified environment; prints one JSON object. Runs in the peers' environment.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import torch
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

EVALUATION_SEED = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", choices=("sac", "td3"), required=True)
    parser.add_argument("--env-id", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--total-timesteps", type=int, required=True)
    parser.add_argument("--learning-starts", type=int, default=5_000)
    parser.add_argument("--episodes", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started = time.monotonic()
    env = make_vec_env(arguments.env_id, n_envs=1, seed=arguments.seed)
    algorithm = {"sac": SAC, "td3": TD3}[arguments.algorithm]
    model = algorithm(
        "MlpPolicy", env, learning_starts=arguments.learning_starts, seed=arguments.seed, device="cpu", verbose=0
    )
    model.learn(arguments.total_timesteps)
    seconds = time.monotonic() - started
    judge = make_vec_env(arguments.env_id, n_envs=10, seed=EVALUATION_SEED)
    returns, _ = evaluate_policy(model, judge, arguments.episodes, deterministic=True, return_episode_rewards=True)
    score = {"return_mean": float(np.mean(returns)), "return_std": float(np.std(returns)), "seconds": round(seconds, 1)}
    print(json.dumps({**score, "env_steps": model.num_timesteps}), flush=True)


if __name__ == "__main__":
    main()
