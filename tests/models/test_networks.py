"""Backbones and compositions: initialisation, encoders, the NumPy twin of the MLP, target networks."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.models import MLP, ActorCritic, PolicyNetwork, QNetwork, ValueNetwork, build_backbone
from rl_training.models.networks import load_module_state, module_state, parameter_count, polyak_update
from rl_training.models.optimization import Adam, FlatParameters
from rl_training.registry import networks
from rl_training.types import (
    BoxSpec,
    CheckpointError,
    ConfigError,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
)

BOX = BoxSpec(np.full(4, -1, np.float32), np.full(4, 1, np.float32), np.dtype(np.float32))
IMAGE = BoxSpec(np.zeros((2, 3), np.uint8), np.full((2, 3), 255, np.uint8), np.dtype(np.uint8))
MIXED = DictSpec(
    {
        "position": BOX,
        "picture": IMAGE,
        "room": DiscreteSpec(3),
        "keys": MultiDiscreteSpec((2, 3)),
        "lights": MultiBinarySpec(2),
        "action_mask": MultiBinarySpec(2),
    }
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def mixed_obs(rows: int) -> dict[str, np.ndarray]:
    g = rng()
    return {
        "position": g.standard_normal((rows, 4)).astype(np.float32),
        "picture": g.integers(0, 256, (rows, 2, 3), dtype=np.uint8),
        "room": g.integers(0, 3, rows),
        "keys": np.stack([g.integers(0, 2, rows), g.integers(0, 3, rows)], 1),
        "lights": g.integers(0, 2, (rows, 2), dtype=np.int8),
        "action_mask": np.ones((rows, 2), np.int8),
    }


def test_hidden_layers_are_orthogonal_with_gain_sqrt_two_and_zero_biases():
    network = MLP(BOX, BackboneConfig(), rng())
    first, second = network.layers[0], network.layers[2]
    np.testing.assert_allclose((first.weight.T @ first.weight).detach(), 2 * np.eye(4), atol=1e-5)
    np.testing.assert_allclose((second.weight.T @ second.weight).detach(), 2 * np.eye(64), atol=1e-5)
    assert float(first.bias.detach().abs().max()) == 0.0


def test_value_head_has_gain_one():
    critic = ValueNetwork(BOX, BackboneConfig(), rng())
    assert float(critic.head.output.weight.detach().norm()) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("kind", ["xavier", "kaiming", "lecun"])
def test_other_initialisations_have_their_variance(kind: str):
    network = MLP(BOX, BackboneConfig(hidden_dims=(400, 300), init=kind, activation="relu"), rng())
    variance = {"xavier": 2 * 2 / 700, "kaiming": 2 / 400, "lecun": 2 / 400}[kind]
    assert float(network.layers[2].weight.detach().var()) == pytest.approx(variance, rel=0.03)


def test_same_generator_same_weights_and_torch_global_state_is_untouched():
    before = torch.random.get_rng_state()
    a, b = MLP(BOX, BackboneConfig(), rng(3)), MLP(BOX, BackboneConfig(), rng(3))
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert torch.equal(before, torch.random.get_rng_state())


def test_dict_observations_go_through_one_encoder_per_key_and_skip_the_mask():
    network = MLP(MIXED, BackboneConfig(hidden_dims=()), rng())
    obs = {name: torch.from_numpy(value) for name, value in mixed_obs(5).items()}
    encoded = network(obs)
    assert encoded.shape == (5, 4 + 6 + 3 + 5 + 2)
    torch.testing.assert_close(encoded[:, 4:10], obs["picture"].flatten(1) / 255.0)
    assert encoded[:, 10:13].argmax(1).tolist() == obs["room"].tolist()


@pytest.mark.parametrize("space", [BOX, MIXED], ids=["box", "dict"])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_numpy_forward_is_the_torch_forward_also_after_a_step(space: BoxSpec | DictSpec, activation: str):
    network = MLP(space, BackboneConfig(activation=activation), rng())
    optimizer = Adam(FlatParameters(network), eps=1e-5)
    run = network.numpy_forward()
    obs = mixed_obs(7) if space is MIXED else mixed_obs(7)["position"]
    tensors = {k: torch.from_numpy(v) for k, v in obs.items()} if isinstance(obs, dict) else torch.from_numpy(obs)
    for _ in range(2):
        np.testing.assert_allclose(run(obs), network(tensors).detach().numpy(), atol=2e-6)
        network(tensors).sum().backward()
        optimizer.step(0.1)


def test_a_layer_without_numpy_twin_falls_back_to_torch():
    assert MLP(BOX, BackboneConfig(layer_norm=True), rng()).numpy_forward() is None


def test_shared_backbone_is_one_backbone():
    shared = ActorCritic(BOX, DiscreteSpec(2), NetworkConfig(shared=True), rng())
    separate = ActorCritic(BOX, DiscreteSpec(2), NetworkConfig(), rng())
    assert shared.actor is shared.critic
    assert parameter_count([separate]) - parameter_count([shared]) == parameter_count([separate.critic])


def test_polyak_hundred_times():
    target, source = nn.Linear(1, 1), nn.Linear(1, 1)
    with torch.no_grad():
        for p in target.parameters():
            p.zero_()
        for p in source.parameters():
            p.fill_(1.0)
    target.double(), source.double()
    for _ in range(100):
        polyak_update(source, target, 0.005)
    assert float(target.weight.detach()) == pytest.approx(0.3942295635, abs=1e-9)
    polyak_update(source, target, 1.0)
    assert float(target.weight.detach()) == 1.0
    assert target.weight.data_ptr() != source.weight.data_ptr()


def test_q_network_and_policy_network_interfaces():
    q = QNetwork(BOX, DiscreteSpec(3), dueling=True)
    assert q.get_q_values(np.zeros((2, 4), np.float32)).shape == (2, 3)
    policy = PolicyNetwork(BOX, DiscreteSpec(3), rng=rng())
    obs = rng().standard_normal((50, 4)).astype(np.float32)
    greedy = policy.get_action(obs, deterministic=True)
    np.testing.assert_array_equal(greedy, policy.get_action(obs, deterministic=True))
    assert len(set(policy.get_action(obs).tolist())) > 1
    assert policy.entropy(torch.from_numpy(obs), torch.zeros(50)).max() <= math.log(3) + 1e-6


def loss(network: ActorCritic) -> torch.Tensor:
    obs = torch.linspace(-1, 1, 32).reshape(8, 4)
    return sum(part.square().sum() for part in network(obs, torch.zeros(8)))


def test_module_and_optimiser_state_round_trip_by_name():
    network, other = (ActorCritic(BOX, DiscreteSpec(2), NetworkConfig(), rng(seed)) for seed in (0, 9))
    adam, fresh = Adam(FlatParameters(network), eps=1e-5), Adam(FlatParameters(other), eps=1e-5)

    def step(net: ActorCritic, optimizer: Adam) -> None:
        optimizer.zero_grad()
        loss(net).backward()
        optimizer.step(1e-2)

    step(network, adam)
    saved = copy.deepcopy((module_state(network), adam.state_dict()))
    step(network, adam)
    load_module_state(other, saved[0])
    fresh.load_state_dict(saved[1])
    step(other, fresh)
    assert torch.equal(adam.parameters.values, fresh.parameters.values)
    assert saved[1]["mean"]["value_head.output.weight"].shape == (1, 64)
    with pytest.raises(CheckpointError, match="value_head"):
        fresh.load_state_dict({**saved[1], "mean": {"actor": np.zeros(1)}})


@pytest.mark.parametrize("max_norm", [None, 0.5])
def test_flat_adam_is_torch_adam(max_norm: float | None):
    ours, theirs = (ActorCritic(BOX, DiscreteSpec(2), NetworkConfig(), rng()) for _ in range(2))
    adam = Adam(FlatParameters(ours), eps=1e-5)
    reference = torch.optim.Adam(theirs.parameters(), lr=1e-2, eps=1e-5, foreach=False)
    for _ in range(5):
        adam.zero_grad()
        loss(ours).backward()
        norm = adam.clip(max_norm)
        adam.step(1e-2)
        reference.zero_grad()
        loss(theirs).backward()
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), max_norm or float("inf"))
        reference.step()
        assert float(norm) == pytest.approx(float(expected), rel=1e-5)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda space, cfg, rng: 3, r"network 'mine' made a int; it must be a torch.nn.Module"),
        (lambda space, cfg, rng: nn.Identity(), "network 'mine' has no out_features; set self.out_features"),
        (
            lambda space: nn.Identity(),
            r"is called with \(observation_space, config, rng\).*too many positional arguments",
        ),
        (7, "network 'mine' is a int; it must be a class or a function"),
    ],
)
def test_a_network_that_does_not_fit_is_refused_with_the_cure(value: object, message: str):
    with networks.override("mine", value), pytest.raises(ConfigError, match=message):
        build_backbone(BOX, BackboneConfig(type="mine"), rng())


def test_a_network_of_unknown_name_is_refused():
    with pytest.raises(ConfigError, match="did you mean 'mlp'"):
        build_backbone(BOX, BackboneConfig(type="mpl"), rng())
