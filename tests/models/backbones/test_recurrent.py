"""GRU and LSTM along a sequence: torch's operation on pieces gives the values and gradients of single steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rl_training.models.backbones.memory import kept
from rl_training.models.backbones.recurrent import GRU, LSTM, unbroken

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
def test_features_states_and_all_gradients_are_those_of_single_steps(kind: type[Any]) -> None:
    memory, x, carry, is_first = case(kind)
    rng = np.random.default_rng(1)
    directions = torch.from_numpy(rng.standard_normal((STEPS, ENVS, SIZE)))
    inputs = [x, *carry.values(), *memory.parameters()]
    expected = step_by_step(memory, x, carry, is_first)
    features, trace = memory.follow(x, carry, is_first)
    assert torch.allclose(features, expected["hidden"], atol=1e-14, rtol=0)
    rows = torch.tensor([0, 7, STEPS * ENVS - 1])
    for name in memory.names:
        assert torch.allclose(trace.last()[name], expected[name][-1], atol=1e-14, rtol=0)
        assert torch.allclose(trace.after(rows)[name], expected[name].flatten(0, 1)[rows], atol=1e-14, rtol=0)
    pairs = [(features * directions, expected["hidden"] * directions)]
    pairs += [(trace.last()[name], expected[name][-1]) for name in memory.names]
    for found, right in pairs:
        found_gradients = torch.autograd.grad(found.sum(), inputs, retain_graph=True)
        right_gradients = torch.autograd.grad(right.sum(), inputs, retain_graph=True)
        for ours, single_steps in zip(found_gradients, right_gradients, strict=True):
            assert torch.allclose(ours, single_steps, atol=1e-12, rtol=0)


def test_pieces_end_where_an_episode_begins_in_any_environment() -> None:
    begins = torch.tensor([[True, True], [False, False], [False, True], [False, False], [True, True]])
    assert unbroken(begins) == [(0, 2), (2, 4), (4, 5)]
    assert unbroken(begins[1:2]) == [(0, 1)]


@pytest.mark.parametrize("kind", [GRU, LSTM])
def test_what_an_episode_before_held_changes_no_value_and_no_gradient(kind: type[Any]) -> None:
    memory, x, carry, is_first = case(kind)
    is_first[0] = True
    broken = {name: torch.full_like(value, torch.nan) for name, value in carry.items()}
    features, trace = memory.follow(x, broken, is_first)
    gradients = torch.autograd.grad(features.sum(), [x, *memory.parameters()])
    assert all(torch.isfinite(value).all() for value in (features, *trace.last().values(), *gradients))
    with torch.no_grad():
        clean, _ = memory.follow(x, memory.initial_carry(ENVS), is_first)
    assert torch.equal(features.detach(), clean)
