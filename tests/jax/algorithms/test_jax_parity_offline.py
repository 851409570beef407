"""Offline algorithms beside their torch twins: the same first weights, losses, gradients and steps on one batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from test_jax_parity_off_policy import BOX, MASKED, B, assert_metrics, assert_same, context, network, transitions

from rl_training.algorithms.offline.awac import AWAC
from rl_training.algorithms.offline.bc import BC
from rl_training.algorithms.offline.cql import CQL, DiscreteCQL
from rl_training.algorithms.offline.iql import IQL
from rl_training.algorithms.offline.rebrac import ReBRAC
from rl_training.algorithms.offline.td3_bc import TD3BC
from rl_training.build_context import BuildContext
from rl_training.hparams import awac, bc, cql, iql, rebrac, td3_bc
from rl_training.hparams.awac import AWACConfig
from rl_training.hparams.bc import BCConfig
from rl_training.hparams.cql import CQLConfig
from rl_training.hparams.iql import IQLConfig
from rl_training.hparams.rebrac import ReBRACConfig
from rl_training.hparams.schedules import Schedule
from rl_training.hparams.td3_bc import TD3BCConfig
from rl_training.jax.algorithms.offline.awac import WeightedLearner
from rl_training.jax.algorithms.offline.cql import ConservativeLearner, Draws
from rl_training.jax.algorithms.offline.rebrac import DoublyHeld
from rl_training.jax.algorithms.offline.td3_bc import Imitating
from rl_training.jax.host import build_agent
from rl_training.types import DiscreteSpec, Progress

SPECS = {
    BCConfig: bc.SPEC,
    TD3BCConfig: td3_bc.SPEC,
    IQLConfig: iql.SPEC,
    CQLConfig: cql.SPEC,
    ReBRACConfig: rebrac.SPEC,
    AWACConfig: awac.SPEC,
}
TORCH: dict[type, Any] = {
    BCConfig: BC,
    TD3BCConfig: TD3BC,
    IQLConfig: IQL,
    CQLConfig: CQL,
    ReBRACConfig: ReBRAC,
    AWACConfig: AWAC,
}


def offline(ctx: BuildContext) -> BuildContext:
    return replace(ctx, progress=Progress(axis="updates"))


def twins(hp: Any, ctx: BuildContext) -> tuple[Any, Any]:
    pair = TORCH[type(hp)](offline(ctx), hp), build_agent(offline(ctx), SPECS[type(hp)], hp)
    assert_same(*pair)
    return pair


def rows_of(ctx: BuildContext, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed + 100)
    extra = {
        "next_actions": rng.uniform(-1, 1, (B, 2)).astype(np.float32),
        "next_known": rng.random(B) < 0.7,
        "returns_to_go": rng.standard_normal(B).astype(np.float32),
    }
    return {**transitions(ctx, seed), **extra}


def told(twin: Any, draws: list[np.ndarray]) -> None:
    """Let the torch twin draw these numbers, in order."""
    left = list(draws)
    twin.noise = lambda *shape: twin.tensor(left.pop(0).reshape(shape))


@pytest.mark.parametrize("case", ["box", "discrete", "masked"])
def test_bc_steps_as_its_twin(case: str) -> None:
    given: dict[str, Any] = {"observation_space": MASKED} if case == "masked" else {}
    ctx = context(BOX if case == "box" else DiscreteSpec(3), **given)
    torch_twin, agent = twins(BCConfig(learning_rate=Schedule("linear", 1e-2, 0.0), max_grad_norm=0.5), ctx)
    for seed in (1, 2, 3):
        batch = transitions(ctx, seed)
        if case == "masked":
            batch["actions"] = np.zeros(B, np.int64)  # always allowed
        assert_metrics(agent.update(dict(batch)).metrics, torch_twin.update(dict(batch)).metrics)
        assert_same(torch_twin, agent)


@pytest.mark.parametrize("options", [{}, {"actor_decay": False, "expectile": 0.9, "beta": 10.0}], ids=str)
def test_iql_steps_as_its_twin(options: dict[str, Any]) -> None:
    ctx = context(BOX)
    torch_twin, agent = twins(IQLConfig(learning_rate=1e-2, tau=0.1, **options), ctx)
    for seed in (1, 2, 3):
        batch = transitions(ctx, seed)
        assert_metrics(agent.update(dict(batch)).metrics, torch_twin.update(dict(batch)).metrics)
        assert_same(torch_twin, agent)
        for algorithm in (torch_twin.ctx, agent):
            algorithm.progress.advance(updates=100)


@pytest.mark.parametrize(
    ("hp", "functional"),
    [
        (TD3BCConfig(learning_rate=1e-2, tau=0.1), Imitating),
        (ReBRACConfig(learning_rate=1e-2, tau=0.1, actor_beta=0.3, critic_beta=0.2), DoublyHeld),
    ],
    ids=["td3_bc", "rebrac"],
)
def test_the_td3_family_steps_as_its_twins(hp: Any, functional: Any) -> None:
    ctx = context(BOX, network=network(layer_norm=True))
    torch_twin, agent = twins(hp, ctx)
    parts, rng = functional(offline(ctx), hp), np.random.default_rng(0)
    for turn in range(3):
        batches, noise = [rows_of(ctx, 10 * turn + k) for k in range(2)], rng.standard_normal((2, B, 2), np.float32)
        told(torch_twin, list(noise))
        theirs = [torch_twin.update(dict(batch)).metrics for batch in batches]
        stacked = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
        rows = parts.prepare(agent.state, stacked)
        import jax

        pieces = jax.tree.map(lambda x: jnp.asarray(x).reshape(2, B, *x.shape[1:]), rows)
        agent.state, ours = parts.update(agent.state, pieces, noise, np.float32(1e-2))
        means = {name: np.mean([float(m[name]) for m in theirs if name in m]) for name in ours}
        assert_metrics(ours, means)
        assert_same(torch_twin, agent)


def test_awac_steps_as_its_twin() -> None:
    ctx, hp = context(BOX), AWACConfig(learning_rate=1e-2, tau=0.1, temperature=0.5)
    torch_twin, agent = twins(hp, ctx)
    parts, rng = WeightedLearner(offline(ctx), hp), np.random.default_rng(0)
    for seed in (1, 2, 3):
        batch, noise = transitions(ctx, seed), rng.standard_normal((2, B, 2), np.float32)
        told(torch_twin, list(noise))
        theirs = torch_twin.update(dict(batch)).metrics
        agent.state, ours = parts.update(agent.state, parts.prepare(agent.state, batch), noise, np.float32(1e-2))
        assert_metrics(ours, theirs)
        assert_same(torch_twin, agent)


@pytest.mark.parametrize("options", [{}, {"calibrate": "always", "alpha": 0.2}], ids=str)
def test_cql_steps_as_its_twin(options: dict[str, Any]) -> None:
    count = 3
    hp = CQLConfig(learning_rate=1e-2, actor_learning_rate=3e-3, tau=0.1, num_sampled=count, **options)
    ctx = context(BOX)
    torch_twin, agent = twins(hp, ctx)
    parts, rng = ConservativeLearner(offline(ctx), hp), np.random.default_rng(0)
    for seed in (1, 2, 3):
        batch = rows_of(ctx, seed)
        normal = [rng.standard_normal((size, 2), np.float32) for size in (B, B * count, B * count, B)]
        uniform = torch_twin.rng.bit_generator.state
        drawn = torch_twin.rng.uniform(-1.0, 1.0, (B, count, 2)).astype(np.float32)
        torch_twin.rng.bit_generator.state = uniform
        told(torch_twin, normal)
        theirs = torch_twin.update(dict(batch)).metrics
        draws = Draws(normal[0], drawn, normal[1], normal[2], normal[3])
        rates = np.float32(1e-2), np.float32(3e-3)
        agent.state, ours = parts.conserve(agent.state, parts.prepare(agent.state, batch), draws, rates)
        assert_metrics(ours, theirs)
        assert_same(torch_twin, agent)


@pytest.mark.parametrize("given", [{}, {"observation_space": MASKED}], ids=["plain", "masked"])
def test_discrete_cql_steps_as_its_twin(given: dict[str, Any]) -> None:
    hp = CQLConfig(learning_rate=1e-2, tau=0.1, weight=2.0, max_grad_norm=1.0)
    ctx = offline(context(DiscreteSpec(3), **given))
    torch_twin, agent = DiscreteCQL(ctx, hp), build_agent(ctx, cql.SPEC, hp)
    assert_same(torch_twin, agent)
    for seed in (1, 2, 3):
        batch = transitions(ctx, seed)
        if given:
            batch["actions"] = np.zeros(B, np.int64)  # always allowed
        assert_metrics(agent.update(dict(batch)).metrics, torch_twin.update(dict(batch)).metrics)
        assert_same(torch_twin, agent)
    obs, first = transitions(ctx)["obs"], np.ones(B, bool)
    ours, theirs = (
        algorithm.policy.act(obs, {}, first, np.random.default_rng(0), deterministic=True).env_actions
        for algorithm in (agent, torch_twin)
    )
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("hp", [IQLConfig(), AWACConfig(), BCConfig(), TD3BCConfig()], ids=lambda hp: type(hp).__name__)
def test_policies_act_alike(hp: Any) -> None:
    ctx = context(BOX)
    torch_twin, agent = twins(hp, ctx)
    obs, first = transitions(ctx)["obs"], np.ones(B, bool)
    for deterministic in (True, False):
        ours, theirs = (
            algorithm.policy.act(obs, {}, first, np.random.default_rng(0), deterministic=deterministic).env_actions
            for algorithm in (agent, torch_twin)
        )
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
