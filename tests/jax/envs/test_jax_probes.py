"""The probes in JAX step as their Gymnasium twins do, from the same state with the same action."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_training.envs import PROBES, make_env, probes, space_spec
from rl_training.jax.envs import TWINS, make
from rl_training.types import ACTION_MASK, BoxSpec, DictSpec, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec

STEPS = 1000
IDS = [name for name in TWINS if name.startswith("RLProbe/")]


def test_which_probes_have_no_twin() -> None:
    """Those with goals, and the one that draws a symbol at every step."""
    assert set(PROBES) - set(IDS) == {"RLProbe/BitFlip-v0", "RLProbe/PointReach-v0", "RLProbe/RepeatPrevious-v0"}


def random_action(rng: np.random.Generator, space: Any) -> Any:
    if isinstance(space, DiscreteSpec):
        return np.int32(rng.integers(space.n))
    if isinstance(space, MultiDiscreteSpec | MultiBinarySpec):
        return rng.integers(0, getattr(space, "nvec", (2,) * space.shape[0])).astype(np.int32)
    return rng.uniform(space.low, space.high).astype(np.float32)


FIELDS: dict[type, tuple[str, ...]] = {
    probes.RewardIsObs: ("sign",),
    probes.Chain: ("position",),
    probes.Counting: ("count",),
    probes.StaySwitch: ("state",),
    probes.CueMemory: ("cue", "time"),
    probes.Catch: ("row", "column", "paddle"),
    probes.DeepSea: ("row", "column"),
    probes.HiddenCue: ("cue",),
    probes.MaskedArms: ("best_allowed",),
    probes.DictObs: ("colour", "sign"),
    probes.Target: ("obs",),
    probes.LinearQuadratic: ("x",),
}
"""What the Gymnasium probes call the fields of the JAX state; the others have no state."""


def fields_of(reference: Any) -> list[Any]:
    names = next((names for kind, names in FIELDS.items() if isinstance(reference, kind)), ())
    return [np.ravel(getattr(reference, name))[0] for name in names] or [0.0]


def gymnasium_steps(reference: Any, space: Any) -> dict[str, Any]:
    """Random steps of a Gymnasium probe: its state before each, and what the step gave."""
    rng = np.random.default_rng(0)
    rows: dict[str, list[Any]] = {
        name: [] for name in ("states", "actions", "obs", "rewards", "terminated", "truncated")
    }
    ended = True
    for i in range(STEPS):
        if ended or i % 20 == 0:
            reference.reset(seed=i)
        if isinstance(reference, probes.LinearQuadratic):
            reference.x = float(np.float32(reference.x))
        state, action = fields_of(reference), random_action(rng, space)
        if isinstance(reference, probes.MaskedArms) and not reference.action_masks()[action]:
            action = np.int32(0)
        obs, *outcome, _ = reference.step(action)
        ended = outcome[1] or outcome[2]
        for name, value in zip(rows, (state, action, obs, *outcome), strict=True):
            rows[name].append(value)
    return rows


CASES: list[tuple[str, dict[str, Any]]] = [
    *((env_id, {}) for env_id in IDS),
    ("RLProbe/Catch-v0", {"obs": "pixels"}),
    ("RLProbe/Catch-v0", {"obs": "pixels", "rows": 6, "columns": 7}),
]


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_steps_equal_the_twin_s(env_id: str, kwargs: dict[str, Any]) -> None:
    env: Any = make(env_id, kwargs)
    env = getattr(env, "env", env)  # without its time limit
    theirs = gymnasium_steps(gym.make(env_id, **kwargs).unwrapped, env.action_space)
    first = jax.eval_shape(lambda key: env.init(key, STEPS), jax.random.key(0))
    parts = np.array(theirs["states"]).T
    state = type(first)(*(part.astype(leaf.dtype) for part, leaf in zip(parts, first, strict=True)))

    @jax.jit
    def step(state: Any, action: Any) -> Any:
        after, *outcome = env.step(state, action, jax.random.key(0))
        return env.obs(after), *outcome

    obs, *outcome = step(state, np.stack(theirs["actions"]))
    ours = obs if isinstance(obs, dict) else {"obs": obs}
    expected = [row if isinstance(row, dict) else {"obs": row} for row in theirs["obs"]]
    for name in expected[0]:
        np.testing.assert_allclose(ours[name], np.stack([row[name] for row in expected]), rtol=1e-5, atol=1e-6)
    for values, name in zip(outcome, ("rewards", "terminated", "truncated"), strict=True):
        np.testing.assert_allclose(values, np.array(theirs[name]), rtol=1e-5, atol=1e-6)


def test_a_forbidden_arm_gives_nan() -> None:
    """Where Gymnasium's probe raises, a compiled program cannot; the NaN check of the run stops it."""
    env: Any = make("RLProbe/MaskedArms-v0")
    state = type(env.init(jax.random.key(0), 1))(jnp.array([0, 0, 1], jnp.int8))
    _, rewards, *_ = env.step(state, jnp.array([2, 1, 2]), jax.random.key(0))
    np.testing.assert_array_equal(rewards, [np.nan, 0.5, 1.0])


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_counting_ends_as_it_is_told(end: str) -> None:
    env: Any = make("RLProbe/Counting-v0", {"end": end})
    state = type(env.init(jax.random.key(0), 1))(jnp.array([1, 2]))
    _, rewards, terminated, truncated = env.step(state, jnp.zeros(2, jnp.int32), jax.random.key(0))
    assert rewards.tolist() == [2.0, 3.0]
    assert terminated.tolist() == [False, end == "terminated"]
    assert truncated.tolist() == [False, end == "truncated"]


