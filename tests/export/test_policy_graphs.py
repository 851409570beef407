"""Policies of every algorithm as graphs: the interpreter and both files against the policy, for 1,000 observations."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from rl_training.build_context import BuildContext
from rl_training.config.schema import BackboneConfig, EncoderConfig, MemoryConfig, NetworkConfig
from rl_training.export.check import CheckedPolicy, FilePolicy
from rl_training.export.graph import HasGraph, PolicyGraph, run_numpy
from rl_training.export.numpy_file import npz_bytes, numpy_runner, program_text
from rl_training.export.onnx_file import onnx_bytes, onnx_runner
from rl_training.numerics.normalization import ObsNormalizer
from rl_training.registry import import_own
from rl_training.seeding import Streams
from rl_training.types import (
    BoxSpec,
    DictSpec,
    DiscreteSpec,
    LeafSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    Policy,
    SpaceSpec,
)

FLOAT = np.dtype(np.float32)


def box(low: float, high: float, *shape: int, dtype: Any = FLOAT) -> BoxSpec:
    return BoxSpec(np.full(shape, low, dtype), np.full(shape, high, dtype), np.dtype(dtype))


NUMBERS = box(-np.inf, np.inf, 3)
WIDE_NUMBERS = box(-np.inf, np.inf, 3, dtype=np.float64)
IMAGE = box(0, 255, 12, 12, 3, dtype=np.uint8)
CODES = box(0, 4, 6, 6, 2, dtype=np.uint8)
MIXED = DictSpec({"place": DiscreteSpec(4), "speed": NUMBERS, "switch": MultiBinarySpec(2)})
FORCE = BoxSpec(np.array([-2.0, 0.0], "f"), np.array([1.0, 3.0], "f"), FLOAT)


def masked(size: int) -> DictSpec:
    return DictSpec({"speed": NUMBERS, "action_mask": MultiBinarySpec(size)})


def backbone(kind: str = "mlp", *hidden: int, **options: Any) -> NetworkConfig:
    body = BackboneConfig(type=kind, hidden_dims=hidden or (16, 8), **options)
    return NetworkConfig(actor=body, critic=body)


SMALL_CNN = backbone("cnn", 8, kwargs={"channels": [4, 4], "kernels": [4, 3], "strides": [2, 1]})


class Case(NamedTuple):
    algo: str
    observations: SpaceSpec
    actions: SpaceSpec
    network: NetworkConfig = NetworkConfig()
    hparams: Mapping[str, Any] = MappingProxyType({})
    normalize: bool = False


BOTH = {
    "ppo": Case("ppo", NUMBERS, DiscreteSpec(4)),
    "ppo, float64, normalised": Case("ppo", WIDE_NUMBERS, DiscreteSpec(4), normalize=True),
    "ppo, masked": Case("ppo", masked(4), DiscreteSpec(4), normalize=True),
    "ppo, several choices, masked": Case("ppo", masked(5), MultiDiscreteSpec((2, 3))),
    "ppo, switches, masked": Case("ppo", masked(3), MultiBinarySpec(3)),
    "ppo, clipped": Case("ppo", NUMBERS, FORCE),
    "ppo, float64 actions": Case("ppo", NUMBERS, box(-2, 1, 2, dtype=np.float64)),
    "ppo, gSDE": Case("ppo", NUMBERS, FORCE, hparams={"use_sde": True}),
    "ppo, gru": Case("ppo", NUMBERS, DiscreteSpec(4), backbone("gru", 8, 6), normalize=True),
    "ppo, lstm, masked": Case("ppo", masked(4), DiscreteSpec(4), backbone("lstm", 8, 6)),
    "ppo, cnn": Case("ppo", IMAGE, DiscreteSpec(4), SMALL_CNN),
    "ppo, grid of codes": Case("ppo", CODES, DiscreteSpec(4), backbone("grid", 8)),
    "ppo, flat codes": Case("ppo", CODES, DiscreteSpec(4), backbone("mlp", 8, encoder=EncoderConfig("mlp"))),
    "ppo, impala, gru": Case(
        "ppo",
        DictSpec({"eye": IMAGE, "speed": NUMBERS}),
        FORCE,
        backbone("mlp", 8, encoder=EncoderConfig("impala"), memory=MemoryConfig("gru", size=5)),
    ),
    "ppo, layer norm, gelu": Case("ppo", MIXED, FORCE, backbone("mlp", 8, activation="gelu", layer_norm=True)),
    "ppo, silu": Case("ppo", MultiDiscreteSpec((3, 2)), FORCE, backbone("mlp", 8, activation="silu")),
    "reinforce, leaky relu": Case("reinforce", DiscreteSpec(5), FORCE, backbone("mlp", 8, activation="leaky_relu")),
    "dqn": Case("dqn", NUMBERS, DiscreteSpec(4), normalize=True),
    "dqn, dueling, masked": Case("dqn", masked(4), DiscreteSpec(4), hparams={"dueling": True}),
    "sac": Case("sac", NUMBERS, FORCE, normalize=True),
    "td3": Case("td3", MIXED, FORCE),
    "bc, masked": Case("bc", masked(4), DiscreteSpec(4)),
    "bc, real actions": Case("bc", NUMBERS, FORCE, normalize=True),
    "iql": Case("iql", NUMBERS, FORCE, normalize=True),
    "awac": Case("awac", MIXED, FORCE),
    "cql": Case("cql", NUMBERS, FORCE),
    "cql, discrete, masked": Case("cql", masked(4), DiscreteSpec(4)),
    "rebrac": Case("rebrac", NUMBERS, FORCE, backbone("mlp", 8, layer_norm=True)),
}
TORCH = {
    "a2c, elu": Case("a2c", MIXED, DiscreteSpec(3), backbone("mlp", 8, activation="elu")),
    "ddpg": Case("ddpg", NUMBERS, box(-3e38, 3e38, 1)),
    "dqn, c51": Case("dqn", NUMBERS, DiscreteSpec(4), hparams={"distribution": "c51", "dueling": True}),
    "dqn, quantiles, noisy": Case("dqn", NUMBERS, DiscreteSpec(4), hparams={"distribution": "quantile", "noisy": True}),
    "dqn, lstm": Case("dqn", NUMBERS, DiscreteSpec(4), backbone("lstm", 8, 6)),
    "sac, discrete, masked": Case("sac", masked(4), DiscreteSpec(4)),
    "sac, pixels": Case("sac", IMAGE, FORCE, backbone("grid", 8)),
    "sac, gru": Case("sac", NUMBERS, FORCE, backbone("gru", 8, 6)),
    "td3, critics see more": Case("td3", DictSpec({"seen": NUMBERS, "critic_state": NUMBERS}), FORCE, normalize=True),
    "crossq": Case("crossq", MIXED, FORCE, normalize=True),
    "mbpo": Case("mbpo", NUMBERS, FORCE),
}
JAX = {"pqn": Case("pqn", NUMBERS, DiscreteSpec(4), normalize=True)}
CASES = [pytest.param("torch", case, id=f"torch: {name}") for name, case in {**BOTH, **TORCH}.items()] + [
    pytest.param("jax", case, id=f"jax: {name}") for name, case in {**BOTH, **JAX}.items()
]


def policy_of(backend: str, case: Case) -> Policy:
    """A policy with random weights and, where it normalises, random statistics."""
    spec = import_module(f"rl_training.hparams.{case.algo}").SPEC
    ctx = BuildContext(
        case.observations,
        case.actions,
        num_envs=4,
        streams=Streams(1),
        network=case.network,
        normalize_obs=case.normalize,
    )
    hparams = spec.hparams(**case.hparams)
    if backend == "jax":
        from rl_training.jax.host import build_agent
        from rl_training.jax.runtime import start_with

        start_with(1)  # as every run does: XLA's threads are settled before its first operation
        algorithm: Any = build_agent(ctx, spec, hparams)
    else:
        build = import_own(spec.build, "algorithm") if isinstance(spec.build, str) else spec.build
        algorithm = build(ctx, hparams)
    policy, rng = algorithm.policy, np.random.default_rng(3)
    state = policy.state_dict()
    for part in [state["network"], state.get("encoder", {})]:
        for name, value in part.items():
            if np.asarray(value).dtype.kind == "f":
                scale = min(0.2, 0.3 * np.prod(value.shape[1:]) ** -0.5)  # more would blow up sums over many inputs
                moved = value + np.float32(scale) * rng.standard_normal(value.shape).astype("f")
                part[name] = np.abs(moved) + 0.1 if name.endswith("var") else moved
    if case.normalize:
        normalizer = ObsNormalizer(case.observations)
        normalizer.update(observations(case.observations, 50, rng))
        state["normalizer"] = normalizer.state_dict()
    policy.load_state_dict(state)
    return policy


def drawn(leaf: LeafSpec, count: int, rng: np.random.Generator) -> Any:
    if isinstance(leaf, DiscreteSpec):
        return rng.integers(0, leaf.n, count)
    if isinstance(leaf, MultiDiscreteSpec):
        return rng.integers(0, leaf.nvec, (count, len(leaf.nvec)))
    if isinstance(leaf, MultiBinarySpec):
        return rng.integers(0, 2, (count, leaf.n)).astype(np.int8)
    if leaf.dtype == np.uint8:
        return rng.integers(0, leaf.high, (count, *leaf.shape), dtype=np.uint8, endpoint=True)
    return (3.0 * rng.standard_normal((count, *leaf.shape)) + 1.0).astype(leaf.dtype)


def observations(space: SpaceSpec, count: int, rng: np.random.Generator) -> Any:
    if not isinstance(space, DictSpec):
        return drawn(space, count, rng)
    rows = {key: drawn(leaf, count, rng) for key, leaf in space.spaces.items()}
    if "action_mask" in rows:
        rows["action_mask"][:, [0, 2]] = 1  # something is allowed in each choice
    return rows


def graph_of(policy: Policy) -> PolicyGraph:
    assert isinstance(policy, HasGraph)
    graph = policy.graph()
    assert graph is not None
    return graph


@pytest.mark.parametrize(("backend", "case"), CASES)
def test_files_act_as_their_policy(backend: str, case: Case, tmp_path: Path) -> None:
    policy = policy_of(backend, case)
    graph = graph_of(policy)
    (tmp_path / "policy.npz").write_bytes(npz_bytes(graph))
    (tmp_path / "policy.py").write_text(program_text())
    runners = [lambda feeds: run_numpy(graph, feeds), onnx_runner(onnx_bytes(graph)), numpy_runner(tmp_path)]
    for run in runners:
        rng = np.random.default_rng(7)
        checked = CheckedPolicy(policy, FilePolicy.of(run, graph), case.actions)
        carry, is_first, seen = checked.initial_carry(50), np.ones(50, bool), []
        for _ in range(20):  # 1,000 observations; with memory 50 sequences in which episodes end
            result = checked.act(observations(case.observations, 50, rng), carry, is_first, rng)
            carry, is_first = result.carry, rng.random(50) < 0.1
            seen.append(result.env_actions)
        assert checked.agreement.rows == 1000
        assert checked.agreement.near_ties < 10
        assert len(np.unique(np.concatenate(seen), axis=0)) > 1  # a policy that always does the same proves little


@pytest.mark.parametrize(("backend", "name"), [("torch", "ppo, lstm, masked"), ("jax", "sac")])
def test_two_exports_have_the_same_bytes(backend: str, name: str) -> None:
    first, second = (graph_of(policy_of(backend, BOTH[name])).with_meta({"env_id": "X-v0", "algo": "y"}) for _ in "ab")
    assert onnx_bytes(first) == onnx_bytes(second)
    assert npz_bytes(first) == npz_bytes(second)


def test_the_numpy_export_runs_with_numpy_alone(tmp_path: Path) -> None:
    case = BOTH["ppo, lstm, masked"]
    policy = policy_of("torch", case)
    (tmp_path / "policy.npz").write_bytes(npz_bytes(graph_of(policy)))
    (tmp_path / "policy.py").write_text(program_text())
    rng = np.random.default_rng(0)
    rows = [observations(case.observations, 1, rng) for _ in range(5)]
    np.savez(tmp_path / "rows.npz", **{f"{key}{i}": row[key][0] for i, row in enumerate(rows) for key in row})
    code = (
        "import sys, numpy as np; sys.path.insert(0, '.'); from policy import Policy; policy = Policy();"
        "rows = np.load('rows.npz');"
        "made = [int(policy.act({key: rows[f'{key}{i}'] for key in ('speed', 'action_mask')})) for i in range(5)];"
        "assert not {'torch', 'jax', 'onnx', 'rl_training'} & set(sys.modules); print(made)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    carry, is_first, expected = policy.initial_carry(1), np.ones(1, bool), []
    for row in rows:
        result = policy.act(row, carry, is_first, rng, deterministic=True)
        carry, is_first = result.carry, np.zeros(1, bool)
        expected.append(int(result.env_actions[0]))
    assert done.stdout.strip() == str(expected)


@pytest.mark.parametrize(
    ("algo", "network"),
    [("ppo", backbone("transformer", 8)), ("ppo", backbone(f"{__name__}:Own", 8))],
    ids=["transformer", "a network of your own"],
)
def test_no_graph_of_what_graphs_cannot_say(algo: str, network: NetworkConfig) -> None:
    policy = policy_of("torch", Case(algo, NUMBERS, DiscreteSpec(2), network))
    assert isinstance(policy, HasGraph)
    assert policy.graph() is None


def Own(space: SpaceSpec, config: BackboneConfig, rng: np.random.Generator) -> Any:
    from rl_training.models.backbones.mlp import MLP

    return MLP(space, BackboneConfig(hidden_dims=config.hidden_dims), rng)
