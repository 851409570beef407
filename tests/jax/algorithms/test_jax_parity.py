"""Torch and JAX twins: the same first weights, and on the same batch the same losses, gradients and step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from rl_training.algorithms.ppo import PPO
from rl_training.algorithms.reinforce import Reinforce
from rl_training.algorithms.rollout import flat_rows
from rl_training.build_context import BuildContext
from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.hparams import ppo as ppo_hparams
from rl_training.hparams import reinforce as reinforce_hparams
from rl_training.hparams.base import OnPolicyHparams
from rl_training.hparams.ppo import PPOConfig
from rl_training.hparams.reinforce import ReinforceConfig
from rl_training.hparams.schedules import Schedule
from rl_training.jax.algorithms.kernels.ppo import FastKernel
from rl_training.jax.algorithms.on_policy import Learner
from rl_training.jax.algorithms.ppo import Coefficients, ReferenceKernel
from rl_training.jax.host import HostAlgorithm, build_agent, dense
from rl_training.jax.models.actor_critic import Seen
from rl_training.jax.pytrees import tree_state
from rl_training.seeding import Streams
from rl_training.types import (
    ACTION_MASK,
    Batch,
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    Obs,
    Progress,
    SpaceSpec,
)

T, N = 16, 3
FLOAT = np.dtype(np.float32)
OBS = BoxSpec(np.full(4, -np.inf, np.float32), np.full(4, np.inf, np.float32), FLOAT)
IMAGE = BoxSpec(np.zeros((2, 2), np.uint8), np.full((2, 2), 255, np.uint8), np.dtype(np.uint8))
MASKED = DictSpec({"a": OBS, "place": DiscreteSpec(5), "seen": IMAGE, ACTION_MASK: MultiBinarySpec(3)})
ACTIONS: dict[str, SpaceSpec] = {
    "discrete": DiscreteSpec(3),
    "box": BoxSpec(np.full(2, -1.0, np.float32), np.full(2, 1.0, np.float32), FLOAT),
    "multi_discrete": MultiDiscreteSpec((2, 3)),
    "multi_binary": MultiBinarySpec(3),
    "many": DiscreteSpec(6),
}


def observations(rng: np.random.Generator, space: SpaceSpec, leading: tuple[int, ...]) -> Obs:
    if isinstance(space, DictSpec):
        columns = {name: observations(rng, leaf, leading) for name, leaf in space.spaces.items()}
        columns[ACTION_MASK][..., 0] = 1  # type: ignore[index]
        return columns  # type: ignore[return-value]
    if isinstance(space, DiscreteSpec):
        return rng.integers(space.n, size=leading)
    if isinstance(space, MultiBinarySpec):
        return rng.integers(2, size=(*leading, space.n)).astype(np.int8)
    if isinstance(space, BoxSpec) and space.dtype == np.uint8:
        return rng.integers(256, size=(*leading, *space.shape)).astype(np.uint8)
    return rng.standard_normal((*leading, *space.shape)).astype(np.float32)


def actions_in(rng: np.random.Generator, space: SpaceSpec, obs: Obs) -> Any:
    if isinstance(obs, dict):
        return obs[ACTION_MASK].argmax(-1)  # allowed ones
    if isinstance(space, MultiDiscreteSpec):
        return rng.integers(space.nvec, size=(T, N, len(space.nvec)))
    if isinstance(space, DiscreteSpec):
        return rng.integers(space.n, size=(T, N))
    return observations(rng, space, (T, N))


def rollout(observation_space: SpaceSpec, action_space: SpaceSpec) -> Batch:
    """A rollout in which episodes are terminated, truncated and left open."""
    rng = np.random.default_rng(5)
    terminated, truncated = rng.random((2, T, N)) < 0.15
    index = np.flatnonzero((terminated | truncated).reshape(-1))
    obs = observations(rng, observation_space, (T, N))
    return {
        "obs": obs,
        "actions": actions_in(rng, action_space, obs),
        "rewards": rng.standard_normal((T, N)).astype(np.float32),
        "terminated": terminated,
        "truncated": truncated & ~terminated,
        "is_first": np.zeros((T, N), bool),
        "valid": np.ones((T, N), bool),
        "final_obs": observations(rng, observation_space, (len(index),)),
        "final_index": index,
        "last_obs": observations(rng, observation_space, (N,)),
        "initial_carry": {},
    }


def twins(hp: OnPolicyHparams, observation_space: SpaceSpec, action_space: SpaceSpec, **given: Any) -> tuple[Any, Any]:
    ctx = BuildContext(
        observation_space, action_space, num_envs=N, streams=Streams(7), total_timesteps=10 * T * N, **given
    )
    is_ppo = isinstance(hp, PPOConfig)
    torch_twin = (PPO if is_ppo else Reinforce)(ctx, hp)  # type: ignore[arg-type]
    spec = ppo_hparams.SPEC if is_ppo else reinforce_hparams.SPEC
    return torch_twin, build_agent(replace(ctx, progress=Progress()), spec, hp)


def as_acted(agent: HostAlgorithm, batch: Batch) -> Batch:
    """The rollout with what the agent's policy says of its observations."""
    rng = np.random.default_rng(0)
    rows = [jax.tree.map(lambda x: x[t], batch["obs"]) for t in range(T)]  # noqa: B023
    carry = agent.policy.initial_carry(N)
    said = [agent.policy.act(row, carry, np.zeros(N, bool), rng, deterministic=True).extras for row in rows]
    return {**batch, **{name: np.stack([extras[name] for extras in said]) for name in said[0]}}


