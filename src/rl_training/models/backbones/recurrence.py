"""A recurrent cell along a whole sequence as one differentiable operation, for learning on short sequences.

Autograd through a Python loop records some ten tiny operations per step and replays each; here the forward walk keeps
what the gradient needs, everything in the gradient that does not depend on the step after is computed for all steps at
once, and the backward walk has four to six operations per step. The gradients of the weights are one product each.
Shapes: T steps, N environments, H units. `tests/models/backbones/test_recurrence.py` holds both to autograd.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def beginnings(is_first: Tensor) -> list[Tensor | None]:
    """For every step the rows (N, 1) where an episode begins, or None where none does."""
    columns = is_first.unsqueeze(2).unbind(0)
    return [rows if any_begins else None for rows, any_begins in zip(columns, is_first.any(1).tolist(), strict=True)]


def entering(initial: Tensor, states: Tensor, is_first: Tensor) -> Tensor:
    """The state (T, N, H) that enters each step: that after the step before, zero where an episode begins."""
    return torch.cat([initial[None], states[:-1]]).masked_fill_(is_first.unsqueeze(2), 0)


def through_sigmoid(value: Tensor) -> Tensor:
    """The derivative of the sigmoid where its value is `value`."""
    return value * (1.0 - value)


def through_tanh(value: Tensor) -> Tensor:
    """The derivative of the hyperbolic tangent where its value is `value`."""
    return 1.0 - value * value


def weight_gradients(products: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """Of the hidden layer's weight and bias, from the gradients of its products (T, N, G) and its inputs (T, N, H)."""
    flat = products.flatten(0, 1)
    return flat.T @ before.flatten(0, 1), flat.sum(0)


class GRUSequence(torch.autograd.Function):
    """(products of the inputs (T, N, 3H), hidden weight, hidden bias, initial state, is_first) -> states (T, N, H)."""

    @staticmethod
    def forward(ctx: Any, seen: Tensor, weight: Tensor, bias: Tensor, initial: Tensor, is_first: Tensor) -> Tensor:
        size = initial.shape[1]
        states, new = (seen.new_empty(*seen.shape[:2], size) for _ in range(2))
        products, gates = torch.empty_like(seen), seen.new_empty(*seen.shape[:2], 2 * size)
        seen_gates, seen_new = (part.unbind(0) for part in seen.split((2 * size, size), 2))
        into_gates, into_new = (part.unbind(0) for part in products.split((2 * size, size), 2))
        reset, update = (part.unbind(0) for part in gates.split(size, 2))
        rows = (products.unbind(0), gates.unbind(0), new.unbind(0), states.unbind(0), beginnings(is_first))
        before, transposed = initial, weight.T
        for t, (product, gate, candidate, state, begins) in enumerate(zip(*rows, strict=True)):
            before = before if begins is None else before.masked_fill(begins, 0)
            torch.addmm(bias, before, transposed, out=product)
            torch.add(seen_gates[t], into_gates[t], out=gate).sigmoid_()
            torch.addcmul(seen_new[t], reset[t], into_new[t], out=candidate).tanh_()
            before = torch.lerp(candidate, before, update[t], out=state)
        ctx.save_for_backward(weight, initial, is_first, products, gates, new, states)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, initial, is_first, products, gates, new, states = ctx.saved_tensors
        size = initial.shape[1]
        before = entering(initial, states, is_first)
        reset, update = gates.split(size, 2)
        # how much of a step's own gradient reaches its parts; the walk below only multiplies by these
        to_new = (1.0 - update) * through_tanh(new)
        to_reset = to_new * products[..., 2 * size :] * through_sigmoid(reset)
        shares = torch.stack([to_reset, (before - new) * through_sigmoid(update), to_new * reset], dim=2)
        into = torch.empty_like(shares)  # gradients of the products, (T, N, 3, H)
        own = torch.empty_like(states)  # gradients of the states, with those of later steps
        rows = (grad, shares, into, into.flatten(2), own, update)
        walk = zip(*(reversed(column.unbind(0)) for column in rows), reversed(beginnings(is_first)), strict=True)
        later = torch.zeros_like(initial)
        for step_grad, share, parts, flat, total, kept, begins in walk:
            torch.add(step_grad, later, out=total)
            torch.mul(share, total.unsqueeze(1), out=parts)
            later = torch.addmm(total * kept, flat, weight)
            if begins is not None:
                later.masked_fill_(begins, 0)
        products_grad = into.flatten(2)
        seen_grad = torch.cat([products_grad[..., : 2 * size], own * to_new], dim=2)
        return seen_grad, *weight_gradients(products_grad, before), later, None


