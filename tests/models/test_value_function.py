"""ValueFunction, MLPActorCritic and BaseNetwork: fronts over the networks of the package."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.models import ActorCritic, MLPActorCritic, QNetwork, ValueFunction, ValueNetwork
from rl_training.models.networks import module_state
from rl_training.types import BoxSpec, CheckpointError, ConfigError, DiscreteSpec, MultiBinarySpec

BOX = BoxSpec(np.full(3, -1, np.float32), np.full(3, 1, np.float32), np.dtype(np.float32))
OBS = np.random.default_rng(5).uniform(-1, 1, (6, 3)).astype(np.float32)
SMALL = BackboneConfig(hidden_dims=(8,))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_state_values_are_those_of_a_value_network() -> None:
    values = ValueFunction(BOX, cfg=SMALL, rng=rng()).state_values(OBS)
    assert torch.equal(values, ValueNetwork(BOX, SMALL, rng())(torch.as_tensor(OBS)))
    with pytest.raises(ConfigError, match="without an action space"):
        ValueFunction(BOX)(OBS, torch.zeros(6))


def test_action_values_are_those_of_a_q_network() -> None:
    function = ValueFunction(BOX, DiscreteSpec(4), SMALL, rng())
    table = QNetwork(BOX, DiscreteSpec(4), SMALL, rng()).get_q_values(OBS)
    actions = torch.tensor([0, 1, 2, 3, 0, 1])
    assert torch.equal(function(OBS, actions), table[torch.arange(6), actions])
    assert torch.equal(function(OBS), table.max(1).values)


def test_box_actions_take_the_smaller_of_two_critics() -> None:
    function = ValueFunction(BOX, BOX, SMALL, rng())
    actions = torch.as_tensor(OBS)
    both = function.online(torch.as_tensor(OBS), actions)
    assert both.shape == (2, 6)
    assert torch.equal(function.action_values(OBS, actions), both.min(0).values)
    with pytest.raises(ConfigError, match="action_values"):
        function.state_values(OBS)
    with pytest.raises(ConfigError, match="MultiBinarySpec"):
        ValueFunction(BOX, MultiBinarySpec(2))


def test_the_target_follows_by_tau_and_learns_nothing() -> None:
    function = ValueFunction(BOX, cfg=SMALL, rng=rng(), tau=0.25)
    before = {name: value.clone() for name, value in function.target.state_dict().items()}
    with torch.no_grad():
        for parameter in function.online.parameters():
            parameter.add_(1.0)
    assert torch.equal(function.state_values(OBS, target=True), ValueFunction(BOX, cfg=SMALL, rng=rng())(OBS))
    function.update_target()
    for name, value in function.target.state_dict().items():
        torch.testing.assert_close(value, before[name] + 0.25)
    function.update_target(tau=1.0)
    assert torch.equal(function.state_values(OBS, target=True), function.state_values(OBS))
    assert not any(parameter.requires_grad for parameter in function.target.parameters())


def test_weights_go_through_a_safetensors_file(tmp_path: Path) -> None:
    function = ValueFunction(BOX, DiscreteSpec(2), SMALL, rng())
    path = function.save(tmp_path / "weights" / "q.safetensors")
    stored = load_file(path)
    assert stored.keys() == module_state(function).keys()
    other = ValueFunction(BOX, DiscreteSpec(2), SMALL, np.random.default_rng(9))
    assert not torch.equal(other(OBS), function(OBS))
    other.load(path)
    assert torch.equal(other(OBS), function(OBS))
    assert function.num_parameters == sum(array.size for array in stored.values())
    with pytest.raises(CheckpointError, match="another network"):
        ValueFunction(BOX, DiscreteSpec(3), SMALL).load(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(CheckpointError):
        other.load(path)


def test_an_mlp_actor_critic_is_the_actor_critic_of_its_spaces() -> None:
    spaces = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(4)
    network = MLPActorCritic(*spaces, hidden_sizes=(8,), rng=rng())
    plain = ActorCritic(BOX, DiscreteSpec(4), NetworkConfig(actor=SMALL, critic=SMALL), rng())
    assert all(torch.equal(value, plain.state_dict()[name]) for name, value in network.state_dict().items())
    actions, values, logprobs = network.step(OBS, rng=rng())
    expected = plain(torch.as_tensor(OBS), torch.as_tensor(actions))
    np.testing.assert_array_equal(logprobs, expected[0].detach().numpy())
    np.testing.assert_array_equal(values, expected[2].detach().numpy())
    np.testing.assert_array_equal(network.act(OBS, rng=rng()), actions)
    best = plain.action_head(plain.actor(torch.as_tensor(OBS))).mean.argmax(1).numpy()
    np.testing.assert_array_equal(network.act(OBS, deterministic=True), best)