def assert_same(torch_twin: Any, agent: HostAlgorithm, tolerance: float) -> None:
    """Weights, moments and therefore gradients: Adam's first mean is a tenth of the gradient."""
    ours, theirs = agent.policy.state_dict(), torch_twin.policy.state_dict()
    assert ours["network"].keys() == theirs["network"].keys(), "a checkpoint of one opens in the other"
    for name, value in theirs["network"].items():
        np.testing.assert_allclose(ours["network"][name], value, atol=tolerance, err_msg=name)
    moments, expected = agent.state_dict()["optimizer"], torch_twin.state_dict()["optimizer"]
    assert int(moments["steps"]) == expected["steps"]
    for kind in ("mean", "square"):
        for name, value in expected[kind].items():
            np.testing.assert_allclose(moments[kind][name], value, atol=tolerance, err_msg=f"{kind} {name}")


PPO_ONCE: dict[str, Any] = {"num_steps": T, "num_epochs": 1, "num_minibatches": 1, "ent_coef": 0.01}
CASES = {
    "ppo": PPOConfig(**PPO_ONCE),
    "ppo reference": PPOConfig(**PPO_ONCE, kernel="reference"),
    "ppo clipped value": PPOConfig(**{**PPO_ONCE, "num_epochs": 3}, clip_vf=0.1, max_grad_norm=None),
    "ppo, target_kl": PPOConfig(
        **{**PPO_ONCE, "num_epochs": 8}, target_kl=0.01, learning_rate=Schedule("linear", 1e-2, 0)
    ),
    "ppo, gSDE": PPOConfig(**{**PPO_ONCE, "num_epochs": 3}, use_sde=True, log_std_init=-1.0),
    "reinforce": ReinforceConfig(num_steps=T, ent_coef=0.02),
    "reinforce, gSDE": ReinforceConfig(num_steps=T, ent_coef=0.02, use_sde=True, sde_sample_freq=4),
    "reinforce without baseline": ReinforceConfig(num_steps=T, baseline=False, normalize_advantage=False),
}


