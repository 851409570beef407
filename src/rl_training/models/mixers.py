"""Mixers: from the values of single agents to the value of their team. Both are monotonic, so that each agent's greedy
action is its part of the team's."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.models.initialization import linear

SMALL = 0.1
"""Gain of the layers that give the mixer's weights and biases."""


class SumMixer(nn.Module):
    """The team's value is the sum of its agents' (VDN, Sunehag et al. 2018, arXiv:1706.05296)."""

    def forward(self, values: Tensor, state: Tensor | None) -> Tensor:
        """Values of teams (B,) from those of agents (B, A)."""
        return values.sum(1)


class MonotonicMixer(nn.Module):
    """A two-layer network on the agents' values whose weights are positive functions of the state.

    QMIX (Rashid et al. 2018, arXiv:1803.11485), section 4: hypernetworks give weights and biases, the last bias is a
    small network of its own. It starts near the sum of its agents' values, whatever the size of the state: a mixer that
    multiplies them by ten from the start makes targets run away.
    """

    def __init__(self, agents: int, state: int, embedding: int, hidden: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.agents, self.embedding = agents, embedding
        weight = embedding**-0.5  # twice on the way from an agent to the team, over `embedding` units
        self.first_weights = self._hypernetwork(rng, state, hidden, agents * embedding, weight)
        self.first_bias = linear(rng, state, embedding, gain=SMALL)
        self.last_weights = self._hypernetwork(rng, state, hidden, embedding, weight)
        self.last_bias = self._hypernetwork(rng, state, embedding, 1)

    @staticmethod
    def _hypernetwork(
        rng: np.random.Generator, inputs: int, hidden: int, outputs: int, start: float = 0.0
    ) -> nn.Sequential:
        """A function of the state whose outputs start near `start`."""
        last = linear(rng, hidden, outputs, gain=SMALL)
        nn.init.constant_(last.bias, start)
        return nn.Sequential(linear(rng, inputs, hidden, gain=2.0**0.5), nn.ReLU(), last)

    def forward(self, values: Tensor, state: Tensor | None) -> Tensor:
        """Values of teams (B,) from those of agents (B, A) and states (B, S)."""
        assert state is not None
        weights = self.first_weights(state).abs().view(-1, self.agents, self.embedding)
        hidden = F.elu(torch.bmm(values.unsqueeze(1), weights).squeeze(1) + self.first_bias(state))
        total = (hidden * self.last_weights(state).abs()).sum(1)
        return cast(Tensor, total + self.last_bias(state).squeeze(1))
