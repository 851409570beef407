"""Contestant: PPO of Stable-Baselines3 on an Atari game, with its AtariWrapper, frame stack and CnnPolicy.

    python benchmarks/atari_sb3.py '{"env_id": "PongNoFrameskip-v4", "encoder": "nature", ...}'  # peers' own

`threads` are torch's; `subproc` steps every environment in a process of its own. Prints one line of JSON: the speed of
the training loop after the warm-up.
"""

from __future__ import annotations

import json
import sys

import ale_py
import gymnasium as gym
import torch
from ppo_sb3 import Laps, ppo_arguments
from sb3_networks import SmallCNN
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack

gym.register_envs(ale_py)
FRAMES = 4


def main() -> None:
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(settings["threads"])
    vector = SubprocVecEnv if settings["subproc"] else None
    env = make_atari_env(settings["env_id"], settings["num_envs"], settings["seed"], vec_env_cls=vector)
    workers = [process.pid for process in env.processes] if settings["subproc"] else []
    extractor = {"small": {"features_extractor_class": SmallCNN}, "nature": {}}[settings["encoder"]]
    arguments = {**ppo_arguments({**settings, "hidden_dims": []}), "policy_kwargs": {"net_arch": [], **extractor}}
    model = PPO("CnnPolicy", VecFrameStack(env, FRAMES), **arguments)
    laps = Laps(settings["warmup"], workers)
    model.learn(settings["total_timesteps"], callback=laps)
    env.close()
    print(json.dumps(laps.watch.result()))


if __name__ == "__main__":
    main()
