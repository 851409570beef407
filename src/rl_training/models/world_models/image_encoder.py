"""Image encoder of DreamerV3: 5x5 convolutions, each followed by 2x2 max pooling, RMS norm over channels and SiLU."""

from __future__ import annotations

import itertools
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.models.world_models.layers import RMSNorm
from rl_training.numerics.images import WORLD_MODEL_CHANNELS as CHANNELS
from rl_training.numerics.images import WORLD_MODEL_KERNEL as KERNEL
from rl_training.numerics.images import check_world_model_image
from rl_training.numerics.initial_weights import truncated_normal


def convolution(rng: np.random.Generator, inputs: int, outputs: int) -> nn.Conv2d:
    """A 5x5 convolution that keeps the size of its input, in channels_last format."""
    layer = nn.Conv2d(inputs, outputs, KERNEL, padding=KERNEL // 2, device="meta").to_empty(device="cpu")
    layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
    weight = truncated_normal(rng, (outputs, inputs, KERNEL, KERNEL), inputs * KERNEL**2)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        cast(Tensor, layer.bias).zero_()
    return layer


def normed(norm: RMSNorm, x: Tensor) -> Tensor:
    """SiLU of the RMS norm over the channels of (B, C, H, W)."""
    return F.silu(norm(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


class ImageEncoder(nn.Module):
    """Images (B, channels, height, width), bytes or floats in 0..1, to features (B, F)."""

    def __init__(self, rng: np.random.Generator, shape: tuple[int, int, int], depth: int) -> None:
        super().__init__()
        channels, height, width = shape
        check_world_model_image(height, width)
        sizes = [channels, *(depth * factor for factor in CHANNELS)]
        self.convolutions = nn.ModuleList(convolution(rng, *pair) for pair in itertools.pairwise(sizes))
        self.norms = nn.ModuleList(RMSNorm(size) for size in sizes[1:])
        factor = 2 ** len(CHANNELS)
        self.out_features = sizes[-1] * (height // factor) * (width // factor)

    def forward(self, images: Tensor) -> Tensor:
        scaled = images.to(torch.float32) / 255.0 if images.dtype == torch.uint8 else images
        x = (scaled - 0.5).contiguous(memory_format=torch.channels_last)
        for conv, norm in zip(self.convolutions, self.norms, strict=True):
            x = normed(cast(RMSNorm, norm), F.max_pool2d(conv(x), 2))
        return x.permute(0, 2, 3, 1).flatten(1)
