"""Proximal Policy Optimisation (Schulman et al. 2017, arXiv:1707.06347) for the compiled lane, clipped surrogate.

The twin of `rl_training/algorithms/ppo.py`: the loss as a pure function, then the function that builds the algorithm
around it. Hyperparameters are in `hparams/ppo.py`; `kernels/ppo.py` holds a faster gradient of the same loss for MLPs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from rl_training.build_context import BuildContext
from rl_training.hparams.optimizer import ADAM
from rl_training.hparams.ppo import SPEC, PPOConfig
from rl_training.jax.algorithms.kernels.ppo import FastKernel, fits
from rl_training.jax.algorithms.on_policy import HYPER as ON_POLICY_HYPER
from rl_training.jax.algorithms.on_policy import Learner, Rollout, State
from rl_training.jax.models.networks import Params
from rl_training.jax.models.optimization import OptimizerState
from rl_training.jax.numerics.permutation import permutations
from rl_training.jax.types import Batch, Hyper, JaxAlgorithm, Metrics
from rl_training.numerics.normalization import normalized
from rl_training.types import ConfigError

__all__ = ["HYPER", "SPEC", "PPOConfig", "clipped", "ppo", "ppo_loss"]

HYPER = (*ON_POLICY_HYPER, "clip_coef", "clip_vf", "target_kl")
RECORDED = ("loss", "policy_loss", "value_loss", "entropy_loss", "approx_kl", "clip_fraction", "grad_norm")
"""Metrics of each minibatch step, stacked into one vector: separate columns would double the compile time."""


class Coefficients(NamedTuple):
    """Coefficients of `ppo_loss` at the current step."""

    clip_coef: Any
    ent_coef: Any
    vf_coef: Any
    clip_vf: Any


class Progress(NamedTuple):
    """State carried from one minibatch to the next."""

    params: Any
    optimizer: OptimizerState
    stopped: Any
    """The policy moved too far: the rest of the update changes nothing."""


class Kernel(Protocol):
    """How gradients are computed, and the layout of parameters and rows while they are."""

    def pack(self, params: Params) -> Any:
        """Parameters in the kernel's own layout."""

    def unpack(self, packed: Any) -> Params:
        """The inverse of `pack`."""

    def pack_moments(self, optimizer: OptimizerState) -> OptimizerState:
        """State of the optimiser in the layout of `pack`."""

    def unpack_moments(self, optimizer: OptimizerState) -> OptimizerState:
        """The inverse of `pack_moments`."""

    def rows(self, rollout: Rollout) -> Any:
        """A pytree whose leaves have a row per transition, to be shuffled and split."""

    def gradient(self, packed: Any, rows: Any, coefficients: Coefficients) -> tuple[Any, Metrics]:
        """Gradient of `ppo_loss` on some of these rows, and what `ppo_loss` returns."""


def ppo_loss(
    minibatch: Mapping[str, Any], *, clip_coef: Any, ent_coef: Any, vf_coef: Any, clip_vf: Any = None
) -> Metrics:
    """The PPO objective on a minibatch of B rows.

    `minibatch`: logprobs and new_values and entropy of the network being trained; old_logprobs and values of the one
    that acted; advantages (used as given) and returns. All (B,).

    loss = policy_loss + vf_coef * value_loss + ent_coef * entropy_loss
    """
    log_ratio = minibatch["logprobs"] - minibatch["old_logprobs"]
    ratio = jnp.exp(log_ratio)
    advantages = minibatch["advantages"]
    clipped_ratio = jnp.clip(ratio, 1.0 - clip_coef, 1.0 + clip_coef)
    policy_loss = -jnp.minimum(ratio * advantages, clipped_ratio * advantages).mean()

    errors = jnp.square(minibatch["new_values"] - minibatch["returns"])
    if clip_vf is not None:
        old_values = minibatch["values"]
        clipped_values = old_values + jnp.clip(minibatch["new_values"] - old_values, -clip_vf, clip_vf)
        errors = jnp.maximum(errors, jnp.square(clipped_values - minibatch["returns"]))
    value_loss = 0.5 * errors.mean()

    entropy_loss = -minibatch["entropy"].mean()
    return {
        "loss": policy_loss + vf_coef * value_loss + ent_coef * entropy_loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy_loss": entropy_loss,
        "approx_kl": (ratio - 1.0 - log_ratio).mean(),  # the k3 estimator: never negative, low variance
        "clip_fraction": (jnp.abs(ratio - 1.0) > clip_coef).mean(),
    }


