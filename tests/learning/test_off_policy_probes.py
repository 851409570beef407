"""The algorithms that learn from replay on the probes they fit, two seeds (the second is slow): the known answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.assembly.build import build_trainer
from rl_training.assembly.devices import pinned_threads
from rl_training.assembly.environments import eval_env_maker
from rl_training.config.loading import parse_config
from rl_training.envs.probes import LQR_GAIN, PROBES
from rl_training.models.networks import as_tensors
from rl_training.training.evaluation import evaluate_policy, stack_obs

SEEDS = (0, pytest.param(1, marks=pytest.mark.slow))
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"double": False},
    "double": {},
    "dueling, 3 steps": {"dueling": True, "n_step": 3},
    "quantile": {"distribution": "quantile", "atoms": 9},
    "c51": {"distribution": "c51", "atoms": 41, "value_range": (-2.0, 2.0)},
    "prioritised": {"prioritized": True},
    "noisy": {"noisy": True},
}

LQR_OPTIONS: dict[str, dict[str, Any]] = {
    "td3": {"exploration_noise": 0.3, "target_noise": 0.05, "target_noise_clip": 0.1},
    "sac": {"alpha": 0.005},
}
"""Noise in the targets, or a price of entropy, moves the answer: little of either."""


def trained(algo: str, name: str, seed: int, steps: int, **hparams: Any) -> Any:
    continuous = name in ("Target", "LQR")
    backbone = {"hidden_dims": [32, 32] if continuous else [32], "activation": "tanh"}
    decay = {"type": "linear", "start": 5e-3 if continuous else 1e-2, "end": 0.0}
    given: dict[str, Any] = {
        "gamma": PROBES[f"RLProbe/{name}-v0"].gamma,
        "learning_rate": decay,
        "learning_starts": 200,
        "batch_size": 64,
        "updates_per_step": 1.0 if continuous else 0.25,
        **hparams,
    }
    if algo == "dqn":
        given = {"epsilon_steps": 1_000, "epsilon_end": 0.2, "target_every_updates": 1, "tau": 0.02, **given}
    cfg = parse_config(
        {
            "algo": algo,
            "env_id": f"RLProbe/{name}-v0",
            "seed": seed,
            "env": {"num_envs": 8},
            "hparams": given,
            "network": {"actor": backbone, "critic": backbone},
            "buffer": {"size": 20_000},
            "training": {"total_timesteps": steps},
        }
    )
    with pinned_threads(1):
        trainer = build_trainer(cfg)
        trainer.run(steps)
    trainer.close()
    return trainer


def q_values(trainer: Any, obs: Any) -> np.ndarray:
    algorithm = trainer.algorithm
    with torch.no_grad():
        return algorithm.expected(algorithm.q(as_tensors(obs))).numpy()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_values_of_dqn(options: dict[str, Any], seed: int):
    """max Q is V: two steps of which only the last pays, gamma 0.9."""
    trainer = trained("dqn", "TwoSteps", seed, 4_000, **options)
    known = PROBES["RLProbe/TwoSteps-v0"].values
    values = q_values(trainer, stack_obs([obs for obs, _ in known])).max(1)
    np.testing.assert_allclose(values, [value for _, value in known], atol=0.05)


@pytest.mark.parametrize("seed", SEEDS)
def test_action_values_of_stay_and_switch(seed: int):
    trainer = trained("dqn", "StaySwitch", seed, 16_000, n_step=1, epsilon_end=0.5)
    known = PROBES["RLProbe/StaySwitch-v0"].values
    values = q_values(trainer, stack_obs([obs for obs, _ in known]))
    np.testing.assert_allclose(values, [[17.2, 18.0], [20.0, 16.2]], atol=0.6)


@pytest.mark.parametrize("seed", SEEDS)
def test_truncation_bootstraps(seed: int):
    """One state, reward 1, a time limit of 8, gamma 0.9: 10, not the 4.7 of treating the cut as an end."""
    trainer = trained("dqn", "OneState", seed, 8_000)
    known = PROBES["RLProbe/OneState-v0"].values
    values = q_values(trainer, stack_obs([obs for obs, _ in known]))
    np.testing.assert_allclose(values, 10.0, atol=0.4)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["TwoArms", "ObsTimesAction", "DictObs"])
@pytest.mark.parametrize("algo", ["dqn", "sac"])
def test_best_actions_of_discrete_algorithms(algo: str, name: str, seed: int):
    hparams = {"alpha": 0.02} if algo == "sac" else {}
    trainer = trained(algo, name, seed, 4_000, **hparams)
    known = PROBES[f"RLProbe/{name}-v0"].best_actions
    obs, first = stack_obs([obs for obs, _ in known]), np.zeros(len(known), bool)
    greedy = trainer.algorithm.policy.act(obs, {}, first, np.random.default_rng(0), deterministic=True)
    np.testing.assert_array_equal(greedy.actions, [action for _, action in known])


@pytest.mark.parametrize("algo", ["dqn", "sac"])
def test_masked_arms(algo: str):
    trainer = trained(algo, "MaskedArms", 0, 4_000, **({"alpha": 0.02} if algo == "sac" else {}))
    maker = eval_env_maker(parse_config({"env_id": "RLProbe/MaskedArms-v0"}), None)
    returns = evaluate_policy(trainer.algorithm.policy, maker, episodes=60, seed=1).returns
    assert set(returns.tolist()) == {0.5, 1.0}


@pytest.mark.parametrize("seed", SEEDS)
def test_soft_bandit(seed: int):
    """r = (0, 1) at temperature 0.5: the best arm with probability e^2 / (1 + e^2) = 0.880797."""
    trainer = trained("sac", "SoftBandit", seed, 4_000, alpha=0.5)
    with torch.no_grad():
        logprobs = trainer.algorithm.learners["actor"].network(torch.zeros(1, 1))
    assert float(logprobs[0, 1].exp()) == pytest.approx(0.880797, abs=0.02)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("algo", ["ddpg", "td3", "sac", "crossq"])
def test_target_action(algo: str, seed: int):
    trainer = trained(algo, "Target", seed, 3_000, **({"alpha": 0.005} if algo in ("sac", "crossq") else {}))
    known = PROBES["RLProbe/Target-v0"].best_actions
    obs, first = stack_obs([obs for obs, _ in known]), np.zeros(len(known), bool)
    greedy = trainer.algorithm.policy.act(obs, {}, first, np.random.default_rng(0), deterministic=True)
    np.testing.assert_allclose(
        greedy.env_actions, [action for _, action in known], atol=0.25 if algo == "crossq" else 0.15
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("algo", ["td3", "sac"])
def test_linear_quadratic_gain(algo: str, seed: int):
    falling = {"type": "linear", "start": 3e-3, "end": 0.0}
    trainer = trained(algo, "LQR", seed, 12_000, learning_rate=falling, batch_size=128, **LQR_OPTIONS[algo])
    x = np.float32([[-1.0], [-0.5], [0.5], [1.0]])
    policy = trainer.algorithm.policy
    actions = policy.act(x, {}, np.zeros(4, bool), np.random.default_rng(0), deterministic=True).env_actions
    gain = -(actions * x).sum() / (x * x).sum()
    assert gain == pytest.approx(LQR_GAIN, abs=0.08)
