"""What the algorithms that learn from replay share: their state, batches, one optimiser step, lagging copies.

The twin of `rl_training/algorithms/off_policy.py`; nothing here is specific to a loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.build_context import BuildContext
from rl_training.hparams.off_policy import OffPolicyHparams, block_steps
from rl_training.jax.models.networks import Params
from rl_training.jax.models.optimization import OptimizerState, build_optimizer, optimizer_step
from rl_training.jax.numerics.normalization import (
    RewardStatistics,
    Statistics,
    empty,
    inverse_std,
    normalized_obs,
    obs_statistics,
    observed,
    scaled_rewards,
    scales,
)
from rl_training.jax.traced_hparams import scheduled
from rl_training.jax.types import Batch, Hyper, JaxAlgorithm, Metrics, Noise
from rl_training.numerics.normalization import CLIP

HYPER = ("learning_rate", "gamma", "max_grad_norm", "adam_eps")
"""Hyperparameters that are leaves of the state; all others are static."""


Networks = dict[str, Params]


class State(NamedTuple):
    """State of an off-policy algorithm. `params` and `normalizer` make up its policy."""

    params: Params
    normalizer: dict[str, Statistics]
    networks: Networks
    """Other networks that are trained, by name."""
    targets: Networks
    """Lagging copies, by the name of what they follow."""
    optimizer: dict[str, OptimizerState]
    reward_normalizer: RewardStatistics | None
    updates: Any
    """Number of updates so far, in 32 bits; see `one_more`."""
    hyper: Hyper


class Acting(NamedTuple):
    """The part of a state that acting needs."""

    params: Params
    scales: dict[str, Any]
    exploration: Any
    """The share of random actions, or the size of the noise."""
    is_warmup: Any
    """True before learning starts: act at random."""


class Transitions(NamedTuple):
    """A batch of B rows, observations normalised."""

    obs: Any
    actions: Any
    rewards: Any
    next_obs: Any
    terminated: Any
    """1 where the episode terminated, so that nothing follows; 0 elsewhere."""
    discounts: Any
    """gamma to the number of steps that the rewards span."""
    next_actions: Any = None
    """What was done in the next observations, for algorithms that learn from datasets and ask for it."""
    next_known: Any = None
    """1 where `next_actions` is known; 0 at the end of an episode and in steps of the run itself."""
    floors: Any = None
    """Lower bounds of the return from each row on; -inf where nothing is known."""


def td_targets(rewards: Any, discounts: Any, terminated: Any, next_values: Any) -> Any:
    """r + discount * V(next); V(next) counts as 0 where the episode terminated, but not where it was truncated."""
    return rewards + discounts * (1.0 - terminated) * next_values


def critic_loss(values: Any, targets: Any) -> Any:
    """Half the squared errors of E critics (E, B), summed over critics, averaged over the batch."""
    return (0.5 * jnp.square(values - targets).sum(0)).mean()


def following(target: Params, source: Params, tau: Any) -> Params:
    """target + tau (source - target), exact for tau = 1 (a copy) and for tau = 0 (no change)."""

    def follow(old: Any, new: Any) -> Any:
        return jnp.where(tau < 0.5, old + tau * (new - old), new - (new - old) * (1.0 - tau))

    moved: Params = jax.tree.map(follow, target, source)
    return moved


def one_more(updates: Any, period: int) -> Any:
    """Number of the next update. Before 32 bits overflow it wraps at a multiple of `period`, so that whatever happens
    every `period` updates stays on time."""
    last = np.uint32((2**32 - 1) // period * period)
    return jnp.where(updates == last, np.uint32(0), updates) + np.uint32(1)


def uniform_of(normal: Any) -> Any:
    """Uniform numbers in -1..1 from standard normal ones: actors draw only one kind of noise."""
    if isinstance(normal, np.ndarray):
        return np.vectorize(math.erf, otypes=[np.float32])(normal * math.sqrt(0.5))
    return jax.lax.erf(normal * math.sqrt(0.5))


class Learner:
    """Static parts of one off-policy algorithm, which its pure functions close over."""

    def __init__(self, ctx: BuildContext, hp: OffPolicyHparams) -> None:
        self.ctx, self.hp = ctx, hp
        self.optimizer = build_optimizer(hp.optimizer)

    def algorithm(
        self,
        noise: Noise,
        init: Callable[[np.random.Generator, Hyper], State],
        act: Callable[..., Any],
        learn: Callable[[State, Batch, Any, Any], tuple[State, Metrics]],
        *,
        exploration: Callable[[Hyper, Any], Any] = lambda hyper, env_steps: jnp.zeros(()),
        unit_actions: bool = False,
        updates_per_learn: int = 1,
    ) -> JaxAlgorithm:
        """The algorithm as a record of functions."""

        def policy(state: State, env_steps: Any) -> Acting:
            is_warmup = env_steps < self.hp.replay.learning_starts
            return Acting(state.params, scales(state.normalizer), exploration(state.hyper, env_steps), is_warmup)

        return JaxAlgorithm(
            rollout_length=block_steps(self.ctx.num_envs),
            replay=self.hp.replay,
            noise=noise,
            init=init,
            policy=policy,
            act=act,
            learn=learn,
            observe=self.observe,
            initial_carry=lambda num_envs: {},
            unit_actions=unit_actions,
            updates_per_learn=updates_per_learn,
        )

    def state(self, params: Params, hyper: Hyper, *, networks: Networks, targets: Networks, trained: Networks) -> State:
        """The initial state; `trained` are the networks with an optimiser."""
        ctx = self.ctx
        rewards = RewardStatistics(empty(), np.zeros(ctx.num_envs, np.float32)) if ctx.normalize_reward else None
        return State(
            params,
            obs_statistics(ctx.observation_space) if ctx.normalize_obs else {},
            networks,
            jax.tree.map(np.copy, targets),
            {name: self.optimizer.init(network) for name, network in trained.items()},
            rewards,
            np.uint32(0),
            hyper,
        )

    def prepare(self, state: State, batch: Batch) -> Transitions:
        """A batch as floats, normalised by the current statistics."""
        by_key, rewards = scales(state.normalizer), batch["rewards"]
        if state.reward_normalizer is not None:
            rewards = jnp.clip(rewards * inverse_std(state.reward_normalizer.statistics), -CLIP, CLIP)
        discounts = batch.get("discounts")
        return Transitions(
            normalized_obs(by_key, batch["obs"]),
            batch["actions"],
            rewards,
            normalized_obs(by_key, batch["next_obs"]),
            batch["terminated"].astype(jnp.float32),
            jnp.broadcast_to(state.hyper["gamma"], rewards.shape) if discounts is None else discounts,
            batch.get("next_actions"),
            batch["next_known"].astype(jnp.float32) if "next_known" in batch else None,
            batch.get("returns_to_go"),
        )

    def observe(self, state: State, batch: Batch) -> State:
        """Move the statistics by the steps of a block."""
        state = state._replace(normalizer=observed(state.normalizer, batch["obs"]))
        if state.reward_normalizer is None:
            return state
        ends = batch["terminated"] | batch["truncated"]
        statistics, _ = scaled_rewards(state.reward_normalizer, batch["rewards"], ends, gamma=state.hyper["gamma"])
        return state._replace(reward_normalizer=statistics)

    def step(
        self, params: Any, grads: Any, optimizer: OptimizerState, hyper: Hyper, learning_rate: Any
    ) -> tuple[Any, OptimizerState, Any]:
        """Clip the gradients and step: (parameters, optimiser state, gradient norm before clipping)."""
        return optimizer_step(params, grads, optimizer, hyper, learning_rate, self.optimizer)

    def learning_rate(self, state: State, env_steps: Any) -> Any:
        return scheduled(self.hp, "learning_rate", state.hyper, env_steps)
