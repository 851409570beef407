"""Batches of datasets: next actions, bounds of returns, windows, and mixtures with a run's own steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dataset_cases import dict_dataset, episode, small_dataset

from rl_training.config.schema import DatasetConfig
from rl_training.data.datasets.dataset import joined
from rl_training.data.datasets.dataset_replay import DatasetReplay, next_actions, returns_to_go
from rl_training.data.datasets.dataset_windows import DatasetSequences, DatasetWindows, undiscounted
from rl_training.data.datasets.mixed_replay import MixedReplay
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.types import ConfigError

WHOLE = DatasetConfig()


def test_the_next_action_is_known_but_at_the_end_of_an_episode() -> None:
    data = small_dataset()  # episodes of 3, 2 and 4 steps
    actions = np.arange(9, dtype=np.float32)[:, None]
    found = next_actions(data, actions)
    assert found["next_known"].tolist() == [True, True, False, True, False, True, True, True, False]
    assert found["next_actions"][:, 0].tolist() == [1, 2, 0, 4, 0, 6, 7, 8, 0]


def test_returns_to_go_are_returns_where_episodes_terminated() -> None:
    data, ones = small_dataset(), np.ones(9, np.float32)
    np.testing.assert_allclose(returns_to_go(data, ones, 0.5), [1.75, 1.5, 1.0, 1.5, 1.0, 1.875, 1.75, 1.5, 1.0])


def test_returns_to_go_bound_what_would_have_followed_a_truncation() -> None:
    """Rewards of -1 with gamma 0.5: nothing worse than -2 can follow, so truncated episodes have -2 throughout."""
    data = small_dataset()
    bounds = returns_to_go(data, -np.ones(9, np.float32), 0.5)
    np.testing.assert_allclose(bounds, [-1.75, -1.5, -1.0, -2.0, -2.0, -2.0, -2.0, -2.0, -2.0])
    assert np.isneginf(returns_to_go(data, -np.ones(9, np.float32), 1.0)[3:]).all()
    assert returns_to_go(data, np.ones(9, np.float32), 1.0).tolist() == [3, 2, 1, 2, 1, 4, 3, 2, 1]


def test_windows_stay_inside_of_their_episode() -> None:
    data = small_dataset()
    windows = DatasetWindows(data, np.random.default_rng(0), WHOLE, length=3)
    batch = windows.sample(200)
    assert batch["obs"].shape == (200, 3, 2)
    assert batch["actions"].shape == (200, 3, 1)
    first = batch["obs"][:, 0, 0]
    ends = {10: 13, 20: 22}
    for row in range(200):
        end = ends[int(first[row]) // 10 * 10]
        steps = first[row] + np.arange(3)
        assert batch["valid"][row].tolist() == (steps < end).tolist()
        np.testing.assert_array_equal(batch["obs"][row, :, 0], np.minimum(steps, end - 1))
        np.testing.assert_array_equal(batch["returns_to_go"][row], end - np.minimum(steps, end - 1))
    assert set(first.tolist()) == {10.0, 11.0, 12.0, 20.0, 21.0}  # the third episode has no end
    assert undiscounted(data, np.arange(9.0)).tolist() == [3, 3, 2, 7, 4, 26, 21, 15, 8]
    camera = DatasetWindows(dict_dataset(), np.random.default_rng(0), WHOLE, length=2).sample(3)
    assert camera["obs"]["camera"].shape == (3, 2, 2, 2, 3)


def test_windows_of_an_open_episode_are_drawn_where_there_is_no_other() -> None:
    data = small_dataset().select(np.array([2]))
    batch: Any = DatasetWindows(data, np.random.default_rng(0), WHOLE, length=2).sample(50)
    assert set(batch["obs"][:, 0, 0].tolist()) == {30.0, 31.0, 32.0, 33.0}


def test_no_window_begins_in_an_episode_that_the_recording_cut_off() -> None:
    """It has the seed of its reset and is not whole; one whose beginning is unknown has returns all the same."""
    info = small_dataset().info
    parts = [episode(2, 10.0), episode(2, 20.0, terminated=False, whole=False), episode(2, 30.0, whole=False)]
    data = joined(info, [parts[0], parts[1], replace(parts[2], seed=-1)])
    assert data.ends_known.tolist() == [True, False, True]
    batch: Any = DatasetWindows(data, np.random.default_rng(0), WHOLE, length=2).sample(50)
    assert set(batch["obs"][:, 0, 0].tolist()) == {10.0, 11.0, 30.0, 31.0}


def test_an_open_episode_is_not_among_the_best() -> None:
    """With rewards of -1 the open episode of 1 step would have the highest return."""
    info = small_dataset().info
    episodes = [episode(3, 10.0), episode(2, 20.0), episode(1, 30.0, terminated=False, whole=False)]
    for steps in episodes:
        steps.rewards[:] = -1.0
    episodes[2].truncated[-1] = False
    replay = DatasetReplay(joined(info, episodes), np.random.default_rng(0), DatasetConfig(top_fraction=0.4))
    assert replay.data.observations[:, 0].tolist() == [20.0, 21.0, 22.0]


def test_sequences_go_on_with_the_next_episode() -> None:
    """Row r of an episode shows 10, 20 or 30 plus its step; the final observation is a next observation only."""
    batch: Any = DatasetSequences(small_dataset(), np.random.default_rng(0), WHOLE, length=4).sample(200)
    rows = [10, 11, 12, 20, 21, 30, 31, 32, 33]
    found = {tuple(sequence) for sequence in batch["obs"][:, :, 0].astype(int).tolist()}
    assert found == {tuple(rows[begin : begin + 4]) for begin in range(6)}
    np.testing.assert_array_equal(batch["next_obs"], batch["obs"] + (batch["next_obs"] - batch["obs"])[:1, :1])
    np.testing.assert_array_equal(batch["is_first"], np.isin(batch["obs"][:, :, 0], [10, 20, 30]))
    assert batch["valid"].all()
    assert batch["terminated"][batch["obs"][:, :, 0] == 12].all()
    with pytest.raises(ConfigError, match="the dataset has 9 rows"):
        DatasetSequences(small_dataset(), np.random.default_rng(0), WHOLE, length=10)
    camera = DatasetSequences(dict_dataset(), np.random.default_rng(0), WHOLE, length=2).sample(3)
    assert camera["next_obs"]["camera"].shape == (3, 2, 2, 2, 3)


def own_rows(count: int) -> ReplayBuffer:
    buffer = ReplayBuffer(100, (2,), (1,), action_dtype="float32", rng=np.random.default_rng(1))
    for number in range(count):
        obs = np.full((1, 2), 1000.0 + number, np.float32)
        buffer.add(obs, np.full((1, 1), 0.5, np.float32), np.ones(1), obs + 1, np.zeros(1, bool))
    return buffer


@pytest.mark.parametrize(("share", "own"), [(0.5, 8), (0.25, 4), (0.0, 0), (1.0, 16)])
def test_a_batch_has_its_share_of_own_steps_in_every_piece(share: float, own: int) -> None:
    columns = ("next_actions", "returns_to_go")
    dataset = DatasetReplay(small_dataset(), np.random.default_rng(0), DatasetConfig(reward=0.1), columns, 0.9)
    mixed = MixedReplay(dataset, own_rows(5), share, pieces=2)
    batch: Any = mixed.sample(32)
    is_own = batch["obs"][:, 0] >= 1000
    assert is_own[:16].sum() == is_own[16:].sum() == own
    np.testing.assert_allclose(batch["rewards"], 0.1, rtol=1e-6)  # both are scaled
    assert np.isneginf(batch["returns_to_go"][is_own]).all()
    assert np.isfinite(batch["returns_to_go"][~is_own]).all()
    assert not batch["next_known"][is_own].any()
    assert {name: len(column) for name, column in batch.items()} == dict.fromkeys(batch, 32)


def test_a_mixture_stores_and_saves_the_steps_of_the_run() -> None:
    dataset = DatasetReplay(small_dataset(), np.random.default_rng(0), WHOLE)
    mixed = MixedReplay(dataset, own_rows(3), 0.5)
    assert len(mixed) == 3
    other = MixedReplay(dataset, own_rows(0), 0.5)
    other.load_state_dict(mixed.state_dict())
    assert len(other) == 3
