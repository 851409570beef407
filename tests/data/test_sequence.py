"""Sequences: consecutive steps of one environment, whole, with the starts of episodes marked as the collector does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from replay_cases import Episodes

from rl_training.data import PrioritizedReplayBuffer, ReplayBuffer

NUM_ENVS, LENGTH = 3, 4


@pytest.mark.parametrize(("next_step", "lost"), [(False, 0.0), (True, 0.0), (False, 0.1)])
@pytest.mark.parametrize("capacity", [60, 23])
def test_every_run_comes_and_no_other(next_step: bool, lost: float, capacity: int) -> None:
    episodes = Episodes(NUM_ENVS, seed=4, next_step=next_step, lost=lost)
    buffer = ReplayBuffer(capacity, (1,), (), num_envs=NUM_ENVS, rng=np.random.default_rng(0))
    first: list[bool] = []
    obs: list[int] = []
    for step in episodes.steps(30):
        buffer.store(step)
        first += (step.is_first & step.valid).tolist()
        obs += step.actions.tolist()
    oldest = max(0, len(obs) - capacity)
    starts = range(oldest + NUM_ENVS if oldest else 0, len(obs) - (LENGTH - 1) * NUM_ENVS)
    runs = {obs[g]: [g + k * NUM_ENVS for k in range(LENGTH)] for g in starts}
    batch = buffer.sample_sequences(3000, LENGTH)
    assert batch["obs"].shape == (3000, LENGTH, 1)
    assert batch["next_obs"].shape == (3000, LENGTH, 1)
    assert set(batch["actions"][:, 0].astype(int)) == set(runs)
    for row in range(3000):
        numbers = runs[int(batch["actions"][row, 0])]
        assert batch["actions"][row].tolist() == [obs[g] for g in numbers]
        transitions = [episodes.rows[g] for g in numbers]
        assert batch["valid"][row].tolist() == [one is not None for one in transitions]
        assert batch["is_first"][row].tolist() == [first[g] for g in numbers]
        for k, one in enumerate(transitions):
            if one is not None:
                assert batch["next_obs"][row, k, 0] == one.next_obs
                assert batch["rewards"][row, k] == np.float32(one.reward)
                assert (batch["terminated"][row, k], batch["truncated"][row, k]) == (one.terminated, one.truncated)


def test_runs_are_drawn_uniformly() -> None:
    buffer = ReplayBuffer(40, (), (), rng=np.random.default_rng(2))
    for t in range(55):
        buffer.add(float(t), t, 0.0, t + 1.0, False)
    counts = np.bincount(buffer.sample_sequences(60_000, 10)["actions"][:, 0].astype(int), minlength=55)
    assert counts[:16].sum() == 0  # rows 0 to 14 are gone, and what preceded row 15 is not known
    assert counts[46:].sum() == 0
    expected = 60_000 / 30
    assert ((counts[16:46] - expected) ** 2 / expected).sum() < 29 + 4 * 58**0.5


def test_an_n_step_or_prioritised_buffer_gives_plain_steps() -> None:
    buffer = PrioritizedReplayBuffer(16, (), (), "cpu", n_step=3, gamma=0.9)
    for t in range(8):
        buffer.add(float(t), t, float(t), t + 1.0, t == 4)
    batch = buffer.sample_sequences(5, 8)
    assert all(isinstance(value, torch.Tensor) for value in batch.values())
    assert batch["rewards"].tolist() == [[float(t) for t in range(8)]] * 5
    assert batch["is_first"].tolist() == [[t in (0, 5) for t in range(8)]] * 5


def test_what_cannot_be_drawn_is_refused() -> None:
    buffer = ReplayBuffer(16, (), (), num_envs=2)
    for _ in range(3):
        buffer.add(np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(2))
    assert buffer.sample_sequences(2, 3)["valid"].all()
    for length in (4, 0):
        with pytest.raises(ValueError, match=f"no sequence of {length} steps yet: it has 3 steps of each of 2"):
            buffer.sample_sequences(2, length)
    buffer.add(0.0, 0, 0.0, 0.0, False)
    with pytest.raises(ValueError, match="whole steps of num_envs=2"):
        buffer.sample_sequences(2, 2)
