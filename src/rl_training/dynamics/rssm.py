"""Recurrent state-space model: a deterministic recurrent state and a random latent, Gaussian or categorical.

The core is the block GRU of DreamerV3 (Hafner et al. 2023, arXiv:2301.04104); with `latent: gaussian` the random part
is that of PlaNet (Hafner et al. 2019, arXiv:1811.04551). Every layer is linear, RMS norm, SiLU.

The numbers are those of the reference, the products are arranged for speed: where each block gets [its part of h, x0,
x1, x2], the weights of the shared x0, x1, x2 are one dense matrix and only h needs a block product; actions, tokens and
the prior are computed for all T steps at once, outside the loop over time.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.dynamics.base import Belief, Dynamics, Observed, State, bounded_actions, stacked
from rl_training.dynamics.latents import Categorical, Gaussian, Latent
from rl_training.hparams.world_models import RSSMSizes, check_rssm, usual_blocks
from rl_training.models.world_models.layers import BlockLinear, NormedLayer, NormedMLP, RMSNorm, dense
from rl_training.numerics.initial_weights import truncated_normal


class BlockGRU(nn.Module):
    """Gated recurrent core: h' = update * candidate + (1 - update) * h, with block-diagonal recurrent matrices."""

    def __init__(self, rng: np.random.Generator, deter: int, hidden: int, inputs: tuple[int, int], blocks: int) -> None:
        super().__init__()
        self.blocks = blocks
        latent, actions = inputs
        self.from_deter = NormedLayer(rng, deter, hidden)
        self.from_latent = NormedLayer(rng, latent, hidden) if latent else None
        self.from_action = NormedLayer(rng, actions, hidden)
        self.split = 2 * hidden if latent else hidden
        """Rows of the shared weights that belong to the state; those of the action follow."""
        width = self.split + hidden
        fan_in = deter + blocks * width  # of the whole block-linear layer, in which every block sees all of x0, x1, x2
        own = truncated_normal(rng, (blocks, deter // blocks, deter // blocks), fan_in)
        shared = truncated_normal(rng, (width, deter), fan_in)
        self.recurrent = nn.Parameter(torch.from_numpy(own))
        self.shared = nn.Parameter(torch.from_numpy(shared))
        self.bias = nn.Parameter(torch.zeros(deter))
        self.norm = RMSNorm(deter)
        self.gates = BlockLinear(rng, deter, 3 * deter, blocks)

    def action_part(self, actions: Tensor) -> Tensor:
        """What actions add inside the core; for any number of steps at once."""
        x: Tensor = self.from_action(bounded_actions(actions))
        return x @ self.shared[self.split :] + self.bias

    def forward(self, deter: Tensor, latent: Tensor | None, action_part: Tensor) -> Tensor:
        """The next deterministic state; `latent` is None where the core was built without one."""
        x = self.from_deter(deter)
        if self.from_latent is not None and latent is not None:
            x = torch.cat([x, self.from_latent(latent)], dim=1)
        inside = torch.addmm(action_part, x, self.shared[: self.split])
        x = F.silu(self.norm(inside + self._recurrence(deter)))
        reset, candidate, update = self.gates.by_block(x).chunk(3, dim=2)  # (G, B, deter / G), inside each block
        by_block = deter.view(x.shape[0], self.blocks, -1).transpose(0, 1)
        return gated(reset, candidate, update, by_block).transpose(0, 1).reshape(x.shape[0], -1)

    def _recurrence(self, deter: Tensor) -> Tensor:
        if self.blocks == 1:
            return deter @ self.recurrent[0]
        grouped = deter.view(deter.shape[0], self.blocks, -1).transpose(0, 1)
        return torch.bmm(grouped, self.recurrent).transpose(0, 1).reshape(deter.shape[0], -1)


def gated(reset: Tensor, candidate: Tensor, update: Tensor, deter: Tensor) -> Tensor:
    """The new state of a GRU from its raw gates; the update gate starts near closed, by the -1."""
    update = torch.sigmoid(update - 1.0)
    candidate = torch.tanh(torch.sigmoid(reset) * candidate)
    return update * candidate + (1.0 - update) * deter


class Posterior(nn.Module):
    """From [h, tokens] to the parameters of the latent: one normed layer and a linear one.

    The part of the tokens does not depend on the state, so it is computed for all steps at once.
    """

    def __init__(self, rng: np.random.Generator, deter: int, tokens: int, hidden: int, outputs: int) -> None:
        super().__init__()
        fan_in = deter + tokens
        self.from_deter = nn.Parameter(torch.from_numpy(truncated_normal(rng, (deter, hidden), fan_in)))
        self.from_tokens = nn.Parameter(torch.from_numpy(truncated_normal(rng, (tokens, hidden), fan_in)))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.norm = RMSNorm(hidden)
        self.output = dense(rng, hidden, outputs)

    def token_part(self, tokens: Tensor) -> Tensor:
        return tokens @ self.from_tokens + self.bias

    def forward(self, deter: Tensor, token_part: Tensor) -> Tensor:
        x: Tensor = self.output(F.silu(self.norm(torch.addmm(token_part, deter, self.from_deter))))
        return x


class RSSM(Dynamics):
    """State {"deter", "stoch"}; features [deter, stoch]."""

    def __init__(
        self,
        tokens: int,
        actions: int,
        rng: np.random.Generator,
        *,
        deter: int = 512,
        hidden: int = 64,
        stoch: int = 32,
        classes: int = 4,
        blocks: int | None = None,
        unimix: float = 0.01,
        latent: Literal["categorical", "gaussian"] = "categorical",
    ) -> None:
        super().__init__()
        blocks = usual_blocks(deter) if blocks is None else blocks
        check_rssm(RSSMSizes(deter, hidden, stoch, classes, blocks), latent, unimix)
        self.latent: Latent = Categorical(stoch, classes, unimix) if latent == "categorical" else Gaussian(stoch)
        self.deter, self.blocks = deter, blocks
        self.features = deter + self.latent.size
        self.noise_size = self.latent.noise_size
        stored = np.dtype(np.uint8) if latent == "categorical" else np.dtype(np.float32)
        self.state_spec = {"deter": ((deter,), np.dtype(np.float32)), "stoch": ((stoch,), stored)}
        self.core = BlockGRU(rng, deter, hidden, (self.latent.size, actions), blocks)
        self.prior_head = NormedMLP(rng, deter, hidden, 2, self.latent.parameters)
        self.posterior_head = Posterior(rng, deter, tokens, hidden, self.latent.parameters)

    def prior(self, state: State, actions: Tensor, noise: Tensor | None) -> tuple[State, Belief]:
        return self._predicted(state, self.core.action_part(actions), noise)

    def _predicted(self, state: State, action_part: Tensor, noise: Tensor | None) -> tuple[State, Belief]:
        deter = self.core(state["deter"], state["stoch"], action_part)
        belief = self.latent.belief(self.prior_head(deter))
        return {"deter": deter, "stoch": self.latent.sample(belief, noise)}, belief

    def imagine(self, state: State, actions: Tensor, noise: Tensor | None = None) -> State:
        states = []
        for t, action_part in enumerate(self.core.action_part(actions)):
            state, _ = self._predicted(state, action_part, None if noise is None else noise[t])
            states.append(state)
        return stacked(states)

    def posterior(
        self, state: State, actions: Tensor, tokens: Tensor, noise: Tensor | None
    ) -> tuple[State, Belief, Belief]:
        state, belief = self._corrected(
            state, self.core.action_part(actions), self.posterior_head.token_part(tokens), noise
        )
        return state, belief, self.latent.belief(self.prior_head(state["deter"]))

    def _corrected(
        self, state: State, action_part: Tensor, token_part: Tensor, noise: Tensor | None
    ) -> tuple[State, Belief]:
        deter = self.core(state["deter"], state["stoch"], action_part)
        belief = self.latent.belief(self.posterior_head(deter, token_part))
        return {"deter": deter, "stoch": self.latent.sample(belief, noise)}, belief

    def observe(
        self, state: State, actions: Tensor, tokens: Tensor, is_first: Tensor, noise: Tensor | None = None
    ) -> Observed:
        keep = (1.0 - is_first.to(tokens.dtype))[..., None]  # (T, B, 1)
        action_parts = self.core.action_part(actions * keep)
        token_parts = self.posterior_head.token_part(tokens)
        states, beliefs = [], []
        for t in range(len(tokens)):
            kept = {name: value * keep[t] for name, value in state.items()}
            draws = None if noise is None else noise[t]
            state, belief = self._corrected(kept, action_parts[t], token_parts[t], draws)
            states.append(state)
            beliefs.append(belief)
        together = stacked(states)
        return Observed(together, stacked(beliefs), self.latent.belief(self.prior_head(together["deter"])))

    def divergence(self, posterior: Belief, prior: Belief) -> Tensor:
        return self.latent.divergence(posterior, prior)

    def read(self, state: State) -> Tensor:
        return torch.cat([state["deter"], state["stoch"]], dim=-1)

    def stored(self, state: State) -> State:
        if not isinstance(self.latent, Categorical):
            return state
        return {"deter": state["deter"], "stoch": self.latent.class_numbers(state["stoch"])}

    def restored(self, stored: State) -> State:
        if not isinstance(self.latent, Categorical):
            return stored
        return {"deter": stored["deter"].to(torch.float32), "stoch": self.latent.one_hot(stored["stoch"])}
