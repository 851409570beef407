"""Networks for Stable-Baselines3 that it does not ship, so that both sides of a contest have the same."""

from __future__ import annotations

from typing import cast

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn


class SmallCNN(BaseFeaturesExtractor):
    """The network of Mnih et al. 2013: 16 filters of 8×8 with stride 4, 32 of 4×4 with stride 2, then 256."""

    def __init__(self, observation_space: spaces.Box, features_dim: int = 256) -> None:
        super().__init__(observation_space, features_dim)
        self.cnn = nn.Sequential(
            nn.Conv2d(observation_space.shape[0], 16, 8, 4),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, 2),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            width = self.cnn(torch.zeros(1, *observation_space.shape)).shape[1]
        self.linear = nn.Sequential(nn.Linear(width, features_dim), nn.ReLU())

    def forward(self, observations: Tensor) -> Tensor:
        return cast(Tensor, self.linear(self.cnn(observations)))
