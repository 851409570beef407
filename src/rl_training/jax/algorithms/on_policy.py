"""What the on-policy algorithms share: their state, acting, and the targets of a rollout.

The twin of `rl_training/algorithms/on_policy.py`; nothing here is specific to a loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.build_context import BuildContext
from rl_training.hparams.base import OnPolicyHparams
from rl_training.jax.models.actor_critic import ActorCritic, Seen, actor_critic
from rl_training.jax.models.backbones.memory import After, joined
from rl_training.jax.models.distributions import Parameters, distribution, renewed
from rl_training.jax.models.networks import Params, action_mask
from rl_training.jax.models.optimization import OptimizerState, build_optimizer, optimizer_step
from rl_training.jax.numerics.normalization import (
    RewardStatistics,
    Statistics,
    empty,
    normalized_obs,
    obs_statistics,
    observed,
    scaled_rewards,
    scales,
)
from rl_training.jax.numerics.returns import explained_variance, gae
from rl_training.jax.traced_hparams import scheduled
from rl_training.jax.types import Batch, Carry, Hyper, JaxAlgorithm, Metrics, Noise
from rl_training.numerics.gsde import first_draws

HYPER = ("learning_rate", "gamma", "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm", "adam_eps", "log_std_init")
"""Hyperparameters that are leaves of the state; all others are static."""


class State(NamedTuple):
    """State of an on-policy algorithm. `params` and `normalizer` make up its policy."""

    params: Params
    normalizer: dict[str, Statistics]
    optimizer: OptimizerState
    reward_normalizer: RewardStatistics | None
    hyper: Hyper


class Acting(NamedTuple):
    """The part of a state that acting needs."""

    params: Params
    scales: dict[str, Any]


class Rollout(NamedTuple):
    """A rollout in rows, with log-probabilities and values from before the update. A row is a transition or, for a
    network with memory, an environment with all its steps."""

    seen: Seen
    actions: Any
    logprobs: Any
    values: Any
    advantages: Any
    returns: Any


class Learner:
    """Static parts of one on-policy algorithm, which its pure functions close over."""

    def __init__(self, ctx: BuildContext, hp: OnPolicyHparams) -> None:
        self.ctx, self.hp = ctx, hp
        self.optimizer = build_optimizer(hp.optimizer)
        self.distribution = distribution(ctx.action_space, use_sde=hp.use_sde)
        space = ctx.observation_space
        self.network: ActorCritic = actor_critic(space, ctx.network, self.distribution, hp.critic_space(space))

    def algorithm(self, learn: Callable[[State, Batch, Any, Any], tuple[State, Metrics]]) -> JaxAlgorithm:
        """The algorithm as a record of functions around its own `learn`."""
        return JaxAlgorithm(
            rollout_length=self.hp.num_steps,
            replay=None,
            noise=Noise("normal", self.matrix) if self.distribution.state_dependent else self.distribution.noise,
            init=self.init,
            policy=lambda state, env_steps: Acting(state.params, scales(state.normalizer)),
            act=self.act,
            learn=learn,
            observe=lambda state, batch: state._replace(normalizer=observed(state.normalizer, batch["obs"])),
            initial_carry=self.initial_carry,
            head="actor_critic",
        )

    @property
    def matrix(self) -> tuple[int, int]:
        """Shape of the gSDE matrix that turns features into noise."""
        return self.network.features, self.distribution.size

    def initial_carry(self, num_envs: int) -> Carry:
        memory = self.network.initial_carry(num_envs)
        return {**memory, **first_draws(num_envs, *self.matrix)} if self.distribution.state_dependent else memory

    def init(self, rng: np.random.Generator, hyper: Hyper) -> State:
        params = self.network.init(rng, float(hyper["log_std_init"]))
        open_returns = np.zeros(self.ctx.num_envs, np.float32)
        rewards = RewardStatistics(empty(), open_returns) if self.ctx.normalize_reward else None
        observations = obs_statistics(self.ctx.observation_space) if self.ctx.normalize_obs else {}
        return State(params, observations, self.optimizer.init(params), rewards, hyper)

    def act(
        self, policy: Acting, obs: Any, carry: Any, is_first: Any, noise: Any, deterministic: bool
    ) -> tuple[Any, Any, dict[str, Any]]:
        seen = normalized_obs(policy.scales, obs)
        parameters, memory = self.network.action(policy.params, seen, carry, is_first)
        if self.distribution.state_dependent:
            kept = {name: carry[name] for name in ("draws", "age")}
            if not deterministic:
                kept = renewed(kept, is_first, noise, self.hp.sde_sample_freq)
            memory, noise = {**memory, **kept}, kept["draws"]
        # stored so that log-probabilities need no second pass through the network before the update
        extras = {"outputs": parameters.outputs}
        if self.distribution.state_dependent:
            extras["features"] = parameters.features
        return self.distribution.sample(parameters, noise, action_mask(obs), deterministic), memory, extras

    def prepare(self, state: State, batch: Batch) -> tuple[State, Rollout]:
        """Values, log-probabilities, advantages and returns of a rollout that the network of `state` collected."""
        rewards = batch["rewards"]
        if state.reward_normalizer is not None:
            ends, gamma = batch["terminated"] | batch["truncated"], state.hyper["gamma"]
            statistics, rewards = scaled_rewards(state.reward_normalizer, rewards, ends, gamma=gamma)
            state = state._replace(reward_normalizer=statistics)
        obs = normalized_obs(scales(state.normalizer), self.rows(batch["obs"]))
        seen = Seen(obs)
        if self.network.has_memory:
            seen = Seen(obs, self.rows(batch["is_first"]), batch["initial_carry"])
        values, after = self.network.traced_values(state.params, seen)
        value_grid = self.grid(values, rewards.shape)
        next_values = self.next_values(state, batch, seen, value_grid, after)
        advantages, returns = self.targets(state, batch, rewards, value_grid, next_values)
        actions, logprobs, advantages, returns = map(
            self.rows, (batch["actions"], self.logprobs(state, batch), advantages, returns)
        )
        return state, self.in_pieces(state, Rollout(seen, actions, logprobs, values, advantages, returns))

    def targets(self, state: State, batch: Batch, rewards: Any, values: Any, next_values: Any) -> tuple[Any, Any]:
        """Advantages and returns (T, N), from the values of the observations and of those that follow them."""
        terminated, hyper = batch["terminated"], state.hyper
        ends = terminated | batch["truncated"]
        discounts = {name: hyper[name] for name in ("gamma", "gae_lambda")}
        return gae(rewards, values, next_values, terminated, ends, **discounts)

    @property
    def pieces(self) -> int:
        """Into how many rows the steps of an environment are cut where the network has memory."""
        return self.hp.num_steps // (self.hp.sequence_length or self.hp.num_steps)

    def in_pieces(self, state: State, rollout: Rollout) -> Rollout:
        """With memory and `sequence_length`: rows of that many steps instead of whole rollouts, each with the carry
        that this network has there."""
        if not self.network.has_memory or self.pieces == 1:
            return rollout
        length = self.hp.num_steps // self.pieces
        carry = self.network.piece_carries(state.params, rollout.seen, length)
        cut: Rollout = jax.tree.map(
            lambda x: x.reshape(-1, length, *x.shape[2:]), rollout._replace(seen=rollout.seen._replace(carry=()))
        )
        return cut._replace(seen=cut.seen._replace(carry=carry))

    def logprobs(self, state: State, batch: Batch) -> Any:
        """Log-probabilities of the actions taken, (T, N)."""
        log_std = state.params["action_head"].get("log_std")
        parameters = Parameters(joined(batch["outputs"]), log_std, joined(batch.get("features")))
        mask = joined(action_mask(batch["obs"]))
        logprobs, _ = self.distribution.logprob_entropy(parameters, joined(batch["actions"]), mask)
        return logprobs.reshape(batch["rewards"].shape)

    def next_values(self, state: State, batch: Batch, seen: Seen, values: Any, after: After | None = None) -> Any:
        """Values of the true next observations, (T, N).

        Where the episode goes on it is the value of the next row; where it terminated the value is not used. Only the
        others need the network, which is asked for one step of all environments at a time. A memory that is one array
        answers for all rows at once instead, as in version 0.1.0.
        """
        by_key, params = scales(state.normalizer), state.params

        if self.network.has_memory and after is None:
            next_obs = normalized_obs(by_key, self.rows(batch["next_obs"]))
            return self.grid(self.network.next_values(params, seen, next_obs), values.shape)

        def asked(t: Any) -> Any:
            next_obs = normalized_obs(by_key, jax.tree.map(lambda x: x[t], batch["next_obs"]))
            if after is None:
                return self.network.next_values(params, seen, next_obs)
            return self.network.values_after(params, after(t), next_obs)

        unknown = batch["truncated"].at[-1].set(True)

        def ask(carried: tuple[Any, Any]) -> tuple[Any, Any]:
            steps, found = carried
            t = steps.argmax()
            return steps.at[t].set(False), found.at[t].set(jnp.where(unknown[t], asked(t), found[t]))

        following = jnp.concatenate([values[1:], values[-1:]])
        return jax.lax.while_loop(lambda carried: carried[0].any(), ask, (unknown.any(1), following))[1]

    def rows(self, tree: Any) -> Any:
        """Rows to shuffle and split, from (T, N, ...): transitions, or environments if the network has memory."""
        return jax.tree.map(lambda x: x.swapaxes(0, 1), tree) if self.network.has_memory else joined(tree)

    def grid(self, column: Any, shape: tuple[int, int]) -> Any:
        """One number per transition, from rows back to (T, N)."""
        return column.T if self.network.has_memory else column.reshape(shape)

    def step(
        self, params: Any, grads: Any, optimizer: OptimizerState, hyper: Hyper, learning_rate: Any
    ) -> tuple[Any, OptimizerState, Any]:
        """Clip the gradients and step: (parameters, optimiser state, gradient norm before clipping)."""
        return optimizer_step(params, grads, optimizer, hyper, learning_rate, self.optimizer)

    def scheduled(self, state: State, name: str, env_steps: Any) -> Any:
        """Current value of a hyperparameter that may be a schedule."""
        return scheduled(self.hp, name, state.hyper, env_steps)

    def rollout_metrics(self, state: State, rollout: Rollout, learning_rate: Any) -> Metrics:
        """Metrics of a rollout that do not depend on the loss."""
        metrics = {
            "learning_rate": learning_rate,
            "explained_variance": explained_variance(rollout.values, rollout.returns),
            "value_mean": rollout.values.mean(),
        }
        if self.distribution.has_log_std:
            metrics["action_std"] = jnp.exp(state.params["action_head"]["log_std"]).mean()
        return metrics
