"""Runs in one vmapped program have the learning curves of solo runs, whichever runs join, leave or fail."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training import train
from rl_training.assembly.build import build_trainer
from rl_training.cli import main
from rl_training.config.loading import load_config, parse_config
from rl_training.experiments.launching.member_threads import for_many
from rl_training.experiments.launching.sweeps import Sweep
from rl_training.jax.training import batched_runs
from rl_training.runs.directory import metrics_sha256
from rl_training.types import ConfigError

QUIET = {"tensorboard": False, "terminal": False}
BASES: dict[str, dict[str, Any]] = {
    "reinforce": {"env_id": "CartPole-v1", "hparams": {"num_steps": 16}},
    "ppo": {"env_id": "CartPole-v1", "hparams": {"num_steps": 16, "num_epochs": 1, "num_minibatches": 2}},
    "dqn": {
        "env_id": "CartPole-v1",
        "hparams": {"learning_starts": 8, "batch_size": 4, "updates_per_step": 0.5},
        "buffer": {"size": 100},
        "network": {"actor": {"hidden_dims": [8]}},
    },
}
TOTAL = {"reinforce": 160, "ppo": 160, "dqn": 1280}
SLOW = [pytest.param(algo, marks=pytest.mark.slow) for algo in ("ppo", "dqn")]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for algo, base in BASES.items():
        training = {"total_timesteps": TOTAL[algo], "eval_frequency": 0, "num_eval_episodes": 0}
        config = {
            "algo": algo,
            "backend": "jax",
            "env": {"num_envs": 2},
            "training": training,
            "logging": QUIET,
            **base,
        }
        Path(f"{algo}.json").write_text(json.dumps(config))


def rows(run: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (run / "logs" / "metrics.jsonl").read_text().splitlines())
    return [
        {name: value for name, value in line.items() if not name.startswith(("time/", "system/"))} for line in lines
    ]


@pytest.mark.parametrize("algo", ["reinforce", *SLOW])
def test_three_seeds_by_twos_learn_as_they_do_alone(algo: str) -> None:
    words = ["train", f"--config={algo}.json", "--seed=0..2", "--training.runs-per-program=2"]
    assert main(words) == 0
    runs = sorted(Path("runs").glob(f"{algo}__*"))
    assert len(runs) == 3
    for seed, run in enumerate(runs):
        alone = train(load_config(f"{algo}.json", {"seed": seed, "output_dir": "alone"})).run_dir
        ours, theirs = rows(run), rows(alone)
        assert [list(row) for row in ours] == [list(row) for row in theirs]
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(list(one.values()), list(other.values()), rtol=1e-3, atol=1e-4)


def test_a_run_does_not_depend_on_who_is_beside_it() -> None:
    sweep = {"base_config": "reinforce.json", "sweep": {"hparams.learning_rate": [1e30, 1e-3, 3e-4]}}
    Path("sweep.json").write_text(json.dumps(sweep))
    assert main(["sweep", "--config=sweep.json", "--training.runs-per-program=2"]) == 1
    planned = Sweep.open("latest")
    assert [member.status for member in planned.members] == ["failed", "finished", "finished"]
    alone = train(planned.config(2)).run_dir
    beside = planned.output_dir / str(planned.members[2].run)
    assert metrics_sha256(alone / "logs" / "metrics.jsonl") == metrics_sha256(beside / "logs" / "metrics.jsonl")


def test_what_fails_in_the_program_is_told_to_all_who_wait() -> None:
    meeting = batched_runs.BatchedRuns(lambda loop, count, times: (loop + count, 1 / 0), 1)
    meeting.join()
    with pytest.raises(ZeroDivisionError):
        meeting.chunk(np.float32(1.0), 3, np.float32(0.0))
    meeting.leave()


def test_the_shortest_chunk_is_the_chunk_of_all() -> None:
    meeting = batched_runs.BatchedRuns(lambda loop, count, times: (loop + count, loop * times), 2)
    meeting.join()
    assert meeting.chunk(np.int32(1), 3, np.int32(1)) == (4, 1), "alone it waits for nobody"
    meeting.join()
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(meeting.chunk, (np.int32(10), np.int32(20)), (7, 5), (np.int32(2), np.int32(3))))
    assert results == [(15, 20), (25, 60)]


def test_a_group_on_an_accelerator_is_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = load_config("ppo.json")
    assert for_many(cfg, 5).training.runs_per_program == 1, "this is a CPU"
    monkeypatch.setattr(batched_runs, "is_accelerated", lambda: True)
    assert for_many(cfg, 5).training.runs_per_program == 5
    assert for_many(cfg, 1) is cfg
    host = load_config("ppo.json", {"lane": "host"})
    assert for_many(host, 5) is host


def test_only_compiled_runs_go_together() -> None:
    cfg = parse_config({"algo": "ppo", "env_id": "CartPole-v1", "training": {"runs_per_program": 2}})
    with pytest.raises(ConfigError, match=r"training\.runs_per_program need a run in the compiled lane"):
        build_trainer(cfg)
