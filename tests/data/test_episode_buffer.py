"""Whole episodes: where they are cut, which one is given out, what is dropped."""

from __future__ import annotations

import numpy as np
import pytest

from rl_training.data import EpisodeBuffer
from rl_training.types import ConfigError


def add_episode(buffer: EpisodeBuffer, length: int, first: int = 0, *, truncated: bool = False) -> None:
    for t in range(first, first + length):
        last = t == first + length - 1
        buffer.add_step(np.full(2, t, np.float32), t, t / 2, last and not truncated, truncated=last and truncated)


def test_an_episode_comes_back_as_arrays() -> None:
    buffer = EpisodeBuffer()
    add_episode(buffer, 3)
    episode = buffer.get_episode()
    np.testing.assert_array_equal(episode["obs"], [[0, 0], [1, 1], [2, 2]])
    np.testing.assert_array_equal(episode["actions"], [0, 1, 2])
    np.testing.assert_array_equal(episode["rewards"], [0, 0.5, 1])
    np.testing.assert_array_equal(episode["terminated"], [False, False, True])
    np.testing.assert_array_equal(episode["truncated"], [False, False, False])
    assert len(buffer) == 3


def test_the_last_finished_episode_is_given_out_while_another_is_open() -> None:
    buffer = EpisodeBuffer()
    buffer.add_step(np.zeros(2), 5, 1.0, False)
    assert buffer.get_episode()["actions"].tolist() == [5]  # none has finished yet
    buffer.clear()
    add_episode(buffer, 2)
    add_episode(buffer, 3, first=10, truncated=True)
    buffer.add_step(np.zeros(2), 99, 0.0, False)
    assert buffer.get_episode()["actions"].tolist() == [10, 11, 12]
    assert buffer.get_episode()["truncated"].tolist() == [False, False, True]
    assert [len(episode["rewards"]) for episode in buffer.episodes()] == [2, 3]
    assert len(buffer) == 6


def test_clear_forgets_the_open_episode_too() -> None:
    buffer = EpisodeBuffer()
    add_episode(buffer, 2)
    buffer.add_step(np.zeros(2), 1, 0.0, False)
    buffer.clear()
    assert len(buffer) == 0
    assert buffer.episodes() == []
    with pytest.raises(ValueError, match="empty"):
        buffer.get_episode()
    add_episode(buffer, 1, first=4)
    assert buffer.get_episode()["actions"].tolist() == [4]


def test_reused_arrays_and_dict_observations() -> None:
    buffer = EpisodeBuffer()
    shared = {"a": np.zeros(1), "b": np.zeros((), np.int64)}
    for t in range(3):
        shared["a"][:] = t
        shared["b"][...] = t
        buffer.add_step(shared, shared["a"], 0.0, t == 2)
    episode = buffer.get_episode()
    assert episode["obs"]["a"][:, 0].tolist() == episode["obs"]["b"].tolist() == [0, 1, 2]
    assert episode["actions"][:, 0].tolist() == [0, 1, 2]


def test_memory_is_bounded_by_dropping_whole_episodes() -> None:
    buffer = EpisodeBuffer(max_steps=10)
    for first in range(0, 400, 4):
        add_episode(buffer, 4, first)
        assert len(buffer) <= 10
    assert [int(episode["actions"][0]) for episode in buffer.episodes()] == [392, 396]
    with pytest.raises(ConfigError, match="max_episode_steps"):
        add_episode(buffer, 11)
    with pytest.raises(ConfigError, match="at least 1"):
        EpisodeBuffer(max_steps=0)
