"""Small runs with `env.overlap`, and what they are compared by."""

from __future__ import annotations

from typing import Any

import image_cases
from state_hashes import state_hash

from rl_training.assembly.build import build_trainer
from rl_training.config.loading import parse_config

assert image_cases.KINDS
SMALL = {name: {"hidden_dims": [8]} for name in ("actor", "critic")}
GRU = {name: {"hidden_dims": [8], "memory": {"type": "gru", "size": 8}} for name in ("actor", "critic")}
NORMALIZED = {"normalize_obs": True, "normalize_reward": True}
ROLLOUT = {"num_steps": 8}
PPO = {**ROLLOUT, "num_epochs": 2, "num_minibatches": 2}
REPLAY = {"learning_starts": 100, "batch_size": 16, "updates_per_step": 0.05}
SEQUENCES = {**REPLAY, "sequence_length": 4, "burn_in": 2}

CASES: dict[str, dict[str, Any]] = {
    "ppo": {"algo": "ppo", "hparams": PPO, "env": NORMALIZED},
    "ppo-box": {"algo": "ppo", "env_id": "Pendulum-v1", "hparams": PPO, "env": NORMALIZED},
    "ppo-memory": {"algo": "ppo", "hparams": {**PPO, "sequence_length": 4}, "network": GRU, "env": NORMALIZED},
    "ppo-dict": {"algo": "ppo", "env_id": "RLProbe/DictObs-v0", "hparams": PPO, "env": NORMALIZED},
    "ppo-masks": {"algo": "ppo", "env_id": "RLProbe/MaskedArms-v0", "hparams": PPO},
    "ppo-gsde": {"algo": "ppo", "env_id": "Pendulum-v1", "hparams": {**PPO, "use_sde": True, "sde_sample_freq": 4}},
    "ppo-native-atari": {
        "algo": "ppo",
        "env_id": "ALE/Pong-v5",
        "hparams": PPO,
        "network": {"actor": {"type": "small", "hidden_dims": []}, "shared": True},
        "env": {"vectorization": "native", "kwargs": {"frameskip": 1}, "wrappers": ["atari"]},
    },
    "dqn-image-dict": {"algo": "dqn", "env_id": "TestImages/Dict-v0", "hparams": REPLAY},
    "a2c": {"algo": "a2c", "hparams": ROLLOUT, "env": NORMALIZED},
    "reinforce": {"algo": "reinforce", "hparams": ROLLOUT},
    "random": {"algo": "random"},
    "dqn": {"algo": "dqn", "hparams": {**REPLAY, "n_step": 3}, "env": NORMALIZED},
    "dqn-rainbow": {"algo": "dqn", "hparams": {**REPLAY, "prioritized": True, "noisy": True, "n_step": 3}},
    "dqn-memory": {"algo": "dqn", "hparams": {**SEQUENCES, "stored_state": True, "prioritized": True}, "network": GRU},
    "dqn-masks": {"algo": "dqn", "env_id": "RLProbe/MaskedArms-v0", "hparams": REPLAY},
    "sac": {"algo": "sac", "env_id": "Pendulum-v1", "hparams": REPLAY, "env": NORMALIZED},
    "sac-memory": {"algo": "sac", "env_id": "Pendulum-v1", "hparams": SEQUENCES, "network": GRU},
    "td3": {"algo": "td3", "env_id": "Pendulum-v1", "hparams": REPLAY},
    "crossq": {"algo": "crossq", "env_id": "Pendulum-v1", "hparams": REPLAY},
}
FEW = ("ppo", "a2c", "dqn", "sac")
OFTEN = (*FEW, "ppo-memory", "dqn-memory")


def mapping(case: str, **sections: Any) -> dict[str, Any]:
    """The config of a case; `sections` are merged into its own."""
    merged: dict[str, Any] = {
        "env_id": "CartPole-v1",
        "seed": 7,
        "env": {"num_envs": 2, "overlap": True},
        "network": SMALL,
        "buffer": {} if CASES[case]["algo"] in ("ppo", "a2c", "reinforce", "random") else {"size": 900},
        "logging": {"terminal": False, "tensorboard": False},
        "training": {"num_eval_episodes": 0},
    }
    for layer in (CASES[case], sections):
        for key, value in layer.items():
            merged[key] = {**merged.get(key, {}), **value} if isinstance(value, dict) and key != "network" else value
    return merged


def trainer(case: str, env_fn: Any = None, **sections: Any) -> Any:
    return build_trainer(parse_config(mapping(case, **sections)), env_fn)


def hashes(built: Any) -> dict[str, str]:
    """Of every part of a trainer."""
    return {name: state_hash(state) for name, state in built.state_dict().items()}
