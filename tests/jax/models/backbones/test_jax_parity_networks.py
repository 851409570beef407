"""Image encoders and memories of both backends: the same initial weights under the same names, the same features."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import torch

from rl_training.config.schema import BackboneConfig, EncoderConfig, MemoryConfig
from rl_training.jax.checks import check_network
from rl_training.jax.models.backbones.memory import followed, initial_carry, stepped
from rl_training.jax.models.networks import backbone
from rl_training.jax.pytrees import restored, tree_state
from rl_training.models.backbones.build import build_backbone
from rl_training.models.networks import as_tensors, load_module_state, module_state
from rl_training.types import BoxSpec, ConfigError, DictSpec, DiscreteSpec, SpaceSpec

STEPS, ENVS = 9, 3
FLAT = BoxSpec(np.full(3, -1.0, np.float32), np.ones(3, np.float32), np.dtype(np.float32))


def image(*shape: int, high: float = 255, dtype: Any = np.uint8) -> BoxSpec:
    return BoxSpec(np.zeros(shape, dtype), np.full(shape, high, dtype), np.dtype(dtype))


CODES = BoxSpec(
    np.zeros((5, 5, 3), np.uint8), np.broadcast_to(np.array([10, 5, 3], np.uint8), (5, 5, 3)), np.dtype(np.uint8)
)


def sampled(space: SpaceSpec, rng: np.random.Generator, count: int) -> Any:
    if isinstance(space, DictSpec):
        return {name: sampled(leaf, rng, count) for name, leaf in space.spaces.items()}
    if isinstance(space, DiscreteSpec):
        return rng.integers(space.n, size=count)
    assert isinstance(space, BoxSpec)
    if space.dtype == np.uint8:
        return rng.integers(0, space.high.astype(int) + 1, (count, *space.shape)).astype(np.uint8)
    return rng.uniform(space.low, space.high, (count, *space.shape)).astype(np.float32)


def twins(space: SpaceSpec, cfg: BackboneConfig) -> tuple[Any, Any, Any]:
    """(JAX network, its weights, torch module): the same initial weights, then the same weights away from 0."""
    module = build_backbone(space, cfg, np.random.default_rng(7))
    network = backbone(space, cfg)
    params = network.init(np.random.default_rng(7))
    initial = module_state(module)
    assert tree_state(params).keys() == initial.keys()
    for name, value in tree_state(params).items():
        np.testing.assert_array_equal(value, initial[name], err_msg=name)
    rng = np.random.default_rng(8)
    moved = {name: value + 0.1 * rng.standard_normal(value.shape).astype("f") for name, value in initial.items()}
    load_module_state(module, moved)
    return network, restored(params, moved), module


IMAGES: dict[str, tuple[SpaceSpec, BackboneConfig]] = {
    "cnn": (image(2, 36, 36), BackboneConfig("cnn", (8,))),
    "cnn beside numbers": (
        DictSpec({"speed": FLAT, "camera": image(9, 9, 2)}),
        BackboneConfig("cnn", (8,), kwargs={"channels": [3], "kernels": [3], "strides": [2]}),
    ),
    "nature": (image(4, 40, 36), BackboneConfig("nature", (8,))),
    "auto": (image(36, 36, 3), BackboneConfig(hidden_dims=())),
    "small": (image(3, 24, 24, high=1.0, dtype=np.float32), BackboneConfig("small", (8,), layer_norm=True)),
    "impala": (image(11, 12, 3), BackboneConfig("impala", (8,), encoder=EncoderConfig(features=16))),
    "grid": (image(2, 5, 6, 3), BackboneConfig("grid", (8,), encoder=EncoderConfig(features=16, channels="last"))),
    "codes": (CODES, BackboneConfig(hidden_dims=(8,), encoder=EncoderConfig(features=16))),
    "dict": (
        DictSpec({"speed": FLAT, "map.near": image(7, 7, 2), "goal": DiscreteSpec(4), "far": image(24, 24, 1)}),
        BackboneConfig(hidden_dims=(8,), encoder=EncoderConfig("auto", keys={"far": "small"}, features=16)),
    ),
    "flattened codes": (CODES, BackboneConfig(hidden_dims=(8,), encoder=EncoderConfig("mlp"))),
    "flattened": (image(5, 5, 3), BackboneConfig(hidden_dims=(8,), encoder=EncoderConfig("mlp"))),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_images_give_the_features_of_torch(kind: str) -> None:
    space, cfg = IMAGES[kind]
    network, params, module = twins(space, cfg)
    obs = sampled(space, np.random.default_rng(9), 4)
    with torch.no_grad():
        wanted = module(as_tensors(obs)).numpy()
    features = np.asarray(jax.jit(network.apply)(params, obs))
    assert features.shape == (4, network.out_features)
    np.testing.assert_allclose(features, wanted, atol=1e-5 * max(1.0, np.abs(wanted).max()))


MEMORIES: dict[str, tuple[SpaceSpec, BackboneConfig]] = {
    "gru": (FLAT, BackboneConfig("gru", (6, 8))),
    "gru as memory": (FLAT, BackboneConfig(hidden_dims=(6,), memory=MemoryConfig("gru", 8))),
    "lstm": (FLAT, BackboneConfig("lstm", (6, 8))),
    "transformer": (FLAT, BackboneConfig("transformer", (6, 8), memory=MemoryConfig(window=4))),
    "two layers": (FLAT, BackboneConfig(hidden_dims=(), memory=MemoryConfig("transformer", 8, layers=2, window=3))),
    "gated": (FLAT, BackboneConfig(memory=MemoryConfig("transformer", 8, window=1, heads=4, gating=True))),
    "lstm behind an image": (
        DictSpec({"map": image(5, 5, 2), "speed": FLAT}),
        BackboneConfig(hidden_dims=(6,), memory=MemoryConfig("lstm", 8), encoder=EncoderConfig(features=8)),
    ),
    "gru behind an image": (
        image(5, 5, 2),
        BackboneConfig(hidden_dims=(), memory=MemoryConfig("gru", 8), encoder=EncoderConfig(features=8)),
    ),
}


def rollout(space: SpaceSpec) -> tuple[Any, Any]:
    """Observations (N, T, ...) and where episodes begin, (N, T); the first steps go on with what was carried."""
    rng = np.random.default_rng(9)
    obs = jax.tree.map(lambda x: x.reshape(ENVS, STEPS, *x.shape[1:]), sampled(space, rng, ENVS * STEPS))
    is_first = rng.random((ENVS, STEPS)) < 0.2
    is_first[0] = False
    return obs, is_first


def one_by_one(network: Any, params: Any, obs: Any, is_first: Any, carry: Any) -> tuple[Any, list[Any]]:
    """Features (N, T, F) and the carry after every step."""
    step = jax.jit(lambda params, obs, carry, begins: stepped(network, params, obs, carry, begins))
    features, carries = [], []
    for t in range(is_first.shape[1]):
        feature, carry = step(params, jax.tree.map(lambda x, t=t: x[:, t], obs), carry, is_first[:, t])
        features.append(feature)
        carries.append(carry)
    return np.stack(features, axis=1), carries


@pytest.mark.parametrize("kind", MEMORIES)
def test_memories_give_the_features_of_torch_step_by_step_and_at_once(kind: str) -> None:
    space, cfg = MEMORIES[kind]
    network, params, module = twins(space, cfg)
    obs, is_first = rollout(space)
    carry = initial_carry(network, ENVS)
    torch_carry = module.memory.initial_carry(ENVS)
    for given, wanted in zip(jax.tree.leaves(carry), sorted(torch_carry), strict=True):
        np.testing.assert_array_equal(given, torch_carry[wanted].numpy())
    in_time = jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), obs)
    with torch.no_grad():
        x = module.embed(as_tensors(in_time)).view(STEPS, ENVS, -1)
        wanted, trace = module.memory.follow(x, torch_carry, torch.from_numpy(is_first.T))
    wanted = wanted.numpy().swapaxes(0, 1)
    acted, carries = one_by_one(network, params, obs, is_first, carry)
    np.testing.assert_allclose(acted, wanted, atol=1e-5)
    at_once, after = jax.jit(lambda params, carry: along(network, params, obs, carry, is_first))(params, carry)
    np.testing.assert_allclose(at_once, wanted, atol=1e-5)
    last = trace.last()
    for given, step_by_step, name in zip(
        jax.tree.leaves(after), jax.tree.leaves(carries[4]), sorted(last), strict=True
    ):
        np.testing.assert_allclose(given, step_by_step, atol=1e-5, err_msg=name)
    for given, name in zip(jax.tree.leaves(carries[-1]), sorted(last), strict=True):
        np.testing.assert_allclose(given, last[name].numpy(), atol=1e-5, err_msg=name)


def along(network: Any, params: Any, obs: Any, carry: Any, is_first: Any) -> tuple[Any, Any]:
    """Features of a whole rollout, and the carry after its fifth step."""
    features, after = followed(network, params, obs, carry, is_first, trace=True)
    assert after is not None
    return features.reshape(*is_first.shape, -1), after(4)


@pytest.mark.parametrize("kind", ["gru", "lstm", "transformer", "two layers"])
def test_an_earlier_episode_changes_no_bit_of_a_later_one(kind: str) -> None:
    space, cfg = MEMORIES[kind]
    network = backbone(space, cfg)
    params = network.init(np.random.default_rng(0))
    obs, is_first = rollout(space)
    is_first[:, 5] = True
    other = obs.copy()
    other[:, :5] += 3.0
    fresh = initial_carry(network, ENVS)
    spoilt = jax.tree.map(lambda x: x + 3, fresh)
    follow = jax.jit(lambda obs, carry: followed(network, params, obs, carry, is_first)[0].reshape(ENVS, STEPS, -1))
    features, changed = np.asarray(follow(obs, fresh)), np.asarray(follow(other, spoilt))
    np.testing.assert_array_equal(features[:, 5:], changed[:, 5:])
    assert not (features[:, :5] == changed[:, :5]).any()


@pytest.mark.parametrize("kind", ["gru", "lstm", "transformer"])
def test_an_episode_begins_with_nothing_remembered(kind: str) -> None:
    """Bit for bit the features of a fresh memory, even if the carry of the episode before held NaN."""
    space, cfg = MEMORIES[kind]
    network = backbone(space, cfg)
    params, obs = network.init(np.random.default_rng(0)), np.ones((2, 3), np.float32)
    fresh = initial_carry(network, 2)
    spoilt = jax.tree.map(lambda x: np.full_like(x, np.nan) if x.dtype == np.float32 else x + 3, fresh)
    step = jax.jit(lambda carry: stepped(network, params, obs, carry, np.ones(2, bool)))
    jax.tree.map(np.testing.assert_array_equal, step(fresh), step(spoilt))


@pytest.mark.parametrize("kind", ["lstm", "transformer", "gated"])
def test_gradients_of_a_followed_rollout_are_those_of_torch(kind: str) -> None:
    space, cfg = MEMORIES[kind]
    network, params, module = twins(space, cfg)
    obs, is_first = rollout(space)
    carry = initial_carry(network, ENVS)
    grads = jax.jit(jax.grad(lambda params: followed(network, params, obs, carry, is_first)[0].sum()))(params)
    x = module.embed(torch.from_numpy(obs.swapaxes(0, 1).reshape(-1, 3))).view(STEPS, ENVS, -1)
    module.memory.follow(x, module.memory.initial_carry(ENVS), torch.from_numpy(is_first.T))[0].sum().backward()
    wanted = {name: parameter.grad.numpy() for name, parameter in module.named_parameters()}
    for name, value in tree_state(grads).items():
        np.testing.assert_allclose(value, wanted[name], atol=2e-5 * max(1.0, np.abs(wanted[name]).max()), err_msg=name)


def test_lstm_acts_in_numpy_as_in_a_program() -> None:
    space, cfg = MEMORIES["lstm"]
    network = backbone(space, cfg)
    params, carry = network.init(np.random.default_rng(0)), initial_carry(network, 2)
    obs, begins = np.ones((2, 3), np.float32), np.array([True, False])
    features, after = stepped(network, params, obs, carry, begins)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves((features, after)))
    compiled = jax.jit(lambda obs, carry: stepped(network, params, obs, carry, begins))(obs, carry)
    np.testing.assert_allclose(features, compiled[0], atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"initial_carry": lambda n: np.zeros(4, np.float32)},
            r"initial_carry\(3\) must be an array or a dict of arrays",
        ),
        ({"step": lambda params, carry, seen: seen}, r"step\(params, carry, seen\) must return \(features, carry\)"),
        ({"step": lambda params, carry, seen: (seen[:, :8], {})}, "step returned a carry without carry"),
        ({"out_features": 5}, r"features of step\(params, carry, seen\) must be floats of shape \(3, 5\)"),
    ],
)
def test_a_memory_of_your_own_is_checked(changes: dict[str, Any], message: str) -> None:
    network = backbone(*MEMORIES["lstm"])
    check_network(network, FLAT, "network")
    check_network(backbone(*MEMORIES["gru"]), FLAT, "network")  # a memory that is one array, as in version 0.1.0
    with pytest.raises(ConfigError, match=message):
        check_network(network._replace(**changes), FLAT, "network")
