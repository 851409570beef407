"""DQN, SAC and TD3 beside their torch twins: the same first weights, losses, gradients and steps on the same batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_training.algorithms.dqn import DQN
from rl_training.algorithms.sac import SAC
from rl_training.algorithms.td3 import TD3
from rl_training.build_context import BuildContext
from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.hparams import dqn, sac, td3
from rl_training.hparams.dqn import DQNConfig
from rl_training.hparams.sac import SACConfig
from rl_training.hparams.schedules import Schedule
from rl_training.hparams.td3 import TD3Config
from rl_training.jax.algorithms.dqn import dqn_loss, epsilon_greedy, huber
from rl_training.jax.algorithms.off_policy import following, td_targets, uniform_of
from rl_training.jax.algorithms.sac import SoftActorCritic, tanh_gaussian, temperature_loss
from rl_training.jax.algorithms.td3 import TwinDelayed, smoothed
from rl_training.jax.host import build_agent
from rl_training.jax.numerics.returns import lambda_return
from rl_training.jax.pytrees import tree_state
from rl_training.numerics.returns import lambda_return as numpy_lambda_return
from rl_training.seeding import Streams
from rl_training.types import (
    ACTION_MASK,
    Batch,
    BoxSpec,
    ConfigError,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    Progress,
    SpaceSpec,
)

B = 32
FLOAT = np.dtype(np.float32)
OBS = BoxSpec(np.full(5, -np.inf, np.float32), np.full(5, np.inf, np.float32), FLOAT)
BOX = BoxSpec(np.full(2, -2.0, np.float32), np.full(2, 1.0, np.float32), FLOAT)
MASKED = DictSpec({"a": OBS, ACTION_MASK: MultiBinarySpec(3)})
SPECS = {DQNConfig: dqn.SPEC, SACConfig: sac.SPEC, TD3Config: td3.SPEC}
TORCH: dict[type, Any] = {DQNConfig: DQN, SACConfig: SAC, TD3Config: TD3}


def network(**given: Any) -> NetworkConfig:
    backbone = BackboneConfig(**{"hidden_dims": (16, 16), "activation": "relu", **given})
    return NetworkConfig(backbone, backbone)


def context(action_space: SpaceSpec, observation_space: SpaceSpec = OBS, **given: Any) -> BuildContext:
    given = {"network": network(), **given}
    return BuildContext(observation_space, action_space, num_envs=2, streams=Streams(7), total_timesteps=1000, **given)


def twins(hp: Any, ctx: BuildContext) -> tuple[Any, Any]:
    return TORCH[type(hp)](ctx, hp), build_agent(replace(ctx, progress=Progress()), SPECS[type(hp)], hp)


def transitions(ctx: BuildContext, seed: int = 3) -> Batch:
    rng = np.random.default_rng(seed)

    def obs() -> Any:
        rows = rng.standard_normal((B, 5)).astype(np.float32)
        if ctx.observation_space is not MASKED:
            return rows
        mask = rng.integers(2, size=(B, 3)).astype(np.int8)
        mask[:, 0] = 1
        return {"a": rows, ACTION_MASK: mask}

    discrete = isinstance(ctx.action_space, DiscreteSpec)
    return {
        "obs": obs(),
        "actions": rng.integers(3, size=B) if discrete else rng.uniform(-1, 1, (B, 2)).astype(np.float32),
        "rewards": rng.standard_normal(B).astype(np.float32),
        "next_obs": obs(),
        "terminated": rng.random(B) < 0.2,
        "discounts": rng.choice([0.9, 0.81], B).astype(np.float32),
    }


def assert_close(ours: dict[str, Any], theirs: dict[str, Any], what: str) -> None:
    assert ours.keys() == theirs.keys(), what
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, atol=1e-5, err_msg=f"{what} {name}")


def assert_same(torch_twin: Any, agent: Any) -> None:
    """Weights, lagging copies and Adam's moments, whose first mean is a tenth of the gradient."""
    assert_close(agent.policy.state_dict()["network"], torch_twin.policy.state_dict()["network"], "policy")
    theirs, state = torch_twin.state_dict(), agent.state
    for name, network in theirs["networks"].items():
        assert_close(tree_state(state.networks[name]), network, name)
    for name, network in theirs["targets"].items():
        assert_close(tree_state(state.targets[name]), network, f"target {name}")
    for name, moments in theirs["optimizer"].items():
        ours = tree_state(state.optimizer[name])
        assert int(ours["steps"]) == moments["steps"]
        assert_close(ours["mean"], moments["mean"], f"mean {name}")
        assert_close(ours["square"], moments["square"], f"square {name}")
    assert int(state.updates) == theirs["updates"]