class LSTMSequence(torch.autograd.Function):
    """(products of the inputs (T, N, 4H), hidden weight, hidden bias, initial state, initial cell, is_first) -> states
    and cells (T, N, H)."""

    @staticmethod
    def forward(
        ctx: Any, seen: Tensor, weight: Tensor, bias: Tensor, initial: Tensor, initial_cell: Tensor, is_first: Tensor
    ) -> tuple[Tensor, Tensor]:
        size = initial.shape[1]
        gates = seen + bias  # the products with the state are added step by step
        states, cells, open_cells = (seen.new_empty(*seen.shape[:2], size) for _ in range(3))
        enter_forget, new, leave = (part.unbind(0) for part in gates.split((2 * size, size, size), 2))
        enter, forget = (part.unbind(0) for part in gates[..., : 2 * size].split(size, 2))
        rows = (gates.unbind(0), states.unbind(0), cells.unbind(0), open_cells.unbind(0), beginnings(is_first))
        before, cell_before, transposed = initial, initial_cell, weight.T
        for t, (gate, state, cell, open_cell, begins) in enumerate(zip(*rows, strict=True)):
            if begins is not None:
                before, cell_before = before.masked_fill(begins, 0), cell_before.masked_fill(begins, 0)
            gate.addmm_(before, transposed)
            enter_forget[t].sigmoid_()
            new[t].tanh_()
            leave[t].sigmoid_()
            cell_before = torch.mul(forget[t], cell_before, out=cell).addcmul_(enter[t], new[t])
            before = torch.mul(leave[t], torch.tanh(cell, out=open_cell), out=state)
        ctx.save_for_backward(weight, initial, initial_cell, is_first, gates, states, cells, open_cells)
        return states, cells

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, cell_grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, initial, initial_cell, is_first, gates, states, cells, open_cells = ctx.saved_tensors
        size = initial.shape[1]
        before, cell_before = entering(initial, states, is_first), entering(initial_cell, cells, is_first)
        enter, forget, new, leave = gates.split(size, 2)
        # how much of a step's own gradients reaches its parts; the walk below only multiplies by these
        to_leave, to_cell = open_cells * through_sigmoid(leave), leave * through_tanh(open_cells)
        to_enter, to_forget = new * through_sigmoid(enter), cell_before * through_sigmoid(forget)
        shares = torch.stack([to_enter, to_forget, enter * through_tanh(new)], dim=2)
        into = torch.empty_like(gates)
        of_cell, of_state = into[..., : 3 * size].unflatten(2, (3, size)), into[..., 3 * size :]
        rows = (grad, cell_grad, shares, to_leave, to_cell, forget, into, of_cell, of_state)
        walk = zip(*(reversed(column.unbind(0)) for column in rows), reversed(beginnings(is_first)), strict=True)
        later, later_cell = torch.zeros_like(initial), torch.zeros_like(initial_cell)
        for step_grad, step_cell, share, leaving, opening, kept, whole, parts, last, begins in walk:
            total = later + step_grad
            total_cell = (later_cell + step_cell).addcmul_(total, opening)
            torch.mul(share, total_cell.unsqueeze(1), out=parts)
            torch.mul(total, leaving, out=last)
            later, later_cell = whole @ weight, total_cell * kept
            if begins is not None:
                later.masked_fill_(begins, 0)
                later_cell.masked_fill_(begins, 0)
        return into, *weight_gradients(into, before), later, later_cell, None
