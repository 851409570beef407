"""Deterministic dynamics in JAX: the twin of `rl_training.dynamics.deterministic`, a recurrent state alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.hparams.world_models import check_blocks, check_sizes
from rl_training.jax.dynamics.base import Observed, State, forgotten, zeros
from rl_training.jax.dynamics.latents import Belief
from rl_training.jax.dynamics.rssm import action_part, core_init, gated, recurrence
from rl_training.jax.models.layers import Params, library
from rl_training.jax.models.world_models.layers import dense, dense_init, normed_layer, normed_layer_init, part, scoped


class Deterministic(NamedTuple):
    """State {"deter"}: the block GRU of the RSSM without latents; an observation corrects it by a second gated step."""

    tokens: int
    actions: int
    deter: int = 512
    hidden: int = 64
    blocks: int = 8
    open_loop: int = 5

    @property
    def noise_size(self) -> int:
        """Uniform numbers that one row needs per step."""
        return 0

    @property
    def acting(self) -> tuple[str, ...]:
        """First parts of the names of the parameters that `correct` needs."""
        return ("core", "correction", "gates")

    @property
    def in_numpy(self) -> bool:
        """Whether `correct` works on NumPy arrays too."""
        return True

    @property
    def features(self) -> int:
        """Size of `read(state)`."""
        return self.deter

    @property
    def state_spec(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of one row of each part of a stored state, for carry and replay."""
        return {"deter": ((self.deter,), np.dtype(np.float32))}

    def check(self) -> None:
        """ConfigError where the sizes do not fit together."""
        check_sizes(hidden=self.hidden, open_loop=self.open_loop)
        check_blocks(self.deter, self.blocks)

    def init(self, rng: np.random.Generator) -> Params:
        """Initial parameters, drawn in the order of the torch twin."""
        core = core_init(rng, self.deter, self.hidden, 0, self.actions, self.blocks)
        correction = normed_layer_init(rng, self.deter + self.tokens, self.hidden)
        gates = dense_init(rng, self.hidden, 3 * self.deter)
        return {**scoped("core", core), **scoped("correction", correction), **scoped("gates", gates)}

    def initial(self, rows: int) -> State:
        """The state before the first step of an episode: zeros."""
        return zeros(self.state_spec, rows)

    def predict(self, params: Params, state: State, actions: Any, noise: Any = None) -> State:
        """The state after `actions` (rows, A); there is no noise in it."""
        core = part(params, "core")
        return {"deter": recurrence(core, self.blocks, state["deter"], None, action_part(core, self.hidden, actions))}

    def correct(
        self, params: Params, state: State, actions: Any, tokens: Any, is_first: Any, noise: Any = None
    ) -> State:
        """The state after `actions` and an observation. Rows with `is_first` forget state and action before."""
        state, actions = forgotten(state, actions, is_first)
        before = self.predict(params, state, actions)["deter"]
        seen = library(before).concatenate([before, tokens], -1)
        gates = dense(part(params, "gates"), normed_layer(part(params, "correction"), seen))
        reset, candidate, update = library(before).split(gates, 3, -1)
        return {"deter": gated(reset, candidate, update, before)}

    def observe(
        self, params: Params, state: State, actions: Any, tokens: Any, is_first: Any, noise: Any = None
    ) -> Observed:
        """T corrections in a row: actions and tokens are (T, B, ...), `is_first` (T, B)."""

        def step(carry: State, inputs: tuple[Any, Any, Any]) -> tuple[State, State]:
            after = self.correct(params, carry, *inputs)
            return after, after

        _, states = jax.lax.scan(step, state, (actions, tokens, is_first))
        return Observed(states, {}, {})

    def divergence(self, posterior: Belief, prior: Belief) -> Any:
        """0: there are no beliefs to differ."""
        return jnp.zeros(())

    def read(self, state: State) -> Any:
        """The recurrent state itself."""
        return state["deter"]

    def stored(self, state: State) -> State:
        """The same state: nothing in it can be made smaller."""
        return state

    def restored(self, stored: State) -> State:
        """The inverse of `stored`."""
        return stored
