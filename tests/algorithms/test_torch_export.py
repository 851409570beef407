"""Policies as programs of `torch.export`, against the policy itself: those that have no graph, and every head."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from rl_training.algorithms.torch_export import greedy_module, program_bytes, program_runner
from rl_training.build_context import BuildContext
from rl_training.config.schema import BackboneConfig, MemoryConfig, NetworkConfig
from rl_training.export.check import CheckedPolicy, FilePolicy
from rl_training.registry import import_own
from rl_training.seeding import Streams
from rl_training.types import REWARD, BoxSpec, DictSpec, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec, SpaceSpec

FLOAT = np.dtype(np.float32)
NUMBERS = BoxSpec(np.full(3, -np.inf, "f"), np.full(3, np.inf, "f"), FLOAT)
FORCE = BoxSpec(np.array([-2.0, 0.0], "f"), np.array([1.0, 3.0], "f"), FLOAT)


def own(space: SpaceSpec, config: BackboneConfig, rng: np.random.Generator) -> Any:
    from rl_training.models.backbones.mlp import MLP

    return MLP(space, BackboneConfig(hidden_dims=config.hidden_dims), rng)


CASES: dict[str, Any] = {
    "ppo, transformer, masked": ("ppo", "transformer", DiscreteSpec(4), {}),
    "ppo, own, several choices, masked": ("ppo", "own", MultiDiscreteSpec((2, 3)), {}),
    "ppo, own, switches": ("ppo", "own", MultiBinarySpec(2), {}),
    "ppo, own, real actions": ("ppo", "own", FORCE, {}),
    "dqn, own, c51": ("dqn", "own", DiscreteSpec(3), {"distribution": "c51"}),
    "sac, transformer": ("sac", "transformer", FORCE, {}),
    "sac, own, discrete": ("sac", "own", DiscreteSpec(3), {}),
    "td3, own": ("td3", "own", FORCE, {}),
    "dt": ("dt", "sequences", FORCE, {}),
    "dt, discrete, masked": ("dt", "sequences", DiscreteSpec(4), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_programs_act_as_their_policy(case: str) -> None:
    algo, kind, actions, hparams = CASES[case]
    size = 5 if "several" in case else 4
    masked = DictSpec({"speed": NUMBERS, "action_mask": MultiBinarySpec(size)})
    space: SpaceSpec = masked if "masked" in case else NUMBERS
    body = BackboneConfig(type=f"{__name__}:own" if kind == "own" else kind, hidden_dims=(8,))
    if kind == "sequences":
        body = BackboneConfig(hidden_dims=(), memory=MemoryConfig("transformer", size=8, layers=1, heads=2, window=4))
    network = NetworkConfig(actor=body, critic=body)
    spec = import_module(f"rl_training.hparams.{algo}").SPEC
    ctx = BuildContext(space, actions, streams=Streams(1), network=network, normalize_obs=True)
    build: Any = import_own(spec.build, "algorithm") if isinstance(spec.build, str) else spec.build
    policy, rng = build(ctx, spec.hparams(**hparams)).policy, np.random.default_rng(3)
    state = policy.state_dict()
    for name, value in state["network"].items():
        if value.dtype.kind == "f":
            state["network"][name] = value + 0.2 * rng.standard_normal(value.shape).astype("f")
    policy.load_state_dict(state)
    if algo == "dt":
        policy.aim_at(np.array([-3.0, 7.0]))
    module = greedy_module(policy)
    assert module is not None
    file = FilePolicy(program_runner(program_bytes(module, {"algo": algo})), module.inputs())
    checked, seen = CheckedPolicy(policy, file, actions), []
    for count in (50, 1):  # the program takes any number of rows
        carry, is_first = checked.initial_carry(count), np.ones(count, bool)
        for _ in range(20):
            numbers = (3.0 * rng.standard_normal((count, 3))).astype("f")
            mask = rng.integers(0, 2, (count, size)).astype(np.int8)
            mask[:, [0, 2]] = 1
            obs = {"speed": numbers, "action_mask": mask} if "masked" in case else numbers
            result = checked.act(obs, carry, is_first, rng)
            carry, is_first = result.carry, rng.random(count) < 0.1
            if REWARD in carry:
                carry[REWARD] = rng.standard_normal(count).astype("f")
            seen.append(result.env_actions)
    assert checked.agreement.rows == 1020
    assert len(np.unique(np.concatenate(seen), axis=0)) > 1
