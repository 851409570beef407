"""Which replay buffer a config asks for, and that every one of them learns by priority where it is told to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rl_training.assembly.build import build_trainer
from rl_training.config.loading import parse_config
from rl_training.data.her import HindsightReplayBuffer
from rl_training.data.prioritized import PrioritizedReplayBuffer
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.types import ConfigError

BITS = {"env_id": "RLProbe/BitFlip-v0", "env": {"num_envs": 2, "kwargs": {"num_bits": 4}}}


def trainer(buffer: str | None, **hparams: Any) -> Any:
    small = {"learning_starts": 16, "updates_per_step": 0.1, "batch_size": 8, **hparams}
    kind = {} if buffer is None else {"type": buffer}
    return build_trainer(parse_config({"algo": "dqn", **BITS, "hparams": small, "buffer": {"size": 512, **kind}}))


@pytest.mark.parametrize(
    ("buffer", "kind"), [(None, ReplayBuffer), ("prioritized", PrioritizedReplayBuffer), ("her", HindsightReplayBuffer)]
)
def test_every_buffer_follows_priorities(buffer: str | None, kind: type):
    built = trainer(
        buffer, prioritized=True, priority_alpha=0.7, priority_beta={"type": "linear", "start": 0, "end": 1}
    )
    built.total_timesteps = 1_000_000
    built.train_step()
    assert type(built.buffer) is kind
    priorities = built.buffer.priorities
    assert priorities.alpha == 0.7
    assert 0.0 < priorities.beta < 1.0, "the schedule moved it"
    weights = priorities.tree.weights[: len(built.buffer)]
    assert len(np.unique(weights)) > 10, "errors became priorities"
    built.close()


def test_without_them_all_rows_are_alike():
    built = trainer(None)
    assert built.buffer.priorities is None
    built.close()


class Narrow:
    """A user's buffer that knows nothing of priorities."""

    def __init__(self, capacity: int, obs_shape: Any, action_shape: Any) -> None:
        pass


def test_a_buffer_that_does_not_take_its_arguments_is_refused():
    with pytest.raises(ConfigError, match=r"buffer.type 'test_replay_choice:Narrow' is called with .*does not take"):
        trainer(f"{Narrow.__module__}:Narrow", prioritized=True)
