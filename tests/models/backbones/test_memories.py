"""GRU, LSTM and transformer keep one contract: `follow` is `step` by step, and an episode knows nothing of the last."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rl_training.models.backbones.recurrent import GRU, LSTM
from rl_training.models.backbones.transformer import Transformer

STEPS, ENVS, INPUTS, SIZE = 23, 5, 6, 8
KINDS = ("gru", "lstm", "transformer", "two layers", "gated")


def memory(kind: str, dtype: torch.dtype = torch.float64) -> Any:
    rng = np.random.default_rng(0)
    made: dict[str, Any] = {
        "gru": lambda: GRU(INPUTS, SIZE, rng),
        "lstm": lambda: LSTM(INPUTS, SIZE, rng),
        "transformer": lambda: Transformer(INPUTS, SIZE, rng, window=7),
        "two layers": lambda: Transformer(INPUTS, SIZE, rng, layers=2, window=5),
        "gated": lambda: Transformer(INPUTS, SIZE, rng, window=4, gating=True),
    }
    module: nn.Module = made[kind]().to(dtype)
    with torch.no_grad():  # biases away from 0, so that a wrong one shows
        for parameter in module.parameters():
            if parameter.dim() < 3:
                parameter.add_(torch.from_numpy(0.1 * rng.standard_normal(tuple(parameter.shape))).to(dtype))
    return module


def sequence(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.standard_normal((STEPS, ENVS, INPUTS))).to(dtype)
    is_first = torch.from_numpy(rng.random((STEPS, ENVS)) < 0.15)
    return x, is_first


def stepped(module: Any, x: Tensor, is_first: Tensor) -> tuple[Tensor, list[dict[str, Tensor]]]:
    carry, features, carries = module.initial_carry(ENVS), [], []
    for row, begins in zip(x, is_first, strict=True):
        feature, carry = module.step(row, carry, begins)
        features.append(feature)
        carries.append(carry)
    return torch.stack(features), carries


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_follow_is_step_by_step(kind: str, dtype: torch.dtype, tolerance: float) -> None:
    module, (x, is_first) = memory(kind, dtype), sequence(dtype)
    with torch.no_grad():
        one_by_one, carries = stepped(module, x, is_first)
        at_once, trace = module.follow(x, module.initial_carry(ENVS), is_first)
    assert torch.allclose(at_once, one_by_one, atol=tolerance, rtol=0)
    for name, last in trace.last().items():
        assert torch.allclose(last, carries[-1][name], atol=tolerance, rtol=0)
    rows = torch.tensor([0, 7, 3 * ENVS + 4, STEPS * ENVS - 1])
    for name, after in trace.after(rows).items():
        wanted = torch.stack([carries[int(row) // ENVS][name][int(row) % ENVS] for row in rows])
        assert torch.allclose(after, wanted, atol=tolerance, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_can_be_followed_in_pieces(kind: str) -> None:
    module, (x, is_first) = memory(kind), sequence()
    with torch.no_grad():
        whole, _ = module.follow(x, module.initial_carry(ENVS), is_first)
        first, trace = module.follow(x[:9], module.initial_carry(ENVS), is_first[:9])
        second, _ = module.follow(x[9:], trace.last(), is_first[9:])
    assert torch.allclose(torch.cat([first, second]), whole, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_an_earlier_episode_changes_no_bit_of_a_later_one(kind: str) -> None:
    module, (x, is_first) = memory(kind, torch.float32), sequence(torch.float32)
    is_first[10] = True
    other = x.clone()
    other[:10] += 3.0
    with torch.no_grad():
        features, trace = module.follow(x, module.initial_carry(ENVS), is_first)
        changed, other_trace = module.follow(other, module.initial_carry(ENVS), is_first)
    assert torch.equal(features[10:], changed[10:])
    assert not torch.equal(features[:10], changed[:10])
    for name, last in trace.last().items():
        assert torch.equal(last, other_trace.last()[name])


@pytest.mark.parametrize("kind", KINDS)
def test_an_episode_begins_with_nothing_remembered(kind: str) -> None:
    """Bit for bit the features of a fresh memory, even if the carry of the episode before held NaN."""
    module, (x, _) = memory(kind, torch.float32), sequence(torch.float32)
    first = torch.ones(ENVS, dtype=torch.bool)
    spoilt = {
        name: torch.full_like(value, torch.nan) if value.is_floating_point() else value + 3
        for name, value in module.initial_carry(ENVS).items()
    }
    with torch.no_grad():
        fresh, carry = module.step(x[0], module.initial_carry(ENVS), first)
        after, other = module.step(x[0], spoilt, first)
    assert torch.equal(after, fresh)
    assert all(torch.equal(carry[name], other[name]) for name in carry)
    assert all(not value.any() for name, value in module.initial_carry(ENVS).items() if name != "ages")


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_a_carry_share_no_storage(kind: str) -> None:
    """Evaluation writes rows into them in place: what is written to one part must not reach another."""
    parts = list(memory(kind).initial_carry(3).values())
    assert len({part.data_ptr() for part in parts}) == len(parts)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_earlier_steps_of_the_episode_and_no_others(kind: str) -> None:
    module, (x, is_first) = memory(kind), sequence()
    is_first[:] = False
    is_first[18] = True
    x.requires_grad_(True)
    features, _ = module.follow(x, module.initial_carry(ENVS), is_first)
    (gradient,) = torch.autograd.grad(features[21].sum(), x)
    assert (gradient[18:22].abs().sum((1, 2)) > 0).all()
    assert not gradient[:18].any()
    assert not gradient[22:].any()


def test_gru_is_torchs_own_cell() -> None:
    """The arithmetic of torch.nn.GRUCell, from its weights."""
    module, (x, is_first) = memory("gru"), sequence()
    cell = nn.GRUCell(INPUTS, SIZE, dtype=torch.float64)
    with torch.no_grad():
        cell.weight_ih.copy_(module.input.weight)
        cell.bias_ih.copy_(module.input.bias)
        cell.weight_hh.copy_(module.hidden.weight)
        cell.bias_hh.copy_(module.hidden.bias)
        features, _ = module.follow(x, module.initial_carry(ENVS), torch.zeros_like(is_first))
        hidden = torch.zeros(ENVS, SIZE, dtype=torch.float64)
        for t in range(STEPS):
            hidden = cell(x[t], hidden)
            assert torch.allclose(features[t], hidden, atol=1e-12)


def test_lstm_is_torchs_own_cell() -> None:
    module, (x, is_first) = memory("lstm"), sequence()
    cell = nn.LSTMCell(INPUTS, SIZE, dtype=torch.float64)
    with torch.no_grad():
        cell.weight_ih.copy_(module.input.weight)
        cell.bias_ih.copy_(module.input.bias)
        cell.weight_hh.copy_(module.hidden.weight)
        cell.bias_hh.copy_(module.hidden.bias)
        features, _ = module.follow(x, module.initial_carry(ENVS), torch.zeros_like(is_first))
        state = None
        for t in range(STEPS):
            state = cell(x[t], state)
            assert torch.allclose(features[t], state[0], atol=1e-12)


def test_a_transformer_sees_no_further_than_its_window() -> None:
    module, (x, is_first) = memory("transformer"), sequence()
    x.requires_grad_(True)
    features, _ = module.follow(x, module.initial_carry(ENVS), torch.zeros_like(is_first))
    (gradient,) = torch.autograd.grad(features[15].sum(), x)
    seen = gradient.abs().sum((1, 2)) > 0
    assert seen.nonzero().flatten().tolist() == list(range(9, 16))  # a window of 7
