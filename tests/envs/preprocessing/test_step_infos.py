"""Infos for the learner: which rows they speak of, before and behind an episode's end."""

from __future__ import annotations

import numpy as np

from rl_training.envs.preprocessing.step_infos import ENV_FRAMES, LEARNING_REWARD, LIFE_LOST, frames_of, learner_view

RAW = np.array([5.0, 1.0, -7.0])
ENDS = np.array([False, False, True])


def test_without_infos_nothing_changes() -> None:
    rewards, terminated = learner_view(RAW, ENDS, {"lives": np.array([3, 2, 1])})
    assert rewards is RAW
    assert terminated is ENDS


def test_rows_that_are_not_spoken_of_keep_their_own() -> None:
    infos = {LEARNING_REWARD: np.array([1.0, 0.0, 0.0]), f"_{LEARNING_REWARD}": np.array([True, False, False])}
    rewards, _ = learner_view(RAW, ENDS, infos)
    assert rewards.tolist() == [1.0, 1.0, -7.0]
    assert RAW.tolist() == [5.0, 1.0, -7.0]


def test_the_last_step_of_an_episode_speaks_through_the_final_infos() -> None:
    final = {
        LEARNING_REWARD: np.array([0.0, 0.0, -1.0]),
        f"_{LEARNING_REWARD}": np.array([False, False, True]),
        ENV_FRAMES: np.array([0, 0, 2]),
    }
    lost = {LIFE_LOST: np.array([False, True, False]), ENV_FRAMES: np.array([4, 4, 0])}
    infos = {**lost, "final_info": final}
    rewards, terminated = learner_view(RAW, ENDS, infos)
    assert rewards.tolist() == [5.0, 1.0, -1.0]
    assert terminated.tolist() == [False, True, True]
    assert ENDS.tolist() == [False, False, True]
    assert frames_of(infos) == 10


def test_frames_that_are_not_counted() -> None:
    assert frames_of({}) == 0
