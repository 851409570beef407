"""Stable-Baselines3's side of `beside_sb3.py`: trains one seed with translated settings, plays its final policy.

    python benchmarks/beside_sb3_peer.py '{"algorithm": "sac", "arguments": {...}, ...}'     # in the peers' environment

The argument is what `sb3_translation.translated` gives, with `seed`, `episodes` and `windows`. Greedy final policy,
fresh episodes, raw rewards and whole games; prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
import shimmy
import torch
from ppo_sb3 import schedule
from sb3_networks import SmallCNN
from stable_baselines3 import PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecNormalize
from windows import mean_per_window

gym.register_envs(ale_py)
gym.register_envs(shimmy)
EVALUATION_SEED = 10_000
EVALUATION_ENVS = 4
ACTIVATIONS = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh}


class Episodes(BaseCallback):
    """Keeps the raw return of every training episode and the env step at which it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[tuple[int, float]] = []

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self.ended.append((self.num_timesteps, float(info["episode"]["r"])))
        return True


def environments(settings: dict[str, Any], num_envs: int, seed: int, *, training: bool) -> VecEnv:
    """Environments as the config describes them; for evaluation with raw rewards and whole games."""
    atari = settings["atari"]
    if atari is not None:
        kwargs = {
            "noop_max": atari["noop_max"],
            "frame_skip": atari["frame_skip"],
            "screen_size": atari["size"],
            "terminal_on_life_loss": training and atari["life_loss"] == "signal",
            "clip_reward": training and atari["clip_reward"],
        }
        return VecFrameStack(make_atari_env(settings["env_id"], num_envs, seed, wrapper_kwargs=kwargs), atari["stack"])
    wrapper = gym.wrappers.FlattenObservation if settings["flatten"] else None
    env = make_vec_env(settings["env_id"], num_envs, seed, wrapper_class=wrapper)
    normalize = settings["normalize"]
    if not normalize["obs"] and not normalize["reward"]:
        return env
    rewards = training and normalize["reward"]
    return VecNormalize(
        env, training=training, norm_obs=normalize["obs"], norm_reward=rewards, gamma=normalize["gamma"]
    )


def policy(network: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The policy's class and its arguments."""
    if network["encoder"] == "nature":
        return "CnnPolicy", {"net_arch": []}
    if network["encoder"] == "small":
        return "CnnPolicy", {"net_arch": [], "features_extractor_class": SmallCNN}
    return "MlpPolicy", {"activation_fn": ACTIVATIONS[network["activation"]]}


def build(settings: dict[str, Any], env: VecEnv) -> Any:
    """The model with the translated arguments."""
    name, network = settings["algorithm"], settings["network"]
    arguments = dict(settings["arguments"])
    kind, kwargs = policy(network)
    if kind == "MlpPolicy":
        kwargs["net_arch"] = {"pi": network["actor"], "vf" if name == "ppo" else "qf": network["critic"]}
    arguments["policy_kwargs"] = {**arguments["policy_kwargs"], **kwargs}
    for scheduled in {"learning_rate", "clip_range"} & arguments.keys():
        arguments[scheduled] = schedule(arguments[scheduled])
    if "action_noise" in arguments:
        size = env.action_space.shape
        noise = arguments["action_noise"]
        arguments["action_noise"] = NormalActionNoise(np.zeros(size), np.full(size, noise)) if noise else None
    algorithm = {"ppo": PPO, "sac": SAC, "td3": TD3}[name]
    return algorithm(kind, env, seed=settings["seed"], device="cpu", verbose=0, **arguments)


def main() -> None:
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    started, cpu_started = time.monotonic(), time.process_time()
    described = settings["environment"]
    env = environments(described, described["num_envs"], settings["seed"], training=True)
    model = build(settings, env)
    episodes = Episodes()
    model.learn(settings["total_timesteps"], callback=episodes)
    seconds, cpu_seconds = time.monotonic() - started, time.process_time() - cpu_started
    judge = environments(described, EVALUATION_ENVS, EVALUATION_SEED, training=False)
    if isinstance(judge, VecNormalize) and isinstance(env, VecNormalize) and described["normalize"]["obs"]:
        judge.obs_rms = env.obs_rms
    returns, lengths = evaluate_policy(
        model, judge, settings["episodes"], deterministic=True, return_episode_rewards=True
    )
    result = {
        "return_mean": float(np.mean(returns)),
        "return_std": float(np.std(returns)),
        "returns": [round(float(value), 2) for value in returns],
        "length_mean": float(np.mean(lengths)),
        "env_steps": model.num_timesteps,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
        "curve": mean_per_window(episodes.ended, settings["total_timesteps"], settings["windows"]),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
