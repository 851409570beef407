"""Recurrent state-space model in JAX: the twin of `rl_training.dynamics.rssm`, as pure functions on a flat dict.

Parameters have the torch twin's names and start with its numbers. `observe` is one `lax.scan`; what does not depend on
the state (actions, tokens, prior) is computed for all T steps at once, outside of it.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.dynamics.latents import (
    MIN_STD,
    Belief,
    categorical_divergence,
    gaussian_divergence,
    mixed_logits,
    standard_normal,
    straight_through,
)
from rl_training.jax.models.layers import Params
from rl_training.jax.models.world_models.layers import (
    block_linear,
    block_linear_init,
    block_product,
    dense,
    dense_init,
    normed_layer,
    normed_layer_init,
    normed_mlp,
    normed_mlp_init,
    part,
    rms_norm,
    scoped,
)
from rl_training.numerics.initial_weights import truncated_normal

State = dict[str, Any]
"""`deter` and `stoch`, one row per trajectory."""


class Observed(NamedTuple):
    """States after each observation, their posterior and their prior; every array is (T, B, ...)."""

    states: State
    posterior: Belief
    prior: Belief


class RSSM(NamedTuple):
    """Sizes of the model; its functions take the parameters as an argument."""

    tokens: int
    actions: int
    deter: int = 512
    hidden: int = 64
    stoch: int = 32
    classes: int = 4
    blocks: int = 8
    unimix: float = 0.01
    latent: Literal["categorical", "gaussian"] = "categorical"

    @property
    def latent_size(self) -> int:
        """Numbers of a sample of the random part."""
        return self.stoch * self.classes if self.latent == "categorical" else self.stoch

    @property
    def features(self) -> int:
        """Size of `read(state)`."""
        return self.deter + self.latent_size

    @property
    def noise_size(self) -> int:
        """Uniform numbers that one row needs per step."""
        return self.stoch

    def init(self, rng: np.random.Generator) -> Params:
        """Initial parameters, drawn in the order of the torch twin."""
        deter, hidden, blocks = self.deter, self.hidden, self.blocks
        outputs = self.latent_size if self.latent == "categorical" else 2 * self.latent_size
        core: Params = {
            **scoped("from_deter", normed_layer_init(rng, deter, hidden)),
            **scoped("from_latent", normed_layer_init(rng, self.latent_size, hidden)),
            **scoped("from_action", normed_layer_init(rng, self.actions, hidden)),
        }
        fan_in = deter + blocks * 3 * hidden
        core["recurrent"] = truncated_normal(rng, (blocks, deter // blocks, deter // blocks), fan_in)
        core["shared"] = truncated_normal(rng, (3 * hidden, deter), fan_in)
        core["bias"], core["norm.scale"] = np.zeros(deter, np.float32), np.ones(deter, np.float32)
        core |= scoped("gates", block_linear_init(rng, deter, 3 * deter, blocks))
        prior = normed_mlp_init(rng, deter, hidden, 2, outputs)
        seen = deter + self.tokens
        posterior: Params = {
            "from_deter": truncated_normal(rng, (deter, hidden), seen),
            "from_tokens": truncated_normal(rng, (self.tokens, hidden), seen),
            "bias": np.zeros(hidden, np.float32),
            "norm.scale": np.ones(hidden, np.float32),
            **scoped("output", dense_init(rng, hidden, outputs)),
        }
        return {**scoped("core", core), **scoped("prior_head", prior), **scoped("posterior_head", posterior)}

    def initial(self, rows: int) -> State:
        """The state before the first step of an episode: zeros."""
        return {"deter": jnp.zeros((rows, self.deter)), "stoch": jnp.zeros((rows, self.latent_size))}

    def predict(self, params: Params, state: State, actions: Any, noise: Any = None) -> State:
        """The state after `actions` (rows, A), imagined; `noise` is uniform, (rows, noise_size)."""
        core = part(params, "core")
        deter = recurrence(core, self.blocks, state, action_part(core, self.hidden, actions))
        return {"deter": deter, "stoch": self.sample(self.prior(params, deter), noise)}

    def correct(
        self, params: Params, state: State, actions: Any, tokens: Any, is_first: Any, noise: Any = None
    ) -> State:
        """The state after `actions` and an observation. Rows with `is_first` forget state and action before."""
        given = None if noise is None else noise[None]
        observed = self.observe(params, state, actions[None], tokens[None], is_first[None], given)
        return {name: value[0] for name, value in observed.states.items()}

    def observe(
        self, params: Params, state: State, actions: Any, tokens: Any, is_first: Any, noise: Any = None
    ) -> Observed:
        """T corrections in a row: actions, tokens and noise are (T, B, ...), `is_first` (T, B)."""
        core, head = part(params, "core"), part(params, "posterior_head")
        keep = (1.0 - is_first.astype(jnp.float32))[..., None]
        action_parts = action_part(core, self.hidden, actions * keep)
        token_parts = tokens @ head["from_tokens"] + head["bias"]

        def step(carry: State, inputs: tuple[Any, ...]) -> tuple[State, tuple[State, Belief]]:
            kept, moved, seen, draws = inputs
            before = {name: value * kept for name, value in carry.items()}
            deter = recurrence(core, self.blocks, before, moved)
            hidden = jax.nn.silu(rms_norm(deter @ head["from_deter"] + seen, head["norm.scale"]))
            belief = self.belief(dense(part(head, "output"), hidden))
            after = {"deter": deter, "stoch": self.sample(belief, draws)}
            return after, (after, belief)

        _, (states, beliefs) = jax.lax.scan(step, state, (keep, action_parts, token_parts, noise))
        return Observed(states, beliefs, self.prior(params, states["deter"]))

    def prior(self, params: Params, deter: Any) -> Belief:
        """What the random part may be, given the deterministic one."""
        return self.belief(normed_mlp(part(params, "prior_head"), deter))

    def belief(self, outputs: Any) -> Belief:
        """The distribution that a network's outputs stand for."""
        if self.latent == "gaussian":
            mean, raw = jnp.split(outputs, 2, axis=-1)
            return {"mean": mean, "std": jax.nn.softplus(raw) + MIN_STD}
        return {"logits": mixed_logits(outputs.reshape(*outputs.shape[:-1], self.stoch, self.classes), self.unimix)}

    def sample(self, belief: Belief, noise: Any) -> Any:
        """A differentiable sample, or the most likely value without `noise`."""
        if self.latent == "gaussian":
            return belief["mean"] if noise is None else belief["mean"] + belief["std"] * standard_normal(noise)
        sample = straight_through(belief["logits"], noise)
        return sample.reshape(*sample.shape[:-2], -1)

    def divergence(self, posterior: Belief, prior: Belief) -> Any:
        """KL(posterior || prior) in nats, (T, B)."""
        if self.latent == "gaussian":
            return gaussian_divergence(posterior["mean"], posterior["std"], prior["mean"], prior["std"])
        return categorical_divergence(posterior["logits"], prior["logits"])

    def read(self, state: State) -> Any:
        """Features [deter, stoch]."""
        return jnp.concatenate([state["deter"], state["stoch"]], -1)

    def stored(self, state: State) -> State:
        """A state with class numbers (bytes) in place of one-hot vectors."""
        if self.latent == "gaussian":
            return state
        one_hot = state["stoch"].reshape(*state["stoch"].shape[:-1], self.stoch, self.classes)
        return {"deter": state["deter"], "stoch": jnp.argmax(one_hot, -1).astype(jnp.uint8)}

    def restored(self, stored: State) -> State:
        """The inverse of `stored`."""
        if self.latent == "gaussian":
            return stored
        one_hot = jax.nn.one_hot(stored["stoch"], self.classes)
        return {"deter": stored["deter"].astype(jnp.float32), "stoch": one_hot.reshape(*one_hot.shape[:-2], -1)}


