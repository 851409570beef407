"""Parts of a config that do not fit each other are refused when it is read."""

from __future__ import annotations

import pytest

from rl_training.config.loading import parse_config
from rl_training.types import ConfigError


@pytest.mark.parametrize("algo", ["dreamer", "planet", "dynamics", "pets", "mbpo"])
def test_world_models_take_no_prioritised_buffer(algo: str) -> None:
    """They give no priorities, so what the config asks for would have no effect."""
    given = {"algo": algo, "env_id": "Pendulum-v1"}
    with pytest.raises(ConfigError, match=f"'{algo}' gives a replay buffer no priorities, .*; leave it out"):
        parse_config({**given, "buffer": {"type": "prioritized"}})
    assert parse_config({**given, "buffer": {"type": "uniform"}}).buffer.type in ("replay", "uniform")
