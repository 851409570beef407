"""Deterministic dynamics: a recurrent state without a random part.

What the future may be is one prediction, so where it forks the model predicts the middle. There is no divergence that
would teach the prior; the model learns to predict by predicting: `open_loop` steps on its own from every state.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.dynamics.base import Belief, Dynamics, State
from rl_training.dynamics.rssm import BlockGRU, gated
from rl_training.hparams.world_models import check_blocks, check_sizes, usual_blocks
from rl_training.models.world_models.layers import NormedLayer, dense


class Deterministic(Dynamics):
    """State {"deter"}: the block GRU of the RSSM without latents; an observation corrects it by a second gated step."""

    def __init__(
        self,
        tokens: int,
        actions: int,
        rng: np.random.Generator,
        *,
        deter: int = 512,
        hidden: int = 64,
        blocks: int | None = None,
        open_loop: int = 5,
    ) -> None:
        super().__init__()
        blocks = usual_blocks(deter) if blocks is None else blocks
        check_sizes(hidden=hidden, open_loop=open_loop)
        check_blocks(deter, blocks)
        self.deter = self.features = deter
        self.noise_size = 0
        self.open_loop = open_loop
        self.state_spec = {"deter": ((deter,), np.dtype(np.float32))}
        self.blocks = blocks
        self.core = BlockGRU(rng, deter, hidden, (0, actions), self.blocks)
        self.correction = NormedLayer(rng, deter + tokens, hidden)
        self.gates = dense(rng, hidden, 3 * deter)

    def prior(self, state: State, actions: Tensor, noise: Tensor | None) -> tuple[State, Belief]:
        return {"deter": self.core(state["deter"], None, self.core.action_part(actions))}, {}

    def posterior(
        self, state: State, actions: Tensor, tokens: Tensor, noise: Tensor | None
    ) -> tuple[State, Belief, Belief]:
        before = self.prior(state, actions, noise)[0]["deter"]
        gates = self.gates(self.correction(torch.cat([before, tokens], dim=1)))
        reset, candidate, update = gates.chunk(3, dim=1)
        return {"deter": gated(reset, candidate, update, before)}, {}, {}

    def divergence(self, posterior: Belief, prior: Belief) -> Tensor:
        return torch.zeros((), device=self.gates.weight.device)

    def read(self, state: State) -> Tensor:
        return state["deter"]