@pytest.mark.parametrize("env_id", IDS)
def test_spaces_and_limits_are_the_twin_s(env_id: str) -> None:
    env, reference = make(env_id), make_env(env_id)
    assert space_spec(reference.action_space) == env.action_space
    theirs, ours = space_spec(reference.observation_space), env.observation_space
    if isinstance(theirs, DictSpec):
        assert isinstance(ours, DictSpec)
        assert dict(theirs.spaces) == dict(ours.spaces)
    else:
        assert theirs == ours
    assert env.max_episode_steps == PROBES[env_id].max_episode_steps


@pytest.mark.parametrize("env_id", IDS)
def test_first_observations_are_the_twin_s(env_id: str) -> None:
    """Every first observation of one is a first observation of the other, about as often."""
    env, reference = make(env_id), make_env(env_id)
    ours: Any = jax.jit(lambda key: env.obs(env.init(key, 1000)))(jax.random.key(1))
    theirs = [reference.reset(seed=seed)[0] for seed in range(200)]
    if not isinstance(ours, dict):
        ours, theirs = {"obs": ours}, [{"obs": obs} for obs in theirs]
    for name, values in ours.items():
        mine, other = np.asarray(values, np.float64), np.array([obs[name] for obs in theirs], np.float64)
        np.testing.assert_allclose(mine.mean(axis=0), other.mean(axis=0), atol=0.3)
        np.testing.assert_allclose(mine.std(axis=0), other.std(axis=0), atol=0.08)
        if env_id not in ("RLProbe/Target-v0", "RLProbe/LQR-v0"):
            assert {tuple(np.atleast_1d(row)) for row in mine} == {tuple(np.atleast_1d(row)) for row in other}


def test_observations_have_the_dtypes_that_buffers_expect() -> None:
    for env_id in IDS:
        env = make(env_id)
        obs = jax.eval_shape(lambda key, env=env: env.obs(env.init(key, 2)), jax.random.key(0))
        leaves = obs if isinstance(obs, dict) else {"obs": obs}
        space = env.observation_space
        specs = space.spaces if isinstance(space, DictSpec) else {"obs": space}
        for name, leaf in leaves.items():
            kind = jnp.float32 if isinstance(specs[name], BoxSpec) else jnp.int8 if name == ACTION_MASK else jnp.int32
            assert (leaf.shape, leaf.dtype) == ((2, *specs[name].shape), kind)
