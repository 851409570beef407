"""One suite for every registered algorithm: spaces, determinism, state round trip, bit-exact resume in this process."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from rl_training.config import EnvConfig, TrainConfig, TrainingConfig
from rl_training.config_loading import parse_config
from rl_training.devices import pinned_threads
from rl_training.registry import algorithms
from rl_training.trainer import build_trainer
from rl_training.trainers.on_policy import OnPolicyTrainer
from rl_training.types import Stateful

NAMES = [name for name in algorithms.names() if algorithms.is_builtin(name)]
ENVIRONMENTS = {
    "Discrete": "CartPole-v1",
    "Box": "Pendulum-v1",
    "MultiDiscrete": "RLProbe/MultiDiscrete-v0",
    "MultiBinary": "RLProbe/MultiBinary-v0",
    "Dict": "RLProbe/DictObs-v0",
    "mask": "RLProbe/MaskedArms-v0",
    "Discrete observations": "FrozenLake-v1",
}


def config(algo: str, env_id: str, seed: int = 3, **sections: Any) -> TrainConfig:
    mapping = {
        "algo": algo,
        "env_id": env_id,
        "seed": seed,
        "env": {"num_envs": 3, **sections.pop("env", {})},
        "hparams": {"num_steps": 8, **sections.pop("hparams", {})},
        "training": {"total_timesteps": 240},
    }
    return parse_config({**mapping, **sections})


def trained(cfg: TrainConfig, steps: int) -> OnPolicyTrainer:
    with pinned_threads(1):
        trainer = build_trainer(cfg)
        trainer.run(steps)
    return trainer


def fingerprint(state: Any) -> str:
    """SHA-256 over every array and scalar of a state, by path."""
    digest = hashlib.sha256()

    def add(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key in sorted(value):
                add(value[key], f"{path}/{key}")
        elif isinstance(value, np.ndarray):
            digest.update(f"{path}{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
        else:
            digest.update(f"{path}{value!r}".encode())

    add(state, "")
    return digest.hexdigest()


@pytest.mark.parametrize("env_id", ENVIRONMENTS.values(), ids=ENVIRONMENTS.keys())
@pytest.mark.parametrize("algo", NAMES)
def test_trains_on_every_kind_of_space_and_repeats_itself(algo: str, env_id: str):
    first, second = (trained(config(algo, env_id), 96) for _ in range(2))
    assert first.progress.env_steps == 96
    assert fingerprint(first.state_dict()) == fingerprint(second.state_dict())
    other = trained(config(algo, env_id, seed=4), 96)
    assert fingerprint(other.state_dict()) != fingerprint(first.state_dict())


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "RLProbe/DictObs-v0"])
@pytest.mark.parametrize("algo", NAMES)
def test_resume_is_bit_exact(algo: str, env_id: str):
    cfg = config(algo, env_id, env={"normalize_obs": True, "normalize_reward": True})
    straight = trained(cfg, 240)
    half = trained(cfg, 120)
    state = half.state_dict()
    resumed = build_trainer(cfg)
    with pinned_threads(1):
        resumed.load_state_dict(state)
        resumed.run(240)
    assert fingerprint(resumed.state_dict()) == fingerprint(straight.state_dict())


@pytest.mark.parametrize(
    "options", [{"use_sde": True, "sde_sample_freq": 4}, {"use_sde": True}], ids=["freq", "episode"]
)
def test_resume_with_state_dependent_exploration(options: dict[str, Any]):
    cfg = config("ppo", "Pendulum-v1", hparams=options)
    straight, half = trained(cfg, 240), trained(cfg, 120)
    resumed = build_trainer(cfg)
    with pinned_threads(1):
        resumed.load_state_dict(half.state_dict())
        resumed.run(240)
    assert fingerprint(resumed.state_dict()) == fingerprint(straight.state_dict())


@pytest.mark.parametrize("options", [{"network": {"shared": True}}, {"env": {"vectorization": "native"}}], ids=str)
def test_resume_with_shared_network_and_native_vectors(options: dict[str, Any]):
    cfg = config("ppo", "CartPole-v1", **options)
    straight, half = trained(cfg, 240), trained(cfg, 120)
    resumed = build_trainer(cfg)
    with pinned_threads(1):
        resumed.load_state_dict(half.state_dict())
        resumed.run(240)
    assert fingerprint(resumed.state_dict()) == fingerprint(straight.state_dict())


@pytest.mark.parametrize("algo", NAMES)
def test_every_part_is_stateful_and_the_policy_does_not_move_by_acting(algo: str):
    trainer = trained(config(algo, "CartPole-v1"), 24)
    assert all(isinstance(part, Stateful) for part in trainer.parts().values())
    policy = trainer.algorithm.policy
    before = fingerprint(policy.state_dict())
    obs, first = np.zeros((5, 4), np.float32), np.ones(5, bool)
    greedy = [
        policy.act(obs, policy.initial_carry(5), first, np.random.default_rng(i), deterministic=True) for i in (0, 0)
    ]
    np.testing.assert_array_equal(greedy[0].actions, greedy[1].actions)
    assert greedy[0].env_actions.shape == (5,)
    assert fingerprint(policy.state_dict()) == before


def test_out_of_bound_gaussian_actions_are_stored_raw_and_sent_clipped():
    cfg = TrainConfig(algo="ppo", env_id="Pendulum-v1", env=EnvConfig(num_envs=64), training=TrainingConfig(128))
    trainer = build_trainer(cfg)
    obs = np.zeros((64, 3), np.float32)
    network = trainer.algorithm.network
    network.action_head.log_std.data.fill_(3.0)
    result = trainer.algorithm.policy.act(obs, {}, np.ones(64, bool), np.random.default_rng(0))
    assert np.abs(result.actions).max() > 2.0
    assert np.abs(result.env_actions).max() == 2.0
    inside = np.abs(result.actions) <= 2.0
    np.testing.assert_array_equal(result.actions[inside], result.env_actions[inside])
