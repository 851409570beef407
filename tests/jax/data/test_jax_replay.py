"""The ring of the compiled lane stores, samples and sums the same transitions as the host's replay buffer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_training.data.n_step import Outcomes, n_step_windows
from rl_training.jax.data.replay_buffer import Ring, SavedRing, empty_ring, folded, sample, store
from rl_training.types import CheckpointError, Progress

GAMMA = 0.9


def step_of(time: int, num_envs: int, rng: np.random.Generator) -> dict[str, Any]:
    """Rows that identify themselves: the observation is (time, env)."""
    terminated, truncated = rng.random((2, num_envs)) < 0.15
    obs = np.stack([np.full(num_envs, time), np.arange(num_envs)], axis=1).astype(np.float32)
    return {
        "obs": {"a": obs, "action_mask": np.ones((num_envs, 3), np.int8)},
        "actions": np.full(num_envs, time % 3, np.int32),
        "rewards": rng.standard_normal(num_envs).astype(np.float32),
        "next_obs": {"a": obs + np.float32([0.5, 0.0]), "action_mask": np.ones((num_envs, 3), np.int8)},
        "terminated": terminated,
        "truncated": truncated & ~terminated,
    }


def filled(steps: int, num_envs: int, capacity: int) -> tuple[Ring, list[dict[str, Any]]]:
    rng = np.random.default_rng(steps)
    rows = [step_of(time, num_envs, rng) for time in range(steps)]
    ring, put = empty_ring(rows[0], capacity), jax.jit(store, donate_argnums=0)
    for row in rows:
        ring = put(ring, row)
    return ring, rows


def test_the_ring_keeps_the_newest_rows_and_draws_all_of_them_alike() -> None:
    ring, _ = filled(steps=11, num_envs=2, capacity=8)
    batch: Any = jax.device_get(sample(ring, jax.random.key(0), 8000, num_envs=2, n_step=1, gamma=GAMMA))
    times, counts = np.unique(batch["obs"]["a"], axis=0, return_counts=True)
    assert times.tolist() == [[t, e] for t in (7, 8, 9, 10) for e in (0, 1)]
    np.testing.assert_allclose(counts, 1000, atol=150)
    np.testing.assert_array_equal(batch["next_obs"]["a"][:, 0], batch["obs"]["a"][:, 0] + 0.5)
    np.testing.assert_array_equal(batch["actions"], batch["obs"]["a"][:, 0] % 3)
    np.testing.assert_allclose(batch["discounts"], GAMMA)


@pytest.mark.parametrize(("steps", "num_envs", "capacity", "n_step"), [(40, 3, 60, 3), (9, 2, 40, 4), (3, 1, 8, 5)])
def test_windows_are_the_numpy_twin_s_on_1000_draws(steps: int, num_envs: int, capacity: int, n_step: int) -> None:
    ring, rows = filled(steps, num_envs, capacity)
    draw = jax.jit(lambda ring: sample(ring, jax.random.key(1), 1000, num_envs=num_envs, n_step=n_step, gamma=GAMMA))
    drawn: Any = jax.device_get(draw(ring))
    columns = {name: np.concatenate([row[name] for row in rows]) for name in ("rewards", "terminated", "truncated")}

    def outcomes(index: Any) -> Outcomes:
        return Outcomes(*(columns[name][index] for name in ("rewards", "terminated", "truncated")))

    def following(index: Any) -> Any:
        exists = index + num_envs < steps * num_envs
        return np.where(exists, index + num_envs, index), exists

    time, env = drawn["obs"]["a"].astype(int).T
    expected = n_step_windows(time * num_envs + env, n_step, GAMMA, outcomes, following)
    np.testing.assert_allclose(drawn["rewards"], expected.rewards, atol=1e-5)
    np.testing.assert_allclose(drawn["discounts"], expected.discounts, atol=1e-6)
    np.testing.assert_array_equal(drawn["terminated"], expected.terminated)
    np.testing.assert_allclose(drawn["next_obs"]["a"][:, 0], expected.last // num_envs + 0.5)
    oldest = max(steps - capacity // num_envs, 0)
    assert set(time) == set(range(oldest, max(steps - n_step + 1, oldest + 1)))  # the newest wait for their windows


def test_a_window_of_the_worked_example() -> None:
    """gamma .9, n = 3, rewards 1, 2, 3, 4, cut off at the fourth, Q = 10: 12.52, 15.23 where the window is complete."""
    row = step_of(0, 1, np.random.default_rng(0))
    ring = empty_ring(row, 8)
    for time, reward in enumerate((1.0, 2.0, 3.0, 4.0)):
        flags = {"terminated": np.zeros(1, bool), "truncated": np.array([time == 3])}
        obs = {"a": np.array([[time, 0]], np.float32), "action_mask": np.ones((1, 3), np.int8)}
        ring = store(ring, {**row, **flags, "obs": obs, "rewards": np.array([reward], np.float32)})
    draw = jax.jit(lambda ring: sample(ring, jax.random.key(0), 64, num_envs=1, n_step=3, gamma=0.9))
    batch: Any = jax.device_get(draw(ring))
    targets = batch["rewards"] + batch["discounts"] * 10.0 * ~batch["terminated"]
    by_time = dict(zip(batch["obs"]["a"][:, 0].tolist(), targets.tolist(), strict=True))
    assert by_time == pytest.approx({0.0: 12.52, 1.0: 15.23}, rel=1e-6)


@pytest.mark.parametrize("written", [2**31 - 4, 2**32 - 4, 2**40])
def test_a_ring_that_was_written_billions_of_times_goes_on_as_a_young_one_does(written: int) -> None:
    """The capacity of 6 does not divide 2^32: a count that wraps there would write to another place and forget."""
    old, _ = filled(steps=3, num_envs=2, capacity=6)
    written += -written % 6  # where the ring begins anew, as after its first three steps
    old = old._replace(written=jnp.asarray(folded(written, 6)))
    young, _ = filled(steps=3, num_envs=2, capacity=6)
    rng = np.random.default_rng(1)
    put = jax.jit(store)
    draw = jax.jit(lambda ring: sample(ring, jax.random.key(3), 50, num_envs=2, n_step=2, gamma=GAMMA))
    for time in range(3, 10):
        row = step_of(time, 2, rng)
        old, young = put(old, row), put(young, row)
        jax.tree.map(np.testing.assert_array_equal, draw(old), draw(young))
        saved = SavedRing(loop_with(old), Progress(env_steps=written + 2 * (time - 2))).state_dict()["rows"]
        assert (saved.start, saved.stop) == (written + 2 * (time - 2) - 6, written + 2 * (time - 2))
        fresh = loop_with(filled(steps=1, num_envs=2, capacity=6)[0])
        SavedRing(fresh, Progress()).load_state_dict({"rows": saved, "num_envs": 2})
        jax.tree.map(np.testing.assert_array_equal, fresh.loop.replay, old)


def test_a_saved_ring_comes_back() -> None:
    ring, _ = filled(steps=11, num_envs=2, capacity=8)
    holder = loop_with(ring)
    state = SavedRing(holder, Progress(env_steps=22)).state_dict()
    assert (state["rows"].start, state["rows"].stop) == (14, 22)
    fresh = loop_with(filled(steps=1, num_envs=2, capacity=8)[0])
    SavedRing(fresh, Progress()).load_state_dict(state)
    draw = jax.jit(lambda ring: sample(ring, jax.random.key(3), 50, num_envs=2, n_step=2, gamma=GAMMA))
    jax.tree.map(np.testing.assert_array_equal, draw(holder.loop.replay), draw(fresh.loop.replay))
    with pytest.raises(CheckpointError, match="rows of 2 environments, this one of 4"):
        SavedRing(loop_with(filled(steps=1, num_envs=4, capacity=8)[0], 4), Progress()).load_state_dict(state)


class LoopLike(SimpleNamespace):
    def _replace(self, replay: Ring) -> LoopLike:
        return LoopLike(is_first=self.is_first, replay=replay)


def loop_with(ring: Ring, num_envs: int = 2) -> Any:
    return SimpleNamespace(loop=LoopLike(is_first=np.ones(num_envs), replay=ring))
