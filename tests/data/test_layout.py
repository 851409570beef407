"""The records behind the buffers' constructors: the layout of a step, and the options of replay."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from rl_training.data import Layout, ReplayBuffer, ReplayOptions, RolloutBuffer, replay_memory_bytes
from rl_training.data.replay_options import ReplayKeywords
from rl_training.types import BoxSpec, DictSpec, DiscreteSpec

OBSERVATION = DictSpec(
    {
        "image": BoxSpec(np.zeros((3, 3)), np.ones((3, 3)), np.dtype(np.uint8)),
        "speed": BoxSpec(np.zeros(()), np.ones(()), np.dtype(np.float64)),
    }
)


def test_one_layout_makes_every_kind_of_buffer() -> None:
    layout = Layout.of(OBSERVATION, DiscreteSpec(4), num_envs=2)
    replay = ReplayBuffer(10, **layout.keywords())
    rollout = RolloutBuffer(num_steps=5, **layout.keywords())
    assert replay.layout == rollout.layout == layout
    assert (replay.obs["image"].shape, replay.obs["image"].dtype) == ((10, 3, 3), np.uint8)
    assert (rollout.obs["speed"].shape, rollout.obs["speed"].dtype) == ((5, 2), np.float64)
    assert replay.actions.dtype == rollout.actions.dtype == np.dtype(DiscreteSpec(4).dtype)


def test_bytes_of_a_transition() -> None:
    layout = Layout(17, 6)
    assert layout.transition_bytes == 2 * 17 * 4 + 6 * 4 + 4 + 3 == replay_memory_bytes(1, 17, 6)
    assert ReplayBuffer(100, **layout.keywords()).memory_bytes == 100 * layout.transition_bytes


def test_options_are_keywords_and_nothing_else_is() -> None:
    buffer = ReplayBuffer(10, (), (), n_step=3, gamma=0.9)
    assert buffer.options == ReplayOptions(n_step=3, gamma=0.9)
    assert ReplayBuffer(10, (), ()).options == ReplayOptions()
    with pytest.raises(TypeError, match="'nstep'"):
        ReplayBuffer(10, (), (), nstep=3)  # type: ignore[call-arg]


def test_the_checked_keywords_are_the_fields() -> None:
    assert {field.name: field.type for field in fields(ReplayOptions)} == {
        name: annotation.__forward_arg__ for name, annotation in ReplayKeywords.__annotations__.items()
    }
