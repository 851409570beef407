"""Images among observations: which axes they have, and the convolutions that encoders put on them. Both backends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rl_training.numerics.encoding import leaf_features, observation_leaves, picture_axes
from rl_training.types import MAX_CODES, Array, BoxSpec, ConfigError, LeafSpec, SpaceSpec


class Convolution(NamedTuple):
    """One convolution: how many filters, of which size, at which distance, with how many zeros around the image."""

    filters: int
    kernel: int
    stride: int
    padding: int = 0


PLANS: Mapping[str, tuple[Convolution, ...]] = {
    "nature": (Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1)),
    "small": (Convolution(16, 8, 4), Convolution(32, 4, 2)),
    "grid": (Convolution(16, 3, 1, 1), Convolution(32, 3, 1, 1), Convolution(64, 3, 1, 1)),
}
"""Encoders that are a row of convolutions: Mnih et al. 2015, Mnih et al. 2013, and one for images of few cells."""
IMPALA_FILTERS = (16, 32, 32)
"""Filters of the three residual stages of Espeholt et al. 2018 (arXiv:1802.01561)."""
FEATURES: Mapping[str, int] = {"nature": 512, "small": 256, "impala": 256, "grid": 128}
"""Width of the linear layer behind the convolutions, where the config does not say another."""
IMAGE_ENCODERS = tuple(FEATURES)
SMALLEST_FOR_NATURE = 36
"""Images below this many pixels leave nothing of the Nature convolutions; `auto` takes `grid` for them."""


class ImageLayout(NamedTuple):
    """How an image arrives and what convolutions see: `axes` puts the channels first, stacked frames among them."""

    axes: tuple[int, ...]
    channels: int
    height: int
    width: int
    scale: float
    """What values are multiplied by to lie in 0..1."""
    codes: tuple[int, ...] = ()
    """Where values are codes of kinds of things, not brightness: how many each channel knows. They are one-hot encoded,
    so that `channels` is the sum of them."""


def image_layout(leaf: BoxSpec, channels: str = "auto") -> ImageLayout:
    """The layout of an image; `channels` is auto, first or last.

    >>> image_layout(BoxSpec(np.zeros((4, 84, 84, 3)), np.full((4, 84, 84, 3), 255), np.dtype(np.uint8)))[1:4]
    (12, 84, 84)
    """
    stacked = len(leaf.shape) - 3
    if channels == "auto":
        axes = picture_axes(leaf.shape)
    else:
        axes = (*range(stacked), *(stacked + axis for axis in ((0, 1, 2) if channels == "first" else (2, 0, 1))))
    *folded, height, width = (leaf.shape[axis] for axis in axes)
    if codes := code_counts(leaf.high.transpose(axes).reshape(-1, height * width), leaf.dtype):
        return ImageLayout(axes, sum(codes), height, width, 1.0, codes)
    return ImageLayout(axes, math.prod(folded), height, width, 1.0 / 255.0 if leaf.dtype == np.uint8 else 1.0)


def code_counts(high: Array, dtype: np.dtype[Any]) -> tuple[int, ...]:
    """How many codes each channel of an image (channels, pixels) has; empty for images of brightness.

    Bytes whose upper bounds are small and the same for all pixels of a channel are codes, as MiniGrid's are.
    """
    if dtype != np.uint8 or high.max() >= MAX_CODES or (high != high[:, :1]).any():
        return ()
    return tuple(int(bound) + 1 for bound in high[:, 0])


def is_image(leaf: LeafSpec) -> bool:
    """Bytes or numbers in 0..1 with three axes, or four where frames are stacked."""
    if not isinstance(leaf, BoxSpec) or len(leaf.shape) not in (3, 4):
        return False
    return leaf.dtype == np.uint8 or bool((leaf.low == 0.0).all() and (leaf.high == 1.0).all())


def encoder_for(leaf: LeafSpec, asked: str, channels: str = "auto") -> str:
    """The encoder of an observation: what was asked for, or by `auto` one that fits it."""
    if asked != "auto":
        return asked
    if not is_image(leaf):
        return "flat"
    assert isinstance(leaf, BoxSpec)
    layout = image_layout(leaf, channels)
    return "nature" if min(layout.height, layout.width) >= SMALLEST_FOR_NATURE else "grid"


def plan_sizes(layout: ImageLayout, plan: Sequence[Convolution], encoder: str, name: str) -> list[tuple[int, int, int]]:
    """(channels, height, width) before the first and after each convolution; refuses an image that is too small."""
    sizes = [(layout.channels, layout.height, layout.width)]
    for number, convolution in enumerate(plan, 1):
        _, height, width = sizes[-1]
        if convolution.kernel > min(height, width) + 2 * convolution.padding:
            raise ConfigError(
                f"observation '{name}' is {layout.height} x {layout.width} pixels, too small for encoder '{encoder}': "
                f"its convolution {number} looks at {convolution.kernel} x {convolution.kernel} of the {height} x "
                f"{width} that are left; use encoder 'grid' or 'mlp'"
            )
        height, width = (
            (side + 2 * convolution.padding - convolution.kernel) // convolution.stride + 1 for side in (height, width)
        )
        sizes.append((convolution.filters, height, width))
    return sizes


def only_image(space: SpaceSpec) -> tuple[str, BoxSpec]:
    """The name and the space of the one image among the observations."""
    leaves = observation_leaves(space)
    images = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, BoxSpec) and is_image(leaf)}
    boxes = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, BoxSpec) and len(leaf.shape) == 3}
    found = images or boxes
    if len(found) != 1:
        raise ConfigError(f"network 'cnn' needs one image (a Box of three axes) to look at, not {len(found)}")
    return next(iter(found.items()))


def convolution_plan(kwargs: Mapping[str, Any]) -> list[Convolution]:
    """The convolutions of network `cnn`: those of the Nature paper where `kwargs` do not give others."""
    nature: dict[str, Sequence[int]] = {"channels": (32, 64, 64), "kernels": (8, 4, 3), "strides": (4, 2, 1)}
    given = {**nature, **kwargs}
    if unknown := sorted(set(given) - set(nature)):
        raise ConfigError(f"network 'cnn' has no kwargs {', '.join(unknown)}; it has {', '.join(nature)}")
    columns = [given[name] for name in nature]
    if len({len(column) for column in columns}) != 1:
        raise ConfigError("network 'cnn' needs as many kwargs.channels as kernels and strides")
    return [Convolution(*row) for row in zip(*columns, strict=True)]


def impala_sizes(layout: ImageLayout) -> list[tuple[int, int, int]]:
    """(channels, height, width) before the first and after each stage of IMPALA, which halves the image."""
    sizes = [(layout.channels, layout.height, layout.width)]
    for filters in IMPALA_FILTERS:
        _, height, width = sizes[-1]
        sizes.append((filters, -(-height // 2), -(-width // 2)))
    return sizes


# -- images of world models -------------------------------------------------------------------------------------------

WORLD_MODEL_KERNEL = 5
"""Height and width of the kernels of a world model's image encoder and decoder (DreamerV3)."""
WORLD_MODEL_CHANNELS = (2, 3, 4, 4)
"""Channels of each of their stages, in units of the depth; each stage halves or doubles the image."""


class ObservationParts(NamedTuple):
    """What a world model sees of a space: images, and everything else as one vector."""

    images: dict[str, ImageLayout]
    vectors: dict[str, LeafSpec]

    @property
    def sizes(self) -> dict[str, int]:
        """Numbers of each part of the vector."""
        return {name: leaf_features(leaf) for name, leaf in self.vectors.items()}


def observation_parts(space: SpaceSpec) -> ObservationParts:
    """Images and vectors among the observations, by key."""
    leaves = observation_leaves(space)
    pictures = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, BoxSpec) and is_image(leaf)}
    vectors = {name: leaf for name, leaf in leaves.items() if name not in pictures}
    return ObservationParts({name: image_layout(leaf) for name, leaf in pictures.items()}, vectors)


def check_world_model_image(height: int, width: int) -> None:
    """Refuse images that the stages do not divide evenly: the decoder could not give them back."""
    factor = 2 ** len(WORLD_MODEL_CHANNELS)
    if height % factor or width % factor or not height or not width:
        raise ConfigError(
            f"a world model takes images whose height and width are multiples of {factor}, not {height}x{width}; "
            "resize them in a wrapper"
        )
