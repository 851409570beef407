"""The environment of an offline run whose config names none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from offline_runs import SMALL

from rl_training import train
from rl_training.cli import main
from rl_training.config.loading import parse_config
from rl_training.config.schema import DATASET_ENV


def test_it_is_that_of_the_dataset(random_pendulum: Path, tmp_path: Path) -> None:
    cfg: dict[str, Any] = {"algo": "bc", "output_dir": str(tmp_path), "dataset": {"path": str(random_pendulum)}}
    assert parse_config(cfg).env_id == DATASET_ENV
    result = train({**cfg, "network": SMALL, "training": {"total_updates": 10, "num_eval_episodes": 1}})
    assert "__Pendulum-v1__" in result.run_dir.name
    assert "env_id: Pendulum-v1" in (result.run_dir / "configs" / "resolved.yaml").read_text()
    assert result.metrics["eval/length_mean"] == 200.0


def test_a_dry_run_says_which(random_pendulum: Path, tmp_path: Path, capsys: Any) -> None:
    flags = ["--algo", "bc", "--dataset", str(random_pendulum), "--output-dir", str(tmp_path), "--dry-run"]
    assert main(["train", *flags]) == 0
    assert "Pendulum-v1" in capsys.readouterr().out


@pytest.mark.parametrize("algo", ["bc", "iql"])
def test_without_a_dataset_there_is_none(algo: str, tmp_path: Path, capsys: Any) -> None:
    assert main(["train", "--algo", algo, "--output-dir", str(tmp_path)]) == 2
    assert "learns from a dataset" in " ".join(capsys.readouterr().err.split())
