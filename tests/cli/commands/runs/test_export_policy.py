"""`rl export-policy` from a trained run to a checked file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rl_training import load, train
from rl_training.assembly.environments import eval_env_maker
from rl_training.assembly.saved.exporting import Playing, export_policy, graph_for_export, onnx_files
from rl_training.cli import main
from rl_training.export.check import ExportError
from rl_training.export.onnx_file import onnx_bytes
from rl_training.types import ConfigError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs"), "reinforce", env={"normalize_obs": True, "num_envs": 2})


def trained(folder: Path, algo: str, **more: Any) -> Path:
    config = {
        "algo": algo,
        "env_id": "CartPole-v1",
        "output_dir": str(folder),
        "hparams": {"num_steps": 64},
        "training": {"total_timesteps": 256, "eval_frequency": 0, "num_eval_episodes": 3},
        "logging": {"terminal": False, "tensorboard": False},
        **more,
    }
    return train(config).run_dir


def test_files_are_written_beside_the_run_and_checked(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export-policy", str(run)]) == 0
    assert "the file does what the policy does" in capsys.readouterr().out
    first = (run / "export" / "policy.onnx").read_bytes()
    assert main(["export-policy", str(run), "--format", "numpy", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["episodes"] == 3
    assert record["observations"] > 20
    assert record["policy_return"] == record["file_return"] == record["observations"] / 3  # a reward of 1 per step
    names = sorted(path.name for path in (run / "export").iterdir())
    assert names == ["policy.npz", "policy.onnx", "policy.py"]
    assert main(["export-policy", str(run), "--output", str(run / "export" / "again.onnx")]) == 0
    assert (run / "export" / "again.onnx").read_bytes() == first


def test_a_file_that_differs_is_not_kept(run: Path, tmp_path: Path) -> None:
    saved = load(run)
    graph = graph_for_export(saved.policy, "reinforce", {})
    name = next(node.inputs[1] for node in graph.nodes if node.kind == "Gemm")
    wrong = graph._replace(constants={**graph.constants, name: -graph.constants[name]})
    playing = Playing(eval_env_maker(saved.config, None), 3, 0)
    with pytest.raises(ExportError, match="choices of the file differ"):
        export_policy(saved.policy, onnx_files(wrong), saved.action_space, tmp_path / "out", playing)
    assert list((tmp_path / "out").iterdir()) == []


def test_saved_policies_write_files(run: Path, tmp_path: Path) -> None:
    saved = load(run)
    report = saved.export("numpy", tmp_path, episodes=2)
    assert [path.name for path in report.files] == ["policy.npz", "policy.py"]
    assert len(report.file_returns) == 2
    with np.load(tmp_path / "policy.npz", allow_pickle=False) as arrays:
        meta = json.loads(bytes(arrays["graph.json"]))["meta"]
    assert meta["env_id"] == "CartPole-v1"
    assert meta["env_steps"] == "256"
    with pytest.raises(ConfigError, match="written as onnx, numpy or torch"):
        saved.export("pickle", tmp_path)


def test_refusals_are_one_sentence(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export-policy", str(run), "--format", "pickle"]) == 2
    assert "--format is onnx" in capsys.readouterr().err
    network = {"actor": {"type": "transformer", "hidden_dims": [8]}, "critic": {"type": "mlp", "hidden_dims": [8]}}
    other = trained(run.parent, "reinforce", network=network)
    assert main(["export-policy", str(other)]) == 2
    assert "has no graph" in capsys.readouterr().err
    assert main(["export-policy", str(other), "--format", "torch", "--episodes", "2"]) == 0
    assert "does what the policy does" in capsys.readouterr().out
    assert [path.name for path in (other / "export").iterdir()] == ["policy.pt2"]
    with pytest.raises(ConfigError, match="plans each action"):
        graph_for_export(load(run).policy, "pets", {})


def test_places_that_files_cannot_have(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_bytes(b"")
    command = ["export-policy", str(run), "--episodes", "1", "--output"]
    assert main([*command, str(tmp_path / "file" / "x.onnx")]) == 1
    assert "cannot write '" in capsys.readouterr().err
    for kind, name, files in (("onnx", "x.pt", "policy.onnx"), ("numpy", "x.npz", "policy.npz and policy.py")):
        assert main([*command, str(tmp_path / name), "--format", kind]) == 2
        assert f"this format writes {files}, so name a folder" in " ".join(capsys.readouterr().err.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_bundle_is_a_folder_with_a_card(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["export-policy", str(run), "--format", "bundle", "--episodes", "4", "--output", str(tmp_path / "card")]
    assert main(command) == 0
    assert "replay.mp4" in capsys.readouterr().out
    names = {path.name: path for path in (tmp_path / "card").iterdir()}
    assert set(names) == {
        *("README.md", "config.yaml", "metrics.json", "policy.npz", "policy.onnx", "policy.py", "replay.mp4"),
    }
    metrics = json.loads(names["metrics.json"].read_text())
    assert len(metrics["returns"]) == 4
    text = names["README.md"].read_text()
    front = yaml.safe_load(text.split("---")[1])
    assert front["library_name"] == "rl_training"
    value = front["model-index"][0]["results"][0]["metrics"][0]["value"]
    assert value.startswith(f"{np.mean(metrics['returns']):.2f}")
    assert str(tmp_path) not in text + names["metrics.json"].read_text()
    assert names["policy.onnx"].read_bytes() == onnx_bytes(
        graph_for_export(load(run).policy, "reinforce", load(run).description())
    )
