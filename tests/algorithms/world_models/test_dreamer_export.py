"""Dreamer's policy as a program of `torch.export`, against the policy itself."""

from __future__ import annotations

import numpy as np
import pytest
from dreamer_cases import IMAGE, box, observations, small

from rl_training.algorithms.torch_export import greedy_module, program_bytes, program_runner
from rl_training.export.check import CheckedPolicy, FilePolicy
from rl_training.types import DiscreteSpec, SpaceSpec


@pytest.mark.parametrize(
    ("observation", "action"),
    [(box(3), DiscreteSpec(3)), (box(3), box(2, 2.0)), (IMAGE, DiscreteSpec(3))],
    ids=["discrete", "real", "image"],
)
def test_programs_follow_the_state_of_the_model(observation: SpaceSpec, action: SpaceSpec) -> None:
    dreamer, rng = small(observation, action), np.random.default_rng(0)
    policy = dreamer.policy
    state = policy.state_dict()
    for name, value in state["network"].items():
        if np.asarray(value).dtype.kind == "f":
            state["network"][name] = value + 0.1 * rng.standard_normal(value.shape).astype("f")
    policy.load_state_dict(state)
    module = greedy_module(policy)
    assert module is not None
    file = FilePolicy(program_runner(program_bytes(module, {})), module.inputs())
    checked, seen = CheckedPolicy(policy, file, action), []
    for count in (24, 1):
        carry, is_first = checked.initial_carry(count), np.ones(count, bool)
        for _ in range(20):
            result = checked.act(observations(observation, (count,), rng), carry, is_first, rng)
            carry, is_first = result.carry, rng.random(count) < 0.1
            seen.append(result.env_actions)
    assert checked.agreement.rows == 500
    assert len(np.unique(np.concatenate(seen), axis=0)) > 1
