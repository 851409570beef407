"""What is sent between the process that trains and its runners."""

from __future__ import annotations

import pickle

import numpy as np

from rl_training.training.remote.delivery import sent_once


def test_what_actor_and_critic_share_is_sent_once() -> None:
    """Two views of one memory are one object on the way; equal numbers in two places are two."""
    memory = np.arange(10_000, dtype=np.float32)
    state = {
        "actor": {"encoder": memory[:], "head": np.zeros(3)},
        "critic": {"encoder": memory[:], "other": memory[:5000], "copy": memory.copy()},
        "version": 1,
    }
    assert len(pickle.dumps(state)) > 40_000 * 3
    once = sent_once(state)
    assert len(pickle.dumps(once)) < 40_000 * 2 + 20_000 + 1000
    back = pickle.loads(pickle.dumps(once))
    assert back["version"] == 1
    for part, name in (("actor", "encoder"), ("critic", "encoder"), ("critic", "copy")):
        np.testing.assert_array_equal(back[part][name], memory)
    np.testing.assert_array_equal(back["critic"]["other"], memory[:5000])
    assert once["critic"]["copy"] is not once["critic"]["encoder"]
