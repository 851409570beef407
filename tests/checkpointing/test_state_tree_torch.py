"""Torch tensors on any device and in any layout are saved, and loaded as arrays with the same bits."""

from __future__ import annotations

import numpy as np
import torch
from checkpoint_cases import assert_same, refusal

from rl_training.checkpointing.state_tree import flatten, is_bfloat16, unflatten


def test_tensors_come_back_as_arrays() -> None:
    weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    state = {
        "parameter": weight,
        "transposed": weight.t(),
        "strided": torch.arange(10)[::3],
        "scalar": torch.tensor(2.5, dtype=torch.float16),
        "flag": torch.tensor([True, False]),
        "wide": torch.tensor([2**64 - 1], dtype=torch.uint64),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "empty": torch.zeros(0, 4),
    }
    expected = {
        "parameter": np.arange(6, dtype=np.float32).reshape(2, 3),
        "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "strided": np.array([0, 3, 6, 9]),
        "scalar": np.array(2.5, np.float16),
        "flag": np.array([True, False]),
        "wide": np.array([2**64 - 1], np.uint64),
        "conjugate": np.array([1 - 2j], np.complex64),
        "empty": np.zeros((0, 4), np.float32),
    }
    assert_same(unflatten(flatten(state)), expected)


def test_weights_of_a_tied_module_are_stored_once() -> None:
    first, second = torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False)
    second.weight = first.weight
    flat = flatten(dict(torch.nn.Sequential(first, second).state_dict()))
    assert list(flat.arrays) == ["0.weight"]
    back = unflatten(flat)
    assert back["0.weight"] is back["1.weight"]


def test_temporary_copies_are_never_taken_for_tied() -> None:
    """Each of these becomes a temporary array first; the next one may get the same address once that is freed."""
    state = {str(i): torch.full((300, 200), complex(i, 1)).t().conj() for i in range(20)}
    flat = flatten(state)
    assert flat.aliases == {}
    back = unflatten(flat)
    assert [complex(back[str(i)][0, 0]) for i in range(20)] == [complex(i, -1) for i in range(20)]


def test_bfloat16_tensors_keep_their_bits() -> None:
    tensor = torch.tensor([[1.0, -2.0, float("nan")], [float("-inf"), 0.0, 3.140625]]).to(torch.bfloat16)
    back = unflatten(flatten({"w": tensor, "turned": tensor.t(), "leaf": tensor.clone().requires_grad_()}))
    for name, original in (("w", tensor), ("turned", tensor.t()), ("leaf", tensor)):
        assert is_bfloat16(back[name])
        restored = torch.from_numpy(back[name].view(np.int16)).view(torch.bfloat16)
        assert torch.equal(restored.view(torch.int16), original.contiguous().view(torch.int16))


def test_tensors_without_dense_memory_are_refused_by_path() -> None:
    sparse = torch.eye(2).to_sparse()
    assert "'net/w' (Tensor) is not a dense array" in refusal(lambda: flatten({"net": {"w": sparse}}))
    assert "'w' (Tensor)" in refusal(lambda: flatten({"w": torch.empty(2, device="meta")}))
