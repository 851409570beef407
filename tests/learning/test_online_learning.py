"""Offline to online on Pendulum: what was learnt from a dataset is not lost at first, and more is learnt in the end."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from rl_training import train
from rl_training.system.json_lines import read_rows

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
benchmark: Any = importlib.import_module("offline_scores")

STEPS = 10_000


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The replay rows of a SAC run that has just learnt to swing up; a score of 100 is its last policy."""
    found: dict[str, Path] = benchmark.recorded("pendulum", tmp_path_factory.mktemp("offline"))
    return found["medium-replay"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("algo", ["iql", "td3_bc"])
def test_a_run_keeps_its_score_at_first_and_ends_above_it(algo: str, seed: int, replay: Path, tmp_path: Path) -> None:
    """Scores are those of the same 20 episodes, before the first step of the environment and after. 20 points of
    score are about three episodes that no longer swing up."""
    offline = train(benchmark.config(algo, replay, seed, tmp_path, "torch", 20_000))
    cfg = benchmark.config(algo, replay, 100 + seed, tmp_path, "torch", 1)
    cfg["dataset"]["online_share"] = 0.5
    cfg["training"] = {"total_timesteps": STEPS, "eval_frequency": STEPS // 20, "num_eval_episodes": 20}
    online = train(cfg, init_from=str(offline.run_dir))
    rows = list(read_rows(online.run_dir / "logs" / "evals.jsonl"))
    scores = {int(row["env_steps"]): float(row["score"]) for row in rows}
    early = [score for step, score in scores.items() if 0 < step <= STEPS // 10 + 256]  # blocks have 256 steps
    assert min(early) >= scores[0] - 20.0, scores
    assert scores[STEPS] > scores[0], scores
