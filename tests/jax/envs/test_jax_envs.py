"""Classic control in JAX steps as Gymnasium does: from the same state and action to the same observation and reward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rl_training.envs import space_spec
from rl_training.jax.envs import TWINS, acrobot, make, mountain_car, pendulum
from rl_training.types import DiscreteSpec

RANDOM_STEPS, EDGE_STEPS = 1100, 500
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Twin:
    """How to compare one environment with Gymnasium's."""

    id: str
    state: Any
    low: tuple[float, ...]
    """Bounds of a first state, in the order of the state's fields; equal ones are a constant."""
    high: tuple[float, ...]
    margin: Callable[[Any], float]
    """How far the Gymnasium state is from where `terminated` changes; very near to it float32 may decide otherwise."""
    edge: Callable[[np.random.Generator, int], list[Any]]
    """States near those places: the fields of N of them."""
    kwargs: dict[str, Any] = field(default_factory=dict)


def columns(*fields: Any) -> Any:
    return jnp.stack(fields, axis=-1)


def cartpole_edge(rng: np.random.Generator, n: int) -> list[Any]:
    x = rng.choice([-2.4, 2.4], n) + rng.uniform(-0.03, 0.03, n)
    angle = rng.choice([-0.2094, 0.2094, 0.0], n) + rng.uniform(-0.03, 0.03, n)
    return [np.where(rng.random(n) < 0.5, x, 0.0), rng.normal(0, 1, n), angle, rng.normal(0, 1, n)]


def acrobot_edge(rng: np.random.Generator, n: int) -> list[Any]:
    """Everywhere, so that many are near the line and many angles wrap."""
    return [*rng.uniform(-np.pi, np.pi, (2, n)), rng.uniform(-4, 4, n), rng.uniform(-6, 6, n)]


def car_edge(goal: float) -> Callable[[np.random.Generator, int], list[Any]]:
    def states(rng: np.random.Generator, n: int) -> list[Any]:
        position = rng.choice([goal, -1.2, 0.6], n) + rng.uniform(-0.05, 0.05, n)
        return [np.clip(position, -1.2, 0.6), rng.uniform(-0.07, 0.07, n)]

    return states


def pendulum_edge(rng: np.random.Generator, n: int) -> list[Any]:
    """Around the angles where the cost wraps, after some turns, near the largest speed."""
    turns = 2 * np.pi * rng.integers(-3, 4, n)
    return [np.pi + turns + rng.uniform(-0.3, 0.3, n), rng.choice([-8.0, 8.0, 0.0], n) + rng.uniform(-0.1, 0.1, n)]


def cartpole_margin(env: Any) -> float:
    x, _, angle, _ = env.state
    return min(abs(abs(x) - 2.4), abs(abs(angle) - env.theta_threshold_radians))


def acrobot_margin(env: Any) -> float:
    angle1, angle2, *_ = env.state
    return abs(-np.cos(angle1) - np.cos(angle1 + angle2) - 1.0)


def car_margin(env: Any) -> float:
    position, velocity = env.state
    return float(min(abs(position - env.goal_position), abs(velocity - env.goal_velocity) or 1.0))


CAR = {"state": mountain_car.State, "low": (-0.6, 0.0), "high": (-0.4, 0.0), "margin": car_margin}
CLASSIC = (
    Twin("CartPole-v1", columns, (-0.05,) * 4, (0.05,) * 4, cartpole_margin, cartpole_edge),
    Twin(
        "CartPole-v1",
        columns,
        (-0.05,) * 4,
        (0.05,) * 4,
        cartpole_margin,
        cartpole_edge,
        {"sutton_barto_reward": True},
    ),
    Twin("Acrobot-v1", acrobot.State, (-0.1,) * 4, (0.1,) * 4, acrobot_margin, acrobot_edge),
    Twin("MountainCar-v0", edge=car_edge(0.5), **CAR),
    Twin("MountainCar-v0", edge=car_edge(0.5), kwargs={"goal_velocity": 0.03}, **CAR),
    Twin("MountainCarContinuous-v0", edge=car_edge(0.45), **CAR),
    Twin("MountainCarContinuous-v0", edge=car_edge(0.45), kwargs={"goal_velocity": 0.03}, **CAR),
    Twin("Pendulum-v1", pendulum.State, (-np.pi, -1.0), (np.pi, 1.0), lambda env: 1.0, pendulum_edge),
    Twin("Pendulum-v1", pendulum.State, (-np.pi, -1.0), (np.pi, 1.0), lambda env: 1.0, pendulum_edge, {"g": 9.81}),
)
each_twin = pytest.mark.parametrize("twin", CLASSIC, ids=lambda twin: "-".join([twin.id, *twin.kwargs]))


def random_action(rng: np.random.Generator, space: Any) -> Any:
    """A random action; continuous ones may exceed their bounds slightly, where environments clip."""
    if isinstance(space, DiscreteSpec):
        return np.int32(rng.integers(space.n))
    return (1.2 * rng.uniform(space.low, space.high)).astype(np.float32)


