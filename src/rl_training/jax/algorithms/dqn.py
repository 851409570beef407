"""Deep Q-learning (Mnih et al. 2015, doi:10.1038/nature14236) for JAX: double, dueling and n-step as options.

The twin of `rl_training/algorithms/dqn.py`, without its distributions, noisy layers and priorities. Targets and loss as
pure functions, then the algorithm. Hyperparameters are in `hparams/dqn.py`.
"""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.build_context import BuildContext
from rl_training.config.networks import refuse_critic_only
from rl_training.hparams.dqn import SPEC, DQNConfig
from rl_training.jax.algorithms.off_policy import HYPER as OFF_POLICY_HYPER
from rl_training.jax.algorithms.off_policy import Acting, Learner, State, Transitions, following, one_more, td_targets
from rl_training.jax.models.action_values import action_values
from rl_training.jax.models.distributions import masked
from rl_training.jax.models.networks import Params, action_mask, library
from rl_training.jax.numerics.normalization import normalized_obs
from rl_training.jax.types import Batch, Hyper, JaxAlgorithm, Metrics, Noise
from rl_training.types import ConfigError, DiscreteSpec

__all__ = ["HYPER", "SPEC", "DQNConfig", "dqn", "dqn_loss", "huber"]

HYPER = (*OFF_POLICY_HYPER, "tau", "epsilon_start", "epsilon_end", "epsilon_steps")


def huber(errors: Any) -> Any:
    """Half the square up to 1, linear beyond: 2 gives 1.5, 0.5 gives 0.125."""
    size = jnp.abs(errors)
    return jnp.where(size < 1.0, 0.5 * jnp.square(errors), size - 0.5)


def dqn_loss(values: Any, targets: Any) -> tuple[Any, Any]:
    """(losses (B,), magnitudes of the errors (B,)) of the values of the actions taken."""
    errors = values - targets
    return huber(errors), jnp.abs(errors)


def of_actions(values: Any, actions: Any) -> Any:
    """Select the values of the given actions: (B, A) and (B,) to (B,)."""
    return jnp.take_along_axis(values, actions[:, None].astype(jnp.int32), axis=1)[:, 0]


def epsilon_at(hyper: Hyper, env_steps: Any) -> Any:
    """Share of random actions: a function of env steps, whatever the number of environments."""
    fraction = jnp.minimum(env_steps / hyper["epsilon_steps"], 1.0)
    return hyper["epsilon_start"] + (hyper["epsilon_end"] - hyper["epsilon_start"]) * fraction


def epsilon_greedy(values: Any, noise: Any, mask: Any, epsilon: Any) -> Any:
    """The greedy action (N,), or with probability epsilon a random allowed one; `noise` (N, 2) is uniform."""
    xp, size = library(values), values.shape[1]
    best = masked(values, mask).argmax(1)
    allowed = xp.ones_like(values) if mask is None else (xp.asarray(mask) > 0).astype(np.float32)
    counts = allowed.cumsum(1)
    chosen = xp.ceil(noise[:, 1:] * counts[:, -1:])  # rank among the allowed actions, from 1
    any_of_them = xp.minimum((counts < chosen).sum(1), size - 1)
    return xp.where(noise[:, 0] < epsilon, any_of_them, best)


class DeepQ(Learner):
    """Q-learning with a lagging target network."""

    hp: DQNConfig

    def __init__(self, ctx: BuildContext, hp: DQNConfig) -> None:
        super().__init__(ctx, hp)
        refused = {"distribution": hp.distribution != "none", "noisy": hp.noisy, "prioritized": hp.prioritized}
        for name in (name for name, is_set in refused.items() if is_set):
            raise ConfigError(f"hparams.{name} is not available with backend: jax; use backend: torch")
        refuse_critic_only(ctx.observation_space, ctx.network, "dqn")
        space = cast(DiscreteSpec, ctx.action_space)
        self.q = action_values(ctx.observation_space, space.n, ctx.network.critic, dueling=hp.dueling)

    def init(self, rng: np.random.Generator, hyper: Hyper) -> State:
        params = self.q.init(rng)
        return self.state(params, hyper, networks={}, targets={"q": params}, trained={"q": params})

    def act(
        self, policy: Acting, obs: Any, carry: Any, is_first: Any, noise: Any, deterministic: bool
    ) -> tuple[Any, Any, dict[str, Any]]:
        values = self.q.apply(policy.params, normalized_obs(policy.scales, obs))
        if deterministic:
            return masked(values, action_mask(obs)).argmax(1), carry, {}
        epsilon = library(values).where(policy.is_warmup, 1.0, policy.exploration)
        return epsilon_greedy(values, noise, action_mask(obs), epsilon), carry, {}

    def targets_of(self, state: State, rows: Transitions) -> Any:
        """Bellman targets of the actions taken, (B,)."""
        values = self.q.apply(state.targets["q"], rows.next_obs)
        chooser = self.q.apply(state.params, rows.next_obs) if self.hp.double else values
        best = masked(chooser, action_mask(rows.next_obs)).argmax(1)
        return td_targets(rows.rewards, rows.discounts, rows.terminated, of_actions(values, best))

    def loss(self, params: Params, rows: Transitions, targets: Any) -> tuple[Any, Metrics]:
        values = of_actions(self.q.apply(params, rows.obs), rows.actions)
        losses, errors = dqn_loss(values, targets)
        loss = losses.mean()
        return loss, {"loss": loss, "value_mean": values.mean(), "td_error": errors.mean()}

    def learn(self, state: State, batch: Batch, env_steps: Any, key: Any) -> tuple[State, Metrics]:
        rows = self.prepare(state, batch)
        targets = self.targets_of(state, rows)
        grads, metrics = jax.grad(self.loss, has_aux=True)(state.params, rows, targets)
        learning_rate = self.learning_rate(state, env_steps)
        params, optimizer, norm = self.step(state.params, grads, state.optimizer["q"], state.hyper, learning_rate)
        updates = one_more(state.updates, self.hp.target_every_updates)
        moves = updates % np.uint32(self.hp.target_every_updates) == 0
        target = following(state.targets["q"], params, jnp.where(moves, state.hyper["tau"], 0.0))
        state = state._replace(params=params, targets={"q": target}, optimizer={"q": optimizer}, updates=updates)
        return state, {**metrics, "grad_norm": norm, "epsilon": epsilon_at(state.hyper, env_steps)}


def dqn(ctx: BuildContext, hp: DQNConfig) -> JaxAlgorithm:
    """Q-learning with a target network."""
    parts = DeepQ(ctx, hp)
    noise = Noise("uniform", (2,))
    algorithm = parts.algorithm(noise, parts.init, parts.act, parts.learn, exploration=epsilon_at)
    return algorithm._replace(head="values")
