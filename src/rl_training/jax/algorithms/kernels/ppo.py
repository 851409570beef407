"""PPO's gradient in closed form: the numbers of `jax.grad` of `ppo_loss`, about twice as fast for small MLPs on a CPU.

Five things make it fast. Actor and critic run as one stacked network, features along the first axis, because XLA's
products of (features, batch) matrices are the fast ones; in the backward pass the weights are transposed first
(`product`), and the heads' gradients are taken output by output (`head_product`). The loss head's gradient is in closed
form, since automatic differentiation of its many small steps costs a third of the update; the network's is left to
`jax.vjp`. All parameters are one vector while they are trained: norm, clipping and Adam are a few passes over it, not a
few for every array. The rows of a rollout are one matrix, so that a minibatch is one gather.

`ppo_loss` stays the reference: a test holds this file to it, and `hparams.kernel: reference` uses it. It fits two
separate MLPs of one shape with a categorical or plain Gaussian head; everything else takes the reference.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.config.networks import critic_only_keys
from rl_training.jax.algorithms.on_policy import Learner, Rollout
from rl_training.jax.models.networks import ACTIVATIONS, FEW_OUTPUTS, Params, encode, is_flat
from rl_training.jax.models.optimization import AdamState
from rl_training.jax.types import Metrics
from rl_training.numerics.encoding import leaf_features, observation_leaves
from rl_training.numerics.normalization import normalized
from rl_training.numerics.stable import HALF_LOG_2PI
from rl_training.types import ACTION_MASK, BoxSpec, DictSpec, DiscreteSpec

STACKED = ("actor", "critic")


class Rows(NamedTuple):
    """A minibatch, B along the last axis; `old_logprobs` and `values` are those of the policy that acted."""

    features: Any
    actions: Any
    old_logprobs: Any
    advantages: Any
    returns: Any
    values: Any


def fits(learner: Learner) -> bool:
    """True if this kernel computes what the network computes."""
    observation_space, network = learner.ctx.observation_space, learner.ctx.network
    masked = isinstance(observation_space, DictSpec) and ACTION_MASK in observation_space.spaces
    flat = all(is_flat(observation_space, backbone) for backbone in (network.actor, network.critic))
    plain = flat and not network.actor.layer_norm and bool(network.actor.hidden_dims)
    shape = [(b.hidden_dims, b.activation, b.layer_norm) for b in (network.actor, network.critic)]
    alike = plain and not network.shared and shape[0] == shape[1]
    known = isinstance(learner.ctx.action_space, DiscreteSpec | BoxSpec) and not learner.distribution.state_dependent
    return alike and known and not masked and not critic_only_keys(observation_space, network)


class FastKernel:
    """Loss and gradient of minibatches for one network; see `ppo.Kernel` for the verbs."""

    def __init__(self, learner: Learner) -> None:
        network = learner.ctx.network.actor
        self.leaves = observation_leaves(learner.ctx.observation_space)
        self.layers = [f"layers.{2 * i}" for i in range(len(network.hidden_dims))]
        self.activation = ACTIVATIONS[network.activation]
        self.size = learner.distribution.size
        self.discrete = isinstance(learner.ctx.action_space, DiscreteSpec)
        self.normalize_advantage = learner.hp.normalize_advantage
        self.shapes = self.stacked_shapes([sum(map(leaf_features, self.leaves.values())), *network.hidden_dims])

    # -- layouts ------------------------------------------------------------------------------------------------------

    def stacked_shapes(self, widths: list[int]) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters while they are trained: actor and critic stacked, matrices transposed."""
        shapes: dict[str, tuple[int, ...]] = {}
        for layer, (inputs, outputs) in zip(self.layers, pairwise(widths), strict=True):
            shapes |= {f"{layer}.weight": (2, outputs, inputs), f"{layer}.bias": (2, outputs)}
        for head, outputs in (("output", self.size), ("value.output", 1)):
            shapes |= {f"{head}.weight": (outputs, widths[-1]), f"{head}.bias": (outputs,)}
        return shapes if self.discrete else {**shapes, "log_std": (self.size,)}

    def pack(self, params: Params) -> Any:
        """All parameters as one vector, so that an optimiser step is one pass over it."""
        heads = dict(params["action_head"], **{f"value.{k}": v for k, v in params["value_head"].items()})
        parts = [[heads[name]] if name in heads else [params[p][name] for p in STACKED] for name in self.shapes]
        return jnp.concatenate([value.T.reshape(-1) for values in parts for value in values])

    def unpack(self, packed: Any) -> Params:
        params: Params = {part: {} for part in (*STACKED, "action_head", "value_head")}
        for name, value in self.arrays(packed).items():
            if name.startswith("layers."):
                params["actor"][name], params["critic"][name] = value[0].T, value[1].T
            else:
                head = "value_head" if name.startswith("value.") else "action_head"
                params[head][name.removeprefix("value.")] = value.T
        return params

    def pack_moments(self, optimizer: AdamState) -> AdamState:
        return optimizer._replace(mean=self.pack(optimizer.mean), square=self.pack(optimizer.square))

    def unpack_moments(self, optimizer: AdamState) -> AdamState:
        return optimizer._replace(mean=self.unpack(optimizer.mean), square=self.unpack(optimizer.square))

    def arrays(self, packed: Any) -> Params:
        """The vector as stacked arrays."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes.values()])
        parts = jnp.split(packed, ends[:-1])
        return {name: part.reshape(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def rows(self, rollout: Rollout) -> Any:
        """Everything a minibatch needs as one matrix (B, columns)."""
        vectors = (rollout.logprobs, rollout.advantages, rollout.returns, rollout.values)
        actions = rollout.actions.reshape(len(rollout.values), -1).astype(jnp.float32)
        return jnp.concatenate([encode(self.leaves, rollout.seen.obs), actions, jnp.stack(vectors, axis=1)], axis=1)

    def columns(self, rows: Any) -> Rows:
        """One minibatch of that matrix, features first."""
        columns = rows.T
        head = 1 if self.discrete else self.size
        features, actions, vectors = columns[: -head - 4], columns[-head - 4 : -4], columns[-4:]
        logprobs, advantages, returns, values = vectors
        if self.normalize_advantage:
            advantages = normalized(advantages)
        return Rows(features, actions[0] if self.discrete else actions, logprobs, advantages, returns, values)

    # -- the gradient -------------------------------------------------------------------------------------------------

    def forward(self, arrays: Params, features: Any) -> tuple[Any, Any]:
        """Outputs of the action head (A, B) and values (B,) for features (F, B)."""
        sums = None
        for layer in self.layers:
            weight, bias = arrays[f"{layer}.weight"], arrays[f"{layer}.bias"][:, :, None]
            if sums is None:  # both networks see the same input: one product
                sums = (weight.reshape(-1, weight.shape[2]) @ features).reshape(2, weight.shape[1], -1) + bias
            else:
                sums = product(weight, self.activation(sums)) + bias
        assert sums is not None
        actor, critic = (self.activation(sums[i]) for i in range(2))  # slices of one result would be copied
        outputs = head_product(arrays["output.weight"], actor) + arrays["output.bias"][:, None]
        values = head_product(arrays["value.output.weight"], critic) + arrays["value.output.bias"][:, None]
        return outputs, values[0]

    def gradient(self, packed: Any, rows: Any, coefficients: Any) -> tuple[Any, Metrics]:
        """The gradient of `ppo_loss`, and what `ppo_loss` returns."""
        minibatch, arrays = self.columns(rows), self.arrays(packed)
        (outputs, values), pull = jax.vjp(lambda arrays: self.forward(arrays, minibatch.features), arrays)
        if self.discrete:
            by_outputs, columns = categorical_gradient(outputs, minibatch, coefficients)
            by_log_std = None
        else:
            by_outputs, by_log_std, columns = gaussian_gradient(outputs, arrays["log_std"], minibatch, coefficients)
        by_values, columns["value_loss"] = value_gradient(values, minibatch, coefficients)
        # without the barrier XLA fuses the head with the products after it, and both become slow
        (grads,) = pull(jax.lax.optimization_barrier((by_outputs, by_values)))
        if by_log_std is not None:
            grads["log_std"] = by_log_std
        means = jnp.stack(list(columns.values())).mean(1)  # one sum over all of them
        losses = dict(zip(columns, means, strict=True))
        total = losses["policy_loss"] + coefficients.vf_coef * losses["value_loss"]
        flat = jnp.concatenate([grads[name].reshape(-1) for name in self.shapes])
        return flat, {"loss": total + coefficients.ent_coef * losses["entropy_loss"], **losses}


@jax.custom_vjp
def product(weight: Any, x: Any) -> Any:
    """weight (2, O, I) @ x (2, I, B). For the gradient by x the weights are transposed first: otherwise XLA fuses the
    transposition into the product, which then takes a third longer."""
    return weight @ x


def product_forward(weight: Any, x: Any) -> tuple[Any, tuple[Any, Any]]:
    return weight @ x, (weight, x)


def product_backward(saved: tuple[Any, Any], gradient: Any) -> tuple[Any, Any]:
    weight, x = saved
    turned = jax.lax.optimization_barrier(weight.swapaxes(1, 2))
    return jnp.einsum("nob,nib->noi", gradient, x), turned @ gradient


product.defvjp(product_forward, product_backward)


@jax.custom_vjp
def head_product(weight: Any, x: Any) -> Any:
    """weight (A, I) @ x (I, B) for a few outputs. Its gradients are products with vectors, one for each output, which
    XLA compiles in place; the matrix library takes three times as long for such narrow products."""
    return weight @ x


def head_forward(weight: Any, x: Any) -> tuple[Any, tuple[Any, Any]]:
    return weight @ x, (weight, x)


def head_backward(saved: tuple[Any, Any], gradient: Any) -> tuple[Any, Any]:
    weight, x = saved
    if len(weight) > FEW_OUTPUTS:
        return gradient @ x.T, weight.T @ gradient
    return jnp.stack([x @ row for row in gradient]), sum(map(jnp.outer, weight, gradient))


head_product.defvjp(head_forward, head_backward)


# -- the loss ---------------------------------------------------------------------------------------------------------


def surrogate(logprobs: Any, rows: Rows, clip_coef: Any) -> tuple[Any, Metrics]:
    """(d policy_loss / d logprobs (B,), columns whose means are policy_loss, approx_kl and clip_fraction)."""
    log_ratio = logprobs - rows.old_logprobs
    ratio = jnp.exp(log_ratio)
    plain = ratio * rows.advantages
    clipped = jnp.clip(ratio, 1.0 - clip_coef, 1.0 + clip_coef) * rows.advantages
    # the gradient flows where the plain term is the smaller one; its derivative by the log-probability is itself
    gradient = jnp.where(plain <= clipped, plain, 0.0) * (-1.0 / len(ratio))
    columns = {
        "policy_loss": -jnp.minimum(plain, clipped),
        "approx_kl": ratio - 1.0 - log_ratio,
        "clip_fraction": (jnp.abs(ratio - 1.0) > clip_coef).astype(jnp.float32),
    }
    return gradient, columns


def categorical_gradient(logits: Any, rows: Rows, coefficients: Any) -> tuple[Any, Metrics]:
    """(d loss / d logits (A, B), columns of losses) of a categorical policy."""
    log_probabilities = jax.nn.log_softmax(logits, axis=0)
    probabilities = jnp.exp(log_probabilities)
    chosen = jnp.arange(len(logits), dtype=jnp.float32)[:, None] == rows.actions
    logprobs = jnp.where(chosen, log_probabilities, 0.0).sum(0)
    by_logprob, columns = surrogate(logprobs, rows, coefficients.clip_coef)
    entropy = -(probabilities * log_probabilities).sum(0)
    by_logits = by_logprob * (chosen - probabilities)  # d logprob[a] / d logits = onehot(a) - p
    scale = coefficients.ent_coef / len(entropy)  # d entropy / d logits = -p (log p + entropy)
    by_logits = by_logits + scale * probabilities * (log_probabilities + entropy)
    return by_logits, {**columns, "entropy_loss": -entropy}


def gaussian_gradient(means: Any, log_std: Any, rows: Rows, coefficients: Any) -> tuple[Any, Any, Metrics]:
    """(d loss / d means (A, B), d loss / d log_std (A,), columns of losses) of a diagonal Gaussian policy."""
    inverse_std = jnp.exp(-log_std)[:, None]
    standardized = (rows.actions - means) * inverse_std
    squares = jnp.square(standardized)
    logprobs = (-0.5 * squares - log_std[:, None] - HALF_LOG_2PI).sum(0)
    by_logprob, columns = surrogate(logprobs, rows, coefficients.clip_coef)
    entropy = jnp.broadcast_to((log_std + 0.5 + HALF_LOG_2PI).sum(), logprobs.shape)
    by_log_std = ((squares - 1.0) * by_logprob).sum(1) - coefficients.ent_coef
    return by_logprob * standardized * inverse_std, by_log_std, {**columns, "entropy_loss": -entropy}


def value_gradient(values: Any, rows: Rows, coefficients: Any) -> tuple[Any, Any]:
    """(d loss / d values (B,), column whose mean is value_loss)."""
    errors, limit = values - rows.returns, coefficients.clip_vf
    squares = jnp.square(errors)
    if limit is not None:
        moved = values - rows.values
        clipped = rows.values + jnp.clip(moved, -limit, limit) - rows.returns
        # where the clipped error is the larger one, the value moves only if it is still inside the bounds
        larger = jnp.square(clipped) > squares
        errors = jnp.where(larger, clipped * (jnp.abs(moved) <= limit), errors)
        squares = jnp.maximum(squares, jnp.square(clipped))
    return errors * (coefficients.vf_coef / len(values)), 0.5 * squares
