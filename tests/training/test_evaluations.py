"""When a run evaluates: at the start, at a tenth of the budget each, at the end; and what each of them may do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rl_training.assembly.cost import plan
from rl_training.config.loading import parse_config
from rl_training.experiments.analysis.curves import read_curve
from rl_training.experiments.keeping.verify import ReproducibilityChecker
from rl_training.runs.directory import metrics_sha256
from rl_training.trainer import resume, train
from rl_training.training.callbacks import Callback


def config(folder: Path, **given: Any) -> Any:
    values: dict[str, Any] = {
        "seed": 3,
        "output_dir": str(folder / "runs"),
        "num_envs": 2,
        "hparams.num_steps": 16,
        "network.actor.hidden_dims": [8],
        "network.critic.hidden_dims": [8],
        "training.total_timesteps": 640,
        "training.num_eval_episodes": 2,
        "logging.terminal": False,
        "logging.tensorboard": False,
    }
    return parse_config({}, values | given)


def rows(run: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "logs" / f"{name}.jsonl").read_text().splitlines()]


def evaluated(run: Path) -> list[int]:
    return [row["env_steps"] for row in rows(run, "evals")]


def test_a_tenth_of_the_budget_each_and_the_start(tmp_path: Path) -> None:
    cfg = config(tmp_path)
    result = train(cfg)
    assert evaluated(result.run_dir) == list(range(0, 641, 64))
    assert plan(cfg)["evaluations"] == 11
    logged = [row["env_steps"] for row in rows(result.run_dir, "metrics") if "eval/return_mean" in row]
    assert logged == list(range(64, 641, 64)), "the start is in evals.jsonl alone"
    curve = read_curve(result.run_dir)
    assert curve.steps.tolist() == list(range(0, 641, 64))
    assert curve.values[0] == rows(result.run_dir, "evals")[0]["return_mean"]


def test_a_budget_of_a_few_rollouts_is_evaluated_after_each(tmp_path: Path) -> None:
    cfg = config(tmp_path, **{"training.total_timesteps": 96})
    assert evaluated(train(cfg).run_dir) == [0, 32, 64, 96]
    assert plan(cfg)["evaluations"] == 4


def test_the_start_is_never_the_best_and_stops_nothing(tmp_path: Path) -> None:
    cfg = config(tmp_path, **{"training.stop_at_return": 1.0, "training.stop_episodes": 4})
    result = train(cfg)
    first, second = rows(result.run_dir, "evals")
    assert (first["env_steps"], len(first["returns"])) == (0, 2), "no further episodes are played to confirm it"
    assert (second["env_steps"], len(second["returns"])) == (64, 4)
    assert result.stop_reason.startswith("solved")
    assert (result.run_dir / "checkpoints" / "best").read_text().strip() == f"step_{64:012d}"


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_evaluating_at_the_start_changes_no_bit_of_the_training(tmp_path: Path, backend: str) -> None:
    short = {"backend": backend, "training.total_timesteps": 96, "training.eval_frequency": 64}
    with_start = train(config(tmp_path, **short))
    without = train(config(tmp_path, **short, **{"training.eval_at_start": False}))
    assert (evaluated(with_start.run_dir), evaluated(without.run_dir)) == ([0, 64, 96], [64, 96])
    first, second = (metrics_sha256(result.run_dir / "logs" / "metrics.jsonl") for result in (with_start, without))
    assert first == second
    assert rows(with_start.run_dir, "evals")[1:] == rows(without.run_dir, "evals")


class Stop(Callback):
    """Ends a run in its first step as a signal would."""

    def on_step(self, trainer: Any, report: Any) -> None:
        if trainer.progress.env_steps <= 32:
            trainer.request_stop("now", interrupted=True)


def test_a_resumed_run_evaluates_the_start_once_and_keeps_its_rhythm(tmp_path: Path) -> None:
    cfg = config(tmp_path, callbacks=[{"name": f"{__name__}:Stop"}], **{"training.total_timesteps": 320})
    stopped = train(cfg)
    assert evaluated(stopped.run_dir) == [0, 32]
    resume(stopped.run_dir, total_timesteps=448)
    assert evaluated(stopped.run_dir) == list(range(0, 449, 32)), "a tenth of the budget it was started with"


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_its_logs_again(tmp_path: Path) -> None:
    result = train(config(tmp_path, **{"training.total_timesteps": 32}))
    shutil.rmtree(result.run_dir / "checkpoints")
    (result.run_dir / "checkpoints").mkdir()
    (result.run_dir / "logs" / "metrics.jsonl").write_text("")
    again = resume(result.run_dir)
    assert evaluated(again.run_dir) == [0, 32]


def test_verify_compares_evaluations_the_first_too(tmp_path: Path) -> None:
    run = train(config(tmp_path, **{"training.total_timesteps": 64})).run_dir
    checker = ReproducibilityChecker()
    assert checker.verify_experiment(run).reproduced
    log = run / "logs" / "evals.jsonl"
    log.write_text(log.read_text().replace('"return_mean":', '"return_mean":1', 1))
    log_changed, difference = checker.verify_experiment(run).differences
    assert log_changed.kind == "log"
    assert (difference.kind, difference.what, difference.env_steps) == ("evaluation", "return_mean", 0)
