"""LaProp with adaptive gradient clipping against worked-out numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from rl_training.hparams.optimizer import OptimizerConfig
from rl_training.models.laprop import LaProp, warmed_up
from rl_training.models.optimization import Adam, FlatParameters, build_optimizer
from rl_training.types import CheckpointError, ConfigError


class Vector(nn.Module):
    """One parameter, (3, 4)."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.tensor(values, dtype=torch.float64))


def test_two_steps_against_worked_out_numbers() -> None:
    module = Vector(3.0, 4.0)
    flat = FlatParameters(module)
    optimizer = LaProp(flat)
    flat.grad.copy_(torch.tensor([30.0, 40.0]))
    optimizer.step(0.1)
    np.testing.assert_allclose(flat.grad, [0.9, 1.2], atol=1e-12)  # clipped to 0.3 of the norm 5
    np.testing.assert_allclose(module.p.detach(), [2.9, 3.9], atol=1e-12)
    flat.grad.copy_(torch.tensor([0.3, -0.4]))
    optimizer.step(0.1)
    np.testing.assert_allclose(module.p.detach(), [2.82908931, 3.8761738479], atol=1e-9)


def test_each_tensor_is_clipped_by_its_own_norm_and_biases_of_zero_can_move() -> None:
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, 4.0]]))
        layer.bias.zero_()
    flat = FlatParameters(layer)
    optimizer = LaProp(flat)
    assert layer.weight.grad is not None
    assert layer.bias.grad is not None
    layer.weight.grad.copy_(torch.tensor([[0.3, 0.4]]))
    layer.bias.grad.fill_(7.0)
    optimizer.step(0.1)
    np.testing.assert_allclose(layer.weight.grad, [[0.3, 0.4]])  # norm 0.5 is below 0.3 * 5
    assert float(layer.bias.grad) == pytest.approx(0.3e-3, rel=1e-6)
    assert float(layer.bias.detach()) == pytest.approx(-0.1, rel=1e-5)  # normalised, so a full step all the same


def test_gradients_of_zero_move_nothing() -> None:
    module = Vector(3.0, 4.0)
    optimizer = LaProp(FlatParameters(module))
    optimizer.step(0.1)
    np.testing.assert_array_equal(module.p.detach(), [3.0, 4.0])


def test_without_clipping() -> None:
    flat = FlatParameters(Vector(3.0, 4.0))
    flat.grad.fill_(100.0)
    LaProp(flat, agc=None).step(0.1)
    assert (flat.grad == 100.0).all()


def test_state_by_name_goes_on_exactly() -> None:
    def trained(steps: int, module: Vector, optimizer: LaProp) -> None:
        for step in range(steps):
            optimizer.parameters.grad.copy_(torch.tensor([np.sin(step + optimizer.steps), 2.0]))
            optimizer.step(0.01)

    one = Vector(3.0, 4.0)
    first = LaProp(FlatParameters(one))
    trained(5, one, first)
    other = Vector(*one.p.tolist())
    second = LaProp(FlatParameters(other))
    second.load_state_dict(first.state_dict())
    trained(5, one, first)
    trained(5, other, second)
    assert torch.equal(one.p, other.p)
    assert set(first.state_dict()["momentum"]) == {"p"}


def test_it_is_built_by_name() -> None:
    flat = FlatParameters(Vector(3.0, 4.0))
    made = build_optimizer(flat, OptimizerConfig("laprop", {"agc": 0.1}), eps=1e-8)
    assert isinstance(made, LaProp)
    assert (made.agc, made.eps) == (0.1, 1e-20)
    with pytest.raises(ConfigError, match="takes no 'ag'; did you mean 'agc'"):
        build_optimizer(flat, OptimizerConfig("laprop", {"ag": 0.1}), eps=1e-8)
    with pytest.raises(ConfigError, match="must be > 0"):
        LaProp(flat, agc=0.0)


def test_the_state_of_another_optimizer_is_refused() -> None:
    flat = FlatParameters(Vector(3.0, 4.0))
    with pytest.raises(CheckpointError, match="another optimiser"):
        LaProp(flat).load_state_dict(Adam(flat, eps=1e-8).state_dict())


def test_warm_up() -> None:
    assert [warmed_up(4.0, updates, 4) for updates in (0, 1, 4, 9)] == [0.0, 1.0, 4.0, 4.0]
    assert warmed_up(4.0, 0, 0) == 4.0
