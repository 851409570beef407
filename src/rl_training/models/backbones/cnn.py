"""Convolutional encoders: images to features, channels last inside.

Frames stay bytes until they are on the device. The factor 1/255 is folded into the first convolution's weights, which
spares a pass over the image. Inputs and weights are in torch's `channels_last` memory format, which takes a quarter
less time on CPUs and is what GPUs want.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.config.schema import BackboneConfig
from rl_training.models.backbones.mlp import ACTIVATIONS, TensorObs, dense_layers, encode_leaf
from rl_training.models.initialization import linear
from rl_training.numerics.encoding import leaf_features, observation_leaves
from rl_training.numerics.images import (
    FEATURES,
    IMPALA_FILTERS,
    PLANS,
    Convolution,
    ImageLayout,
    convolution_plan,
    image_layout,
    impala_sizes,
    only_image,
    plan_sizes,
)
from rl_training.numerics.initial_weights import GAINS, projection_matrix, weight_matrix
from rl_training.types import SpaceSpec

RELU_GAIN = GAINS["relu"]


def conv2d(rng: np.random.Generator, channels: int, plan: Convolution, kind: str, gain: float = RELU_GAIN) -> nn.Conv2d:
    """A convolution with weights from `rng`, in channels_last format, and biases 0."""
    layer = nn.Conv2d(channels, plan.filters, plan.kernel, plan.stride, plan.padding, device="meta")
    layer = layer.to_empty(device="cpu")
    layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
    weight = weight_matrix(rng, plan.filters, channels * plan.kernel**2, kind, gain)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight.reshape(plan.filters, channels, plan.kernel, plan.kernel)))
        cast(Tensor, layer.bias).zero_()
    return layer


def to_channels(images: Tensor, layout: ImageLayout) -> Tensor:
    """(B, *image) to floats (B, channels, height, width) in channels_last format, not scaled yet; codes are one-hot."""
    moved = images.permute(0, *(1 + axis for axis in layout.axes))
    folded = moved.reshape(images.shape[0], -1, layout.height, layout.width)
    if layout.codes:
        planes = [F.one_hot(folded[:, i].long(), count) for i, count in enumerate(layout.codes)]  # (B, H, W, count)
        return torch.cat(planes, dim=3).to(torch.float32).permute(0, 3, 1, 2)
    return folded.to(torch.float32, memory_format=torch.channels_last)


class ImageEncoder(nn.Module):
    """Convolutions with ReLUs over one image, then a linear layer: (B, *image) to (B, out_features)."""

    def __init__(
        self,
        name: str,
        layout: ImageLayout,
        encoder: str,
        rng: np.random.Generator,
        *,
        features: int | None = None,
        kind: str = "orthogonal",
    ) -> None:
        super().__init__()
        self.layout = layout
        if encoder == "impala":
            sizes = impala_sizes(layout)
            self.convolutions: nn.Module = ResidualStages(layout.channels, rng, kind)
        else:
            sizes = plan_sizes(layout, PLANS[encoder], encoder, name)
            layers: list[nn.Module] = []
            for (channels, _, _), plan in zip(sizes, PLANS[encoder], strict=False):
                layers += [conv2d(rng, channels, plan, kind), nn.ReLU(inplace=True)]  # spares a pass over the memory
            self.convolutions = nn.Sequential(*layers)
        self.out_features = FEATURES[encoder] if features is None else features
        width = math.prod(sizes[-1])
        self.projection = linear(rng, width, self.out_features, kind=kind, gain=RELU_GAIN, draw=projection_matrix)

    def arranged(self, images: Tensor) -> Tensor:
        """The same images (B, *image) in the order in which `forward` reads them: moved once, for many passes."""
        channels_first = tuple(self.layout.axes) == (0, 1, 2) and not self.layout.codes
        return images.contiguous(memory_format=torch.channels_last) if channels_first else images

    def forward(self, images: Tensor) -> Tensor:
        first, *rest = cast(nn.Sequential, self.convolutions)
        x = self._first(first, to_channels(images, self.layout))
        for layer in rest:
            x = layer(x)
        # (B, C, H, W) in the order of the logical axes, so that the layer behind does not depend on the memory format
        return torch.relu(self.projection(x.flatten(1)))

    def _first(self, layer: nn.Module, x: Tensor) -> Tensor:
        """The first convolution with the scale of the image folded into its weights."""
        if self.layout.scale == 1.0:
            return cast(Tensor, layer(x))
        convolution = layer.entry if isinstance(layer, ResidualStage) else cast(nn.Conv2d, layer)
        weight = convolution.weight * self.layout.scale
        y = F.conv2d(x, weight, convolution.bias, convolution.stride, convolution.padding)
        return layer.after_entry(y) if isinstance(layer, ResidualStage) else y


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int, rng: np.random.Generator, kind: str) -> None:
        super().__init__()
        plan = Convolution(channels, 3, 1, 1)
        self.first, self.second = conv2d(rng, channels, plan, kind), conv2d(rng, channels, plan, kind)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, x + self.second(torch.relu(self.first(torch.relu(x)))))


class ResidualStage(nn.Module):
    """A convolution, a halving by maxima, two residual blocks."""

    def __init__(self, inputs: int, filters: int, rng: np.random.Generator, kind: str, *, last: bool) -> None:
        super().__init__()
        self.entry = conv2d(rng, inputs, Convolution(filters, 3, 1, 1), kind)
        self.blocks = nn.Sequential(ResidualBlock(filters, rng, kind), ResidualBlock(filters, rng, kind))
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        return self.after_entry(self.entry(x))

    def after_entry(self, x: Tensor) -> Tensor:
        x = self.blocks(F.max_pool2d(x, 3, 2, 1))
        return torch.relu(x) if self.last else x


class ResidualStages(nn.Sequential):
    """The residual network of IMPALA (Espeholt et al. 2018): three stages, a ReLU at the end."""

    def __init__(self, channels: int, rng: np.random.Generator, kind: str) -> None:
        inputs = (channels, *IMPALA_FILTERS[:-1])
        count = len(IMPALA_FILTERS)
        super().__init__(
            *(
                ResidualStage(before, filters, rng, kind, last=number == count - 1)
                for number, (before, filters) in enumerate(zip(inputs, IMPALA_FILTERS, strict=True))
            )
        )


def shifted(images: Tensor, offsets: Tensor, pad: int) -> Tensor:
    """Images (B, C, H, W) moved by `offsets` (B, 2), rows and columns in 0..2*pad, edges repeated outwards.

    The random shift of DrQ (Kostrikov et al. 2020, arXiv:2004.13649) for given offsets; `pad` moves nothing.
    """
    height, width = images.shape[-2:]
    rows = (torch.arange(height, device=images.device) + offsets[:, :1] - pad).clamp(0, height - 1)  # (B, H)
    columns = (torch.arange(width, device=images.device) + offsets[:, 1:] - pad).clamp(0, width - 1)  # (B, W)
    batch = torch.arange(len(images), device=images.device)[:, None, None]
    return images.permute(0, 2, 3, 1)[batch, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


class CNN(nn.Module):
    """`type: cnn`: convolutions over one image, then fully connected layers; other observations join between the two.

    `kwargs` may give other `channels`, `kernels` and `strides` than those of the Nature paper. The JAX network of the
    same name has the same weights.
    """

    def __init__(self, space: SpaceSpec, cfg: BackboneConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self.image, leaf = only_image(space)
        self.others = {name: leaf for name, leaf in observation_leaves(space).items() if name != self.image}
        self.layout = image_layout(leaf)._replace(codes=())
        plan = convolution_plan(cfg.kwargs)
        sizes = plan_sizes(self.layout, plan, "cnn", self.image)
        layers: list[nn.Module] = []
        gain = GAINS.get(cfg.activation, 1.0)
        for (channels, _, _), convolution in zip(sizes, plan, strict=False):
            layers += [conv2d(rng, channels, convolution, cfg.init, gain), ACTIVATIONS[cfg.activation]()]
        self.convolutions = nn.Sequential(*layers)
        width = math.prod(sizes[-1]) + sum(map(leaf_features, self.others.values()))
        self.layers = dense_layers(width, cfg, rng)
        self.out_features = cfg.hidden_dims[-1] if cfg.hidden_dims else width

    def forward(self, obs: TensorObs) -> Tensor:
        named = obs if isinstance(obs, dict) else {self.image: obs}
        x = to_channels(named[self.image], self.layout) * self.layout.scale
        parts = [self.convolutions(x).flatten(1)]
        parts += [encode_leaf(leaf, named[name]) for name, leaf in self.others.items()]
        return cast(Tensor, self.layers(parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)))
