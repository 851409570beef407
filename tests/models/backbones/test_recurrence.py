"""GRU and LSTM along a sequence as one operation: values and gradients are those of autograd through single steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rl_training.models.backbones.memory import kept
from rl_training.models.backbones.recurrence import GRUSequence, LSTMSequence
from rl_training.models.backbones.recurrent import GRU, LSTM

STEPS, ENVS, INPUTS, SIZE = 9, 4, 3, 5


def case(kind: type[Any]) -> tuple[Any, Tensor, dict[str, Tensor], Tensor]:
    """A memory with all its numbers away from 0, inputs, a carry and episodes that begin here and there."""
    rng = np.random.default_rng(0)
    memory = kind(INPUTS, SIZE, rng).double()
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter.add_(torch.from_numpy(0.2 * rng.standard_normal(tuple(parameter.shape))))
    x = torch.from_numpy(rng.standard_normal((STEPS, ENVS, INPUTS))).requires_grad_()
    carry = {name: torch.from_numpy(rng.standard_normal((ENVS, SIZE))).requires_grad_() for name in memory.names}
    is_first = torch.from_numpy(rng.random((STEPS, ENVS)) < 0.3)
    is_first[0] = torch.tensor([True, False, True, False])
    is_first[3], is_first[5] = False, True
    return memory, x, carry, is_first


def step_by_step(memory: Any, x: Tensor, carry: dict[str, Tensor], is_first: Tensor) -> dict[str, Tensor]:
    states = []
    for seen, begins in zip(memory.input(x), is_first, strict=True):
        carry = memory.cell(seen, kept(carry, begins))
        states.append(carry)
    return {name: torch.stack([state[name] for state in states]) for name in memory.names}


@pytest.mark.parametrize("kind", [GRU, LSTM])
def test_states_and_all_gradients_are_those_of_single_steps(kind: type[Any]) -> None:
    memory, x, carry, is_first = case(kind)
    rng = np.random.default_rng(1)
    directions = {name: torch.from_numpy(rng.standard_normal((STEPS, ENVS, SIZE))) for name in memory.names}
    inputs = [x, *carry.values(), *memory.parameters()]

    def gradients(states: dict[str, Tensor]) -> tuple[Tensor, ...]:
        total = torch.stack([(states[name] * directions[name]).sum() for name in memory.names]).sum()
        return torch.autograd.grad(total, inputs)

    expected = step_by_step(memory, x, carry, is_first)
    found = memory.sequence(memory.input(x), carry, is_first)
    for name in memory.names:
        assert torch.allclose(found[name], expected[name], atol=1e-14, rtol=0)
    for ours, autograds in zip(gradients(found), gradients(expected), strict=True):
        assert torch.allclose(ours, autograds, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["hidden", "cell"])
def test_a_gradient_of_one_output_alone(name: str) -> None:
    """The cells of an LSTM are used without its states where only the memory goes on."""
    memory, x, carry, is_first = case(LSTM)
    inputs = [x, *carry.values(), *memory.parameters()]
    expected = torch.autograd.grad(step_by_step(memory, x, carry, is_first)[name][-1].sum(), inputs)
    found = torch.autograd.grad(memory.sequence(memory.input(x), carry, is_first)[name][-1].sum(), inputs)
    for ours, autograds in zip(found, expected, strict=True):
        assert torch.allclose(ours, autograds, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", [GRU, LSTM])
def test_numerical_differences_agree(kind: type[Any]) -> None:
    memory, x, carry, is_first = case(kind)
    operation = GRUSequence if kind is GRU else LSTMSequence
    seen = memory.input(x).detach().requires_grad_()
    weight, bias = (value.detach().requires_grad_() for value in (memory.hidden.weight, memory.hidden.bias))
    assert torch.autograd.gradcheck(operation.apply, (seen, weight, bias, *carry.values(), is_first))


@pytest.mark.parametrize("kind", [GRU, LSTM])
def test_what_an_episode_before_held_does_not_spoil_values_or_gradients(kind: type[Any]) -> None:
    memory, x, carry, is_first = case(kind)
    is_first[0] = True
    spoilt = {name: torch.full_like(value, torch.nan) for name, value in carry.items()}
    states = memory.sequence(memory.input(x), spoilt, is_first)
    gradients = torch.autograd.grad(states["hidden"].sum(), [x, *memory.parameters()])
    assert all(torch.isfinite(value).all() for value in (*states.values(), *gradients))
    with torch.no_grad():
        clean = memory.sequence(memory.input(x), memory.initial_carry(ENVS), is_first)
    assert all(torch.equal(states[name].detach(), clean[name]) for name in memory.names)
