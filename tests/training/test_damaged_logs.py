"""A log with flipped bits, torn or lost rows: the run goes on to its end, says so once, and remembers it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rl_training
from rl_training.cli import main
from rl_training.experiments.analysis.curves import TRAINING, read_curve
from rl_training.experiments.keeping.cleanup import last_metrics
from rl_training.experiments.keeping.watch import watch
from rl_training.experiments.launching.progress import latest_progress
from rl_training.runs.directory import RunDir, metrics_sha256
from rl_training.runs.row import describe
from rl_training.system.json_lines import plain_row, read_rows
from rl_training.training.summary import last_values

TOTAL = 96


class StopsOnce(rl_training.Callback):
    """Ends a run at 64 env steps as a signal would, unless it was resumed."""

    def on_start(self, trainer: Any) -> None:
        self.is_resumed = trainer.progress.env_steps > 0

    def on_step(self, trainer: Any, report: Any) -> None:
        if trainer.progress.env_steps == 64 and not self.is_resumed:
            trainer.request_stop("SIGTERM", interrupted=True)


@pytest.fixture(scope="module")
def stopped_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    mapping = {
        "algo": "ppo",
        "env_id": "CartPole-v1",
        "output_dir": str(tmp_path_factory.mktemp("logs")),
        "env": {"num_envs": 2},
        "hparams": {"num_steps": 16, "num_epochs": 1, "num_minibatches": 1},
        "network": {"actor": {"hidden_dims": [4]}, "critic": {"hidden_dims": [4]}},
        "training": {"total_timesteps": TOTAL, "num_eval_episodes": 1, "eval_frequency": 32},
        "logging": {"terminal": False, "tensorboard": False},
        "callbacks": [f"{__name__}:StopsOnce"],
    }
    return rl_training.train(mapping).run_dir


@pytest.fixture
def run(stopped_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped_once, tmp_path / stopped_once.name))


def flipped(place: int) -> Callable[[Path], None]:
    def damage(log: Path) -> None:
        data = bytearray(log.read_bytes())
        data[place] ^= 1
        log.write_bytes(data)

    return damage


DAMAGES: dict[str, Callable[[Path], None]] = {
    "the first byte": flipped(0),
    "a key": flipped(3),
    "the last newline": flipped(-1),
    "a torn end": lambda log: log.write_bytes(log.read_bytes()[:-20]),
    "not utf-8": lambda log: log.write_bytes(b"\xff\xfe" + log.read_bytes()[2:]),
    "empty": lambda log: log.write_bytes(b""),
    "deleted": lambda log: log.unlink(),
    "nested too deeply": lambda log: log.write_bytes(b"[" * 100_000),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_the_run_ends_and_remembers(run: Path, kind: str) -> None:
    assert RunDir(run).info()["logs_intact"] is True
    DAMAGES[kind](run / "logs" / "metrics.jsonl")
    with pytest.warns(UserWarning, match=r"metrics\.jsonl (differs|lacks)") as caught:
        result = rl_training.resume(run)
    assert len(caught) == 1
    assert (result.stop_reason, result.metrics["env_steps"]) == ("budget spent", TOTAL)
    info = RunDir(run).info()
    assert (info["status"], info["logs_intact"]) == ("finished", False)
    assert [(entry["env_steps"], len(entry["files"])) for entry in info["logs_damage"]] == [(64, 1)]
    assert list(read_rows(run / "logs" / "metrics.jsonl"))[-1]["env_steps"] == TOTAL
    assert isinstance(json.loads((run / "metrics.json").read_bytes())["eval/return_mean"], float)
    assert rl_training.resume(run).stop_reason == "already finished"


def test_the_command_warns_once_for_all_files_and_exits_with_0(run: Path) -> None:
    flipped(40)(run / "logs" / "metrics.jsonl")
    flipped(10)(run / "logs" / "evals.jsonl")
    with pytest.warns(UserWarning, match=r"metrics\.jsonl differs .*; evals\.jsonl differs ") as caught:
        assert main(["resume", str(run)]) == 0
    assert len(caught) == 1


def test_an_undamaged_run_is_silent(run: Path) -> None:
    rl_training.resume(run)
    assert RunDir(run).info()["logs_intact"] is True


def test_every_bit_of_a_log_may_flip_and_every_reader_goes_on(run: Path) -> None:
    """Summary, hash, curves, watch, list and cleanup read whatever a flipped bit leaves behind."""
    log = run / "logs" / "metrics.jsonl"
    row = b'{"env_steps":%d,"rollout/return_mean":21.5,"eval/return_mean":1e1}\n'
    sound = row % 32 + row % 64
    directory, watched = RunDir(run), watch(RunDir(run))
    for place in range(len(sound)):
        for bit in range(8):
            data = bytearray(sound)
            data[place] ^= 1 << bit
            log.write_bytes(data)
            assert len(list(read_rows(log))) <= 2
            plain_row(last_values(log), finite=True)
        assert len(read_curve(run, TRAINING).steps) <= 2
        metrics_sha256(log)
        latest_progress(log)
        last_metrics(directory)
        describe(run, config=False)
        watched.look(0.0)
