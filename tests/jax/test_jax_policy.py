"""Policies of JAX runs outside of training: exported as functions, and across the backends."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from rl_training import load, train
from rl_training.build_context import BuildContext
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.config.schema import BackboneConfig, NetworkConfig
from rl_training.hparams import dqn, ppo, reinforce, sac
from rl_training.jax.host import build_agent
from rl_training.jax.policy import JaxPolicy
from rl_training.jax.training.driver import to_env
from rl_training.numerics.encoding import to_bounds
from rl_training.seeding import Streams
from rl_training.types import BoxSpec, ConfigError, DictSpec, DiscreteSpec

FLOAT = np.dtype(np.float32)
OBS = BoxSpec(np.full(3, -1.0, "f"), np.full(3, 1.0, "f"), FLOAT)
PICTURE = BoxSpec(np.zeros((1, 4, 4), "f"), np.ones((1, 4, 4), "f"), FLOAT)
MIXED = DictSpec({"place": DiscreteSpec(4), "speed": OBS})
FORCES = BoxSpec(np.full(2, -0.01, "f"), np.full(2, 0.02, "f"), FLOAT)
GRU = BackboneConfig(type="gru", hidden_dims=(8,))
CNN = BackboneConfig(type="cnn", hidden_dims=(4,), kwargs={"channels": [2], "kernels": [2], "strides": [1]})
CASES: dict[str, Any] = {
    "categorical": (ppo, OBS, DiscreteSpec(3), None),
    "cut to the bounds": (reinforce, OBS, FORCES, None),
    "moved to the bounds": (sac, OBS, FORCES, None),
    "dict": (dqn, MIXED, DiscreteSpec(3), None),
    "memory": (reinforce, OBS, DiscreteSpec(3), GRU),
    "cnn": (reinforce, PICTURE, DiscreteSpec(3), CNN),
}


def policy_of(case: str) -> JaxPolicy:
    """A policy with initial weights, those of the last layer scaled up so that actions differ."""
    module, observation_space, action_space, backbone = CASES[case]
    network = NetworkConfig() if backbone is None else NetworkConfig(actor=backbone, critic=backbone)
    ctx = BuildContext(observation_space, action_space, num_envs=5, streams=Streams(1), network=network)
    agent = build_agent(ctx, module.SPEC, module.SPEC.hparams())
    agent.state = agent.state._replace(params=jax.tree.map(lambda x: 3.0 * x, agent.state.params))
    return agent.policy


def observations(case: str, count: int = 5) -> Any:
    rng, space = np.random.default_rng(0), CASES[case][1]
    numbers = rng.standard_normal((count, *getattr(space, "shape", (3,)))).astype("f")
    return {"place": rng.integers(0, 4, count), "speed": numbers} if case == "dict" else numbers


@pytest.mark.parametrize("case", CASES)
def test_an_exported_policy_does_what_the_policy_does(case: str) -> None:
    policy, obs = policy_of(case), observations(case)
    rng = np.random.default_rng(0)
    expected = policy.act(obs, policy.initial_carry(5), np.ones(5, bool), rng, deterministic=True).env_actions
    assert len(np.unique(expected, axis=0)) > 1, "the comparison would see a difference"
    jitted = policy.export("jax")
    np.testing.assert_allclose(jitted(obs), expected, atol=1e-6)
    inside = jax.jit(jax.vmap(lambda row: jitted(jax.tree.map(lambda x: x[None], row))[0]))
    np.testing.assert_allclose(inside(obs), expected, atol=1e-6)
    if case == "cnn":
        with pytest.raises(ConfigError, match="export it as 'jax'"):
            policy.export("numpy")
        return
    plain = policy.export("numpy")(obs)
    assert isinstance(plain, np.ndarray)
    np.testing.assert_array_equal(plain, expected)


@pytest.mark.parametrize("kind", ["jax", "numpy"])
def test_an_exported_policy_with_memory_remembers(kind: str) -> None:
    policy, rng = policy_of("memory"), np.random.default_rng(0)
    exported = policy.export(kind)
    carry = kept = policy.initial_carry(5)
    for t in range(6):
        obs, is_first = rng.standard_normal((5, 3)).astype("f"), np.full(5, t in (0, 3))
        expected = policy.act(obs, kept, is_first, rng, deterministic=True)
        actions, carry = exported.step(obs, carry, is_first)
        kept = expected.carry
        np.testing.assert_array_equal(actions, expected.env_actions)
        np.testing.assert_allclose(carry["actor"], kept["actor"], atol=1e-6)


def test_an_export_stays_what_it_was_while_the_agent_learns_on() -> None:
    policy, obs = policy_of("moved to the bounds"), observations("moved to the bounds")
    exports = [policy.export(kind) for kind in ("jax", "numpy")]
    before = [export(obs) for export in exports]
    agent = policy.agent
    agent.state = agent.state._replace(params=jax.tree.map(np.negative, agent.state.params))
    for export, actions in zip(exports, before, strict=True):
        np.testing.assert_array_equal(export(obs), actions)
    assert (policy.export("numpy")(obs) != before[1]).any()


def run(tmp_path: Path, backend: str, **more: Any) -> Path:
    """A short run with normalised observations."""
    config = {
        "algo": "reinforce",
        "env_id": "CartPole-v1",
        "backend": backend,
        "output_dir": str(tmp_path / backend),
        "hparams": {"num_steps": 8},
        "env": {"normalize_obs": True, "num_envs": 2},
        "training": {"total_timesteps": 256, "eval_frequency": 0, "num_eval_episodes": 0},
        "logging": {"terminal": False, "tensorboard": False},
    }
    return train(config, **more).run_dir


def test_runs_are_loaded_and_exported_and_start_those_of_the_other_backend(tmp_path: Path) -> None:
    first = run(tmp_path, "torch")
    with pytest.raises(ConfigError, match="export is for runs with backend: jax"):
        load(first).export("numpy")
    second = run(tmp_path, "jax", init_from=str(first))
    third = run(tmp_path, "torch", init_from=str(second))
    policy, obs = load(second), np.eye(4, dtype="f")
    for kind in ("jax", "numpy"):
        np.testing.assert_array_equal(policy.export(kind)(obs), policy.predict(obs))
    with pytest.raises(ConfigError, match="'jax' or 'numpy', not 'onnx'"):
        policy.export("onnx")
    for parent, child in ((first, second), (second, third)):
        saved, begun = CheckpointManager(parent).load("latest").parts, CheckpointManager(child).load(0).parts
        ours, theirs = (parts["policy"]["normalizer"]["obs"] for parts in (saved, begun))
        assert int(ours["count"]) == int(theirs["count"]) > 0
        means = [np.asarray(part["mean"], np.float64) + part.get("residual", 0.0) for part in (ours, theirs)]
        np.testing.assert_allclose(*means, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(ours["deviations"], theirs["deviations"], rtol=1e-6)


ASYMMETRICAL = [(-0.7, 0.1), (0.3, 0.9), (-1e-3, 7e-3), (-3.0e38, 3.0e38), (-2.0, 1e5)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("unit_actions", [True, False])
def test_actions_of_compiled_programs_lie_within_the_bounds(unit_actions: bool, dtype: Any) -> None:
    """Also in a Box of float64, whose 0.1 is less than that of the float32 a program computes with."""
    low, high = np.array(ASYMMETRICAL, dtype).T
    space = BoxSpec(low, high, np.dtype(dtype))
    functions: Any = SimpleNamespace(unit_actions=unit_actions)
    rng = np.random.default_rng(0)
    given = rng.choice(np.array([-1.0, -0.3, 0.4, 1.0], "f"), (200, len(low)))
    given = given if unit_actions else given * rng.choice(np.array([0.5, 1e9], "f"), given.shape)
    found = np.asarray(jax.jit(partial(to_env, functions, space))(given))
    assert found.dtype == np.float32
    assert ((found.astype(np.float64) >= low) & (found.astype(np.float64) <= high)).all()
    assert np.isfinite(found).all()
    if unit_actions:
        assert found == pytest.approx(to_bounds(space, given), rel=1e-5)


@pytest.mark.parametrize("exported", [None, "numpy", "jax"])
def test_saturated_actions_stay_within_the_bounds(exported: str | None) -> None:
    policy, obs = policy_of("moved to the bounds"), observations("moved to the bounds", 5)
    policy.agent.state = policy.agent.state._replace(params=jax.tree.map(lambda x: 1e4 * x, policy.agent.state.params))
    if exported is None:
        rng = np.random.default_rng(0)
        actions = policy.act(obs, {}, np.ones(5, bool), rng, deterministic=True).env_actions
    else:
        actions = np.asarray(policy.export(exported)(obs))
    assert ((actions >= FORCES.low) & (actions <= FORCES.high)).all()
    assert (actions == FORCES.high).any() or (actions == FORCES.low).any(), "none was at a bound"
