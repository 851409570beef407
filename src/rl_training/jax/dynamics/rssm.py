"""Recurrent state-space model in JAX: the twin of `rl_training.dynamics.rssm`, as pure functions on a flat dict.

Parameters have the torch twin's names and start with its numbers. `observe` is one `lax.scan`; what does not depend on
the state (actions, tokens, prior) is computed for all T steps at once, outside of it. With categorical latents
`correct` and `predict` work on NumPy arrays too.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.hparams.world_models import RSSMSizes, check_rssm
from rl_training.jax.dynamics.base import Observed, State, bounded_actions, forgotten
from rl_training.jax.dynamics.latents import (
    Belief,
    categorical_divergence,
    gaussian_belief,
    gaussian_divergence,
    gaussian_sample,
    mixed_logits,
    one_hot,
    straight_through,
)
from rl_training.jax.models.layers import Params, library
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
    sigmoid,
    silu,
)
from rl_training.numerics.initial_weights import truncated_normal


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
    def open_loop(self) -> int:
        """Steps that the model predicts on its own while it learns: none, the divergence teaches it to predict."""
        return 0

    @property
    def acting(self) -> tuple[str, ...]:
        """First parts of the names of the parameters that `correct` needs."""
        return ("core", "posterior_head")

    @property
    def in_numpy(self) -> bool:
        """Whether `correct` works on NumPy arrays too."""
        return self.latent == "categorical"

    def check(self) -> None:
        """ConfigError where the sizes do not fit together."""
        sizes = RSSMSizes(self.deter, self.hidden, self.stoch, self.classes, self.blocks)
        check_rssm(sizes, self.latent, self.unimix)

    @property
    def latent_size(self) -> int:
        """Numbers of a sample of the random part."""
        return self.stoch * self.classes if self.latent == "categorical" else self.stoch

    @property
    def features(self) -> int:
        """Size of `read(state)`."""
        return self.deter + self.latent_size

    @property
    def state_spec(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of one row of each part of a stored state, for carry and replay."""
        stored = np.dtype(np.uint8 if self.latent == "categorical" else np.float32)
        return {"deter": ((self.deter,), np.dtype(np.float32)), "stoch": ((self.stoch,), stored)}

    @property
    def noise_size(self) -> int:
        """Uniform numbers that one row needs per step."""
        return self.stoch

    def init(self, rng: np.random.Generator) -> Params:
        """Initial parameters, drawn in the order of the torch twin."""
        deter, hidden = self.deter, self.hidden
        outputs = self.latent_size if self.latent == "categorical" else 2 * self.latent_size
        core = core_init(rng, deter, hidden, self.latent_size, self.actions, self.blocks)
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
        moved = action_part(core, 2 * self.hidden, actions)
        deter = recurrence(core, self.blocks, state["deter"], state["stoch"], moved)
        return {"deter": deter, "stoch": self.sample(self.prior(params, deter), noise)}

    def correct(
        self, params: Params, state: State, actions: Any, tokens: Any, is_first: Any, noise: Any = None
    ) -> State:
        """The state after `actions` and an observation. Rows with `is_first` forget state and action before."""
        core, head = part(params, "core"), part(params, "posterior_head")
        state, actions = forgotten(state, actions, is_first)
        moved, seen = action_part(core, 2 * self.hidden, actions), tokens @ head["from_tokens"] + head["bias"]
        return self.corrected(core, head, state, (moved, seen, noise))[0]

    def corrected(self, core: Params, head: Params, state: State, inputs: tuple[Any, Any, Any]) -> tuple[State, Belief]:
        """One step from `state`, given what the action adds to the core, what the tokens add to the posterior, and
        noise: the new state and the belief it was drawn from."""
        moved, seen, noise = inputs
        deter = recurrence(core, self.blocks, state["deter"], state["stoch"], moved)
        hidden = silu(rms_norm(deter @ head["from_deter"] + seen, head["norm.scale"]))
        belief = self.belief(dense(part(head, "output"), hidden))
        return {"deter": deter, "stoch": self.sample(belief, noise)}, belief

    def observe(
        self, params: Params, state: State, actions: Any, tokens: Any, is_first: Any, noise: Any = None
    ) -> Observed:
        """T corrections in a row: actions, tokens and noise are (T, B, ...), `is_first` (T, B)."""
        core, head = part(params, "core"), part(params, "posterior_head")
        keep = (1.0 - is_first.astype(jnp.float32))[..., None]
        action_parts = action_part(core, 2 * self.hidden, actions * keep)
        token_parts = tokens @ head["from_tokens"] + head["bias"]

        def step(carry: State, inputs: tuple[Any, Any, Any, Any]) -> tuple[State, tuple[State, Belief]]:
            kept = {name: value * inputs[0] for name, value in carry.items()}
            after, belief = self.corrected(core, head, kept, inputs[1:])
            return after, (after, belief)

        _, (states, beliefs) = jax.lax.scan(step, state, (keep, action_parts, token_parts, noise))
        return Observed(states, beliefs, self.prior(params, states["deter"]))

    def prior(self, params: Params, deter: Any) -> Belief:
        """What the random part may be, given the deterministic one."""
        return self.belief(normed_mlp(part(params, "prior_head"), deter))

    def belief(self, outputs: Any) -> Belief:
        """The distribution that a network's outputs stand for."""
        if self.latent == "gaussian":
            return gaussian_belief(outputs)
        return {"logits": mixed_logits(outputs.reshape(*outputs.shape[:-1], self.stoch, self.classes), self.unimix)}

    def sample(self, belief: Belief, noise: Any) -> Any:
        """A differentiable sample, or the most likely value without `noise`."""
        if self.latent == "gaussian":
            return gaussian_sample(belief, noise)
        sample = straight_through(belief["logits"], noise)
        return sample.reshape(*sample.shape[:-2], -1)

    def divergence(self, posterior: Belief, prior: Belief) -> Any:
        """KL(posterior || prior) in nats, (T, B)."""
        if self.latent == "gaussian":
            return gaussian_divergence(posterior["mean"], posterior["std"], prior["mean"], prior["std"])
        return categorical_divergence(posterior["logits"], prior["logits"])

    def read(self, state: State) -> Any:
        """Features [deter, stoch]."""
        return library(state["deter"]).concatenate([state["deter"], state["stoch"]], -1)

    def stored(self, state: State) -> State:
        """A state with class numbers (bytes) in place of one-hot vectors."""
        if self.latent == "gaussian":
            return state
        vectors = state["stoch"].reshape(*state["stoch"].shape[:-1], self.stoch, self.classes)
        return {"deter": state["deter"], "stoch": vectors.argmax(-1).astype(np.uint8)}

    def restored(self, stored: State) -> State:
        """The inverse of `stored`."""
        if self.latent == "gaussian":
            return stored
        vectors = one_hot(stored["stoch"], self.classes)
        return {"deter": stored["deter"].astype(np.float32), "stoch": vectors.reshape(*vectors.shape[:-2], -1)}


