"""Tables of the import from the SB3 Zoo: Stable-Baselines3's defaults, its names, and reasons for dropping a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ACTIVATIONS = {"ReLU": "relu", "Tanh": "tanh", "ELU": "elu", "GELU": "gelu", "SiLU": "silu", "LeakyReLU": "leaky_relu"}
WRAPPERS = {
    "ClipAction": "clip_action",
    "FlattenObservation": "flatten_observation",
    "StickyAction": "sticky_action",
    "TimeAwareObservation": "time_aware",
    "TimeLimit": "time_limit",
}
"""Wrappers of Gymnasium that are registered here, with their names."""
ON_POLICY = {
    "n_envs": 1,
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "ent_coef": 0.0,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
}
OFF_POLICY = {
    "n_envs": 1,
    "learning_rate": 1e-3,
    "gamma": 0.99,
    "buffer_size": 1_000_000,
    "learning_starts": 100,
    "batch_size": 256,
    "tau": 0.005,
    "train_freq": 1,
    "gradient_steps": 1,
}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "ppo": {**ON_POLICY, "n_steps": 2048, "batch_size": 64, "n_epochs": 10, "clip_range": 0.2},
    "a2c": {**ON_POLICY, "learning_rate": 7e-4, "n_steps": 5, "gae_lambda": 1.0},
    "dqn": {
        **OFF_POLICY,
        "learning_rate": 1e-4,
        "batch_size": 32,
        "tau": 1.0,
        "train_freq": 4,
        "target_update_interval": 10_000,
        "exploration_fraction": 0.1,
        "exploration_initial_eps": 1.0,
        "exploration_final_eps": 0.05,
        "max_grad_norm": 10,
    },
    "sac": {**OFF_POLICY, "learning_rate": 3e-4, "ent_coef": "auto"},
    "td3": {**OFF_POLICY, "policy_delay": 2, "target_policy_noise": 0.2, "target_noise_clip": 0.5, "noise_std": 0.0},
    "ddpg": {**OFF_POLICY, "noise_std": 0.0},
}
"""Stable-Baselines3's defaults, for keys that a file leaves out."""
CLIP_END = 0.01
"""Final value of a decreasing clip range as a fraction of its start; it must stay positive here."""
NETWORKS = {
    "ppo": ([64, 64], "tanh"),
    "a2c": ([64, 64], "tanh"),
    "dqn": ([64, 64], "relu"),
    "sac": ([256, 256], "relu"),
    "td3": ([400, 300], "relu"),
    "ddpg": ([400, 300], "relu"),
}
"""Hidden layers and activation of Stable-Baselines3's MlpPolicy."""
REASONS = {
    "callback": "name callbacks of your own under callbacks:",
    "features_extractor_class": "the network here is network.actor.type",
    "features_extractor_kwargs": "the network here is network.actor.type",
    "monitor_kwargs": "episodes are always counted; extra numbers of info are logging.info_keys",
    "optimize_memory_usage": "buffer.type: frames stores each frame of a stack once",
    "optimizer_class": "the optimiser is Adam",
    "ortho_init": "weights start orthogonal; network.actor.init has other choices",
    "replay_buffer_kwargs": "the replay buffer has no such options; truncation is always kept apart from termination",
    "rms_prop_eps": "the optimiser is Adam",
    "sde_net_arch": "gSDE takes its features from the policy's network",
    "use_rms_prop": "the optimiser is Adam",
    "use_sde_at_warmup": "the warm-up acts uniformly at random",
    "vec_env_class": "see env.vectorization",
    "vec_env_kwargs": "see env.vectorization",
    "vec_env_wrapper": "vector wrappers are not configured; name wrappers of single environments under env.wrappers",
}
"""Reasons why a key of the Zoo has no counterpart, where there is more to say than that."""
