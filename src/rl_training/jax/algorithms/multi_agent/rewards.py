"""What the agents of a team learn from: rewards of a rollout, shared before an algorithm sees them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from rl_training.jax.types import Batch, JaxAlgorithm, Metrics, State
from rl_training.types import Array as HostArray


def sharing_rewards(algorithm: JaxAlgorithm, matrix: HostArray | None) -> JaxAlgorithm:
    """The algorithm, learning from `matrix` (A, A) times the own rewards of the agents of each environment; as it is
    without a matrix. Rollouts keep the own rewards, which are what is logged."""
    if matrix is None:
        return algorithm
    weights = jnp.asarray(matrix.T, jnp.float32)

    def learn(state: State, batch: Batch, env_steps: Any, key: Any) -> tuple[State, Metrics]:
        own = batch["rewards"]  # (T, N * A)
        shared = (own.reshape(-1, len(weights)) @ weights).reshape(own.shape)
        return algorithm.learn(state, {**batch, "rewards": shared}, env_steps, key)

    return algorithm._replace(learn=learn)
