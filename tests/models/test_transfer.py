"""Arrays on their way to a device: shared on the CPU, bytes stay bytes, copied where there is another device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl_training.models.networks import as_tensors
from rl_training.models.transfer import to_device

IMAGES = np.arange(2 * 4 * 6 * 6, dtype=np.uint8).reshape(2, 4, 6, 6)


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_on_the_cpu_memory_is_shared(device: torch.device | str) -> None:
    images = IMAGES.copy()
    tensor = to_device(images, device)
    images[0, 0, 0, 0] = 77
    assert (tensor.dtype, int(tensor[0, 0, 0, 0])) == (torch.uint8, 77)


def test_elsewhere_bytes_stay_bytes() -> None:
    named = as_tensors({"camera": IMAGES, "speed": np.zeros((2, 1), np.float32)}, "meta")
    assert isinstance(named, dict)
    assert [(tensor.device.type, tensor.dtype) for tensor in named.values()] == [
        ("meta", torch.uint8),
        ("meta", torch.float32),
    ]


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def test_a_device_gets_what_was_there_when_the_copy_was_asked_for(device: str) -> None:
    images = IMAGES.copy()
    tensor = to_device(images, device)
    if device == "cuda":  # the CPU shares its memory; a copy must not see what comes later
        images[:] = 0
    np.testing.assert_array_equal(tensor.cpu().numpy(), IMAGES)
