"""n-step transitions: the published numbers, every window against the slow way, nothing across ends or the ring."""

from __future__ import annotations

import numpy as np
import pytest
from replay_cases import Episodes

from rl_training.data import PrioritizedReplayBuffer, ReplayBuffer
from rl_training.numerics.returns import n_step_returns
from rl_training.types import ConfigError

REWARDS = [1.0, 2.0, 3.0, 4.0]
TARGETS = {"truncated": [12.52, 15.23, 14.7, 13.0], "terminated": [12.52, 7.94, 6.6, 4.0]}


def four_steps(end: str, capacity: int = 16, **keywords: object) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity, (1,), (), n_step=3, gamma=0.9, **keywords)  # type: ignore[arg-type]
    for t, reward in enumerate(REWARDS):
        last = t == 3
        buffer.add([t], t, reward, [t + 1], last and end == "terminated", truncated=last and end == "truncated")
    return buffer


@pytest.mark.parametrize("end", TARGETS)
def test_the_published_numbers(end: str) -> None:
    buffer = four_steps(end)
    assert len(buffer) == 4
    batch = buffer.sample(200)
    targets = batch["rewards"] + batch["discounts"] * (1 - batch["terminated"]) * 10.0
    for t, expected in enumerate(TARGETS[end]):
        np.testing.assert_allclose(targets[batch["obs"][:, 0] == t], expected, rtol=1e-6)
    assert set(batch["obs"][:, 0]) == {0, 1, 2, 3}
    np.testing.assert_array_equal(batch["next_obs"][:, 0], np.minimum(batch["obs"][:, 0] + 3, 4))
    np.testing.assert_array_equal(batch[end], batch["obs"][:, 0] > 0)
    ends = [False, False, False, True]
    terminated = [end == "terminated" and ended for ended in ends]
    slow = n_step_returns(REWARDS, [10.0] * 4, terminated, ends, gamma=0.9, n=3)
    np.testing.assert_allclose(TARGETS[end], slow, atol=1e-12)


def test_a_row_waits_until_its_window_is_complete() -> None:
    buffer = ReplayBuffer(16, (), (), n_step=3, gamma=0.9)
    sizes = []
    for t in range(6):
        buffer.add(float(t), 0, 1.0, t + 1.0, t == 4)
        sizes.append(len(buffer))
    assert sizes == [0, 0, 1, 2, 5, 5]
    assert set(buffer.sample(100)["obs"]) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("n_step", [1, 2, 3, 5])
@pytest.mark.parametrize(("next_step", "lost"), [(False, 0.0), (True, 0.0), (False, 0.1)])
def test_every_window_equals_the_slow_way(prioritized: bool, n_step: int, next_step: bool, lost: float) -> None:
    """Through several rounds of a ring whose size is no multiple of the environments' number."""
    num_envs, capacity, gamma = 3, 23, 0.9
    episodes = Episodes(num_envs, seed=n_step, next_step=next_step, lost=lost)
    kind = PrioritizedReplayBuffer if prioritized else ReplayBuffer
    buffer = kind(capacity, (1,), (), num_envs=num_envs, n_step=n_step, gamma=gamma, rng=np.random.default_rng(0))
    for step in episodes.steps(40):
        buffer.store(step)
        expected = episodes.windows(n_step, gamma, max(0, len(episodes.rows) - capacity))
        assert len(buffer) == len(expected)
        if not expected:
            with pytest.raises(ValueError, match=r"replay buffer (is empty|holds no complete)"):
                buffer.sample(1)
            continue
        batch = buffer.sample(128)
        assert set(batch["obs"][:, 0].astype(int)) <= set(expected)
        for i, number in enumerate(batch["obs"][:, 0].astype(int)):
            reward, next_obs, discount, terminated, truncated = expected[number]
            assert batch["actions"][i] == number
            assert batch["rewards"][i] == pytest.approx(reward, abs=1e-5)
            assert batch["discounts"][i] == pytest.approx(discount, rel=1e-6)
            assert batch["next_obs"][i, 0] == next_obs
            assert (batch["terminated"][i], batch["truncated"][i]) == (terminated, truncated)
    drawn = {int(obs) for _ in range(40) for obs in buffer.sample(128)["obs"][:, 0]}
    assert drawn == set(expected)


@pytest.mark.parametrize("next_step", [False, True])
def test_windows_are_drawn_uniformly(next_step: bool) -> None:
    episodes = Episodes(2, seed=3, next_step=next_step)
    buffer = ReplayBuffer(30, (1,), (), num_envs=2, n_step=3, gamma=0.9, rng=np.random.default_rng(1))
    for step in episodes.steps(33):
        buffer.store(step)
    names = sorted(episodes.windows(3, 0.9, len(episodes.rows) - 30))
    counts = np.bincount(buffer.sample(100_000)["obs"][:, 0].astype(int))[names]
    expected = 100_000 / len(names)
    assert counts.sum() == 100_000
    freedom = len(names) - 1
    assert ((counts - expected) ** 2 / expected).sum() < freedom + 4 * (2 * freedom) ** 0.5


def test_discounts_of_one_step_only_where_gamma_is_given() -> None:
    for gamma, present in ((0.97, True), (None, False)):
        buffer = ReplayBuffer(4, (), (), gamma=gamma)
        buffer.add(1.0, 0, 1.0, 2.0, False)
        batch = buffer.sample(3)
        assert ("discounts" in batch) is present
        if present:
            assert batch["discounts"].dtype == np.float32
            assert batch["discounts"].tolist() == [np.float32(0.97)] * 3


def test_what_cannot_be_is_refused() -> None:
    for keywords, message in (
        ({"n_step": 0}, "at least 1"),
        ({"n_step": 3}, "give the buffer gamma"),
        ({"gamma": 1.5}, "between 0 and 1"),
        ({"n_step": 3, "gamma": 0.9, "num_envs": 4}, "3 steps of 4 environments"),
    ):
        with pytest.raises(ConfigError, match=message):
            ReplayBuffer(10, (), (), **keywords)  # type: ignore[arg-type]
    buffer = ReplayBuffer(10, (), (), n_step=2, gamma=0.9, num_envs=3)
    with pytest.raises(ValueError, match="not whole steps of 3 environments"):
        buffer.add(np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(2))
    assert len(buffer) == 0
