"""One step of acting in NumPy, for vector observations and an RSSM with categorical latents on the CPU.

A decision for a few environments is some twenty products of small matrices, for which torch needs more time to start an
operation than to compute it. The arrays are views of the weights, so that acting always uses the current ones; the
numbers are those of the modules up to rounding, which a test holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from torch import nn

from rl_training.algorithms.world_models.actors import ActionDistribution, DiscreteActions, RealActions
from rl_training.algorithms.world_models.world_model import WorldModel
from rl_training.dynamics.latents import Categorical
from rl_training.dynamics.rssm import RSSM
from rl_training.models.world_models.layers import RMS_EPS, NormedLayer, NormedMLP, RMSNorm
from rl_training.numerics.encoding import encode_leaf_numpy
from rl_training.numerics.symlog import symlog
from rl_training.types import Array, Carry, Obs

Layer = Callable[[Array], Array]


def view(parameter: Any) -> Array:
    """The weights of a parameter, without copying them."""
    return cast(Array, parameter.detach().numpy())


def sigmoid(x: Array) -> Array:
    result: Array = 1.0 / (1.0 + np.exp(-x))
    return result


def silu_norm(norm: RMSNorm) -> Layer:
    """SiLU of the RMS norm over the last axis."""
    scale, size = view(norm.scale), np.float32(norm.scale.numel())

    def run(x: Array) -> Array:
        mean_square = np.einsum("ni,ni->n", x, x) / size + np.float32(RMS_EPS)
        normed: Array = x * (1.0 / np.sqrt(mean_square))[:, None] * scale
        silu: Array = normed / (1.0 + np.exp(-normed))
        return silu

    return run


def linear(layer: nn.Linear) -> Layer:
    weight, bias = view(layer.weight).T, view(layer.bias)
    return lambda x: x @ weight + bias


def normed_layer(layer: NormedLayer) -> Layer:
    inner, outer = linear(layer.linear), silu_norm(layer.norm)
    return lambda x: outer(inner(x))


def mlp(network: NormedMLP) -> Layer:
    layers = [normed_layer(cast(NormedLayer, layer)) for layer in network.layers]
    if isinstance(network.output, nn.Linear):
        layers.append(linear(network.output))

    def run(x: Array) -> Array:
        for layer in layers:
            x = layer(x)
        return x

    return run


def block_product(weight: Array) -> Layer:
    """Product with a block-diagonal matrix (G, inputs / G, outputs / G)."""
    blocks, inputs, _ = weight.shape
    if blocks == 1:
        return lambda x: x @ weight[0]
    return lambda x: np.matmul(x.reshape(-1, blocks, inputs).swapaxes(0, 1), weight).swapaxes(0, 1).reshape(len(x), -1)


def mixed_probabilities(logits: Array, unimix: float) -> Array:
    """(1 - unimix) softmax(logits) + unimix / classes over the last axis."""
    exponents = np.exp(logits - logits.max(-1, keepdims=True))
    probs = exponents / exponents.sum(-1, keepdims=True)
    mixed: Array = (1.0 - unimix) * probs + np.float32(unimix / logits.shape[-1])
    return mixed


def sampled_class(probs: Array, uniform: Array | None) -> Array:
    """Class numbers by the inverse of the cumulative distribution; without noise the most likely ones."""
    if uniform is None:
        likely: Array = probs.argmax(-1)
        return likely
    number: Array = (np.cumsum(probs[..., :-1], -1) < uniform[..., None]).sum(-1)
    return number


class NumpyActing:
    """(observations, carry, is_first, noise) -> (state as it is stored, action as numbers)."""

    def __init__(self, model: WorldModel, actor: NormedMLP, actions: ActionDistribution) -> None:
        rssm = cast(RSSM, model.dynamics)
        self.latent = cast(Categorical, rssm.latent)
        self.format, self.actions = model.encoder.format, actions
        self.encode = mlp(cast(NormedMLP, model.encoder.vector))
        core, posterior = rssm.core, rssm.posterior_head
        from_latent = cast(NormedLayer, core.from_latent)
        self.from_deter, self.from_action = normed_layer(core.from_deter), normed_layer(core.from_action)
        self.latent_rows, self.latent_bias = view(from_latent.linear.weight).T, view(from_latent.linear.bias)
        self.latent_norm, self.core_norm = silu_norm(from_latent.norm), silu_norm(core.norm)
        self.shared, self.core_bias = view(core.shared), view(core.bias)
        self.recurrence = block_product(view(core.recurrent))
        self.gates, self.gate_bias = block_product(view(core.gates.weight)), view(core.gates.bias)
        self.blocks = core.blocks
        self.seen_deter, self.seen_tokens = view(posterior.from_deter), view(posterior.from_tokens)
        self.seen_bias, self.seen_norm = view(posterior.bias), silu_norm(posterior.norm)
        self.logits, self.act = linear(posterior.output), mlp(actor)
        self.offsets = self.latent.classes * np.arange(self.latent.count)

    def __call__(
        self, obs: Obs, carry: Carry, is_first: Array, noise: Array | None, action_noise: Array | None
    ) -> tuple[Carry, Array]:
        keep = (~is_first[:, None]).astype(np.float32)
        deter = self.core(carry["deter"] * keep, carry["stoch"], carry["action"] * keep, keep)
        hidden = self.seen_norm(self.tokens(obs) @ self.seen_tokens + self.seen_bias + deter @ self.seen_deter)
        logits = self.logits(hidden).reshape(len(deter), self.latent.count, self.latent.classes)
        classes = sampled_class(mixed_probabilities(logits, self.latent.unimix), noise)
        one_hot = np.zeros((len(deter), self.latent.size), np.float32)
        np.put_along_axis(one_hot, classes + self.offsets, 1.0, axis=1)
        numbers = self.choose(self.act(np.concatenate([deter, one_hot], axis=1)), action_noise)
        return {"deter": deter, "stoch": classes.astype(np.uint8)}, numbers

    def tokens(self, obs: Obs) -> Array:
        named = obs if isinstance(obs, dict) else {self.format.only or "obs": obs}
        parts = [encode_leaf_numpy(leaf, named[name]) for name, leaf in self.format.vectors.items()]
        return self.encode(symlog(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)))

    def core(self, deter: Array, classes: Array, action: Array, keep: Array) -> Array:
        """The next deterministic state; `RSSM.core` with the one-hot latent as a sum of rows of the weights."""
        latent = self.latent_rows.take(classes + self.offsets, axis=0).sum(1) * keep + self.latent_bias
        bounded = action / np.maximum(np.abs(action), 1.0)
        inputs = [self.from_deter(deter), self.latent_norm(latent), self.from_action(bounded)]
        inside = np.concatenate(inputs, axis=1) @ self.shared + self.core_bias + self.recurrence(deter)
        raw = self.gates(self.core_norm(inside)) + self.gate_bias
        gates = raw.reshape(len(deter), self.blocks, 3, -1)
        reset, candidate, update = (gates[:, :, i].reshape(len(deter), -1) for i in range(3))
        update = sigmoid(update - 1.0)
        following: Array = update * np.tanh(sigmoid(reset) * candidate) + (1.0 - update) * deter
        return following

    def choose(self, outputs: Array, noise: Array | None) -> Array:
        """Actions (N, A) as numbers."""
        if isinstance(self.actions, DiscreteActions):
            classes = sampled_class(mixed_probabilities(outputs, self.actions.unimix), noise)
            return np.eye(self.actions.size, dtype=np.float32)[classes]
        mean, raw = np.split(outputs, 2, axis=1)
        mean = np.tanh(mean)
        actions: Array = mean if noise is None else mean + (0.9 * sigmoid(raw + 2.0) + 0.1) * noise
        return actions


def fits(model: WorldModel, actions: ActionDistribution, device: str) -> bool:
    """Whether acting can be done in NumPy: vectors, the package's own RSSM, categorical latents, on the CPU."""
    return (
        device == "cpu"
        and type(model.dynamics) is RSSM
        and isinstance(model.dynamics.latent, Categorical)
        and not model.encoder.format.images
        and type(actions) in (DiscreteActions, RealActions)
    )
