"""Pendulum-v1: swing a pendulum up and hold it, with less torque than its weight needs."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rl_training.jax.envs.base import box
from rl_training.jax.types import Array

SECONDS, MAX_SPEED, MAX_TORQUE = 0.05, 8.0, 2.0


class State(NamedTuple):
    angle: Array
    """Angle from upright, not wrapped to [-pi, pi]."""
    velocity: Array


class Pendulum:
    max_episode_steps = 200
    observation_space = box([-1.0, -1.0, -MAX_SPEED], [1.0, 1.0, MAX_SPEED])
    action_space = box(-MAX_TORQUE, MAX_TORQUE, (1,))

    def __init__(self, g: float = 10.0) -> None:
        self.g = g

    def init(self, key: Array, n: int) -> State:
        angle, velocity = jax.random.uniform(key, (2, n), minval=-1.0, maxval=1.0)
        return State(math.pi * angle, velocity)

    def obs(self, state: State) -> Array:
        return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.velocity], axis=-1)

    def step(self, state: State, action: Array, key: Array) -> tuple[State, Array, Array, Array]:
        torque = jnp.clip(action[:, 0], -MAX_TORQUE, MAX_TORQUE)
        from_upright = (state.angle + math.pi) % (2 * math.pi) - math.pi
        reward = -(from_upright**2 + 0.1 * state.velocity**2 + 0.001 * torque**2)
        acceleration = 1.5 * self.g * jnp.sin(state.angle) + 3.0 * torque
        velocity = jnp.clip(state.velocity + SECONDS * acceleration, -MAX_SPEED, MAX_SPEED)
        never = jnp.zeros(torque.shape, bool)
        return State(state.angle + SECONDS * velocity, velocity), reward, never, never
