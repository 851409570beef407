"""Image decoder of DreamerV3: from the features of a state to an image, by upsampling and 5x5 convolutions."""

from __future__ import annotations

from typing import cast

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.models.world_models.image_encoder import convolution, normed
from rl_training.models.world_models.layers import BlockLinear, NormedLayer, RMSNorm, dense
from rl_training.numerics.images import WORLD_MODEL_CHANNELS as CHANNELS
from rl_training.numerics.images import check_world_model_image


class ImageDecoder(nn.Module):
    """Features (B, deter + stoch) to images (B, channels, height, width) in 0..1.

    The first `deter` features, a deterministic state, enter by a block-linear layer whose blocks are groups of
    channels, the `stoch` others by a layer of their own. Either may be 0.
    """

    def __init__(
        self, rng: np.random.Generator, features: tuple[int, int], shape: tuple[int, int, int], *,
        depth: int, units: int, blocks: int = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        channels, height, width = shape
        check_world_model_image(height, width)
        self.deter, self.stoch = features
        factor, sizes = 2 ** len(CHANNELS), [depth * factor for factor in CHANNELS]
        self.lowest = (height // factor, width // factor, sizes[-1])
        self.blocks = blocks
        size = int(np.prod(self.lowest))
        self.from_deter = BlockLinear(rng, self.deter, size, blocks) if self.deter else None
        self.hidden = NormedLayer(rng, self.stoch, 2 * units) if self.stoch else None
        self.from_stoch = dense(rng, 2 * units, size) if self.stoch else None
        self.norm = RMSNorm(sizes[-1])
        pairs = list(zip(sizes[:0:-1], sizes[-2::-1], strict=True))
        self.convolutions = nn.ModuleList(convolution(rng, *pair) for pair in pairs)
        self.norms = nn.ModuleList(RMSNorm(output) for _, output in pairs)
        self.output = convolution(rng, sizes[0], channels)

    def forward(self, features: Tensor) -> Tensor:
        height, width, channels = self.lowest
        parts = []
        if self.from_deter is not None:
            grouped = self.from_deter(features[:, : self.deter])
            grouped = grouped.view(-1, self.blocks, height, width, channels // self.blocks)
            parts.append(grouped.permute(0, 2, 3, 1, 4).reshape(-1, height, width, channels))
        if self.hidden is not None and self.from_stoch is not None:
            stoch = self.from_stoch(self.hidden(features[:, self.deter :]))
            parts.append(stoch.view(-1, height, width, channels))
        x = F.silu(self.norm(sum(parts[1:], parts[0]))).permute(0, 3, 1, 2)
        for conv, norm in zip(self.convolutions, self.norms, strict=True):
            x = normed(cast(RMSNorm, norm), conv(F.interpolate(x, scale_factor=2.0, mode="nearest")))
        return cast(Tensor, self.output(F.interpolate(x, scale_factor=2.0, mode="nearest"))).sigmoid()