def assert_metrics(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert float(ours[name]) == pytest.approx(float(value), abs=1e-5, rel=1e-5), name


# -- DQN --------------------------------------------------------------------------------------------------------------

DQN_CASES: dict[str, tuple[DQNConfig, dict[str, Any]]] = {
    "double, schedule": (
        DQNConfig(target_every_updates=2, learning_rate=Schedule("linear", 1e-2, 0.0), max_grad_norm=None),
        {},
    ),
    "plain, copied at once": (DQNConfig(double=False, target_every_updates=1), {}),
    "dueling, following slowly": (DQNConfig(dueling=True, tau=0.05, target_every_updates=1), {}),
    "masked, layer norm, tanh": (
        DQNConfig(max_grad_norm=0.1),
        {"observation_space": MASKED, "network": network(layer_norm=True, activation="tanh")},
    ),
}


@pytest.mark.parametrize("case", DQN_CASES)
def test_dqn_steps_as_its_twin(case: str) -> None:
    hp, given = DQN_CASES[case]
    ctx = context(DiscreteSpec(3), **given)
    torch_twin, agent = twins(hp, ctx)
    assert_same(torch_twin, agent)
    for seed in (1, 2, 3):
        batch = transitions(ctx, seed)
        assert_metrics(agent.update(dict(batch)).metrics, torch_twin.update(dict(batch)).metrics)
        assert_same(torch_twin, agent)


@pytest.mark.parametrize("given", [{"distribution": "c51"}, {"noisy": True}, {"prioritized": True}])
def test_what_only_torch_has_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"hparams.{next(iter(given))} is not available.*use backend: torch"):
        build_agent(context(DiscreteSpec(3)), dqn.SPEC, DQNConfig(**given))


def test_sac_with_discrete_actions_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"sac with Discrete actions is not available.*use backend: torch"):
        build_agent(context(DiscreteSpec(3)), sac.SPEC, SACConfig())


def test_epsilon_greedy_explores_among_the_allowed() -> None:
    values, mask = np.tile([3.0, 2.0, 1.0, 0.0], (4000, 1)).astype(np.float32), np.tile([0, 1, 0, 1], (4000, 1))
    noise = np.random.default_rng(0).random((4000, 2)).astype(np.float32)
    for arrays in ((values, noise, mask), tuple(map(jnp.asarray, (values, noise, mask)))):
        chosen = np.bincount(np.asarray(epsilon_greedy(*arrays, 0.4)), minlength=4) / 4000
        np.testing.assert_allclose(chosen, [0.0, 0.8, 0.0, 0.2], atol=0.02)
    assert set(np.asarray(epsilon_greedy(values, noise, None, 1.0))) == {0, 1, 2, 3}


# -- SAC and TD3 ------------------------------------------------------------------------------------------------------

FIXED = "fixed temperature, three critics, layer norm"
SAC_CASES: dict[str, tuple[SACConfig, dict[str, Any]]] = {
    "learnt temperature": (SACConfig(), {}),
    FIXED: (
        SACConfig(alpha=0.2, num_critics=3, max_grad_norm=0.5),
        {"network": network(layer_norm=True)},
    ),
}


@pytest.mark.parametrize("case", ["learnt temperature", pytest.param(FIXED, marks=pytest.mark.slow)])
def test_sac_steps_as_its_twin(case: str) -> None:
    hp, given = SAC_CASES[case]
    ctx = context(BOX, **given)
    torch_twin, agent = twins(hp, ctx)
    parts = SoftActorCritic(ctx, hp)
    update = jax.jit(
        lambda state, batch, noise: parts.update(state, parts.prepare(state, batch), noise, hp.learning_rate)
    )
    assert_same(torch_twin, agent)
    for seed in (1, 2, 3):
        batch, noise = transitions(ctx, seed), np.random.default_rng(seed).standard_normal((2, B, 2)).astype(np.float32)
        drawn = iter(noise)
        torch_twin.noise = lambda *shape, drawn=drawn: torch_twin.tensor(next(drawn))
        theirs = torch_twin.update(dict(batch)).metrics
        agent.state, ours = update(agent.state, batch, noise)
        assert_metrics(ours, theirs)
        assert_same(torch_twin, agent)


@pytest.mark.parametrize("hp", [TD3Config(), TD3Config(actor_every_updates=3, target_noise=0.0, max_grad_norm=0.5)])
def test_td3_steps_as_its_twin(hp: TD3Config) -> None:
    ctx = context(BOX)
    torch_twin, agent = twins(hp, ctx)
    parts = TwinDelayed(ctx, hp)
    prepare = jax.vmap(parts.prepare, in_axes=(None, 0))
    update = jax.jit(lambda state, batch, noise: parts.update(state, prepare(state, batch), noise, hp.learning_rate))
    every = hp.actor_every_updates
    for call in range(2):
        batches = [transitions(ctx, 10 * call + i) for i in range(every)]
        noise = np.random.default_rng(call).standard_normal((every, B, 2)).astype(np.float32)
        drawn = iter(noise)
        torch_twin.noise = lambda *shape, drawn=drawn: torch_twin.tensor(next(drawn))
        theirs = [torch_twin.update(dict(batch)).metrics for batch in batches]
        agent.state, ours = update(agent.state, jax.tree.map(lambda *rows: np.stack(rows), *batches), noise)
        assert_same(torch_twin, agent)
        assert float(ours["critic_loss"]) == pytest.approx(np.mean([float(m["critic_loss"]) for m in theirs]), abs=1e-5)
        assert float(ours["actor_loss"]) == pytest.approx(float(theirs[-1]["actor_loss"]), abs=1e-5)
        assert ours.keys() == theirs[-1].keys()


