"""IPPO and MAPPO in JAX are their torch twins: the same weights, losses and steps, in units that move with returns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_training.algorithms.multi_agent.ippo import IPPO
from rl_training.build_context import BuildContext
from rl_training.hparams import ippo as ippo_hparams
from rl_training.hparams import mappo as mappo_hparams
from rl_training.hparams.ippo import IPPOConfig
from rl_training.hparams.mappo import MAPPOConfig
from rl_training.jax.algorithms.multi_agent.ippo import Scale, moved, rescaled, units
from rl_training.jax.host import build_agent
from rl_training.numerics.value_scale import ValueScale
from rl_training.seeding import Streams
from rl_training.types import AGENT_ID, CRITIC_STATE, BoxSpec, DictSpec, DiscreteSpec, Progress

T, N, A = 6, 2, 2
FLOAT = np.dtype(np.float32)


def unbounded(size: int) -> BoxSpec:
    return BoxSpec(np.full(size, -np.inf, np.float32), np.full(size, np.inf, np.float32), FLOAT)


SEEN = DictSpec({"obs": unbounded(3), AGENT_ID: DiscreteSpec(A), CRITIC_STATE: unbounded(4)})


def observations(rng: np.random.Generator, lead: tuple[int, ...]) -> dict[str, Any]:
    return {
        "obs": rng.standard_normal((*lead, 3)).astype(np.float32),
        AGENT_ID: rng.integers(A, size=lead),
        CRITIC_STATE: rng.standard_normal((*lead, 4)).astype(np.float32),
    }


def rollout() -> dict[str, Any]:
    """Rewards around 50, so that the units of the values move far."""
    rng = np.random.default_rng(2)
    terminated, truncated = rng.random((2, T, N * A)) < 0.2
    truncated &= ~terminated
    index = np.flatnonzero((terminated | truncated).reshape(-1))
    return {
        "obs": observations(rng, (T, N * A)),
        "actions": rng.integers(3, size=(T, N * A)),
        "rewards": rng.normal(50.0, 20.0, (T, N * A)).astype(np.float32),
        "terminated": terminated,
        "truncated": truncated,
        "is_first": np.zeros((T, N * A), bool),
        "valid": np.ones((T, N * A), bool),
        "final_obs": observations(rng, (len(index),)),
        "final_index": index,
        "last_obs": observations(rng, (N * A,)),
        "initial_carry": {},
    }


def as_acted(agent: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """The rollout with the outputs of the agent's policy."""
    said = []
    for t in range(T):
        obs = {name: leaf[t] for name, leaf in batch["obs"].items()}
        said.append(agent.policy.act(obs, {}, np.zeros(N * A, bool), np.random.default_rng(0)).extras["outputs"])
    return {**batch, "outputs": np.stack(said)}


@pytest.mark.parametrize("critic_input", ["state", pytest.param("both", marks=pytest.mark.slow)])
def test_updates_are_those_of_the_torch_twin(critic_input: Any) -> None:
    hp = MAPPOConfig(num_steps=T, num_epochs=2, num_minibatches=1, ent_coef=0.01, critic_input=critic_input)
    ctx = BuildContext(SEEN, DiscreteSpec(3), num_envs=N * A, num_agents=A, streams=Streams(7), total_timesteps=1000)
    torch_twin, agent = IPPO(ctx, hp), build_agent(replace(ctx, progress=Progress()), mappo_hparams.SPEC, hp)
    batch = rollout()
    for _ in range(2):  # in the second update the values are in other units than in the first
        expected, actual = torch_twin.update(batch).metrics, agent.update(as_acted(agent, batch)).metrics
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            assert actual[name] == pytest.approx(float(value), abs=5e-4, rel=5e-4), name  # means in units of 100
    ours, theirs = agent.policy.state_dict(), torch_twin.policy.state_dict()
    assert ours["network"].keys() == theirs["network"].keys()
    for name, value in theirs["network"].items():
        np.testing.assert_allclose(ours["network"][name], value, atol=1e-4, err_msg=name)
    torch_twin.policy.load_state_dict(ours)  # a checkpoint of one opens in the other, with its units
    assert torch_twin.policy.units == pytest.approx(tuple(map(float, units(agent.state.value_scale))), rel=1e-5)
    agent.policy.load_state_dict(theirs)
    assert float(agent.state.value_scale.mean) == pytest.approx(theirs["value_scale"]["mean"])


def test_actors_see_their_own_rows_only() -> None:
    """Changing the state, or the rows of others, changes no bit of what an agent does."""
    hp = MAPPOConfig(num_steps=T)
    ctx = BuildContext(SEEN, DiscreteSpec(3), num_envs=N * A, num_agents=A, streams=Streams(3))
    policy = build_agent(ctx, mappo_hparams.SPEC, hp).policy
    obs = observations(np.random.default_rng(0), (N * A,))
    other = {name: leaf.copy() for name, leaf in obs.items()}
    other[CRITIC_STATE] += 1.0
    other["obs"][1:] *= 2.0
    results = [policy.act(seen, {}, np.zeros(N * A, bool), np.random.default_rng(1)) for seen in (obs, other)]
    one, two = (result.extras["outputs"][0] for result in results)
    np.testing.assert_array_equal(one, two)


def test_without_normalised_values_it_is_ppo() -> None:
    hp = IPPOConfig(num_steps=T, normalize_value=False)
    ctx = BuildContext(unbounded(3), DiscreteSpec(3), num_envs=N)
    agent = build_agent(ctx, ippo_hparams.SPEC, hp)
    assert "value_scale" not in agent.policy.state_dict()
    IPPO(replace(ctx, progress=Progress()), hp).policy.load_state_dict(agent.policy.state_dict())


def test_the_scale_is_that_of_the_torch_twin() -> None:
    scale, twin = Scale(*(jnp.zeros(()),) * 3), ValueScale()
    assert tuple(map(float, units(scale))) == (twin.mean, twin.std) == (0.0, 1.0)
    for seed in range(3):
        returns = np.random.default_rng(seed).normal(seed, 2.0, 50).astype(np.float32)
        scale = moved(scale, jnp.asarray(returns))
        twin.update(returns)
    assert tuple(map(float, units(scale))) == pytest.approx((twin.mean, twin.std), rel=1e-5)


def test_large_returns_that_are_alike_keep_their_scale() -> None:
    """In float32 a mean square less a squared mean of 5,000 says nothing about a standard deviation of 0.5."""
    scale, twin = Scale(*(jnp.zeros(()),) * 3), ValueScale()
    for seed in range(20):
        returns = np.random.default_rng(seed).normal(5000.0, 0.5, 400).astype(np.float32)
        scale = moved(scale, jnp.asarray(returns))
        twin.update(returns)
    assert twin.std == pytest.approx(0.5, rel=0.05)
    assert float(units(scale)[1]) == pytest.approx(twin.std, rel=1e-2)


def test_rescaling_keeps_every_value() -> None:
    head = {"output.weight": jax.random.normal(jax.random.key(0), (4, 1)), "output.bias": jnp.array([0.3])}
    x = jax.random.normal(jax.random.key(1), (9, 4))
    before, after = (2.0, 3.0), (-1.0, 0.5)
    new = rescaled(head, before, after)
    values = (x @ head["output.weight"] + head["output.bias"]) * before[1] + before[0]
    again = (x @ new["output.weight"] + new["output.bias"]) * after[1] + after[0]
    np.testing.assert_allclose(again, values, rtol=1e-5)
