"""Contestant: Stable-Baselines3 trains on CartPole until an evaluation is good enough, the usual way with callbacks.

    python benchmarks/solve_sb3.py '{"env_id": "CartPole-v1", ...}'      # in the peers' environment

Prints one line of JSON: the model with the best evaluation, and why it stopped.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from ppo_sb3 import ppo_arguments
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnRewardThreshold
from stable_baselines3.common.env_util import make_vec_env


def main() -> None:
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    scratch, num_envs = Path(settings["scratch"]), settings["num_envs"]
    env = make_vec_env(settings["env_id"], n_envs=num_envs, seed=settings["seed"])
    # as many environments as episodes: its fastest way to evaluate
    episodes = settings["num_eval_episodes"]
    eval_env = make_vec_env(settings["env_id"], n_envs=episodes, seed=settings["seed"] + 1000)
    evaluation = EvalCallback(
        eval_env,
        callback_on_new_best=StopTrainingOnRewardThreshold(settings["stop_at_return"], verbose=0),
        n_eval_episodes=episodes,
        eval_freq=settings["eval_frequency"] // num_envs,
        best_model_save_path=str(scratch),
        log_path=str(scratch),
        verbose=0,
    )
    model = PPO("MlpPolicy", env, **ppo_arguments(settings))
    model.learn(settings["total_timesteps"], callback=evaluation)
    solved = bool(evaluation.best_mean_reward >= settings["stop_at_return"])
    reason = "solved" if solved else "budget spent"
    print(json.dumps({"run": str(scratch / "best_model.zip"), "stop_reason": reason}))


if __name__ == "__main__":
    main()
