"""Optimisers by name: those of torch.optim behind the verbs of the flat Adam."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rl_training
from rl_training.hparams.optimizer import OptimizerConfig
from rl_training.models.optimization import Adam, FlatParameters, TorchOptimizer, build_optimizer
from rl_training.registry import dynamics, optimizers
from rl_training.types import CheckpointError, ConfigError

CASES: list[tuple[str, type[torch.optim.Optimizer], dict[str, Any]]] = [
    ("adamw", torch.optim.AdamW, {"weight_decay": 0.1, "betas": [0.8, 0.99]}),
    ("rmsprop", torch.optim.RMSprop, {"momentum": 0.5, "centered": True}),
    ("torch.optim:SGD", torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def build(module: nn.Module, name: str, **kwargs: Any) -> Any:
    return build_optimizer(FlatParameters(module), OptimizerConfig(name, kwargs), eps=1e-5)


def backward(module: nn.Module, seed: int) -> None:
    data = torch.from_numpy(np.random.default_rng(seed).normal(size=(8, 3)).astype(np.float32))
    module(data).square().sum().backward()


def weights(module: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


def steps(module: nn.Module, optimizer: Any, seeds: range, max_norm: float | None = 0.5) -> torch.Tensor:
    for seed in seeds:
        optimizer.zero_grad()
        backward(module, seed)
        optimizer.clip(max_norm)
        optimizer.step(0.01 / (1 + seed))
    return weights(module)


@pytest.mark.parametrize(("name", "cls", "kwargs"), CASES)
def test_steps_are_those_of_torch_with_its_clipping_and_a_schedule(name: str, cls: Any, kwargs: dict[str, Any]) -> None:
    ours = network()
    theirs = copy.deepcopy(ours)
    reference = cls(theirs.parameters(), lr=1.0, **kwargs)
    found = steps(ours, build(ours, name, **kwargs), range(5))
    for seed in range(5):
        reference.zero_grad()
        backward(theirs, seed)
        norm = nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        assert float(norm) > 0.5, "nothing was clipped"
        reference.param_groups[0]["lr"] = 0.01 / (1 + seed)
        reference.step()
    torch.testing.assert_close(found, weights(theirs), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("name", "cls", "kwargs"), CASES)
def test_a_restored_state_goes_on_bit_for_bit(name: str, cls: Any, kwargs: dict[str, Any]) -> None:
    whole, half = network(), network()
    half.load_state_dict(whole.state_dict())
    expected = steps(whole, build(whole, name, **kwargs), range(6))
    optimizer = build(half, name, **kwargs)
    steps(half, optimizer, range(3))
    state = copy.deepcopy(optimizer.state_dict())
    other = network()
    other.load_state_dict(half.state_dict())
    resumed = build(other, name, **kwargs)
    resumed.load_state_dict(state)
    assert torch.equal(steps(other, resumed, range(3, 6)), expected)


def test_the_state_is_saved_by_parameter_name() -> None:
    module = network()
    optimizer = build(module, "adamw", weight_decay=0.1)
    assert optimizer.state_dict()["parameters"] == {}
    steps(module, optimizer, range(2))
    state = optimizer.state_dict()
    assert set(state["parameters"]) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert state["parameters"]["0.weight"]["exp_avg"].shape == (4, 3)
    assert state["parameters"]["0.weight"]["step"] == 2
    assert state["groups"]["0"]["weight_decay"] == 0.1
    assert len(list(optimizer.tensors())) == 4 * 3  # step and both moments of each


def test_the_state_of_another_optimiser_or_network_is_refused() -> None:
    module = network()
    ours, adam = build(module, "adamw"), build(network(), "adam")
    assert isinstance(adam, Adam)
    assert isinstance(ours, TorchOptimizer)
    with pytest.raises(CheckpointError, match="another optimiser"):
        ours.load_state_dict(adam.state_dict())
    with pytest.raises(CheckpointError, match="another optimiser"):
        adam.load_state_dict(ours.state_dict())
    with pytest.raises(CheckpointError, match=r"another network: 9\.bias"):
        ours.load_state_dict({"parameters": {"9.bias": {}}, "groups": {}})


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("adamw", {"lr": 0.1}, r"the step size is hparams\.learning_rate"),
        ("adamw", {"weight_decoy": 0.1}, "optimizer 'adamw' is called with .*weight_decoy"),
        ("adamw", {"weight_decay": -1.0}, r"does not take hparams\.optimizer\.kwargs: Invalid weight_decay"),
        ("unittest.mock:Mock", {}, "made a Mock; it must be a torch.optim.Optimizer"),
        ("nonsense", {}, "unknown optimizer 'nonsense'"),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_cure(name: str, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(network(), name, **kwargs)


def test_one_of_your_own_is_registered_by_a_decorator() -> None:
    class Signs(torch.optim.Optimizer):
        def __init__(self, params: Any, lr: float, factor: float = 1.0) -> None:
            super().__init__(params, {"lr": lr, "factor": factor})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.sub_(group["lr"] * group["factor"] * parameter.grad.sign())

    with optimizers.override("signs", Signs):
        module = network()
        before = weights(module).clone()
        moved = steps(module, build(module, "signs", factor=2.0), range(1), None)
    assert set(((before - moved) / 0.02).abs().round(decimals=3).unique().tolist()) <= {0.0, 1.0}
    assert float((before - moved).abs().max()) == pytest.approx(0.02, rel=1e-4)


def test_the_decorators_are_at_the_top_of_the_package() -> None:
    assert rl_training.register_optimizer == optimizers.register
    assert rl_training.register_dynamics == dynamics.register
    assert dynamics.names() == ["deterministic", "ensemble", "rssm", "stochastic"]
