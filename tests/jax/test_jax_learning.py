"""JAX twins of the on-policy algorithms learn: probes with known answers, and CartPole to its published score."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rl_training.assembly.build import build_trainer
from rl_training.assembly.environments import eval_env_maker
from rl_training.build_context import BuildContext
from rl_training.config.loading import load_config
from rl_training.config.schema import BackboneConfig, EnvConfig, NetworkConfig, TrainConfig, TrainingConfig
from rl_training.envs.probes import PROBES
from rl_training.hparams.ppo import PPOConfig
from rl_training.hparams.reinforce import ReinforceConfig
from rl_training.hparams.schedules import Schedule
from rl_training.jax.algorithms.on_policy import Learner
from rl_training.jax.models.actor_critic import Seen
from rl_training.training.evaluation import evaluate_policy, stack_obs

SLOW = pytest.mark.slow
SEEDS = (0, pytest.param(1, marks=SLOW), pytest.param(2, marks=SLOW))
VALUES = [
    ("reinforce", "OneState"),
    pytest.param("ppo", "RewardIsObs", marks=SLOW),
    pytest.param("reinforce", "Chain", marks=SLOW),
]
ACTING = [
    ("ppo", "Target"),
    ("reinforce", "MaskedArms"),
    pytest.param("ppo", "ObsTimesAction", marks=SLOW),
    pytest.param("reinforce", "MultiDiscrete", marks=SLOW),
]


def trained(algo: str, name: str, steps: int) -> tuple[TrainConfig, Any]:
    probe, backbone = PROBES[f"RLProbe/{name}-v0"], BackboneConfig(hidden_dims=(32,))
    hparams: Any = PPOConfig(
        num_steps=16, gamma=probe.gamma, learning_rate=Schedule("linear", 1e-2, 0.0), num_minibatches=2
    )
    if algo == "reinforce":
        hparams = ReinforceConfig(num_steps=16, gamma=probe.gamma, learning_rate=Schedule("linear", 2e-2, 0.0))
    cfg = TrainConfig(
        algo=algo,
        env_id=f"RLProbe/{name}-v0",
        backend="jax",
        lane="compiled",
        env=EnvConfig(num_envs=8),
        hparams=hparams,
        network=NetworkConfig(backbone, backbone),
        training=TrainingConfig(total_timesteps=steps),
    )
    trainer = build_trainer(cfg)
    trainer.run(steps)
    return cfg, trainer


def rows(known: Any) -> Any:
    return stack_obs([obs for obs, _ in known])


@pytest.mark.parametrize(("algo", "name"), VALUES)
def test_values_of_the_probes(algo: str, name: str) -> None:
    """OneState's 10 is the value that truncation treated as termination misses."""
    cfg, trainer = trained(algo, name, 12_000)
    known = PROBES[cfg.env_id].values
    learner = Learner(BuildContext(*trainer.spaces, network=cfg.network), cfg.hparams)
    values = learner.network.next_values(trainer.algorithm.state.params, Seen(()), rows(known))
    np.testing.assert_allclose(values, [value for _, value in known], rtol=0.05, atol=0.03)


@pytest.mark.parametrize(("algo", "name"), ACTING)
def test_best_actions_of_the_probes(algo: str, name: str) -> None:
    cfg, trainer = trained(algo, name, 12_000)
    policy, known = trainer.algorithm.policy, PROBES[cfg.env_id].best_actions
    if not known:  # what is best depends on the mask, which the environment itself checks
        result = evaluate_policy(policy, eval_env_maker(cfg, None), episodes=60, seed=1)
        assert set(result.returns.tolist()) == {0.5, 1.0}
        return
    rng, is_first = np.random.default_rng(0), np.zeros(len(known), bool)
    greedy = policy.act(rows(known), {}, is_first, rng, deterministic=True).env_actions
    np.testing.assert_allclose(greedy, [action for _, action in known], atol=0.15 if name == "Target" else 0.0)


@SLOW
@pytest.mark.learning
@pytest.mark.usefixtures("as_users_compile")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ppo_solves_cartpole_with_the_budget_of_its_preset(seed: int) -> None:
    cfg = load_config("ppo/cartpole", {"backend": "jax", "seed": seed})
    trainer = build_trainer(cfg)
    trainer.run(cfg.training.total_timesteps)
    result = evaluate_policy(trainer.algorithm.policy, eval_env_maker(cfg, None), episodes=20, seed=seed)
    assert result.returns.mean() >= 475.0


@pytest.mark.learning
@pytest.mark.usefixtures("as_users_compile")
@pytest.mark.parametrize("seed", SEEDS)
def test_ppo_with_state_dependent_noise_drives_up_the_mountain(seed: int) -> None:
    """Noise that is drawn anew at every step never gets the car to the flag."""
    cfg = load_config("ppo/mountaincar_continuous", {"backend": "jax", "seed": seed})
    trainer = build_trainer(cfg)
    trainer.run(100_000)
    result = evaluate_policy(trainer.algorithm.policy, eval_env_maker(cfg, None), episodes=20, seed=seed)
    assert result.returns.mean() >= 85.0


def test_reinforce_learns_cartpole_in_the_host_lane_too() -> None:
    """The same functions with Gymnasium's own environments: a short run that already beats a random policy."""
    cfg = load_config("reinforce/cartpole", {"backend": "jax", "lane": "host"})
    cfg = replace(cfg, training=replace(cfg.training, total_timesteps=25_000))
    trainer = build_trainer(cfg)
    trainer.run(25_000)
    result = evaluate_policy(trainer.algorithm.policy, eval_env_maker(cfg, None), episodes=10, seed=0)
    trainer.close()
    assert result.returns.mean() > 60.0  # a random policy gets about 22
