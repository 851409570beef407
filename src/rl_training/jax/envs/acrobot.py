"""Acrobot-v1: swing the free end of a two-link arm above a line, with a motor in the elbow only (Sutton, 1996)."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rl_training.jax.envs.base import box
from rl_training.jax.types import Array
from rl_training.types import DiscreteSpec

GRAVITY, SECONDS = 9.8, 0.2
MAX_DOT1, MAX_DOT2 = 4 * math.pi, 9 * math.pi


class State(NamedTuple):
    angle1: Array
    """Angle of the first link, 0 when hanging down."""
    angle2: Array
    """Angle of the second link relative to the first."""
    dot1: Array
    dot2: Array


def derivative(state: State, torque: Array) -> State:
    """The equations of motion from the book, for links of mass, length and moment of inertia 1, centred at 1/2."""
    angle1, angle2, dot1, dot2 = state
    cos2, sin2 = jnp.cos(angle2), jnp.sin(angle2)
    d1 = 3.5 + cos2
    d2 = 1.25 + 0.5 * cos2
    phi2 = 0.5 * GRAVITY * jnp.sin(angle1 + angle2)
    phi1 = -0.5 * dot2**2 * sin2 - dot2 * dot1 * sin2 + 1.5 * GRAVITY * jnp.sin(angle1) + phi2
    acc2 = (torque + d2 / d1 * phi1 - 0.5 * dot1**2 * sin2 - phi2) / (1.25 - d2**2 / d1)
    acc1 = -(d2 * acc2 + phi1) / d1
    return State(dot1, dot2, acc1, acc2)


def runge_kutta(state: State, torque: Array) -> State:
    """One step of the fourth-order Runge-Kutta method."""

    def moved(slope: State, seconds: float) -> State:
        return State(*(value + seconds * rate for value, rate in zip(state, slope, strict=True)))

    k1 = derivative(state, torque)
    k2 = derivative(moved(k1, SECONDS / 2), torque)
    k3 = derivative(moved(k2, SECONDS / 2), torque)
    k4 = derivative(moved(k3, SECONDS), torque)
    return moved(State(*((a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True))), SECONDS)


def wrap(angle: Array) -> Array:
    """The same angle within [-pi, pi]."""
    return angle - 2 * math.pi * jnp.round(angle / (2 * math.pi))


class Acrobot:
    max_episode_steps = 500
    action_space = DiscreteSpec(3)

    def __init__(self) -> None:
        high = (1.0, 1.0, 1.0, 1.0, MAX_DOT1, MAX_DOT2)
        self.observation_space = box([-bound for bound in high], high)

    def init(self, key: Array, n: int) -> State:
        return State(*jax.random.uniform(key, (4, n), minval=-0.1, maxval=0.1))

    def obs(self, state: State) -> Array:
        angle1, angle2, dot1, dot2 = state
        return jnp.stack([jnp.cos(angle1), jnp.sin(angle1), jnp.cos(angle2), jnp.sin(angle2), dot1, dot2], axis=-1)

    def step(self, state: State, action: Array, key: Array) -> tuple[State, Array, Array, Array]:
        angle1, angle2, dot1, dot2 = runge_kutta(state, action - 1.0)
        state = State(
            wrap(angle1), wrap(angle2), jnp.clip(dot1, -MAX_DOT1, MAX_DOT1), jnp.clip(dot2, -MAX_DOT2, MAX_DOT2)
        )
        terminated = -jnp.cos(state.angle1) - jnp.cos(state.angle1 + state.angle2) > 1.0
        return state, jnp.where(terminated, 0.0, -1.0), terminated, jnp.zeros_like(terminated)
