"""Prioritised replay: the published numbers, the distribution of what is drawn, what is new, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from replay_cases import Episodes

from rl_training.data import Priorities, PrioritizedReplayBuffer, ReplayBuffer
from rl_training.types import CheckpointError, ConfigError


def four(capacity: int = 8, **keywords: float) -> PrioritizedReplayBuffer:
    """Rows 0 to 3 with priorities 1 to 4."""
    buffer = PrioritizedReplayBuffer(capacity, (), (), rng=np.random.default_rng(0), **keywords)
    for t in range(4):
        buffer.add(float(t), t, 0.0, t + 1.0, False)
    buffer.update_priorities(np.arange(4), [1.0, 2.0, 3.0, 4.0])
    return buffer


def shares(buffer: PrioritizedReplayBuffer) -> np.ndarray:
    return buffer.priorities.tree.weights / buffer.priorities.tree.total


def test_the_published_numbers() -> None:
    np.testing.assert_allclose(shares(four(alpha=0.6))[:4], [0.148230, 0.224674, 0.286555, 0.340542], atol=1e-6)
    batch = four(alpha=1.0, beta=0.4).sample(64)
    expected = np.array([1.0, 0.757858, 0.644394, 0.574349])
    assert set(batch["indices"]) == {0, 1, 2, 3}
    np.testing.assert_allclose(batch["weights"], expected[batch["indices"]], atol=1e-6)
    assert batch["weights"].dtype == np.float32
    assert batch["indices"].dtype == np.int64


def test_beta_by_call_and_by_attribute() -> None:
    buffer = four(alpha=1.0, beta=0.0)
    assert (buffer.sample(32)["weights"] == 1.0).all()
    full = np.array([1, 1 / 2, 1 / 3, 1 / 4])
    batch = buffer.sample(32, beta=1.0)
    np.testing.assert_allclose(batch["weights"], full[batch["indices"]], rtol=1e-6)
    buffer.beta = 1.0
    batch = buffer.sample(32)
    np.testing.assert_allclose(batch["weights"], full[batch["indices"]], rtol=1e-6)


def test_alpha_counts_for_the_priorities_that_follow() -> None:
    buffer = four(alpha=1.0)
    buffer.alpha = 0.5
    buffer.update_priorities([0, 1], [16.0, 4.0])
    assert buffer.priorities.tree.weights[:4].tolist() == [4.0, 2.0, 3.0, 4.0]


def test_what_is_drawn_follows_the_priorities() -> None:
    rng = np.random.default_rng(0)
    buffer = PrioritizedReplayBuffer(500, (), (), alpha=0.7, rng=np.random.default_rng(1))
    buffer.add(np.arange(500.0), np.zeros(500), np.zeros(500), np.zeros(500), np.zeros(500))
    priorities = rng.exponential(size=500) + 0.05
    buffer.update_priorities(np.arange(500), priorities)
    counts = np.zeros(500)
    for _ in range(2000):
        counts += np.bincount(buffer.sample(100)["obs"].astype(int), minlength=500)
    expected = counts.sum() * priorities**0.7 / (priorities**0.7).sum()
    chi_square = ((counts - expected) ** 2 / expected).sum()
    # strata make the counts vary less than independent draws would: far below is right, above is not
    assert chi_square < 499 + 4 * (2 * 499) ** 0.5


def test_independent_batches_of_one_have_the_multinomial_chi_square() -> None:
    buffer = four(alpha=0.6)
    counts = np.bincount([int(buffer.sample(1)["obs"][0]) for _ in range(5000)], minlength=4)
    expected = 5000 * shares(buffer)[:4]
    assert 0.02 < ((counts - expected) ** 2 / expected).sum() < 16.3  # 99.9% with 3 degrees of freedom


def test_a_batch_has_one_row_from_each_equal_part() -> None:
    buffer = PrioritizedReplayBuffer(64, (), (), alpha=1.0)
    buffer.add(np.arange(64.0), np.zeros(64), np.zeros(64), np.zeros(64), np.zeros(64))
    assert buffer.sample(64)["obs"].tolist() == list(range(64))


def test_what_is_new_gets_the_largest_priority_so_far() -> None:
    buffer = PrioritizedReplayBuffer(4, (), (), alpha=0.5)
    for t in range(3):
        buffer.add(float(t), 0, 0.0, 0.0, False)
    buffer.sample(1)
    assert buffer.priorities.tree.weights[:4].tolist() == [1.0, 1.0, 1.0, 0.0]
    buffer.update_priorities([1], [9.0])
    buffer.update_priorities([1], [4.0])
    for t in range(3):  # the last two take the places of rows 0 and 1
        buffer.add(float(t), 0, 0.0, 0.0, False)
    buffer.sample(1)
    assert buffer.priorities.tree.weights[:4].tolist() == [3.0, 3.0, 1.0, 3.0]


def test_a_priority_of_zero_is_never_drawn() -> None:
    for alpha in (0.0, 0.6):
        buffer = four(alpha=alpha)
        buffer.update_priorities([0, 3], [0.0, 0.0])
        assert set(buffer.sample(500)["indices"]) == {1, 2}
    buffer.update_priorities([1, 2], [0.0, 0.0])
    with pytest.raises(ValueError, match="every priority in the replay buffer is 0"):
        buffer.sample(1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e-9])
def test_what_is_no_priority_is_refused_and_changes_nothing(bad: float) -> None:
    buffer = four()
    before = buffer.priorities.tree.weights.copy()
    with pytest.raises(ValueError, match=r"must be finite and not negative, not .*\(row 2\)"):
        buffer.update_priorities([0, 2], [5.0, bad])
    np.testing.assert_array_equal(buffer.priorities.tree.weights, before)
    assert buffer.priorities.max_priority == 4.0


def test_priorities_belong_to_rows_that_were_drawn() -> None:
    buffer = four(capacity=4)
    with pytest.raises(ValueError, match="only rows that were sampled"):
        buffer.update_priorities([4], [1.0])
    with pytest.raises(ValueError, match="2 priorities for 1 rows"):
        buffer.update_priorities([1], [1.0, 2.0])
    old = buffer.sample(8)["indices"]
    buffer.add(9.0, 0, 0.0, 0.0, False)  # row 4, in the place of row 0
    buffer.update_priorities(np.append(old, 0), np.full(9, 100.0))
    weights = buffer.priorities.tree.weights
    assert weights[0] == 4.0**0.6  # not 100: row 0 is gone
    assert buffer.sample(8)["indices"].min() >= 1


def test_a_row_whose_window_is_open_cannot_be_given_a_priority() -> None:
    buffer = PrioritizedReplayBuffer(16, (), (), n_step=3, gamma=0.9)
    for t in range(5):
        buffer.add(float(t), 0, 1.0, t + 1.0, False)
    assert set(buffer.sample(50)["indices"]) == {0, 1, 2}
    with pytest.raises(ValueError, match="only rows that were sampled"):
        buffer.update_priorities([3], [1.0])


def test_early_rows_keep_the_priority_they_were_given() -> None:
    """An episode that ended lets its last rows be drawn before n more rows are there; later they are not new again."""
    buffer = PrioritizedReplayBuffer(16, (), (), alpha=1.0, n_step=3, gamma=0.9)
    for t in range(3):
        buffer.add(float(t), 0, 1.0, t + 1.0, t == 2)
    buffer.sample(3)
    buffer.update_priorities([0, 1, 2], [0.5, 0.25, 0.125])
    for t in range(3, 9):
        buffer.add(float(t), 0, 1.0, t + 1.0, False)
        buffer.sample(3)
    assert buffer.priorities.tree.weights[:9].tolist() == [0.5, 0.25, 0.125, 1, 1, 1, 1, 0, 0]


def test_drawing_a_million_times_keeps_the_root() -> None:
    rng = np.random.default_rng(5)
    buffer = PrioritizedReplayBuffer(5000, (), (), rng=np.random.default_rng(6))
    rows = np.zeros(500)
    for _ in range(1000):
        buffer.add(rows, rows, rows, rows, rows)
        batch = buffer.sample(500)
        buffer.update_priorities(batch["indices"], rng.exponential(size=500))
    tree = buffer.priorities.tree
    exact = float(np.sum(tree.weights.astype(np.longdouble)))
    assert abs(tree.total - exact) <= 1e-12 * exact


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("next_step", [False, True])
def test_a_resumed_buffer_goes_on_bit_for_bit(n_step: int, next_step: bool) -> None:
    def build() -> PrioritizedReplayBuffer:
        return PrioritizedReplayBuffer(
            50, (1,), (), num_envs=3, n_step=n_step, gamma=0.9, rng=np.random.default_rng(2), beta=0.5
        )

    episodes, rng = Episodes(3, 1, next_step=next_step), np.random.default_rng(4)
    straight = build()
    for _ in range(8):
        for step in episodes.steps(7):
            straight.store(step)
        resumed = build()
        resumed.load_state_dict(straight.state_dict())
        one, other = straight.sample(32), resumed.sample(32)
        for name in one:
            assert one[name].tobytes() == other[name].tobytes(), name
        priorities = rng.exponential(size=32)
        for buffer in (straight, resumed):
            buffer.update_priorities(one["indices"], priorities)
        assert len(straight) == len(resumed)
        assert resumed.priorities.tree.total == straight.priorities.tree.total
        straight = resumed


def test_states_and_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(CheckpointError, match="is uniform, this one prioritised"):
        four().load_state_dict(ReplayBuffer(8, (), ()).state_dict())
    with pytest.raises(CheckpointError, match="is prioritised, this one uniform"):
        ReplayBuffer(8, (), ()).load_state_dict(four().state_dict())
    state = four().state_dict()
    state["priorities"] = {**state["priorities"], "weights": np.zeros(4, np.float32)}
    with pytest.raises(CheckpointError, match="saved priorities"):
        four().load_state_dict(state)
    with pytest.raises(ConfigError, match="must be 0 or more"):
        Priorities(alpha=-0.1)
    uniform = ReplayBuffer(4, (), ())
    uniform.add(0.0, 0, 0.0, 0.0, False)
    with pytest.raises(ValueError, match="samples uniformly"):
        uniform.update_priorities([0], [1.0])
    with pytest.raises(ValueError, match="samples uniformly"):
        uniform.sample(1, beta=0.5)


def test_tensors_where_a_device_is_given() -> None:
    buffer = PrioritizedReplayBuffer(8, (2,), (), "cpu", gamma=0.9)
    buffer.add([1.0, 2.0], 0, 0.0, [1.0, 2.0], False)
    batch = buffer.sample(4)
    assert all(isinstance(value, torch.Tensor) for value in batch.values())
    buffer.update_priorities(batch["indices"], torch.ones(4))


def test_memory_counts_the_weights() -> None:
    buffer = PrioritizedReplayBuffer(100_000, (17,), (6,))
    assert buffer.memory_bytes == 100_000 * (167 + 16)
    held = sum(level.nbytes for level in buffer.priorities.tree.levels)
    assert 15.9 * 100_000 < held <= 16 * 100_000