@pytest.mark.parametrize(
    ("case", "actions"),
    [
        ("ppo", "discrete"),
        ("ppo reference", "discrete"),
        ("ppo clipped value", "box"),
        ("ppo, target_kl", "discrete"),
        ("ppo, gSDE", "box"),
        ("reinforce, gSDE", "box"),
        ("reinforce", "multi_discrete"),
        ("reinforce without baseline", "multi_binary"),
    ],
)
def test_one_update_is_the_same_in_both(case: str, actions: str) -> None:
    torch_twin, agent = twins(CASES[case], OBS, ACTIONS[actions])
    assert_same(torch_twin, agent, 0.0)  # the same first weights, bit for bit
    batch = rollout(OBS, ACTIONS[actions])
    expected, actual = torch_twin.update(batch).metrics, agent.update(as_acted(agent, batch)).metrics
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert actual[name] == pytest.approx(float(value), abs=1e-5, rel=1e-5), name
    assert_same(torch_twin, agent, 1e-5)


def test_masks_dicts_and_normalisers_are_the_same_in_both() -> None:
    given = {"normalize_obs": True, "normalize_reward": True}
    torch_twin, agent = twins(CASES["reinforce"], MASKED, DiscreteSpec(3), **given)
    batch = rollout(MASKED, DiscreteSpec(3))
    for _ in range(3):
        torch_twin.update(batch)
        agent.update(as_acted(agent, batch))
        for twin in (torch_twin, agent):
            twin.observe(batch)
    assert_same(torch_twin, agent, 3e-5)


@pytest.mark.parametrize(
    ("activation", "shared"),
    [("tanh", False), ("relu", True), ("elu", False), ("gelu", True), ("silu", True), ("leaky_relu", False),
     ("identity", True)],
)  # fmt: skip
def test_networks_of_any_kind_are_the_same_in_both(activation: Any, shared: bool) -> None:
    backbone = BackboneConfig(hidden_dims=(8, 5), activation=activation, layer_norm=shared, init="xavier")
    network = NetworkConfig(backbone, backbone, shared=shared)
    torch_twin, agent = twins(CASES["ppo"], OBS, ACTIONS["box"], network=network)
    batch = rollout(OBS, ACTIONS["box"])
    obs, actions = flat_rows(batch["obs"]), flat_rows(batch["actions"])
    expected = torch_twin.network(torch.from_numpy(obs), torch.from_numpy(actions))
    learner = Learner(BuildContext(OBS, ACTIONS["box"], network=network), CASES["ppo"])
    actual = jax.jit(learner.network.evaluate)(agent.state.params, Seen(obs), actions)
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize(("actions", "clip_vf"), [("discrete", 0.05), ("many", None), ("box", None)])
def test_the_fast_kernel_computes_what_the_reference_computes(actions: str, clip_vf: float | None) -> None:
    """Losses and gradients on the same rows, for a policy that has moved away from the one that acted."""
    learner = Learner(BuildContext(OBS, ACTIONS[actions], num_envs=N), CASES["ppo"])
    _, agent = twins(CASES["ppo"], OBS, ACTIONS[actions])
    _, rows = jax.jit(learner.prepare)(agent.state, dense(as_acted(agent, rollout(OBS, ACTIONS[actions]))))
    noise = np.random.default_rng(0)
    moved = jax.tree.map(
        lambda x: jnp.asarray(x + 0.1 * noise.standard_normal(x.shape).astype("f")), agent.state.params
    )
    coefficients = Coefficients(0.2, 0.01, 0.5, clip_vf)
    fast, reference = FastKernel(learner), ReferenceKernel(learner)

    @jax.jit
    def both(params: Any, rows: Any) -> Any:
        packed, losses = fast.gradient(fast.pack(params), fast.rows(rows), coefficients)
        return (fast.unpack(packed), losses), reference.gradient(params, rows, coefficients)

    (unpacked, fast_losses), (expected, losses) = both(moved, rows)
    grads = tree_state(unpacked)
    for name, value in tree_state(expected).items():
        np.testing.assert_allclose(grads[name], value, atol=1e-6, err_msg=name)
    assert 0.0 < losses["clip_fraction"] < 1.0, "both sides of the clip are tried"
    for name, loss in losses.items():
        assert float(fast_losses[name]) == pytest.approx(float(loss), abs=1e-6), name


