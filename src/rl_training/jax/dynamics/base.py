"""The contract of dynamics in JAX: the twin of `rl_training.dynamics.base`, with the parameters as an argument.

Dynamics are a small immutable record of sizes with pure functions; parameters are one flat dict of arrays with the
names of the torch twin. Noise is an argument everywhere: uniform numbers in 0..1, or None for the most likely state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.dynamics.latents import Belief
from rl_training.jax.models.layers import Params

State = dict[str, Any]
"""Named arrays, one row per trajectory."""


class Observed(NamedTuple):
    """States after each observation, their posterior and their prior; every array is (T, B, ...)."""

    states: State
    posterior: Belief
    prior: Belief


class Dynamics(Protocol):
    """How the state of a world model moves. Own dynamics are a class `Class(tokens, actions, **kwargs)` with these."""

    @property
    def features(self) -> int:
        """Size of `read(state)`."""

    @property
    def deter(self) -> int:
        """How many of the features, the first ones, are deterministic; image decoders treat them differently."""

    @property
    def blocks(self) -> int:
        """Blocks into which the deterministic features are divided; image decoders use them."""

    @property
    def noise_size(self) -> int:
        """Uniform numbers that one row needs per step; 0 for deterministic dynamics."""

    @property
    def open_loop(self) -> int:
        """Steps that the model predicts on its own while it learns; 0 where the divergence teaches it to predict."""

    @property
    def state_spec(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of one row of each part of a stored state, for carry and replay."""

    @property
    def acting(self) -> tuple[str, ...]:
        """First parts of the names of the parameters that `correct` needs."""

    @property
    def in_numpy(self) -> bool:
        """Whether `correct` works on NumPy arrays too, which is faster for a few environments."""

    def init(self, rng: np.random.Generator) -> Params:
        """Initial parameters, drawn in the order of the torch twin."""

    def initial(self, rows: int) -> State:
        """The state before the first step of an episode: zeros."""

    def predict(self, params: Params, state: State, actions: Any, noise: Any = None) -> State:
        """The state after `actions` (rows, A), imagined."""

    def correct(
        self, params: Params, state: State, actions: Any, tokens: Any, is_first: Any, noise: Any = None
    ) -> State:
        """The state after `actions` and an observation. Rows with `is_first` forget state and action before."""

    def observe(
        self, params: Params, state: State, actions: Any, tokens: Any, is_first: Any, noise: Any = None
    ) -> Observed:
        """T corrections in a row: actions, tokens and noise are (T, B, ...), `is_first` (T, B)."""

    def divergence(self, posterior: Belief, prior: Belief) -> Any:
        """KL(posterior || prior) in nats, (T, B), or a single 0 without beliefs."""

    def read(self, state: State) -> Any:
        """Features (..., features) of a state."""

    def stored(self, state: State) -> State:
        """A state in the smaller form of `state_spec`, for replay and carry."""

    def restored(self, stored: State) -> State:
        """The inverse of `stored`."""


def zeros(spec: Mapping[str, tuple[tuple[int, ...], Any]], rows: int) -> State:
    """Rows of zeros in float32, one array per part of a state."""
    return {name: jnp.zeros((rows, *shape)) for name, (shape, _) in spec.items()}


def forgotten(state: State, actions: Any, is_first: Any) -> tuple[State, Any]:
    """State and previous action, both 0 in the rows where an episode starts."""
    keep = 1.0 - is_first.astype(np.float32)[:, None]
    return {name: value * keep for name, value in state.items()}, actions * keep


def bounded_actions(actions: Any) -> Any:
    """a / max(1, |a|) elementwise, the divisor without gradient."""
    if isinstance(actions, np.ndarray):
        return actions / np.maximum(np.abs(actions), 1.0)
    return actions / jax.lax.stop_gradient(jnp.maximum(jnp.abs(actions), 1.0))