def core_init(rng: np.random.Generator, deter: int, hidden: int, latent: int, actions: int, blocks: int) -> Params:
    """Parameters of the block GRU, drawn in the order of the torch twin; `latent` is 0 for a core without latents."""
    inputs = {"from_deter": deter, "from_latent": latent, "from_action": actions}
    core: Params = {}
    for name, size in inputs.items():
        if size:
            core |= scoped(name, normed_layer_init(rng, size, hidden))
    width = hidden * (3 if latent else 2)
    fan_in = deter + blocks * width
    core["recurrent"] = truncated_normal(rng, (blocks, deter // blocks, deter // blocks), fan_in)
    core["shared"] = truncated_normal(rng, (width, deter), fan_in)
    core["bias"], core["norm.scale"] = np.zeros(deter, np.float32), np.ones(deter, np.float32)
    return {**core, **scoped("gates", block_linear_init(rng, deter, 3 * deter, blocks))}


def action_part(core: Params, split: int, actions: Any) -> Any:
    """What actions add inside the core; for any number of steps at once. Rows of the shared weights before `split`
    belong to the state."""
    return normed_layer(part(core, "from_action"), bounded_actions(actions)) @ core["shared"][split:] + core["bias"]


def recurrence(core: Params, blocks: int, deter: Any, latent: Any, actions: Any) -> Any:
    """The next deterministic state of the block GRU; `actions` are those of `action_part`, `latent` may be None."""
    x = normed_layer(part(core, "from_deter"), deter)
    if latent is not None:
        x = library(deter).concatenate([x, normed_layer(part(core, "from_latent"), latent)], -1)
    inside = x @ core["shared"][: x.shape[-1]] + block_product(deter, core["recurrent"]) + actions
    gates = block_linear(part(core, "gates"), silu(rms_norm(inside, core["norm.scale"])))
    gates = gates.reshape(len(deter), blocks, 3, -1)  # reset, candidate, update, inside each block
    reset, candidate, update = (gates[:, :, i].reshape(len(deter), -1) for i in range(3))
    return gated(reset, candidate, update, deter)


def gated(reset: Any, candidate: Any, update: Any, deter: Any) -> Any:
    """The new state of a GRU from its raw gates; the update gate starts near closed, by the -1."""
    update = sigmoid(update - 1.0)
    candidate = library(deter).tanh(sigmoid(reset) * candidate)
    return update * candidate + (1.0 - update) * deter
