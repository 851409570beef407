"""Sweeps of the compiled lane: trials are threads, and trials that differ only in numbers share one program."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training import train
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.cli import main
from rl_training.config.loading import load_config
from rl_training.experiments.launching.member_threads import share_a_process
from rl_training.experiments.launching.runner import ExperimentRunner
from rl_training.experiments.launching.sweeps import Sweep
from rl_training.runs.directory import metrics_sha256

BASE = """\
algo: reinforce
env_id: CartPole-v1
backend: jax
env: {num_envs: 2}
hparams: {num_steps: 16}
training: {total_timesteps: 640, eval_frequency: 0, num_eval_episodes: 1, checkpoint_frequency: 160}
logging: {tensorboard: false, terminal: false}
"""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(BASE)


def sweep(*words: str, **grid: Any) -> tuple[int, Sweep]:
    Path("sweep.json").write_text(json.dumps({"base_config": "base.yaml", "sweep": grid}))
    return main(["sweep", "--config=sweep.json", "--jobs=2", *words]), Sweep.open("latest")


def state(run: Path) -> dict[str, Any]:
    parts = CheckpointManager(run).load("latest").parts
    return {name: part for name, part in parts.items() if name != "logs"}


def assert_is_its_solo_run(planned: Sweep, trial: int) -> None:
    (member,) = [member for member in planned.members if member.trial == trial]
    run = planned.output_dir / str(member.run)
    alone = train(planned.config(trial)).run_dir
    np.testing.assert_equal(state(run), state(alone))
    assert metrics_sha256(run / "logs" / "metrics.jsonl") == metrics_sha256(alone / "logs" / "metrics.jsonl")
    info = json.loads((run / "run.json").read_text())
    assert (info["sweep"], info["group"]) == (planned.info.id, f"{planned.info.id}/trial_{trial:03d}")


def test_a_grid_of_numbers_is_one_program_and_each_trial_its_solo_run(compilations: Counter[str]) -> None:
    train(load_config("base.yaml"))
    assert compilations["jit(chunk)"] == 1
    compilations.clear()
    code, planned = sweep(**{"hparams.learning_rate": [1e-2, 1e-3], "hparams.gamma": [0.9, 0.99]})
    assert code == 0
    assert not compilations, "four trials run what one run has compiled"
    assert_is_its_solo_run(planned, 1)
    code, planned = sweep(**{"hparams.num_steps": [16, 8], "hparams.ent_coef": [0.0, 0.1]})
    assert code == 0
    assert compilations["jit(chunk)"] == 1, "another shape is another program, and two trials share it"
    assert_is_its_solo_run(planned, 3)


def test_a_trial_that_fails_ends_no_other_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, planned = sweep(**{"hparams.learning_rate": [1e30, 1e-3]})
    assert code == 1
    assert [member.status for member in planned.members] == ["failed", "finished"]
    log = planned.log(planned.members[0]).read_text()
    assert re.fullmatch(r"error: train/\S+ is (nan|inf|-inf) in update [12], .*\n", log), log
    assert log.removeprefix("error: ").strip() in capsys.readouterr().out


def test_a_sweep_that_was_stopped_goes_on_bit_for_bit() -> None:
    def stop() -> None:
        while not list(Path("runs").glob("reinforce__*/checkpoints/step_00000000016*")):
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=stop)
    watcher.start()
    code, planned = sweep("--training.total-timesteps=3200", **{"hparams.learning_rate": [1e-2, 1e-3]})
    watcher.join()
    assert code == 143
    assert "stopped" in {member.status for member in planned.members}
    assert main(["sweep", "--resume", "latest"]) == 0
    assert_is_its_solo_run(Sweep.open("latest"), 0)


@pytest.mark.filterwarnings("ignore:secrets are never written")
def test_from_python_and_with_a_secret_that_only_the_config_knows() -> None:
    cfg = load_config("base.yaml", {"tags": ["https://me:hunter2-very-secret@host"], "training.total_timesteps": 32})
    before = dict(os.environ)
    summary = ExperimentRunner().run_multiple_runs(cfg, [3, 4])
    assert [run["status"] for run in summary["runs"]] == ["finished", "finished"]
    assert dict(os.environ) == before
    assert not [path for path in Path("runs").rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]


@pytest.mark.parametrize(
    ("changes", "shared"),
    [
        ({}, True),
        ({"hparams.num_steps": 8}, True),
        ({"backend": "torch"}, False),
        ({"lane": "host"}, False),
        ({"training.num_threads": 2}, False),
        ({"env_id": "LunarLander-v3"}, False),
    ],
)
def test_who_can_share_a_process(changes: dict[str, Any], shared: bool) -> None:
    assert share_a_process([load_config("base.yaml"), load_config("base.yaml", changes)]) is shared
