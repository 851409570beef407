"""From arrays on the host to tensors on the device: shared memory on the CPU, page-locked and asynchronous to a GPU.

An ordinary copy to a GPU waits until everything before it has been computed there. From page-locked memory the copy
joins the queue instead: the host goes on to the next batch while images travel and the GPU works. What is copied can be
overwritten at once, because `pin_memory` has made a copy of its own, which torch keeps until the transfer is done.
Images travel as bytes; `backbones/cnn.py` makes them floats in channels_last format on the device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def to_device(values: Any, device: torch.device | str) -> Tensor:
    """An array, a number or a tensor as a tensor on `device`; on the CPU an array and its tensor share memory."""
    device = torch.device(device)
    if device.type != "cuda":
        return torch.as_tensor(values, device=device)
    tensor = torch.as_tensor(values)
    return tensor if tensor.device == device else page_locked(tensor).to(device, non_blocking=True)


def page_locked(tensor: Tensor) -> Tensor:
    """A copy in memory that a GPU reads by itself; what is on a GPU already stays there."""
    return tensor.pin_memory() if tensor.device.type == "cpu" else tensor
