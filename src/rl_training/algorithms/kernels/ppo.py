"""PPO's gradient in closed form: the numbers of autograd through `ppo_loss`, three times faster for small networks.

The network's two passes are in `kernels/mlp.py`; here is the gradient of the loss between them. `ppo_loss` stays the
reference: a test holds this file to it, and `hparams.kernel: reference` uses it.

It fits two separate tanh or ReLU MLPs with a categorical or Gaussian head on the CPU; everything else takes the
reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from torch import nn

from rl_training.algorithms.kernels.mlp import backward, encode, forward, is_plain, layers_of, mean
from rl_training.algorithms.ppo import PPO, Coefficients
from rl_training.algorithms.rollout import Rollout
from rl_training.models.backbones.mlp import MLP
from rl_training.models.heads import CategoricalHead, GaussianHead, ValueHead
from rl_training.models.networks import ActorCritic
from rl_training.numerics.stable import HALF_LOG_2PI
from rl_training.types import ACTION_MASK, Array, DictSpec


class Rows(NamedTuple):
    """A minibatch as arrays of B rows; `old_logprobs` and `values` are those of the policy that acted."""

    actions: Array
    old_logprobs: Array
    advantages: Array
    returns: Array
    values: Array


class HeadGradient(NamedTuple):
    """Losses of the policy, and the gradient of the total with respect to the outputs of the head."""

    losses: dict[str, float]
    """policy_loss, entropy_loss, approx_kl, clip_fraction"""
    outputs: Array
    """(B, A) with respect to logits or means."""
    log_std: Array | None = None
    """(A,) with respect to the log standard deviations of a Gaussian."""


def fits(ppo: PPO) -> bool:
    """True if this kernel computes what the network of `ppo` computes, and no gradients are accumulated."""
    network, observation_space = ppo.network, ppo.ctx.observation_space
    masked = isinstance(observation_space, DictSpec) and ACTION_MASK in observation_space.spaces
    separate = network.actor is not network.critic and all(map(is_plain, (network.actor, network.critic)))
    head = type(network.action_head) in (CategoricalHead, GaussianHead) and type(network.value_head) is ValueHead
    outputs = (cast(nn.Module, network.action_head.output), network.value_head.output)
    on_cpu = all(parameter.device.type == "cpu" for parameter in network.parameters())
    plain = type(network) is ActorCritic and all(type(output) is nn.Linear for output in outputs)
    return ppo.hp.grad_accumulation == 1 and plain and separate and head and on_cpu and not masked


class FastKernel:
    """Loss and gradient of a minibatch for one network; see `kernel_choice.Kernel`."""

    def __init__(self, ppo: PPO) -> None:
        network = ppo.network
        assert isinstance(network.actor, MLP)
        assert isinstance(network.critic, MLP)
        self.backbone, self.critic_backbone = network.actor, network.critic
        self.same_inputs = network.actor.leaves.keys() == network.critic.leaves.keys()
        self.normalize_advantage = ppo.hp.normalize_advantage
        self.actor = layers_of(network.actor, cast(nn.Module, network.action_head.output))
        self.critic = layers_of(network.critic, network.value_head.output)
        self.log_std: Array | None = None
        if isinstance(network.action_head, GaussianHead):
            assert network.action_head.log_std.grad is not None
            self.log_std = network.action_head.log_std.detach().numpy()
            self.log_std_grad = network.action_head.log_std.grad.numpy()

    @np.errstate(all="ignore")  # the guard reports non-finite values, and names the tensor
    def gradient(self, name: str, loss: Callable[..., Any], minibatch: Rollout, coefficients: Coefficients) -> Any:
        """Write the gradient of `ppo_loss` into the parameters' gradients; returns what `ppo_loss` returns."""
        features = encode(self.backbone, minibatch.obs)
        advantages = minibatch.advantages.numpy()
        rows = Rows(
            minibatch.actions.numpy(),
            minibatch.logprobs.numpy(),
            normalized(advantages) if self.normalize_advantage else advantages,
            minibatch.returns.numpy(),
            minibatch.values.numpy(),
        )
        critic_features = features if self.same_inputs else encode(self.critic_backbone, minibatch.obs)
        actor, critic = forward(self.actor, features), forward(self.critic, critic_features)
        if self.log_std is None:
            head = categorical_gradient(actor[-1], rows, coefficients)
        else:
            head = gaussian_gradient(actor[-1], self.log_std, rows, coefficients)
            self.log_std_grad[:] = head.log_std
        value_loss, value_grad = value_gradient(critic[-1][:, 0], rows, coefficients)
        backward(self.actor, actor, head.outputs)
        backward(self.critic, critic, value_grad[:, None])
        policy_loss, entropy_loss = head.losses["policy_loss"], head.losses["entropy_loss"]
        total = policy_loss + coefficients.vf_coef * value_loss + coefficients.ent_coef * entropy_loss
        return {"loss": total, "value_loss": value_loss, **head.losses}


# -- the loss ---------------------------------------------------------------------------------------------------------


