"""PQN-VDN: targets worked out by hand, PQN where there is one agent, and the two-step game, where a sum takes 7."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_training.assembly.build import build_trainer
from rl_training.build_context import BuildContext
from rl_training.config.loading import parse_config
from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.hparams.pqn_vdn import PQNVDNConfig
from rl_training.jax.algorithms.multi_agent.pqn_vdn import TeamQ
from rl_training.jax.algorithms.pqn import ParallelQ
from rl_training.jax.envs.base import box
from rl_training.types import ConfigError, DiscreteSpec

HYPER = {"gamma": np.float32(0.5), "q_lambda": np.float32(0.0)}


def parts(kind: type[ParallelQ], agents: int, rows: int = 4) -> ParallelQ:
    small = BackboneConfig(hidden_dims=(8,))
    network = NetworkConfig(small, small)
    ctx = BuildContext(box(-np.inf, np.inf, (3,)), DiscreteSpec(2), rows, network=network, num_agents=agents)
    return kind(ctx, PQNVDNConfig(num_steps=2, num_minibatches=1))


def test_targets_are_of_the_sum_over_the_agents_of_an_environment() -> None:
    """Two environments of two agents: the second terminates in the first step."""
    team = parts(TeamQ, 2)
    state: Any = team.init(np.random.default_rng(0), HYPER)
    rewards = jnp.array([[1.0, 1.0, 2.0, 2.0], [3.0, 3.0, 4.0, 4.0]])
    next_values = jnp.array([[10.0, 20.0, 5.0, 7.0], [-1.0, 3.0, 30.0, 10.0]])
    ends = {
        "terminated": jnp.array([[False, False, True, True], [False, False, False, False]]),
        "truncated": jnp.array([[False, False, False, False], [True, True, False, False]]),
    }
    targets = team.targets(state, ends, rewards, next_values)
    np.testing.assert_allclose(targets, [[1 + 0.5 * 30, 2.0], [3 + 0.5 * 2, 4 + 0.5 * 40]])


def rollout(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    obs = rng.standard_normal((3, rows, 3)).astype(np.float32)
    terminated = np.repeat(rng.random((2, rows // 2)) < 0.3, 2, axis=1)
    rewards = np.repeat(rng.standard_normal((2, rows // 2)), 2, axis=1).astype(np.float32)
    columns = {"obs": obs[:2], "next_obs": obs[1:], "actions": rng.integers(2, size=(2, rows)), "rewards": rewards}
    return {**columns, "terminated": terminated, "truncated": np.zeros_like(terminated)}


def prepared(one: ParallelQ, state: Any, batch: dict[str, Any]) -> tuple[Any, Any]:
    """Targets and loss of a rollout."""
    state, rows = one.prepare(state, batch)
    return rows.targets, one.loss(state.params, rows)[0]


def test_the_loss_is_of_sums_and_with_one_agent_that_of_pqn() -> None:
    batch, seen = rollout(4), {}
    for name, one in {"pqn": parts(ParallelQ, 1), "alone": parts(TeamQ, 1), "pairs": parts(TeamQ, 2)}.items():
        seen[name] = jax.jit(partial(prepared, one))(one.init(np.random.default_rng(0), HYPER), batch)
    np.testing.assert_allclose(seen["alone"][0], seen["pqn"][0], rtol=1e-6)
    np.testing.assert_allclose(seen["alone"][1], seen["pqn"][1], rtol=1e-6)
    assert seen["pairs"][0].shape == (4,), "two steps of two teams"
    # the target of a pair is the reward, which both agents get, and the sum of what follows for each of them
    alone = np.asarray(seen["alone"][0]).reshape(2, 2, 2)
    reward = batch["rewards"].reshape(2, 2, 2)[..., 0]
    np.testing.assert_allclose(seen["pairs"][0].reshape(2, 2), alone.sum(-1) - reward, rtol=1e-5, atol=1e-6)


RATE = {"type": "linear", "start": 5e-3, "end": 0}


def game(seed: int) -> Any:
    config = {
        "algo": "pqn_vdn",
        "env_id": "RLTeam/TwoStepGame-v0",
        "backend": "jax",
        "seed": seed,
        "env": {"num_envs": 16, "agents": {"reward": "team_mean"}},
        "hparams": {"num_steps": 8, "num_minibatches": 4, "q_lambda": 0.0, "epsilon_end": 1.0, "learning_rate": RATE},
        "network": {"critic": {"hidden_dims": [32]}},
        "training": {"total_timesteps": 60_000, "num_eval_episodes": 2, "eval_lane": "compiled"},
    }
    trainer: Any = build_trainer(parse_config(config))
    while trainer.progress.env_steps < 60_000:
        trainer.train_step()
    return trainer


def payoffs(trainer: Any) -> Any:
    """The team's value of the four pairs of actions in state 2B."""
    state_2b = np.tile(np.eye(3, dtype=np.float32)[2], (2, 1))
    q = parts_of(trainer).q.apply(trainer.agent.state.params, {"obs": state_2b, "agent_id": np.arange(2)})
    return (np.asarray(q)[0][:, None] + np.asarray(q)[1][None]).reshape(-1)


def parts_of(trainer: Any) -> TeamQ:
    owner = trainer.agent.functions.act.__self__
    assert isinstance(owner, TeamQ)
    return owner


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_a_sum_settles_on_7_in_the_two_step_game(seed: int) -> None:
    """Trained on random actions throughout: a sum cannot represent state 2B, which it values at 6.5 at best."""
    trainer = game(seed)
    assert trainer.evaluate(episodes=2).returns.tolist() == [7.0, 7.0]
    np.testing.assert_allclose(payoffs(trainer), [-1.5, 2.5, 2.5, 6.5], atol=0.4)


def test_own_rewards_and_single_agents_are_refused() -> None:
    team = {"algo": "pqn_vdn", "backend": "jax", "env_id": "RLTeam/TwoStepGame-v0"}
    with pytest.raises(ConfigError, match=r"'pqn_vdn' learns one value for a team; set env\.agents\.reward"):
        build_trainer(parse_config(team))
    with pytest.raises(ConfigError, match="'pqn_vdn' is for several agents, and environment 'CartPole-v1' has one"):
        build_trainer(parse_config({"algo": "pqn_vdn", "backend": "jax", "env_id": "CartPole-v1"}))
