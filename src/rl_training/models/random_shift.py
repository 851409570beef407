"""Random shifts of images in updates (DrQ, Kostrikov et al. 2020, arXiv:2004.13649), for algorithms with replay."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.config.networks import COMPOSED, encoders_of, spelt_out
from rl_training.config.schema import BackboneConfig
from rl_training.models.backbones.cnn import shifted
from rl_training.models.backbones.mlp import TensorObs
from rl_training.models.observed import named
from rl_training.numerics.encoding import observation_leaves
from rl_training.numerics.images import image_layout
from rl_training.types import BoxSpec, ConfigError, SpaceSpec


class RandomShift:
    """Moves all images of a row by the same number of pixels, at most `pad` in each direction; bytes stay bytes."""

    def __init__(self, space: SpaceSpec, cfg: BackboneConfig) -> None:
        self.pad = cfg.encoder.random_shift
        leaves = observation_leaves(space)
        chosen = encoders_of(space, spelt_out(cfg).encoder) if self.pad and cfg.type in COMPOSED else {}
        images = {name: leaf for name, leaf in leaves.items() if name in chosen and isinstance(leaf, BoxSpec)}
        if self.pad and not images:
            raise ConfigError(
                "encoder.random_shift moves images that go through convolutions, and there are none; set it to 0"
            )
        self.axes = {name: image_layout(leaf, cfg.encoder.channels).axes for name, leaf in images.items()}
        """The axes of each image in the order (..., height, width)."""

    def draw(self, rows: int, rng: np.random.Generator) -> Tensor | None:
        """Offsets (rows, 2) for rows and columns of pixels; None, and nothing is drawn, if images stay in place."""
        return torch.from_numpy(rng.integers(0, 2 * self.pad + 1, (rows, 2))) if self.pad else None

    def __call__(self, obs: TensorObs, offsets: Tensor | None) -> TensorObs:
        """The observations with images moved. There may be fewer offsets than rows: they are repeated."""
        if offsets is None:
            return obs
        columns = named(obs)
        moved = {name: self._moved(columns[name], axes, offsets) for name, axes in self.axes.items()}
        return {**obs, **moved} if isinstance(obs, dict) else moved["obs"]

    def _moved(self, images: Tensor, axes: tuple[int, ...], offsets: Tensor) -> Tensor:
        if not len(images):
            return images
        order = (0, *(1 + axis for axis in axes))
        planes = images.permute(order)  # (B, ..., H, W)
        repeated = offsets.to(images.device).repeat(len(images) // len(offsets), 1)
        result = shifted(planes.flatten(1, -3), repeated, self.pad).reshape(planes.shape)
        return result.permute(*np.argsort(order).tolist())
