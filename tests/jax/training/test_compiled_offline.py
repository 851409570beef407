"""Compiled offline runs: one program on a dataset, exact resume, the same run directory as torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sampling import sampled

from rl_training import resume, train
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.data.datasets.native import write_native
from rl_training.eval import evaluate, load, record
from rl_training.system.json_lines import read_rows
from rl_training.training.offline.recording import Amount

SMALL = {"actor": {"hidden_dims": [16]}, "critic": {"hidden_dims": [16]}}
OPTIONS: dict[str, dict[str, Any]] = {"cql": {"num_sampled": 2}}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random actions in Pendulum."""
    data = record(None, Amount(steps=450), random_env="Pendulum-v1")
    return write_native(data, tmp_path_factory.mktemp("data") / "random")


def run_of(algo: str, dataset: Path, output_dir: Path, **training: Any) -> Any:
    sections: dict[str, Any] = {
        "env": {"normalize_obs": True},
        "network": SMALL,
        "hparams": {"batch_size": 8, **OPTIONS.get(algo, {})},
        "training": {"total_updates": 600, "num_eval_episodes": 1, "checkpoint_frequency": 256, **training},
    }
    cfg = {"algo": algo, "backend": "jax", "output_dir": str(output_dir), "dataset": {"path": str(dataset)}}
    return train({**cfg, **sections})


def state_of(run: Path, step: str | int = "latest") -> dict[str, Any]:
    parts = CheckpointManager(run).load(step).parts
    return {name: parts[name] for name in ("policy", "algorithm", "dataset", "progress")}


def assert_same(one: Any, other: Any, where: str = "") -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_same(one[key], other[key], f"{where}/{key}")
    else:
        np.testing.assert_array_equal(one, other, err_msg=where)


@pytest.mark.parametrize("algo", sampled(["bc", "td3_bc", "iql", "cql", "rebrac", "awac"], ("bc", "cql")))
def test_a_run_counts_updates_and_resumes_exactly(
    algo: str, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = run_of(algo, dataset, tmp_path / "a")
    assert (one.metrics["updates"], one.metrics["env_steps"]) == (600, 0)
    rows = list(read_rows(one.run_dir / "logs" / "metrics.jsonl"))
    assert [row["updates"] for row in rows] == [256, 512, 600]
    assert json.loads((one.run_dir / "run.json").read_text())["axis"] == "updates"

    # another pace: in pieces of one call each, from the checkpoint on
    other = run_of(algo, dataset, tmp_path / "b")
    CheckpointManager(other.run_dir).rewind(256)
    record_path = other.run_dir / "run.json"
    record_path.write_text(json.dumps({**json.loads(record_path.read_text()), "status": "stopped"}))
    monkeypatch.setattr("rl_training.training.offline.compiled.CALL_SECONDS", 0.0)
    resume(other.run_dir)
    assert_same(state_of(one.run_dir), state_of(other.run_dir))
    again = list(read_rows(other.run_dir / "logs" / "metrics.jsonl"))
    for row, repeated in zip(rows, again, strict=True):
        for name in row:
            if not name.startswith(("time/", "system/")):
                assert row[name] == repeated[name], name


def test_datasets_of_different_sizes_in_one_process(dataset: Path, tmp_path: Path) -> None:
    smaller = write_native(record(None, Amount(steps=300), random_env="Pendulum-v1"), tmp_path / "smaller")
    for place in (dataset, smaller):
        result = run_of("bc", place, tmp_path / "runs", total_updates=20, num_eval_episodes=0)
        assert result.metrics["updates"] == 20


def test_the_policy_is_used_as_any_other(dataset: Path, tmp_path: Path) -> None:
    one = run_of("iql", dataset, tmp_path)
    assert evaluate(one.run_dir, episodes=2)["updates"] == 600
    action = load(one.run_dir).predict(np.zeros(3, np.float32))
    assert action.shape == (1,)
    assert load(one.run_dir).policy.graph() is not None  # type: ignore[attr-defined]


def test_the_host_lane_learns_from_the_same_dataset(dataset: Path, tmp_path: Path) -> None:
    cfg: dict[str, Any] = {"algo": "td3_bc", "backend": "jax", "lane": "host", "output_dir": str(tmp_path)}
    cfg |= {"dataset": {"path": str(dataset)}, "network": SMALL, "hparams": {"batch_size": 8}}
    result = train({**cfg, "training": {"total_updates": 20, "num_eval_episodes": 0}})
    assert result.metrics["updates"] == 20


def test_rows_are_drawn_with_their_own_next_observation(dataset: Path) -> None:
    import jax

    from rl_training.data.datasets.opening import open_dataset
    from rl_training.jax.training.offline import drawn, on_device

    data = open_dataset(dataset)
    columns = on_device(data.observations, data.places, {"rewards": np.asarray(data.rewards, np.float32)})
    batch = jax.jit(drawn, static_argnums=2)(columns, jax.random.key(0), 500)
    known = {
        (obs.tobytes(), following.tobytes(), np.float32(reward))
        for obs, following, reward in zip(*(data.columns()[n] for n in ("obs", "next_obs", "rewards")), strict=True)
    }
    for obs, following, reward in zip(*(np.asarray(batch[n]) for n in ("obs", "next_obs", "rewards")), strict=True):
        assert (obs.tobytes(), following.tobytes(), reward) in known
    assert len({obs.tobytes() for obs in np.asarray(batch["obs"])}) > 250