class ReferenceKernel:
    """`ppo_loss` and automatic differentiation, in the layouts that the rest of the package uses."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.gradient = jax.grad(self.loss, has_aux=True)

    def pack(self, params: Params) -> Params:
        return params

    def unpack(self, packed: Params) -> Params:
        return packed

    def pack_moments(self, optimizer: OptimizerState) -> OptimizerState:
        return optimizer

    def unpack_moments(self, optimizer: OptimizerState) -> OptimizerState:
        return optimizer

    def rows(self, rollout: Rollout) -> Rollout:
        return rollout

    def loss(self, params: Params, rollout: Rollout, coefficients: Coefficients) -> tuple[Any, Metrics]:
        """`ppo_loss` on some rows of a rollout under the current network."""
        logprobs, entropy, new_values = self.learner.network.evaluate(params, rollout.seen, rollout.actions)
        advantages = rollout.advantages
        minibatch = {
            "logprobs": logprobs,
            "old_logprobs": rollout.logprobs,
            "advantages": normalized(advantages) if self.learner.hp.normalize_advantage else advantages,
            "returns": rollout.returns,
            "values": rollout.values,
            "new_values": new_values,
            "entropy": entropy,
        }
        losses = ppo_loss(minibatch, **coefficients._asdict())
        return losses["loss"], losses


def ppo(ctx: BuildContext, hp: PPOConfig) -> JaxAlgorithm:
    """Several epochs of minibatch steps on each rollout, stopped early if the policy moved too far."""
    return clipped(Learner(ctx, hp), hp)


def clipped(learner: Learner, hp: PPOConfig) -> JaxAlgorithm:
    """PPO on what `learner` makes of a rollout."""
    ctx = learner.ctx
    row_count = ctx.num_envs * (learner.pieces if learner.network.has_memory else hp.num_steps)
    if row_count % hp.num_minibatches:
        made_of = "num_steps x num_envs"
        if learner.network.has_memory:
            made_of = "num_envs, since the network has memory"
            made_of += f", times the {learner.pieces} pieces of sequence_length" if learner.pieces > 1 else ""
        raise ConfigError(
            f"hparams.num_minibatches {hp.num_minibatches} does not divide the {row_count} rows of a rollout "
            f"({made_of}); backend jax needs minibatches of one size"
        )
    if hp.grad_accumulation > 1:
        raise ConfigError("hparams.grad_accumulation is not available with backend: jax; take fewer minibatches")
    if hp.has_intrinsic_value:
        raise ConfigError("hparams.exploration is not available with backend: jax; use backend: torch")
    # the fast kernel lays Adam's moments out as it does the parameters
    fast = hp.kernel == "auto" and hp.optimizer.type == ADAM and fits(learner)
    kernel: Kernel = FastKernel(learner) if fast else ReferenceKernel(learner)

    def learn(state: State, batch: Batch, env_steps: Any, key: Any) -> tuple[State, Metrics]:
        state, rollout = learner.prepare(state, batch)
        names = ("learning_rate", "clip_coef", "ent_coef")
        learning_rate, clip_coef, ent_coef = (learner.scheduled(state, name, env_steps) for name in names)
        hyper = state.hyper
        coefficients = Coefficients(clip_coef, ent_coef, hyper["vf_coef"], hyper.get("clip_vf"))

        rows = kernel.rows(rollout)

        def minibatch_step(progress: Progress, order: Any) -> tuple[Progress, Any]:
            minibatch = jax.tree.map(lambda x: x[order], rows)
            grads, losses = kernel.gradient(progress.params, minibatch, coefficients)
            params, optimizer, norm = learner.step(progress.params, grads, progress.optimizer, hyper, learning_rate)
            following = Progress(params, optimizer, progress.stopped)
            return stop_early(progress, following, losses | {"grad_norm": norm}, hyper)

        begin = Progress(kernel.pack(state.params), kernel.pack_moments(state.optimizer), jnp.zeros((), bool))
        orders = permutations(key, hp.num_epochs, row_count).reshape(hp.num_epochs * hp.num_minibatches, -1)
        progress, records = jax.lax.scan(minibatch_step, begin, orders)
        optimizer = kernel.unpack_moments(progress.optimizer)
        state = state._replace(params=kernel.unpack(progress.params), optimizer=optimizer)
        metrics = summary(records, hp.num_epochs) | {"clip_coef": clip_coef}
        return state, metrics | learner.rollout_metrics(state, rollout, learning_rate)

    return learner.algorithm(learn)


def stop_early(before: Progress, after: Progress, losses: Metrics, hyper: Hyper) -> tuple[Progress, Any]:
    """Undo this and every later step once the policy has moved too far; without `target_kl` every step counts.

    Also returns the metrics of the step, in the order of RECORDED.
    """
    taken = jnp.ones(())
    if "target_kl" in hyper:
        # a non-finite loss is for the guard to report, not a reason to end the update early as if all were well
        too_far = (losses["approx_kl"] > 1.5 * hyper["target_kl"]) & jnp.isfinite(losses["loss"])
        stopped = before.stopped | (too_far & jnp.isfinite(losses["approx_kl"]))
        kept: Progress = jax.tree.map(lambda old, new: jnp.where(stopped, old, new), before, after)
        after, taken = kept._replace(stopped=stopped), 1.0 - stopped
    return after, jnp.stack([*(losses[name] for name in RECORDED), taken])


def summary(records: Any, epochs: int) -> Metrics:
    """Means over the steps that were taken, and how many epochs were begun, of records (epochs * minibatches, ...)."""
    taken = records[:, -1:]
    means = jnp.where(taken > 0.0, records, 0.0).sum(0) / jnp.maximum(taken.sum(), 1.0)
    ran_to_end = taken.reshape(epochs, -1)[:-1, -1]  # which is when another one begins
    return dict(zip(RECORDED, means[:-1], strict=True)) | {"epochs": 1.0 + ran_to_end.sum()}
