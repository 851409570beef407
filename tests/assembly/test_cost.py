"""What a run will cost: how often it learns, and the memory of what is stored beside its transitions."""

from __future__ import annotations

from typing import Any

from rl_training.assembly.cost import plan
from rl_training.config.loading import parse_config

ROWS = 1000


def planned(**hparams: Any) -> dict[str, Any]:
    given = {"size": "mini", "batch_size": 4, "sequence_length": 8, "train_ratio": 16, **hparams}
    config = {"algo": "dreamer", "env_id": "Pendulum-v1", "hparams": given, "buffer": {"size": ROWS}}
    return plan(parse_config(config))


def test_updates_of_a_world_model_are_given_per_env_step() -> None:
    """train_ratio is replayed steps per env step; an update replays batch_size * sequence_length of them."""
    cost = planned()
    assert cost["updates_per_step"] == 0.5
    assert cost["updates"] == (cost["env_steps"] - 1024) // 2
    assert planned(train_ratio=1, batch_size=3, sequence_length=1)["updates_per_step"] == 0.333333


def test_stored_states_count_in_the_memory_of_the_buffer() -> None:
    """A row of `mini` holds 64 floats and 8 class numbers besides its transition."""
    assert planned()["buffer_bytes"] - planned(context="zero")["buffer_bytes"] == ROWS * (4 * 64 + 8)
