"""Stochastic dynamics in JAX: the twin of `rl_training.dynamics.stochastic`, a Gaussian state-space model."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.hparams.world_models import check_sizes
from rl_training.jax.dynamics.base import Observed, State, bounded_actions, forgotten, zeros
from rl_training.jax.dynamics.latents import Belief, gaussian_belief, gaussian_divergence, gaussian_sample
from rl_training.jax.models.layers import Params
from rl_training.jax.models.world_models.layers import normed_mlp, normed_mlp_init, part, scoped


class Stochastic(NamedTuple):
    """State {"stoch"}: a Gaussian sample. The posterior sees the belief of the prior, and the tokens."""

    tokens: int
    actions: int
    stoch: int = 32
    hidden: int = 64
    layers: int = 2

    @property
    def deter(self) -> int:
        """Deterministic features: none."""
        return 0

    @property
    def blocks(self) -> int:
        """Blocks of the deterministic features."""
        return 1

    @property
    def open_loop(self) -> int:
        """Steps that the model predicts on its own while it learns: none, the divergence teaches it to predict."""
        return 0

    @property
    def acting(self) -> tuple[str, ...]:
        """First parts of the names of the parameters that `correct` needs."""
        return ("prior_head", "posterior_head")

    @property
    def in_numpy(self) -> bool:
        """Whether `correct` works on NumPy arrays too."""
        return False

    @property
    def features(self) -> int:
        """Size of `read(state)`."""
        return self.stoch

    @property
    def noise_size(self) -> int:
        """Uniform numbers that one row needs per step."""
        return self.stoch

    @property
    def state_spec(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of one row of each part of a stored state, for carry and replay."""
        return {"stoch": ((self.stoch,), np.dtype(np.float32))}

    def check(self) -> None:
        """ConfigError where a size is none."""
        check_sizes(stoch=self.stoch, hidden=self.hidden, layers=self.layers)

    def init(self, rng: np.random.Generator) -> Params:
        """Initial parameters, drawn in the order of the torch twin."""
        outputs = 2 * self.stoch
        prior = normed_mlp_init(rng, self.stoch + self.actions, self.hidden, self.layers, outputs)
        posterior = normed_mlp_init(rng, 2 * self.stoch + self.tokens, self.hidden, self.layers, outputs)
        return {**scoped("prior_head", prior), **scoped("posterior_head", posterior)}

    def initial(self, rows: int) -> State:
        """The state before the first step of an episode: zeros."""
        return zeros(self.state_spec, rows)

    def prior(self, params: Params, state: State, actions: Any) -> Belief:
        """What the next state may be, given the last one and the action."""
        inputs = jnp.concatenate([state["stoch"], bounded_actions(actions)], -1)
        return gaussian_belief(normed_mlp(part(params, "prior_head"), inputs))

    def corrected(
        self, params: Params, state: State, actions: Any, tokens: Any, noise: Any
    ) -> tuple[State, Belief, Belief]:
        """One step with an observation: the new state, its posterior and its prior."""
        prior = self.prior(params, state, actions)
        inputs = jnp.concatenate([prior["mean"], prior["std"], tokens], -1)
        posterior = gaussian_belief(normed_mlp(part(params, "posterior_head"), inputs))
        return {"stoch": gaussian_sample(posterior, noise)}, posterior, prior

    def predict(self, params: Params, state: State, actions: Any, noise: Any = None) -> State:
        """The state after `actions` (rows, A), imagined; `noise` is uniform, (rows, noise_size)."""
        return {"stoch": gaussian_sample(self.prior(params, state, actions), noise)}

    def correct(
        self, params: Params, state: State, actions: Any, tokens: Any, is_first: Any, noise: Any = None
    ) -> State:
        """The state after `actions` and an observation. Rows with `is_first` forget state and action before."""
        return self.corrected(params, *forgotten(state, actions, is_first), tokens, noise)[0]

    def observe(
        self, params: Params, state: State, actions: Any, tokens: Any, is_first: Any, noise: Any = None
    ) -> Observed:
        """T corrections in a row: actions, tokens and noise are (T, B, ...), `is_first` (T, B)."""

        def step(carry: State, inputs: tuple[Any, Any, Any, Any]) -> tuple[State, Observed]:
            action, seen, first, draws = inputs
            after = self.corrected(params, *forgotten(carry, action, first), seen, draws)
            return after[0], Observed(*after)

        _, observed = jax.lax.scan(step, state, (actions, tokens, is_first, noise))
        return observed

    def divergence(self, posterior: Belief, prior: Belief) -> Any:
        """KL(posterior || prior) in nats, (T, B)."""
        return gaussian_divergence(posterior["mean"], posterior["std"], prior["mean"], prior["std"])

    def read(self, state: State) -> Any:
        """The sample itself."""
        return state["stoch"]

    def stored(self, state: State) -> State:
        """The same state: nothing in it can be made smaller."""
        return state

    def restored(self, stored: State) -> State:
        """The inverse of `stored`."""
        return stored
