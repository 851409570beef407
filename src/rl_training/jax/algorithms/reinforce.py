"""REINFORCE (Williams 1992) for the compiled lane: weight each action's log-probability by the return that followed it.

The twin of `rl_training/algorithms/reinforce.py`: one step on each rollout as a whole; with `gae_lambda: 1` the
advantage is exactly "return minus baseline". Hyperparameters are in `hparams/reinforce.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from rl_training.build_context import BuildContext
from rl_training.hparams.reinforce import SPEC, ReinforceConfig
from rl_training.jax.algorithms.on_policy import HYPER, Learner, Rollout, State
from rl_training.jax.types import Batch, JaxAlgorithm, Metrics
from rl_training.numerics.normalization import normalized

__all__ = ["HYPER", "SPEC", "ReinforceConfig", "policy_gradient_loss", "reinforce"]


def policy_gradient_loss(minibatch: Mapping[str, Any], *, ent_coef: Any, vf_coef: Any) -> Metrics:
    """-mean(logprob * advantage) + vf_coef * half the squared value error - ent_coef * entropy, on B rows."""
    policy_loss = -(minibatch["logprobs"] * minibatch["advantages"]).mean()
    value_loss = 0.5 * jnp.square(minibatch["new_values"] - minibatch["returns"]).mean()
    entropy_loss = -minibatch["entropy"].mean()
    return {
        "loss": policy_loss + vf_coef * value_loss + ent_coef * entropy_loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy_loss": entropy_loss,
    }


def reinforce(ctx: BuildContext, hp: ReinforceConfig) -> JaxAlgorithm:
    """One optimiser step per rollout along the Monte Carlo policy gradient."""
    learner = Learner(ctx, hp)

    def loss(params: Any, rollout: Rollout, ent_coef: Any, vf_coef: Any) -> tuple[Any, Metrics]:
        logprobs, entropy, new_values = learner.network.evaluate(params, rollout.seen, rollout.actions)
        weights = rollout.advantages if hp.baseline else rollout.returns
        minibatch = {
            "logprobs": logprobs,
            "advantages": normalized(weights) if hp.normalize_advantage else weights,
            "returns": rollout.returns,
            "new_values": new_values,
            "entropy": entropy,
        }
        losses = policy_gradient_loss(minibatch, ent_coef=ent_coef, vf_coef=vf_coef)
        return losses["loss"], losses

    def learn(state: State, batch: Batch, env_steps: Any, key: Any) -> tuple[State, Metrics]:
        state, rollout = learner.prepare(state, batch)
        learning_rate, ent_coef = (learner.scheduled(state, name, env_steps) for name in ("learning_rate", "ent_coef"))
        gradient = jax.grad(loss, has_aux=True)
        grads, losses = gradient(state.params, rollout, ent_coef, state.hyper["vf_coef"])
        params, optimizer, norm = learner.step(state.params, grads, state.optimizer, state.hyper, learning_rate)
        state = state._replace(params=params, optimizer=optimizer)
        return state, {**losses, "grad_norm": norm} | learner.rollout_metrics(state, rollout, learning_rate)

    return learner.algorithm(learn)