def bounded_actions(actions: Any) -> Any:
    """a / max(1, |a|) elementwise, the divisor without gradient."""
    return actions / jax.lax.stop_gradient(jnp.maximum(jnp.abs(actions), 1.0))


def action_part(core: Params, hidden: int, actions: Any) -> Any:
    """What actions add inside the core; for any number of steps at once."""
    return (
        normed_layer(part(core, "from_action"), bounded_actions(actions)) @ core["shared"][2 * hidden :] + core["bias"]
    )


def recurrence(core: Params, blocks: int, state: State, actions: Any) -> Any:
    """The next deterministic state of the block GRU; `actions` are those of `action_part`."""
    deter, latent = state["deter"], state["stoch"]
    x = jnp.concatenate(
        [normed_layer(part(core, "from_deter"), deter), normed_layer(part(core, "from_latent"), latent)], -1
    )
    inside = x @ core["shared"][: x.shape[-1]] + block_product(deter, core["recurrent"]) + actions
    gates = block_linear(part(core, "gates"), jax.nn.silu(rms_norm(inside, core["norm.scale"])))
    gates = gates.reshape(len(deter), blocks, 3, -1)  # reset, candidate, update, inside each block
    reset, candidate, update = (gates[:, :, i].reshape(len(deter), -1) for i in range(3))
    update = jax.nn.sigmoid(update - 1.0)
    candidate = jnp.tanh(jax.nn.sigmoid(reset) * candidate)
    return update * candidate + (1.0 - update) * deter