def surrogate(logprobs: Array, rows: Rows, clip_coef: float) -> tuple[Array, dict[str, float]]:
    """(d policy_loss / d logprobs (B,), policy_loss, approx_kl and clip_fraction)."""
    advantages = rows.advantages
    log_ratio = logprobs - rows.old_logprobs
    ratio = np.exp(log_ratio)
    moved = ratio - 1.0
    # not 1 + clip(moved): rounding would take rows inside the range for clipped ones where clip_coef exceeds 0.5
    bounded = np.minimum(np.maximum(ratio, 1.0 - clip_coef), 1.0 + clip_coef)
    plain, clipped = ratio * advantages, bounded * advantages
    # the gradient flows where the plain term is the smaller one; its derivative by the log-probability is itself
    flows = (plain < clipped) | (bounded == ratio)
    gradient = np.where(flows, plain, 0.0 * ratio)  # NaN for a ratio that overflowed, as in autograd
    ties = (plain == clipped) & ~flows
    if np.count_nonzero(ties):  # torch.min gives each of two equal terms half of the gradient
        gradient[ties] = 0.5 * plain[ties]
    gradient *= np.float32(-1.0 / len(ratio))
    losses = {
        "policy_loss": -mean(np.minimum(plain, clipped)),
        "approx_kl": mean(moved - log_ratio),
        "clip_fraction": int(np.count_nonzero(np.abs(moved) > clip_coef)) / len(ratio),
    }
    return gradient, losses


def categorical_gradient(logits: Array, rows: Rows, coefficients: Coefficients) -> HeadGradient:
    """Loss and gradient of a categorical policy. Inside, actions run along the first axis: long rows are fast."""
    chosen = (rows.actions, np.arange(len(logits)))
    log_probabilities = log_softmax(np.ascontiguousarray(logits.T))  # (A, B)
    probabilities = np.exp(log_probabilities)
    by_logprob, losses = surrogate(log_probabilities[chosen], rows, coefficients.clip_coef)
    entropy = -np.add.reduce(probabilities * log_probabilities, axis=0)
    outputs = probabilities * -by_logprob  # d logprob[a] / d logits = onehot(a) - p
    outputs[chosen] += by_logprob
    if coefficients.ent_coef:
        scale = np.float32(coefficients.ent_coef / len(logits))  # d entropy / d logits = -p (log p + entropy)
        outputs += scale * probabilities * (log_probabilities + entropy)
    return HeadGradient({**losses, "entropy_loss": -mean(entropy)}, np.ascontiguousarray(outputs.T))


def gaussian_gradient(means: Array, log_std: Array, rows: Rows, coefficients: Coefficients) -> HeadGradient:
    """Loss and gradient of a diagonal Gaussian policy."""
    inverse_std = np.exp(-log_std)
    standardized = (rows.actions.reshape(means.shape) - means) * inverse_std
    squares = standardized * standardized
    logprobs = (-0.5 * squares - log_std - np.float32(HALF_LOG_2PI)).sum(axis=1)
    by_logprob, losses = surrogate(logprobs, rows, coefficients.clip_coef)
    entropy = float((log_std + 0.5 + HALF_LOG_2PI).sum())
    outputs = by_logprob[:, None] * standardized * inverse_std
    by_log_std = by_logprob @ (squares - 1.0) - np.float32(coefficients.ent_coef)
    return HeadGradient({**losses, "entropy_loss": -entropy}, outputs, by_log_std)


def value_gradient(values: Array, rows: Rows, coefficients: Coefficients) -> tuple[float, Array]:
    """(value_loss, gradient of the total with respect to the values (B,))."""
    returns, limit = rows.returns, coefficients.clip_vf
    errors = values - returns
    squares = errors * errors
    if limit is not None:
        moved = values - rows.values
        clipped = rows.values + np.minimum(np.maximum(moved, -limit), limit) - returns
        # where the clipped error is the larger one, the value moves only if it is still inside the bounds
        clipped_squares = clipped * clipped
        moves = clipped * (np.abs(moved) <= limit)
        by_value = np.where(clipped_squares > squares, moves, errors)
        ties = clipped_squares == squares
        if np.count_nonzero(ties):  # torch.max gives each of two equal terms half of the gradient
            by_value[ties] = 0.5 * (moves[ties] + errors[ties])
        errors, squares = by_value, np.maximum(squares, clipped_squares)
    return 0.5 * mean(squares), errors * np.float32(coefficients.vf_coef / len(values))


def normalized(advantages: Array) -> Array:
    """Mean 0 and unbiased standard deviation 1; a single row passes unchanged."""
    if len(advantages) < 2:
        return advantages
    centred = advantages - np.float32(mean(advantages))
    squares = float(np.dot(centred, centred))
    if not math.isfinite(squares):  # squares of numbers beyond 1e19 need float64
        squares = float(np.square(centred, dtype=np.float64).sum())
    std = math.sqrt(squares / (len(centred) - 1))
    return centred * np.float32(1.0 / (std + 1e-8))


def log_softmax(logits: Array) -> Array:
    """Log-probabilities (A, B) from logits (A, B)."""
    shifted = logits - np.maximum.reduce(logits, axis=0)
    shifted -= np.log(np.add.reduce(np.exp(shifted), axis=0))
    return cast(Array, shifted)