@pytest.mark.parametrize("actions", ACTIONS)
def test_numpy_and_compiled_acting_agree(actions: str) -> None:
    _, agent = twins(CASES["ppo"], OBS, ACTIONS[actions])
    policy, obs = agent.policy, rollout(OBS, ACTIONS[actions])["obs"][0]
    assert policy.in_numpy
    results = []
    for policy.in_numpy in (True, False):
        for deterministic in (True, False):
            rng = np.random.default_rng(2)
            results.append(policy.act(obs, {}, np.zeros(N, bool), rng, deterministic=deterministic).actions)
    np.testing.assert_allclose(results[0], results[2], atol=1e-6)
    np.testing.assert_allclose(results[1], results[3], atol=1e-6)


def test_hyperparameters_are_leaves_so_that_another_value_needs_no_other_program() -> None:
    _, agent = twins(CASES["reinforce"], OBS, DiscreteSpec(3))
    batch = as_acted(agent, rollout(OBS, DiscreteSpec(3)))
    learn = jax.jit(agent.functions.learn)
    losses = set()
    for gamma in (0.9, 0.99):
        hyper = {**agent.state.hyper, "gamma": np.float32(gamma)}
        _, metrics = learn(agent.state._replace(hyper=hyper), dense(batch), np.float32(0), jax.random.key(0))
        losses.add(float(metrics["loss"]))
    assert len(losses) == 2
    assert learn._cache_size() == 1


def test_gsde_acts_alike_in_both_and_as_it_is_judged_after_the_parameters_moved() -> None:
    """The first draw of an episode, under weights and a log_std of several updates later: actions of the twins agree,
    and so do the log-probabilities of acting, of the start of the update and of its first minibatch."""
    torch_twin, agent = twins(CASES["ppo, gSDE"], OBS, ACTIONS["box"])
    obs, first = rollout(OBS, ACTIONS["box"])["obs"][0], np.ones(N, bool)
    carries = [twin.policy.initial_carry(N) for twin in (torch_twin, agent)]
    rngs = [np.random.default_rng(4) for _ in carries]
    for step in range(2):
        acted = [
            twin.policy.act(obs, carry, first, rng)
            for twin, carry, rng in zip((torch_twin, agent), carries, rngs, strict=True)
        ]
        np.testing.assert_allclose(acted[1].actions, acted[0].actions, atol=1e-5)
        if step == 0:
            moved = torch_twin.policy.state_dict()
            noise = np.random.default_rng(5)
            network = {
                name: value + np.float32(0.1) * noise.standard_normal(value.shape, np.float32)
                for name, value in moved["network"].items()
            }
            network["action_head.log_std"] = network["action_head.log_std"] + np.float32(1.0)
            for twin in (torch_twin, agent):
                twin.policy.load_state_dict({**moved, "network": network})
            carries, first = [result.carry for result in acted], np.zeros(N, bool)
    np.testing.assert_allclose(acted[1].carry["draws"], carries[0]["draws"], err_msg="still the draw of the first step")
    mean, features = acted[1].extras["outputs"], acted[1].extras["features"]
    noise_of = np.einsum("bf,bfa->ba", features, np.exp(network["action_head.log_std"]) * carries[1]["draws"])
    np.testing.assert_allclose(acted[1].actions.reshape(mean.shape) - mean, noise_of, atol=1e-5)
    batch = {"obs": obs[None], "actions": acted[1].actions[None], "rewards": np.zeros((1, N), np.float32)}
    batch |= {name: column[None] for name, column in acted[1].extras.items()}
    learner = Learner(BuildContext(OBS, ACTIONS["box"], num_envs=N), CASES["ppo, gSDE"])
    at_acting = learner.logprobs(agent.state, batch)[0]
    at_minibatch = learner.network.evaluate(agent.state.params, Seen(obs), acted[1].actions)[0]
    in_torch = torch_twin.network(torch.from_numpy(obs), torch.from_numpy(acted[0].actions))[0].detach()
    np.testing.assert_allclose(at_acting, at_minibatch, atol=1e-5)
    np.testing.assert_allclose(at_acting, in_torch, atol=1e-4, rtol=1e-5)
