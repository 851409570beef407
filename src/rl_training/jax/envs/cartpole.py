"""CartPole-v1: keep a pole upright on a cart that is pushed left or right (Barto, Sutton & Anderson, 1983)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from rl_training.jax.envs.base import box
from rl_training.jax.types import Array
from rl_training.types import DiscreteSpec

GRAVITY, FORCE, SECONDS = 9.8, 10.0, 0.02
POLE_MASS, TOTAL_MASS, HALF_LENGTH = 0.1, 1.1, 0.5
POLE_MOMENT = POLE_MASS * HALF_LENGTH
MAX_X, MAX_ANGLE = 2.4, math.radians(12)


class CartPole:
    max_episode_steps = 500
    action_space = DiscreteSpec(2)

    def __init__(self, sutton_barto_reward: bool = False) -> None:
        self.sutton_barto_reward = sutton_barto_reward
        high = (2 * MAX_X, math.inf, 2 * MAX_ANGLE, math.inf)
        self.observation_space = box([-bound for bound in high], high)

    def init(self, key: Array, n: int) -> Array:
        """Position, speed, angle and angular speed, (N, 4), which is also the observation. With one array instead of
        four, a step of a few environments is a tenth faster."""
        return jax.random.uniform(key, (4, n), minval=-0.05, maxval=0.05).T

    def obs(self, state: Array) -> Array:
        return state

    def step(self, state: Array, action: Array, key: Array) -> tuple[Array, Array, Array, Array]:
        _, x_dot, angle, angle_dot = jnp.split(state, 4, axis=1)
        force = jnp.where(action == 1, FORCE, -FORCE)[:, None]
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        push = (force + POLE_MOMENT * angle_dot**2 * sin) / TOTAL_MASS
        angle_acc = (GRAVITY * sin - cos * push) / (HALF_LENGTH * (4 / 3 - POLE_MASS * cos**2 / TOTAL_MASS))
        x_acc = push - POLE_MOMENT * angle_acc * cos / TOTAL_MASS
        state = state + SECONDS * jnp.concatenate([x_dot, x_acc, angle_dot, angle_acc], axis=1)
        terminated = (jnp.abs(state[:, 0]) > MAX_X) | (jnp.abs(state[:, 2]) > MAX_ANGLE)
        reward = jnp.where(terminated, -1.0, 0.0) if self.sutton_barto_reward else jnp.ones(len(state))
        return state, reward, terminated, jnp.zeros_like(terminated)
