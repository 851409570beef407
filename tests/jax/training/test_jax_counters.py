"""Counters of long runs: nothing in the JAX backend changes when a count exceeds 31 or 32 bits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl_training.assembly.build import build_trainer
from rl_training.config.loading import load_config
from rl_training.jax.algorithms.off_policy import one_more
from rl_training.jax.data.replay_buffer import folded
from rl_training.jax.models.optimization import LAST_STEP, AdamState, adam
from rl_training.jax.numerics.normalization import Statistics, inverse_std, longest_window, merged
from rl_training.jax.training.driver import root_key, root_words
from rl_training.jax.training.timetable import WORD
from rl_training.training.compiled import CompiledTrainer


@pytest.mark.parametrize("size", [1000, 4000])
@pytest.mark.parametrize("count", [2**31 - 1000, 2**32 - 1000])
def test_the_normaliser_goes_on_where_its_count_is_full(count: int, size: int) -> None:
    """Against the same sums in float64: some rows about 5 into billions about 1, then a count that stays."""
    rng, variance = np.random.default_rng(0), 4.0
    state = Statistics(np.float32(1.0), np.float32(0.0), np.float32(variance * count), np.uint32(count))
    rows, mean, deviations, total = rng.normal(5.0, 1.0, (3, size)), 1.0, variance * count, count
    take = jax.jit(merged)
    for batch in rows:
        state = take(state, batch.astype(np.float32))
        delta = batch.mean() - mean
        deviations += ((batch - batch.mean()) ** 2).sum() + delta**2 * total * size / (total + size)
        mean, total = mean + delta * size / (total + size), total + size
    assert int(state.count) == longest_window(size) <= 2**31
    assert float(state.mean) + float(state.residual) == pytest.approx(mean, rel=1e-5)
    assert float(inverse_std(state)) == pytest.approx((deviations / total) ** -0.5, rel=1e-5)


def test_a_window_that_is_full_follows_a_change_and_keeps_the_variance() -> None:
    """Small batches, for which a float32 sum would have stopped growing long before the count is full."""
    rows, rng = 4, np.random.default_rng(1)
    full = longest_window(rows)
    state = Statistics(np.float32(0.0), np.float32(0.0), np.float32(full), np.uint32(full))

    def step(state: Statistics, batch: Any) -> tuple[Statistics, None]:
        return merged(state, batch), None

    batches = rng.standard_normal((400_000, rows)).astype(np.float32)
    state, _ = jax.jit(lambda state: jax.lax.scan(step, state, batches))(state)
    assert int(state.count) == full
    assert float(inverse_std(state)) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("steps", [LAST_STEP - 1, LAST_STEP])
def test_adam_goes_on_where_its_count_is_full(steps: int) -> None:
    params, grads, state = {"w": jnp.ones(3)}, {"w": jnp.full(3, 0.5)}, None
    found = []
    for count in (100_000, steps):
        state = AdamState(jnp.int32(count), {"w": jnp.full(3, 0.1)}, {"w": jnp.full(3, 0.2)})
        after = params
        for _ in range(3):
            after, state = adam(after, grads, state, learning_rate=0.01, eps=1e-8)
        found.append(np.asarray(after["w"]))
    np.testing.assert_array_equal(*found)
    assert state is not None
    assert int(state.steps) == LAST_STEP


def test_every_seventh_update_stays_every_seventh() -> None:
    last, updates = 2**32 - 1 - (2**32 - 1) % 7, jnp.uint32(2**32 - 1 - (2**32 - 1) % 7 - 3)
    rhythm = []
    for _ in range(12):
        updates = one_more(updates, 7)
        rhythm.append(int(updates) % 7 == 0)
    assert last % 7 == 0
    assert [k for k, hit in enumerate(rhythm) if hit] == [2, 9]


def test_the_key_of_a_rollout_is_new_also_behind_32_bits() -> None:
    words = [tuple(root_words(3, number).tolist()) for number in (0, WORD - 1, WORD, 2 * WORD)]
    assert words[0] == words[1]
    assert len(set(words)) == 3
    np.testing.assert_array_equal(jax.random.key_data(root_key(3, WORD)), words[2])


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> CompiledTrainer:
    """DQN behind its first block, with a ring of 300 rows and an update every fourth step."""
    given = {
        "backend": "jax",
        "output_dir": str(tmp_path_factory.mktemp("runs")),
        "env": {"num_envs": 2},
        "hparams": {"learning_starts": 64, "batch_size": 8, "updates_per_step": 0.25},
        "buffer": {"size": 300},
        "training": {"total_timesteps": 10**15, "eval_frequency": 0, "checkpoint_frequency": 0},
    }
    trainer = build_trainer(load_config("dqn/cartpole", given))
    assert isinstance(trainer, CompiledTrainer)
    trainer.train_step()
    return trainer


def set_age(trainer: CompiledTrainer, rollouts: int) -> None:
    """Set the counters of a trainer, as if it had already trained this long."""
    loop = trainer.position.loop
    ring = loop.replay._replace(written=folded(rollouts * trainer.rollout_steps, 300))
    trainer.position.loop = loop._replace(rollouts=np.uint32(rollouts % WORD), replay=ring)
    trainer.progress.env_steps = rollouts * trainer.rollout_steps


def test_a_run_passes_32_bits_of_env_steps_without_acting_at_random_again(trainer: CompiledTrainer) -> None:
    """At 2^32 env steps epsilon stays at its end, the ring stays full, an update comes every fourth step."""
    set_age(trainer, WORD // trainer.rollout_steps - 1)
    trainer.pace = 3
    metrics = trainer.train_step()
    assert trainer.progress.env_steps == WORD + 2 * trainer.rollout_steps
    assert [report.after.updates - report.before.updates for report in trainer.history] == [64, 64, 64]
    assert metrics["buffer/size"] == 300
    assert metrics["train/epsilon"] == pytest.approx(0.05, abs=0.05)
    ring = trainer.position.loop.replay
    assert int(ring.written) == folded(trainer.progress.env_steps, 300)
    assert trainer.buffer is not None
    assert trainer.buffer.state_dict()["rows"].stop == trainer.progress.env_steps


def test_chunks_end_where_the_key_changes(trainer: CompiledTrainer) -> None:
    """Rollouts are numbered from 1, and number 2^32 is the first that has another key."""
    asked, chunk = [], trainer.driver.chunk

    def noted(loop: Any, count: Any, times: Any) -> Any:
        asked.append((int(count), int(jax.random.key_data(loop.key)[0]), int(loop.rollouts)))
        return chunk(loop, count, times)

    trainer.driver = trainer.driver._replace(chunk=noted)
    set_age(trainer, WORD - 4)
    for _ in range(3):
        trainer.pace = 4
        trainer.train_step()
    assert asked == [(3, 0, WORD - 4), (4, 1, WORD - 1), (4, 1, 3)]
    assert trainer.progress.env_steps == (WORD + 7) * trainer.rollout_steps
