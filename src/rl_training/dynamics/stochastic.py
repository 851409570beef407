"""Stochastic dynamics: a Gaussian state-space model, without a deterministic path (the SSM of PlaNet's ablation)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.dynamics.base import Belief, Dynamics, State, bounded_actions
from rl_training.dynamics.latents import Gaussian
from rl_training.hparams.world_models import check_sizes
from rl_training.models.world_models.layers import NormedMLP


class Stochastic(Dynamics):
    """State {"stoch"}: a Gaussian sample. The posterior sees the belief of the prior, and the tokens."""

    def __init__(
        self, tokens: int, actions: int, rng: np.random.Generator, *, stoch: int = 32, hidden: int = 64, layers: int = 2
    ) -> None:
        super().__init__()
        check_sizes(stoch=stoch, hidden=hidden, layers=layers)
        self.latent = Gaussian(stoch)
        self.features = stoch
        self.noise_size = self.latent.noise_size
        self.state_spec = {"stoch": ((stoch,), np.dtype(np.float32))}
        self.prior_head = NormedMLP(rng, stoch + actions, hidden, layers, self.latent.parameters)
        self.posterior_head = NormedMLP(rng, 2 * stoch + tokens, hidden, layers, self.latent.parameters)

    def prior(self, state: State, actions: Tensor, noise: Tensor | None) -> tuple[State, Belief]:
        inputs = torch.cat([state["stoch"], bounded_actions(actions)], dim=1)
        belief = self.latent.belief(self.prior_head(inputs))
        return {"stoch": self.latent.sample(belief, noise)}, belief

    def posterior(
        self, state: State, actions: Tensor, tokens: Tensor, noise: Tensor | None
    ) -> tuple[State, Belief, Belief]:
        prior = self.prior(state, actions, None)[1]
        inputs = torch.cat([prior["mean"], prior["std"], tokens], dim=1)
        belief = self.latent.belief(self.posterior_head(inputs))
        return {"stoch": self.latent.sample(belief, noise)}, belief, prior

    def divergence(self, posterior: Belief, prior: Belief) -> Tensor:
        return self.latent.divergence(posterior, prior)

    def read(self, state: State) -> Tensor:
        return state["stoch"]
