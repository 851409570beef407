"""MountainCar-v0 and MountainCarContinuous-v0: rock an underpowered car out of a valley (Moore, 1990)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rl_training.jax.envs.base import box
from rl_training.jax.types import Array
from rl_training.types import DiscreteSpec

GRAVITY = 0.0025
MIN_POSITION, MAX_POSITION, MAX_SPEED = -1.2, 0.6, 0.07


class State(NamedTuple):
    position: Array
    velocity: Array


def drive(state: State, force: Array) -> State:
    """One step under a force; the left wall stops the car."""
    velocity = jnp.clip(state.velocity + force - GRAVITY * jnp.cos(3 * state.position), -MAX_SPEED, MAX_SPEED)
    position = jnp.clip(state.position + velocity, MIN_POSITION, MAX_POSITION)
    return State(position, jnp.where((position == MIN_POSITION) & (velocity < 0), 0.0, velocity))


class MountainCar:
    max_episode_steps = 200
    observation_space = box([MIN_POSITION, -MAX_SPEED], [MAX_POSITION, MAX_SPEED])
    action_space = DiscreteSpec(3)
    goal_position = 0.5

    def __init__(self, goal_velocity: float = 0.0) -> None:
        self.goal_velocity = goal_velocity

    def init(self, key: Array, n: int) -> State:
        return State(jax.random.uniform(key, (n,), minval=-0.6, maxval=-0.4), jnp.zeros(n))

    def obs(self, state: State) -> Array:
        return jnp.stack(state, axis=-1)

    def at_goal(self, state: State) -> Array:
        return (state.position >= self.goal_position) & (state.velocity >= self.goal_velocity)

    def step(self, state: State, action: Array, key: Array) -> tuple[State, Array, Array, Array]:
        state = drive(state, 0.001 * (action - 1.0))
        terminated = self.at_goal(state)
        return state, jnp.full_like(state.position, -1.0), terminated, jnp.zeros_like(terminated)


class MountainCarContinuous(MountainCar):
    max_episode_steps = 999
    action_space = box(-1.0, 1.0, (1,))  # type: ignore[assignment]
    goal_position = 0.45

    def step(self, state: State, action: Array, key: Array) -> tuple[State, Array, Array, Array]:
        state = drive(state, 0.0015 * jnp.clip(action[:, 0], -1.0, 1.0))
        terminated = self.at_goal(state)
        reward = jnp.where(terminated, 100.0, 0.0) - 0.1 * action[:, 0] ** 2
        return state, reward, terminated, jnp.zeros_like(terminated)