def gymnasium_steps(twin: Twin, space: Any) -> dict[str, Any]:
    """1100 random steps of Gymnasium and 500 from states at the edge, each from a state that float32 can hold."""
    reference: Any = gym.make(twin.id, **twin.kwargs).unwrapped
    rng = np.random.default_rng(0)
    edges = np.stack([np.asarray(part, np.float32) for part in twin.edge(rng, EDGE_STEPS)], axis=-1)
    rows: dict[str, list[Any]] = {name: [] for name in ("states", "actions", "obs", "rewards", "terminated", "margin")}
    reference.reset(seed=0)
    for i in range(RANDOM_STEPS + EDGE_STEPS):
        state = np.array(reference.state if i < RANDOM_STEPS else edges[i - RANDOM_STEPS], np.float32)
        action = random_action(rng, space)
        reference.state = state.astype(np.float64)
        obs, reward, terminated, _, _ = reference.step(action)
        margin = twin.margin(reference)
        for name, value in zip(rows, (state, action, obs, reward, terminated, margin), strict=True):
            rows[name].append(np.array(value))
        if terminated or i % 100 == 99 or i >= RANDOM_STEPS:
            reference.reset(seed=i)
    return {name: np.stack(values) for name, values in rows.items()}


@each_twin
def test_steps_equal_gymnasium_s(twin: Twin) -> None:
    env: Any = make(twin.id, twin.kwargs).env  # type: ignore[attr-defined]  # without the time limit
    theirs = gymnasium_steps(twin, env.action_space)

    @jax.jit
    def step(fields: Any, action: Any) -> Any:
        state, rewards, terminated, truncated = env.step(twin.state(*fields), action, jax.random.key(0))
        return env.obs(state), rewards, terminated, truncated

    obs, rewards, terminated, truncated = map(np.asarray, step(theirs["states"].T, theirs["actions"]))
    np.testing.assert_allclose(obs, theirs["obs"], rtol=TOLERANCE, atol=TOLERANCE)
    clear = theirs["margin"] > TOLERANCE
    assert clear.mean() > 0.98
    np.testing.assert_array_equal(terminated[clear], theirs["terminated"][clear])
    np.testing.assert_allclose(rewards[clear], theirs["rewards"][clear], rtol=TOLERANCE, atol=TOLERANCE)
    assert not truncated.any()
    ended_at_edge = terminated[RANDOM_STEPS:].mean()
    assert ended_at_edge == 0 if twin.id == "Pendulum-v1" else 0.05 < ended_at_edge < 0.95


def test_acrobot_keeps_its_speeds_within_bounds() -> None:
    env = make("Acrobot-v1").env  # type: ignore[attr-defined]
    fast = acrobot.State(jnp.zeros(1), jnp.zeros(1), jnp.full(1, 12.6), jnp.full(1, -40.0))
    state, *_ = jax.jit(env.step)(fast, jnp.array([2]), jax.random.key(0))
    assert float(state.dot1[0]) <= 4 * np.pi + 1e-6
    assert float(state.dot2[0]) == pytest.approx(-9 * np.pi)


@pytest.mark.parametrize("twin", {twin.id: twin for twin in CLASSIC}.values(), ids=lambda twin: twin.id)
def test_first_states_are_drawn_alike(twin: Twin) -> None:
    env: Any = make(twin.id, twin.kwargs).env  # type: ignore[attr-defined]
    first = env.init(jax.random.key(3), 20_000)
    parts = [np.asarray(part) for part in (first.T if isinstance(first, jax.Array) else first)]
    reference: Any = gym.make(twin.id, **twin.kwargs).unwrapped
    theirs = []
    for seed in range(500):
        reference.reset(seed=seed)
        theirs.append(np.array(reference.state))
    for part, low, high, their in zip(parts, twin.low, twin.high, np.transpose(theirs), strict=True):
        assert part.min() >= np.float32(low)
        assert part.max() <= np.float32(high)
        if low < high:
            assert stats.kstest(part, stats.uniform(low, high - low).cdf).pvalue > 1e-3
            assert stats.ks_2samp(part, their).pvalue > 1e-3
    drawn = np.stack([part for part, low, high in zip(parts, twin.low, twin.high, strict=True) if low < high])
    assert np.abs(np.atleast_2d(np.corrcoef(drawn)) - np.eye(len(drawn))).max() < 0.04


@pytest.mark.parametrize("env_id", [name for name in TWINS if not name.startswith("RLProbe/")])
def test_spaces_and_limits_are_gymnasium_s(env_id: str) -> None:
    env = make(env_id)
    reference = gym.make(env_id)
    assert space_spec(reference.observation_space) == env.observation_space
    assert space_spec(reference.action_space) == env.action_space
    assert reference.spec is not None
    assert env.max_episode_steps == reference.spec.max_episode_steps


def test_the_limit_truncates_and_leaves_terminated_alone() -> None:
    """MountainCar never gets out by itself: 200 steps, all of them alive, the last one truncated."""
    env = make("MountainCar-v0")

    def step(state: Any, key: Any) -> Any:
        state, _, terminated, truncated = env.step(state, jnp.ones(3, jnp.int32), key)
        return state, (terminated, truncated)

    keys = jax.random.split(jax.random.key(0), 200)
    _, (terminated, truncated) = jax.lax.scan(step, env.init(jax.random.key(1), 3), keys)
    assert not terminated.any()
    assert not truncated[:199].any()
    assert truncated[199].all()


def test_a_step_can_be_terminated_and_truncated() -> None:
    """A chain of two states with a limit of two: the second step is both, as with Gymnasium's TimeLimit."""
    env = make("RLProbe/TwoSteps-v0", max_episode_steps=2)
    reference = gym.make("RLProbe/TwoSteps-v0", max_episode_steps=2)
    reference.reset(seed=0)
    state = env.init(jax.random.key(0), 1)
    for expected in ((False, False), (True, True)):
        state, _, terminated, truncated = env.step(state, jnp.zeros(1, jnp.int32), jax.random.key(0))
        assert (bool(terminated[0]), bool(truncated[0])) == expected
        assert reference.step(0)[2:4] == expected
