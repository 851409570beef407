"""Contestant: RecurrentPPO of sb3-contrib on CartPole without velocities, no evaluation, no checkpoints.

    python benchmarks/recurrent_sb3.py '{"env_id": "CartPole-v1", "num_envs": 8, ...}'      # in the peers' environment

Prints one line of JSON: the speed of the training loop after the warm-up, and the mean return of 100 greedy episodes
afterwards, which are outside the measured time.
"""

from __future__ import annotations

import json
import sys

import gymnasium as gym
import numpy as np
import torch
from ppo_sb3 import Laps, ppo_arguments
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

EPISODES, SEED = 100, 10_000


class Positions(gym.ObservationWrapper):
    """CartPole's positions of cart and pole, without their velocities."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, gym.spaces.Box)
        self.observation_space = gym.spaces.Box(space.low[[0, 2]], space.high[[0, 2]], dtype=np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[[0, 2]]


def main() -> None:
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    env = VecNormalize(
        make_vec_env(settings["env_id"], settings["num_envs"], settings["seed"], wrapper_class=Positions),
        gamma=settings["gamma"],
    )
    network = {
        "net_arch": settings["hidden_dims"],  # behind the memory
        "lstm_hidden_size": settings["memory"],
        "enable_critic_lstm": True,
        "shared_lstm": False,
    }
    arguments = {**ppo_arguments(settings), "policy_kwargs": network}
    model = RecurrentPPO("MlpLstmPolicy", env, **arguments)
    laps = Laps(settings["warmup"])
    model.learn(settings["total_timesteps"], callback=laps)
    judge = VecNormalize(
        make_vec_env(settings["env_id"], 10, SEED, wrapper_class=Positions), training=False, norm_reward=False
    )
    judge.obs_rms = env.obs_rms
    returns, _ = evaluate_policy(model, judge, EPISODES, deterministic=True, return_episode_rewards=True)
    print(json.dumps({**laps.watch.result(), "score": float(np.mean(returns))}))


if __name__ == "__main__":
    main()
