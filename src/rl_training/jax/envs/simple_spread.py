"""simple_spread of MPE (Lowe et al. 2017, arXiv:1706.02275) as in mpe2: cover all landmarks, do not collide.

Agents are discs that push each other away. All share minus the distances of the landmarks to their nearest agents; each
pays for its own collisions. Positions move with the velocity before the step, which then loses a quarter and takes up
the forces of the step.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.envs.base import box
from rl_training.jax.types import Array
from rl_training.types import BoxSpec, DiscreteSpec

SECONDS, DAMPING, SENSITIVITY = 0.1, 0.25, 5.0
DIAMETER = 0.3
"""Distance of two agents at which they touch."""
CONTACT_FORCE, CONTACT_MARGIN = 100.0, 1e-3
SMALLEST = 1e-9
"""Distances are divided by; the way of an agent to itself is 0, and so is the force along it."""
PUSHES = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)], np.float32)
"""Directions of the discrete actions: stay, left, right, down, up."""


class World(NamedTuple):
    """Positions and velocities of the agents (N, A, 2), positions of as many landmarks (N, A, 2)."""

    positions: Array
    velocities: Array
    landmarks: Array


class SimpleSpread:
    """`N` agents and as many landmarks; `local_ratio` is the weight of an agent's own collisions in its reward."""

    def __init__(
        self,
        N: int = 3,  # noqa: N803  # mpe2's name
        local_ratio: float = 0.5,
        max_cycles: int = 25,
        continuous_actions: bool = False,
    ) -> None:
        self.agents = tuple(f"agent_{i}" for i in range(N))
        self.local_ratio, self.continuous_actions = local_ratio, continuous_actions
        self.max_episode_steps = max_cycles
        size = 4 + 2 * N + 4 * (N - 1)
        self.observation_space = box(-np.inf, np.inf, (size,))
        self.state_space = box(-np.inf, np.inf, (N * size,))
        self.action_space: DiscreteSpec | BoxSpec = box(0.0, 1.0, (5,)) if continuous_actions else DiscreteSpec(5)
        numbers = np.arange(N)
        self.others = np.array([numbers[numbers != agent] for agent in numbers])  # (A, A - 1)

    def init(self, key: Array, n: int) -> World:
        places = jax.random.uniform(key, (n, 2, len(self.agents), 2), minval=-1.0, maxval=1.0)
        return World(places[:, 0], jnp.zeros_like(places[:, 0]), places[:, 1])

    def obs(self, state: World) -> Array:
        """(N, A, ...): own velocity and position, the ways to the landmarks and to the other agents, and what these
        say, which is nothing."""
        count, agents = state.positions.shape[:2]
        own = state.positions[:, :, None]
        to_landmarks = (state.landmarks[:, None] - own).reshape(count, agents, -1)
        to_others = (state.positions[:, self.others] - own).reshape(count, agents, -1)
        silence = jnp.zeros_like(to_others)
        return jnp.concatenate([state.velocities, state.positions, to_landmarks, to_others, silence], axis=2)

    def critic_state(self, state: World) -> Array:
        """(N, S): the observations of all agents behind one another."""
        return self.obs(state).reshape(len(state.positions), -1)

    def step(self, state: World, action: Array, key: Array) -> tuple[World, Array, Array, Array]:
        pushes = action @ PUSHES if self.continuous_actions else jnp.asarray(PUSHES)[action]
        forces = SENSITIVITY * pushes + contact_forces(state.positions)
        positions = state.positions + SECONDS * state.velocities
        velocities = (1.0 - DAMPING) * state.velocities + SECONDS * forces
        after = World(positions, velocities, state.landmarks)
        never = jnp.zeros(len(positions), bool)
        return after, self.rewards(after), never, never

    def rewards(self, state: World) -> Array:
        """(N, A): a weighted mean of what all share and of minus the collisions of each."""
        to_landmarks = distances(state.positions[:, :, None] - state.landmarks[:, None])
        shared = -to_landmarks.min(1).sum(1, keepdims=True)
        touching = distances(state.positions[:, :, None] - state.positions[:, None]) < DIAMETER
        collisions = touching.sum(2) - 1.0  # without that of an agent with itself
        return (1.0 - self.local_ratio) * shared - self.local_ratio * collisions


def distances(ways: Array) -> Array:
    """Lengths (...) of vectors (..., 2)."""
    return jnp.sqrt(jnp.square(ways).sum(-1))


def contact_forces(positions: Array) -> Array:
    """(N, A, 2): how agents that touch push each other away, the more the deeper they are inside each other."""
    ways = positions[:, :, None] - positions[:, None]  # (N, A, A, 2), from the second agent to the first
    apart = jnp.maximum(distances(ways), SMALLEST)
    depth = jax.nn.softplus((DIAMETER - apart) / CONTACT_MARGIN) * CONTACT_MARGIN
    return ((CONTACT_FORCE * depth / apart)[..., None] * ways).sum(2)
