"""What `--dry-run` says about many runs and about runners, against arithmetic by hand and against what is written."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from rl_training.assembly.build import build_trainer
from rl_training.assembly.remote import RunnerSetup, inline_pool
from rl_training.cli import main
from rl_training.config.loading import load_config
from rl_training.data.storage import array_bytes
from rl_training.runs.index import RunIndex
from rl_training.runs.row import LARGE as LARGE_COLUMNS
from rl_training.system.memory_limits import Room
from rl_training.training.remote.runner import Order

Captured = pytest.CaptureFixture[str]
IMAGES = """
import gymnasium as gym
import numpy as np

class Images(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = gym.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((4, 84, 84), np.uint8), {}
    def step(self, action):
        return np.zeros((4, 84, 84), np.uint8), 0.0, False, False, {}
"""


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def plan_of(capsys: Captured, *words: str) -> dict[str, Any]:
    assert main(["train", *words, "--dry-run", "--json"]) == 0
    plan: dict[str, Any] = json.loads(capsys.readouterr().out)["plan"]
    return plan


# -- runners ----------------------------------------------------------------------------------------------------------


def test_a_thousand_runners_by_hand(capsys: Captured) -> None:
    """CartPole: a step is 4 float32, an int64, a float64 and 4 flags, 36 bytes; two networks of 4-64-64-(2 and 1)."""
    words = ("--env.collector=ray", "--env.num-envs=8000", "--env.runners=1000", "--hparams.num-steps=128")
    plan = plan_of(capsys, "ppo/cartpole", *words)
    weights = 2 * (4 * 64 + 64 + 64 * 64 + 64) + (64 * 2 + 2) + (64 + 1)
    assert plan["parameters"] == weights
    assert plan["broadcast_bytes"] == 4 * weights
    rows = 8000 * 128 * 36
    states = plan["gather_bytes"] - rows
    assert 8000 * 100 < states < 8000 * 1000  # where an environment was left: some hundred bytes, and 16 of obs
    assert plan["gather_runner_bytes"] == plan["gather_bytes"] / 1000
    assert plan["runner_calls"] == 1000
    assert plan["calls_per_second"] == pytest.approx(1000 / plan["rollout_seconds"], rel=0.02)


@pytest.mark.parametrize("preset", ["impala/cartpole", "dqn/cartpole", "dqn/ape_x_cartpole"])
def test_what_is_said_is_what_a_runner_sends(capsys: Captured, preset: str) -> None:
    words = ("--env.collector=ray", "--env.num-envs=15", "--env.runners=2")
    plan = plan_of(capsys, preset, *words)
    cfg = load_config(preset, {"env.collector": "ray", "env.num_envs": 15, "env.runners": 2})
    trainer = build_trainer(cfg, to_run=False, make_pool=inline_pool)
    runner = RunnerSetup(cfg, None, trainer.spaces).build(range(8))  # the larger of the shares of 15
    sent = runner.collect(Order(trainer.num_steps, 0), trainer.parts()["policy"].state_dict())
    arrays = array_bytes({**sent.columns, "extras": sent.extras, "last": sent.last_obs})
    assert plan["gather_runner_bytes"] == pytest.approx(arrays + len(pickle.dumps(sent.states)), rel=0.1)
    runner.close()
    trainer.close()


def test_without_a_number_of_runners_the_cluster_decides(capsys: Captured) -> None:
    plan = plan_of(capsys, "ppo/cartpole", "--env.collector=ray")
    assert {"broadcast_bytes", "gather_bytes"} <= plan.keys()
    assert not {"runner_calls", "calls_per_second"} & plan.keys()
    assert "gather_bytes" not in plan_of(capsys, "ppo/cartpole")
    assert main(["train", "ppo/cartpole", "--env.collector=ray", "--env.runners=2", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "broadcast         36.6 kB per update and node\n" in out
    assert "runner calls      2 per rollout\n" in out


def test_images_of_a_thousand_runners_need_no_memory_here(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of 4 x 84 x 84 bytes: 29 GB a rollout, planned on a machine that has no room for it."""
    monkeypatch.setattr("rl_training.system.memory_limits.room", lambda: Room(10**9, "of this test"))
    Path("images.py").write_text(IMAGES)
    monkeypatch.syspath_prepend(".")
    words = ("--env.collector=ray", "--env.num-envs=8000", "--env.runners=1000", "--hparams.num-steps=128")
    plan = plan_of(capsys, "ppo/cartpole", "--env-id=images:Images", *words)
    assert plan["gather_bytes"] == pytest.approx(8000 * (128 * (4 * 84 * 84 + 8 + 8 + 4) + 4 * 84 * 84), rel=0.01)
    assert plan["memory_bytes"] > 8000 * 128 * 4 * 84 * 84


# -- many runs --------------------------------------------------------------------------------------------------------

LARGE = """\
base_config: ppo/cartpole
num_trials: 10000
ranges:
  hparams.learning_rate: {low: 1e-5, high: 1e-2, log: true}
  hparams.clip_coef: {low: 0.05, high: 0.4}
"""


def test_ten_thousand_trials_by_hand(capsys: Captured) -> None:
    """A row of the log is 25 numbers of 30 bytes; at 100,000 env steps with 8 x 32 per update there are 391 rows."""
    Path("sweep.yaml").write_text(LARGE)
    words = ("--total-timesteps=100000", "--num-envs=8", "--hparams.num-steps=32", "--logging.log-frequency=0")
    assert main(["sweep", "sweep.yaml", *words, "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["estimate"]
    updates = -(-100_000 // 256)
    assert (found["runs"], found["index_rows"]) == (10_000, 10_000)
    assert found["env_steps"] == 10_000 * updates * 256
    assert found["log_bytes"] == 10_000 * updates * 25 * 30
    assert 3e6 < found["record_bytes"] < 10e6
    assert 10_000 * 3000 < found["index_bytes"] < 10_000 * 10_000
    assert found["disk_bytes"] > found["log_bytes"] + found["record_bytes"] + found["index_bytes"]
    assert main(["sweep", "sweep.yaml", *words, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "... 9900 more (--json has all)" in out
    assert "All runs together, each to its end\n  runs          10,000\n" in out


def test_a_search_has_the_study_besides(capsys: Captured) -> None:
    text = "base_config: ppo/cartpole\nspace: none\nsweep: {hparams.gamma: [0.9, 0.99]}\nnum_trials: 1000\n"
    Path("tune.yaml").write_text(f"{text}sampler: random\nseeds: [0, 1, 2]\n")
    assert main(["tune", "tune.yaml", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["estimate"]
    assert found["runs"] == 3000
    assert found["study_bytes"] == 1000 * (650 + 260 + 3 * 140)


def test_a_run_that_cannot_be_built_here_has_no_estimate(capsys: Captured) -> None:
    Path("base.yaml").write_text("env_id: nowhere_at_all:Env\n")
    Path("sweep.yaml").write_text("base_config: base.yaml\nsweep: {hparams.gamma: [0.9]}\n")
    assert main(["sweep", "sweep.yaml", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert "no estimate of what it costs: " in err
    assert "All runs together" not in out


def test_records_and_index_are_as_large_as_was_said(capsys: Captured) -> None:
    """Two short runs: `sweep.json` and the index beside the estimate."""
    base = (
        "algo: random\nenv: {num_envs: 2}\nhparams: {num_steps: 16}\nlogging: {tensorboard: false, terminal: false}\n"
    )
    Path("base.yaml").write_text(f"{base}training: {{total_timesteps: 640, num_eval_episodes: 1}}\n")
    Path("sweep.yaml").write_text("base_config: base.yaml\nsweep: {hparams.num_steps: [16, 20]}\nparallel_jobs: 2\n")
    assert main(["sweep", "sweep.yaml", "--dry-run", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["estimate"]
    assert main(["sweep", "sweep.yaml", "--json"]) == 0
    (record,) = Path("runs").glob("sweeps/*/sweep.json")
    written = json.loads(record.read_text())
    parts = json.dumps({name: written[name] for name in ("trials", "totals", "members")}, indent=2)
    assert said["record_bytes"] == pytest.approx(len(parts), rel=0.15)
    row = sum(len(str(value)) for value in index_rows(Path("runs"))[0].values())
    assert said["index_bytes"] / 2 == pytest.approx(row, rel=0.3)


def index_rows(folder: Path) -> list[dict[str, Any]]:
    rows = RunIndex(folder).rows(large=LARGE_COLUMNS)
    return [{**row, **{name: json.dumps(row[name]) for name in LARGE_COLUMNS}} for row in rows]
