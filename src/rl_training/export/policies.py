"""From a policy's blueprint and its saved state to a graph: backbone, output layer, greedy action, bounds."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from rl_training.config.networks import COMPOSED, actor_space, spelt_out
from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.export.backbones import (
    Weights,
    activated,
    below,
    cnn_features,
    dense,
    encoded,
    encodings,
    inputs_of,
    layer,
    mask_of,
    remembered,
)
from rl_training.export.graph import GraphBuilder, PolicyGraph
from rl_training.numerics.encoding import observation_leaves
from rl_training.types import (
    Array,
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    SpaceSpec,
    StateDict,
)

MASKED_LOGIT = -1e8
"""Logit of an action that the mask forbids, as in the networks."""

Head = Literal["actor_critic", "categorical", "gaussian", "deterministic", "renorm", "values"]
"""How actions follow from features: the head of an actor-critic for any space; a categorical one; the tanh of a mean;
the tanh of an output; the same behind batch renormalisation; the largest of action values."""


class Blueprint(NamedTuple):
    """What a policy is built of, apart from its weights."""

    observation_space: SpaceSpec
    action_space: SpaceSpec
    network: NetworkConfig
    head: Head
    support: Array | None = None
    """Returns that the outputs of a value are probabilities of; None where they are values or quantiles."""


OUTPUT_LAYERS = {
    "actor_critic": "action_head.output",
    "categorical": "head.output",
    "gaussian": "head.output",
    "deterministic": "output",
}
"""Names of the last layer."""


def graph_of(blueprint: Blueprint, state: StateDict) -> PolicyGraph | None:
    """The greedy policy with this state as a graph; None for a network of your own or one with attention."""
    network, head = blueprint.network, blueprint.head
    cfg = network.critic if head == "values" else network.actor
    if not is_known(cfg):
        return None
    space = blueprint.observation_space if head == "values" else actor_space(blueprint.observation_space, network)
    builder = GraphBuilder()
    seen = inputs_of(builder, space, state["normalizer"] or {})
    mask = mask_of(builder, space)
    weights: Weights = state["network"]
    weights = below(weights, "mean") or weights  # a Gaussian with one spread for all states acts by its mean
    if head == "renorm":
        flat = [encoded(builder, leaf, seen[key]) for key, leaf in observation_leaves(space).items()]
        outputs = renormalized(builder, below(weights, "network"), cfg, builder.joined(flat))
    else:
        backbone = below(weights, "actor" if head == "actor_critic" else "backbone")
        if "encoder" in state:
            shared = below(state["encoder"], "body")
            x = encodings(builder, space, spelt_out(network.critic), shared, seen)
            features = behind(builder, spelt_out(cfg), backbone, x)
        elif cfg.type == "cnn":
            features = cnn_features(builder, space, cfg, backbone, seen)
        else:
            own = spelt_out(cfg)
            features = behind(builder, own, backbone, encodings(builder, space, own, backbone, seen))
        if head == "values":
            outputs = values_of(builder, weights, blueprint, features)
        else:
            outputs = layer(builder, weights, OUTPUT_LAYERS[head], features)
    act(builder, blueprint, outputs, mask)
    return builder.finished({"head": head})


def is_known(cfg: BackboneConfig) -> bool:
    """Whether a backbone is made of operations that graphs have."""
    return cfg.type == "cnn" or (cfg.type in COMPOSED and spelt_out(cfg).memory.type in ("none", "gru", "lstm"))


def behind(builder: GraphBuilder, cfg: BackboneConfig, weights: Weights, x: str) -> str:
    """Layers and memory behind the encoders."""
    x = dense(builder, weights, cfg, x)
    if cfg.memory.type == "none":
        return x
    return remembered(builder, below(weights, "cell"), cfg.memory.type, cfg.memory.size, x)


def renormalized(builder: GraphBuilder, weights: Weights, cfg: BackboneConfig, x: str) -> str:
    """A network with batch renormalisation in front of every layer, by its running statistics."""

    def norm(number: int, x: str) -> str:
        own = below(weights, f"norms.{number}")
        mean, var, scale, shift = (own[name].reshape(1, -1) for name in ("mean", "var", "scale", "shift"))
        centred = builder.add("Sub", x, builder.constant(mean))
        factor = builder.constant(scale / np.sqrt(var + np.float32(1e-3)))
        return builder.add("Add", builder.add("Mul", centred, factor), builder.constant(shift))

    def member(name: str, x: str) -> str:
        weight, bias = weights[f"{name}.weight"][0], weights[f"{name}.bias"][0]
        return builder.affine(x, weight.T, bias.reshape(-1))

    for number in range(len(cfg.hidden_dims)):
        x = activated(builder, cfg.activation, member(f"layers.{number}", norm(number, x)))
    return member("output", norm(len(cfg.hidden_dims), x))


def values_of(builder: GraphBuilder, weights: Weights, blueprint: Blueprint, features: str) -> str:
    """Expected returns (B, A) of all actions: plain or dueling, by values, atoms or quantiles."""
    space = blueprint.action_space
    assert isinstance(space, DiscreteSpec), "values are of discrete actions"
    numbers = builder.reshape(
        layer(builder, weights, "advantage", features), space.n, len(weights["advantage.bias"]) // space.n
    )
    if "value.weight" in weights:
        value = builder.reshape(layer(builder, weights, "value", features), 1, len(weights["value.bias"]))
        middle = builder.add("ReduceMean", numbers, builder.constant([1], np.int64), keepdims=1)
        numbers = builder.add("Sub", builder.add("Add", value, numbers), middle)
    last = builder.constant([2], np.int64)
    if blueprint.support is None:
        return builder.add("ReduceMean", numbers, last, keepdims=0)
    weighted = builder.add("Mul", builder.add("Softmax", numbers, axis=2), builder.constant(blueprint.support))
    return builder.add("ReduceSum", weighted, last, keepdims=0)


# -- greedy actions ---------------------------------------------------------------------------------------------------


def act(builder: GraphBuilder, blueprint: Blueprint, outputs: str, mask: str | None) -> None:
    """Add the outputs `actions` and, where actions are discrete, `logits`."""
    space = blueprint.action_space
    assert not isinstance(space, DictSpec), "a Dict action has no head"
    if isinstance(space, BoxSpec):
        actions = bounded(builder, blueprint.head, space, outputs)
        builder.output("actions", actions, space.dtype, space.shape)
        return
    size = logit_count(space)
    if mask is not None:
        zero = builder.constant(0, np.float32)
        forbidden = builder.add("Equal", builder.cast(mask, np.float32), zero)
        outputs = builder.add("Where", forbidden, builder.constant(MASKED_LOGIT), outputs)
    if isinstance(space, DiscreteSpec):
        actions = builder.add("ArgMax", outputs, axis=1, keepdims=0)
    elif isinstance(space, MultiDiscreteSpec):
        ends = np.cumsum(space.nvec)
        parts = [builder.columns(outputs, int(end) - n, int(end)) for end, n in zip(ends, space.nvec, strict=True)]
        actions = builder.joined([builder.add("ArgMax", part, axis=1, keepdims=1) for part in parts])
    else:
        actions = builder.cast(builder.add("Greater", outputs, builder.constant(0.0)), np.int8)
    builder.output("actions", actions, space.dtype, space.shape)
    builder.output("logits", outputs, np.float32, (size,))


def logit_count(space: DiscreteSpec | MultiDiscreteSpec | MultiBinarySpec) -> int:
    """Number of logits of a discrete action."""
    return sum(space.nvec) if isinstance(space, MultiDiscreteSpec) else space.n


def bounded(builder: GraphBuilder, head: Head, space: BoxSpec, outputs: str) -> str:
    """Real actions as the environment takes them: clipped, or squashed by tanh and scaled to the bounds."""
    dtype = np.float64 if np.result_type(np.float32, space.dtype) == np.float64 else np.float32
    size = math.prod(space.shape)
    if head in ("gaussian", "renorm"):
        outputs = builder.columns(outputs, 0, size)
    if head != "actor_critic":
        outputs = builder.add("Tanh", outputs)
    actions = builder.cast(builder.reshape(outputs, *space.shape), dtype)
    if head != "actor_critic":
        actions = scaled(builder, space, actions, dtype)
    return builder.cast(builder.clipped(actions, space.low, space.high, dtype), space.dtype)


def scaled(builder: GraphBuilder, space: BoxSpec, actions: str, dtype: Any) -> str:
    """Actions in -1..1 to the bounds; where high - low overflows, as a sum of shares of both."""

    def number(value: Any) -> str:
        return builder.constant(value, dtype)

    half = builder.add("Mul", actions, number(0.5))
    if space.is_wide:
        lower = builder.add("Mul", builder.add("Sub", number(0.5), half), number(space.low))
        return builder.add("Add", lower, builder.add("Mul", builder.add("Add", half, number(0.5)), number(space.high)))
    share = builder.add("Mul", builder.add("Add", actions, number(1.0)), number(0.5))
    return builder.add("Add", number(space.low), builder.add("Mul", share, number(space.high - space.low)))
