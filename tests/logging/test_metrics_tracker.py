"""Window statistics against numbers worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from rl_training.logging.logger import MetricsTracker


def test_episode_statistics_over_the_window() -> None:
    tracker = MetricsTracker(window=3)
    for value, length, success in ((100.0, 1, False), (1.0, 10, True), (2.0, 20, False), (6.0, 30, True)):
        tracker.update({"return": value, "length": length, "success": success})
    stats = tracker.get_episode_stats()
    assert stats == pytest.approx(
        {
            "episodes": 4,
            "return_mean": 3.0,
            "return_std": np.sqrt(14 / 3),
            "return_min": 1.0,
            "return_max": 6.0,
            "length_mean": 20.0,
            "length_std": np.sqrt(200 / 3),
            "length_min": 10.0,
            "length_max": 30.0,
            "success_rate": 2 / 3,
        }
    )
    assert tracker.get_training_stats() == {}


def test_training_statistics_take_tensors() -> None:
    tracker = MetricsTracker()
    tracker.update(loss=torch.tensor(1.0))
    tracker.update(loss=np.float32(3.0), kl=0.5)
    assert tracker.get_training_stats() == {
        "loss_mean": 2.0,
        "loss_std": 1.0,
        "loss_min": 1.0,
        "loss_max": 3.0,
        "kl_mean": 0.5,
        "kl_std": 0.0,
        "kl_min": 0.5,
        "kl_max": 0.5,
    }
    assert tracker.get_episode_stats() == {"episodes": 0}


def test_both_spellings_of_an_episode_are_one() -> None:
    tracker = MetricsTracker()
    tracker.update(episode_reward=1.0, episode_length=5)
    tracker.update({"return": 3.0, "length": 7, "success": None})
    stats = tracker.get_episode_stats()
    assert (stats["episodes"], stats["return_mean"], stats["length_mean"]) == (2, 2.0, 6.0)
    assert "success_rate" not in stats


def test_reset_forgets() -> None:
    tracker = MetricsTracker()
    tracker.update({"return": 1.0, "loss": 1.0})
    tracker.reset()
    assert tracker.get_episode_stats() == {"episodes": 0}
    assert tracker.get_training_stats() == {}


def test_state_continues_the_window() -> None:
    one, other = MetricsTracker(window=2), MetricsTracker(window=2)
    for value in (1.0, 2.0, 3.0):
        one.update({"return": value, "loss": value})
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    for tracker in (one, other):
        tracker.update({"return": 5.0, "loss": 5.0})
    assert other.get_episode_stats() == one.get_episode_stats()
    assert other.get_training_stats() == one.get_training_stats()
    assert other.get_episode_stats()["return_mean"] == 4.0


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        MetricsTracker(window=0)