@pytest.mark.parametrize("hp", [SACConfig(learning_starts=0), TD3Config(learning_starts=0)])
def test_actors_act_as_their_twins_in_numpy_and_compiled(hp: Any) -> None:
    ctx = context(BOX)
    torch_twin, agent = twins(hp, ctx)
    obs, first = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32), np.ones(3, bool)
    for deterministic in (True, False):
        expected = torch_twin.policy.act(obs, {}, first, np.random.default_rng(4), deterministic=deterministic)
        for in_numpy in (True, False):
            agent.policy.in_numpy = in_numpy
            result = agent.policy.act(obs, {}, first, np.random.default_rng(4), deterministic=deterministic)
            np.testing.assert_allclose(result.actions, expected.actions, atol=1e-5)
            np.testing.assert_allclose(result.env_actions, expected.env_actions, atol=1e-5)


def test_warm_up_is_uniform() -> None:
    normal = np.random.default_rng(0).standard_normal((20_000, 1)).astype(np.float32)
    for numbers in (uniform_of(normal), np.asarray(uniform_of(jnp.asarray(normal)))):
        counts, _ = np.histogram(numbers, bins=10, range=(-1, 1))
        np.testing.assert_allclose(counts, 2000, atol=200)
    _, agent = twins(SACConfig(learning_starts=100), context(BOX))
    drawn = agent.policy.act(np.zeros((9, 5), np.float32), {}, np.ones(9, bool), np.random.default_rng(1))
    noise = np.random.default_rng(1).standard_normal((9, 2), dtype=np.float32)
    np.testing.assert_allclose(drawn.actions, uniform_of(noise), atol=1e-6)


# -- worked numbers ---------------------------------------------------------------------------------------------------


def test_targets_and_losses_of_the_worked_examples() -> None:
    assert np.asarray(huber(jnp.array([2.0, -2.0, 0.5]))).tolist() == [1.5, 1.5, 0.125]
    losses, errors = dqn_loss(jnp.array([1.0]), jnp.array([3.0]))
    assert (float(losses[0]), float(errors[0])) == (1.5, 2.0)
    soft = 4.0 - 0.2 * -1.5  # SAC: the smaller of two critics, alpha 0.2, log pi -1.5
    np.testing.assert_allclose(td_targets(1.0, 0.9, jnp.array([0.0, 1.0]), soft), [4.87, 1.0], rtol=1e-6)
    gradient = jax.grad(temperature_loss)(jnp.zeros(1), jnp.array([-1.0, -3.0]), -1.0)
    assert float(gradient[0]) == pytest.approx(3.0)
    target = {"w": jnp.zeros(1)}
    for _ in range(100):
        target = following(target, {"w": jnp.ones(1)}, 0.005)
    assert float(target["w"][0]) == pytest.approx(0.3942295635, abs=1e-6)
    copied = following({"w": jnp.array([0.1, 1e8])}, {"w": jnp.array([0.3, 1e-8])}, 1.0)
    np.testing.assert_array_equal(copied["w"], jnp.array([0.3, 1e-8]))
    assert np.asarray(smoothed(jnp.array([0.0, 0.9]), jnp.array([9.0, 1.0]), 0.2, 0.5)).tolist() == [0.5, 1.0]


def test_density_of_the_squashed_gaussian() -> None:
    """Mean 0 and standard deviation 1, so the noise is the pre-tanh value; atanh(3 / 7) puts out log std 0."""
    outputs = jnp.array([[0.0, np.arctanh(3 / 7)]] * 2)
    _, logprobs = tanh_gaussian(outputs, jnp.array([[1.0], [10.0]]))
    np.testing.assert_allclose(logprobs, [-0.551377, -32.305233], rtol=1e-5)


def test_lambda_returns_agree_with_the_numpy_twin_on_1000_random_cases() -> None:
    rng = np.random.default_rng(0)
    rewards, next_values = rng.standard_normal((2, 9, 1000)).astype(np.float32)
    terminated, truncated = rng.random((2, 9, 1000)) < 0.15
    ends = terminated | truncated
    given = {"gamma": 0.9, "gae_lambda": 0.8}
    ours = lambda_return(jnp.asarray(rewards), next_values, terminated, jnp.asarray(ends), **given)
    expected = numpy_lambda_return(rewards.astype(np.float64), next_values, terminated, ends, **given)
    np.testing.assert_allclose(ours, expected, atol=1e-5)
