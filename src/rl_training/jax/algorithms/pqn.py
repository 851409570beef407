"""Parallelised Q-learning (Gallici et al. 2024, arXiv:2407.04811): Q(lambda) on the rollouts of many environments.

No replay: every rollout is used for a few epochs and forgotten. No target network: layer normalisation keeps the
bootstrapped targets stable. The loss as a pure function, then the algorithm. Hyperparameters are in `hparams/pqn.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.build_context import BuildContext
from rl_training.config.networks import refuse_critic_only
from rl_training.hparams.pqn import SPEC, PQNConfig
from rl_training.jax.algorithms.dqn import epsilon_at, epsilon_greedy, of_actions
from rl_training.jax.algorithms.on_policy import State
from rl_training.jax.models.action_values import action_values
from rl_training.jax.models.backbones.memory import joined
from rl_training.jax.models.distributions import masked
from rl_training.jax.models.networks import Params, action_mask
from rl_training.jax.models.optimization import OptimizerState, build_optimizer, optimizer_step
from rl_training.jax.numerics.normalization import (
    RewardStatistics,
    empty,
    normalized_obs,
    obs_statistics,
    observed,
    scaled_rewards,
    scales,
)
from rl_training.jax.numerics.permutation import permutations
from rl_training.jax.numerics.returns import lambda_return
from rl_training.jax.traced_hparams import scheduled
from rl_training.jax.types import Batch, Hyper, JaxAlgorithm, Metrics, Noise
from rl_training.types import ConfigError, DiscreteSpec

__all__ = ["HYPER", "SPEC", "PQNConfig", "ParallelQ", "pqn", "pqn_loss", "record_of"]

HYPER = (
    "learning_rate", "gamma", "q_lambda", "epsilon_start", "epsilon_end", "epsilon_steps", "max_grad_norm", "adam_eps"
)  # fmt: skip


def pqn_loss(values: Any, targets: Any) -> Metrics:
    """Half the squared errors of the values (B,) of the actions taken."""
    errors = values - targets
    loss = 0.5 * jnp.square(errors).mean()
    return {"loss": loss, "value_mean": values.mean(), "td_error": jnp.abs(errors).mean()}


class Acting(NamedTuple):
    """The part of a state that acting needs."""

    params: Params
    scales: dict[str, Any]
    epsilon: Any


class Rows(NamedTuple):
    """A rollout, flat (B, ...)."""

    obs: Any
    actions: Any
    targets: Any


class ParallelQ:
    """Static parts of the algorithm, which its pure functions close over."""

    name = "pqn"

    def __init__(self, ctx: BuildContext, hp: PQNConfig) -> None:
        self.ctx, self.hp = ctx, hp
        self.optimizer = build_optimizer(hp.optimizer)
        self.batch_size = hp.num_steps * self.learning_units
        if self.batch_size % hp.num_minibatches:
            raise ConfigError(
                f"hparams.num_minibatches {hp.num_minibatches} does not divide the {self.batch_size} rows of a rollout "
                "(num_steps x num_envs); choose one that does"
            )
        refuse_critic_only(ctx.observation_space, ctx.network, self.name)
        self.q = action_values(ctx.observation_space, cast(DiscreteSpec, ctx.action_space).n, ctx.network.critic)

    @property
    def learning_units(self) -> int:
        """How many values are learnt at each step: here one for each environment."""
        return self.ctx.num_envs

    def init(self, rng: np.random.Generator, hyper: Hyper) -> State:
        params, ctx = self.q.init(rng), self.ctx
        rewards = RewardStatistics(empty(), np.zeros(ctx.num_envs, np.float32)) if ctx.normalize_reward else None
        observations = obs_statistics(ctx.observation_space) if ctx.normalize_obs else {}
        return State(params, observations, self.optimizer.init(params), rewards, hyper)

    def act(
        self, policy: Acting, obs: Any, carry: Any, is_first: Any, noise: Any, deterministic: bool
    ) -> tuple[Any, Any, dict[str, Any]]:
        values, mask = self.q.apply(policy.params, normalized_obs(policy.scales, obs)), action_mask(obs)
        if deterministic:
            return masked(values, mask).argmax(1), carry, {}
        return epsilon_greedy(values, noise, mask, policy.epsilon), carry, {}

    def prepare(self, state: State, batch: Batch) -> tuple[State, Rows]:
        """Greedy Q(lambda) targets from the network as it is before the update."""
        state, rewards = self.rewards(state, batch)
        by_key = scales(state.normalizer)
        obs, next_obs = (normalized_obs(by_key, joined(batch[name])) for name in ("obs", "next_obs"))
        next_values = masked(self.q.apply(state.params, next_obs), action_mask(next_obs)).max(1)
        targets = self.targets(state, batch, rewards, next_values.reshape(rewards.shape))
        return state, Rows(obs, joined(batch["actions"]), targets.reshape(-1))

    def rewards(self, state: State, batch: Batch) -> tuple[State, Any]:
        """The rewards (T, N), scaled where the config asks for it."""
        if state.reward_normalizer is None:
            return state, batch["rewards"]
        ends, gamma = batch["terminated"] | batch["truncated"], state.hyper["gamma"]
        statistics, rewards = scaled_rewards(state.reward_normalizer, batch["rewards"], ends, gamma=gamma)
        return state._replace(reward_normalizer=statistics), rewards

    def targets(self, state: State, batch: Batch, rewards: Any, next_values: Any) -> Any:
        """Targets (T, N) from rewards and greedy values of the next observations."""
        terminated, hyper = batch["terminated"], state.hyper
        ends = terminated | batch["truncated"]
        factors = {"gamma": hyper["gamma"], "gae_lambda": hyper["q_lambda"]}
        return lambda_return(rewards, next_values, terminated, ends, **factors)

    def loss(self, params: Params, rows: Rows) -> tuple[Any, Metrics]:
        metrics = pqn_loss(of_actions(self.q.apply(params, rows.obs), rows.actions), rows.targets)
        return metrics["loss"], metrics

    def learn(self, state: State, batch: Batch, env_steps: Any, key: Any) -> tuple[State, Metrics]:
        state, rows = self.prepare(state, batch)
        hyper, parts = state.hyper, self.hp.num_minibatches
        learning_rate = scheduled(self.hp, "learning_rate", hyper, env_steps)

        def epoch(progress: tuple[Params, OptimizerState], order: Any) -> tuple[Any, Metrics]:
            minibatches = jax.tree.map(lambda x: x[order].reshape(parts, -1, *x.shape[1:]), rows)
            return jax.lax.scan(minibatch_step, progress, minibatches)

        def minibatch_step(progress: tuple[Params, OptimizerState], minibatch: Rows) -> tuple[Any, Metrics]:
            params, optimizer = progress
            grads, metrics = jax.grad(self.loss, has_aux=True)(params, minibatch)
            params, optimizer, norm = optimizer_step(params, grads, optimizer, hyper, learning_rate, self.optimizer)
            return (params, optimizer), {**metrics, "grad_norm": norm}

        orders = permutations(key, self.hp.num_epochs, self.batch_size)
        (params, optimizer), records = jax.lax.scan(epoch, (state.params, state.optimizer), orders)
        metrics = {name: column.mean() for name, column in records.items()}
        metrics |= {"epsilon": epsilon_at(hyper, env_steps), "learning_rate": learning_rate}
        return state._replace(params=params, optimizer=optimizer), metrics


def pqn(ctx: BuildContext, hp: PQNConfig) -> JaxAlgorithm:
    """Q(lambda) with several epochs of minibatch steps on each rollout."""
    return record_of(ParallelQ(ctx, hp))


def record_of(parts: ParallelQ) -> JaxAlgorithm:
    """The algorithm as a record of functions."""
    return JaxAlgorithm(
        rollout_length=parts.hp.num_steps,
        replay=None,
        noise=Noise("uniform", (2,)),
        init=parts.init,
        policy=lambda state, env_steps: Acting(
            state.params, scales(state.normalizer), epsilon_at(state.hyper, env_steps)
        ),
        act=parts.act,
        learn=parts.learn,
        observe=lambda state, batch: state._replace(normalizer=observed(state.normalizer, batch["obs"])),
        initial_carry=lambda num_envs: {},
        head="values",
    )
