"""Pictures among observations: which axes they have, and the convolutions that encoders put on them. Both backends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rl_training.numerics.encoding import picture_axes
from rl_training.types import Array, BoxSpec, ConfigError, LeafSpec


class Convolution(NamedTuple):
    """One convolution: how many filters, of which size, at which distance, with how many zeros around the picture."""

    filters: int
    kernel: int
    stride: int
    padding: int = 0


PLANS: Mapping[str, tuple[Convolution, ...]] = {
    "nature": (Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1)),
    "small": (Convolution(16, 8, 4), Convolution(32, 4, 2)),
    "grid": (Convolution(16, 3, 1, 1), Convolution(32, 3, 1, 1), Convolution(64, 3, 1, 1)),
}
"""Encoders that are a row of convolutions: Mnih et al. 2015, Mnih et al. 2013, and one for pictures of few cells."""
IMPALA_FILTERS = (16, 32, 32)
"""Filters of the three residual stages of Espeholt et al. 2018 (arXiv:1802.01561)."""
FEATURES: Mapping[str, int] = {"nature": 512, "small": 256, "impala": 256, "grid": 128}
"""Width of the linear layer behind the convolutions, where the config does not say another."""
PICTURE_ENCODERS = tuple(FEATURES)
SMALLEST_FOR_NATURE = 36
"""Pictures below this many pixels leave nothing of the Nature convolutions; `auto` takes `grid` for them."""


MAX_CODES = 32
"""Bytes with upper bounds below this are codes."""


class PictureLayout(NamedTuple):
    """How a picture arrives and what convolutions see: `axes` puts the channels first, stacked frames among them."""

    axes: tuple[int, ...]
    channels: int
    height: int
    width: int
    scale: float
    """What values are multiplied by to lie in 0..1."""
    codes: tuple[int, ...] = ()
    """Where values are codes of kinds of things, not brightness: how many each channel knows. They are one-hot encoded,
    so that `channels` is the sum of them."""


def picture_layout(leaf: BoxSpec, channels: str = "auto") -> PictureLayout:
    """The layout of a picture; `channels` is auto, first or last.

    >>> picture_layout(BoxSpec(np.zeros((4, 84, 84, 3)), np.full((4, 84, 84, 3), 255), np.dtype(np.uint8)))[1:4]
    (12, 84, 84)
    """
    stacked = len(leaf.shape) - 3
    if channels == "auto":
        axes = picture_axes(leaf.shape)
    else:
        axes = (*range(stacked), *(stacked + axis for axis in ((0, 1, 2) if channels == "first" else (2, 0, 1))))
    *folded, height, width = (leaf.shape[axis] for axis in axes)
    if codes := code_counts(leaf.high.transpose(axes).reshape(-1, height * width), leaf.dtype):
        return PictureLayout(axes, sum(codes), height, width, 1.0, codes)
    return PictureLayout(axes, math.prod(folded), height, width, 1.0 / 255.0 if leaf.dtype == np.uint8 else 1.0)


def code_counts(high: Array, dtype: np.dtype[Any]) -> tuple[int, ...]:
    """How many codes each channel of a picture (channels, pixels) has; empty for pictures of brightness.

    Bytes whose upper bounds are small and the same for all pixels of a channel are codes, as MiniGrid's are.
    """
    if dtype != np.uint8 or high.max() >= MAX_CODES or (high != high[:, :1]).any():
        return ()
    return tuple(int(bound) + 1 for bound in high[:, 0])


def is_picture(leaf: LeafSpec) -> bool:
    """Bytes or numbers in 0..1 with three axes, or four where frames are stacked."""
    if not isinstance(leaf, BoxSpec) or len(leaf.shape) not in (3, 4):
        return False
    return leaf.dtype == np.uint8 or bool((leaf.low == 0.0).all() and (leaf.high == 1.0).all())


def encoder_for(leaf: LeafSpec, asked: str, channels: str = "auto") -> str:
    """The encoder of an observation: what was asked for, or by `auto` one that fits it."""
    if asked != "auto":
        return asked
    if not is_picture(leaf):
        return "flat"
    assert isinstance(leaf, BoxSpec)
    layout = picture_layout(leaf, channels)
    return "nature" if min(layout.height, layout.width) >= SMALLEST_FOR_NATURE else "grid"


def convolved(layout: PictureLayout, encoder: str, name: str) -> list[tuple[int, int, int]]:
    """(channels, height, width) before the first and after each convolution of a plan; refuses a picture that is too
    small for it."""
    sizes = [(layout.channels, layout.height, layout.width)]
    for number, convolution in enumerate(PLANS[encoder], 1):
        _, height, width = sizes[-1]
        size = min(height, width) + 2 * convolution.padding
        if convolution.kernel > size:
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


def impala_sizes(layout: PictureLayout) -> list[tuple[int, int, int]]:
    """(channels, height, width) before the first and after each stage of IMPALA, which halves the picture."""
    sizes = [(layout.channels, layout.height, layout.width)]
    for filters in IMPALA_FILTERS:
        _, height, width = sizes[-1]
        sizes.append((filters, -(-height // 2), -(-width // 2)))
    return sizes
