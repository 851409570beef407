"""The cross-entropy method swings up a pendulum whose true equations it is given, before anything is learnt."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rl_training.numerics.planning import cem, shifted
from rl_training.types import Array

STEP, GRAVITY = 0.05, 10.0


def pendulum(state: Array, torque: Array) -> tuple[Array, Array]:
    """The equations of Pendulum-v1: states (..., 2) of angle and speed, torques (...) in -1..1 of the largest."""
    angle, speed = state[..., 0], state[..., 1]
    force = np.clip(2.0 * torque, -2.0, 2.0)
    wrapped = (angle + np.pi) % (2.0 * np.pi) - np.pi
    reward = -(wrapped**2 + 0.1 * speed**2 + 0.001 * force**2)
    speed = np.clip(speed + (1.5 * GRAVITY * np.sin(angle) + 3.0 * force) * STEP, -8.0, 8.0)
    return np.stack([angle + speed * STEP, speed], -1), reward


def test_the_equations_are_those_of_the_environment() -> None:
    env = gym.make("Pendulum-v1")
    env.reset(seed=3)
    rng = np.random.default_rng(0)
    for _ in range(50):
        state = np.array(env.unwrapped.state)  # type: ignore[attr-defined]
        torque = rng.uniform(-1.2, 1.2)
        after, reward = pendulum(state, np.array(torque))
        _, given, *_ = env.step(np.array([2.0 * torque], np.float32))
        np.testing.assert_allclose(after, env.unwrapped.state, atol=1e-6)  # type: ignore[attr-defined]
        assert reward == pytest.approx(given, abs=1e-5)
    env.close()


def test_planning_swings_the_pendulum_up() -> None:
    starts, horizon, candidates = 20, 25, 80
    rng = np.random.default_rng(0)
    state = np.stack([rng.uniform(-np.pi, np.pi, starts), rng.uniform(-1.0, 1.0, starts)], -1)
    returns, plan = np.zeros(starts), np.zeros((starts, horizon, 1))

    def evaluate(sequences: Array) -> Array:
        total, now = np.zeros(sequences.shape[:2]), np.broadcast_to(state[:, None], (*sequences.shape[:2], 2))
        for t in range(sequences.shape[2]):
            now, reward = pendulum(now, sequences[:, :, t, 0])
            total += reward
        return total

    for _ in range(200):
        noise = rng.standard_normal((3, starts, candidates, horizon, 1))
        found = cem(evaluate, noise, elites=8, mean=plan, std=np.full_like(plan, 0.7))
        state, reward = pendulum(state, found.mean[:, 0, 0])
        returns += reward
        plan = shifted(found.mean)
    assert returns.mean() > -250.0
