"""The algorithm on one page trains from its config by its dotted name, learns, and can be loaded again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rl_training.testing import check_algorithm

ROOT = Path(__file__).parents[2]


def test_it_learns_from_its_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import rl_training

    monkeypatch.syspath_prepend(ROOT)
    overrides = {
        "output_dir": str(tmp_path),
        "training.total_timesteps": 30_000,
        "training.eval_frequency": 0,
        "hparams.learning_rate": 3e-3,
        "logging.terminal": False,
    }
    cfg = rl_training.load_config(ROOT / "configs/algorithms/my_algorithm.yaml", overrides)
    result = rl_training.train(cfg)
    assert result.metrics["eval/return_mean"] > 100  # chance reaches 22
    action = rl_training.load(result.run_dir).predict(np.zeros(4, np.float32))
    assert action in (0, 1)


def test_it_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    name = "examples.my_algorithm:MyAlgorithm"
    assert check_algorithm(name, environments=["CartPole-v1", "Pendulum-v1"]).refused == {}


def test_every_example_has_a_test() -> None:
    examples = {path.stem for path in (ROOT / "examples").glob("*.py")}
    examples = {"reference_scripts" if name.endswith("_reference") else name for name in examples}
    assert {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")} >= examples
