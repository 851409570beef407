"""Dynamics of your own for a world model: a random latent that moves linearly, on one page.

    rl train dynamics/pendulum --hparams.dynamics.type examples.my_dynamics:Linear

The same name works under `planet` and `dreamer`. Two methods say how the state moves, one without and one with an
observation; noise is given, uniform in 0..1, or None for the most likely state.
"""

from __future__ import annotations

import numpy as np
import torch

from rl_training import register_dynamics
from rl_training.dynamics import Dynamics
from rl_training.dynamics.latents import Gaussian
from rl_training.models.world_models.layers import dense


@register_dynamics("linear")
class Linear(Dynamics):
    def __init__(self, tokens, actions, rng, *, size=16):
        super().__init__()
        self.latent = Gaussian(size)
        self.features = size  # numbers that `read` gives
        self.noise_size = self.latent.noise_size
        self.state_spec = {"x": ((size,), np.dtype(np.float32))}
        self.move = dense(rng, size + actions, self.latent.parameters)
        self.see = dense(rng, size + tokens, self.latent.parameters)

    def prior(self, state, actions, noise):
        belief = self.latent.belief(self.move(torch.cat([state["x"], actions], dim=1)))
        return {"x": self.latent.sample(belief, noise)}, belief

    def posterior(self, state, actions, tokens, noise):
        _, prior = self.prior(state, actions, None)
        belief = self.latent.belief(self.see(torch.cat([prior["mean"], tokens], dim=1)))
        return {"x": self.latent.sample(belief, noise)}, belief, prior

    def divergence(self, posterior, prior):
        return self.latent.divergence(posterior, prior)

    def read(self, state):
        return state["x"]
