"""Finite differences: derivatives known by hand, and gradients that are wrong on purpose."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_training.monitoring.gradient_check import check_gradients
from rl_training.types import Batch


class Halved(torch.autograd.Function):
    """x squared with half of its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradients[0] * x


class Learner:
    """loss = mean (w x - target)^2 with w = 3, x = (1, 2); the target is that of the present weights, doubled."""

    def __init__(self, square: Any) -> None:
        self.network = nn.Linear(1, 1, bias=False)
        self.square = square
        self.restore()

    def restore(self) -> None:
        self.network.weight.data.fill_(3.0)
        self.network.weight.grad = None

    def update(self, batch: Batch) -> None:
        with torch.no_grad():
            targets = 2.0 * self.network(batch["x"])
        self.square(self.network(batch["x"]) - targets).mean().backward()
        self.network.weight.data.sub_(0.1)
        self.network.weight.grad = None
        (-self.network(batch["x"]).mean()).backward()


BATCH: Batch = {"x": torch.tensor([[1.0], [2.0]])}


def test_slopes_are_those_by_hand_and_targets_stand_still() -> None:
    learner = Learner(torch.square)
    checks = check_gradients(learner.update, BATCH, learner.network, learner.restore)
    # d/dw mean (w x - 6 x)^2 at w = 3: mean 2 x^2 (w - 6) = 2 * 2.5 * -3; then d/dw -mean(w x) = -1.5
    assert [(check.loss, check.direction) for check in checks] == [
        *((0, "gradient"), (0, "random")),
        *((1, "gradient"), (1, "random")),
    ]
    assert [abs(check.autograd) for check in checks] == pytest.approx([15.0, 15.0, 1.5, 1.5])
    assert [abs(check.differences or 0.0) for check in checks] == pytest.approx([15.0, 15.0, 1.5, 1.5], rel=1e-3)
    assert all(check.ok for check in checks)
    assert float(learner.network.weight.detach()) == 3.0


def test_a_wrong_gradient_is_found() -> None:
    learner = Learner(Halved.apply)
    first, *_ = check_gradients(learner.update, BATCH, learner.network, learner.restore)
    assert not first.ok
    assert first.autograd == pytest.approx(7.5)
    assert first.differences == pytest.approx(15.0, rel=1e-3)


def test_a_parameter_that_no_forward_uses_is_not_judged() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

    module = Scale()

    def update(batch: Batch) -> None:
        (module.scale * 2.0).backward()

    def restore() -> None:
        module.scale.grad = None

    checks = check_gradients(update, {}, module, restore)
    assert [(check.parameter, check.autograd, check.differences, check.ok) for check in checks][:1] == [
        ("scale", 2.0, None, True)
    ]
