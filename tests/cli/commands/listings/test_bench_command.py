"""`rl bench`: what it prints, what it accepts, and that a slow environment is sent to the workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rl_training.cli import main
from rl_training.cli.commands.listings.bench import text_of
from rl_training.envs.bench import Advice, EnvSpeed, Rate, StepCost

Captured = pytest.CaptureFixture[str]

SLOW = """
import time
import gymnasium as gym
import numpy as np

class Slow(gym.Env):
    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        time.sleep(0.02)
        return np.zeros(1, np.float32), 0.0, False, False, {}
"""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_slow_environment_belongs_into_workers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_env.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("rl_training.envs.bench.usable_cores", lambda: 2)
    assert main(["bench", "slow_env:Slow", "--num-envs", "2", "--seconds", "0.3", "--json"]) == 0
    captured = capfd.readouterr()
    speed = json.loads(captured.out)
    assert speed["cost"]["step_us"] > 20_000
    assert [(rate["vectorization"], rate["num_workers"]) for rate in speed["rates"]] == [
        ("sync", 0),
        *(("async", workers) for workers in (1, 2)),
    ]
    assert "no native vector environment" in speed["skipped"]["native"]
    [advice] = speed["advice"]
    assert (advice["num_envs"], advice["vectorization"]) == (2, "async")
    assert "measuring 2 environments, async, 2 workers" in captured.err


def test_a_preset_brings_its_environment_section(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "my.yaml").write_text("env_id: CartPole-v1\nenv: {frame_stack: 2}\n")
    assert main(["bench", "my.yaml", "--num-envs", "1", "--seconds", "0.01"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("CartPole-v1: a step takes ")
    assert "not measured: native (env.frame_stack: a native vector environment takes no wrappers" in out
    assert "1 environment: env.vectorization: sync, a step costs" in out
    assert main(["bench", "ppo/pendulum", "--num-envs", "1", "--seconds", "0.01"]) == 0
    assert capsys.readouterr().out.startswith("Pendulum-v1: ")


def test_the_answer_in_words() -> None:
    speed = EnvSpeed(
        "My-v0",
        cores=2,
        cost=StepCost(12.34, 100.0, 20.4),
        rates=[Rate(4, "sync", 0, 50_000.4), Rate(4, "async", 2, 70_000.0)],
        skipped={"native": "there is none"},
        advice=[Advice(4, "async", 2, 1.4, "it is faster")],
    )
    assert text_of(speed).splitlines() == [
        "My-v0: a step takes 12.3 µs, a reset 100.0 µs (every 20 steps); 2 cores",
        "",
        "envs  how               steps/s",
        "4     sync              50,000",
        "4     async, 2 workers  70,000   <",
        "not measured: native (there is none)",
        "",
        "4 environments: env.vectorization: async, env.num_workers: 2, it is faster",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bench", "'rl bench' needs ENV"),
        ("bench NoSuchEnv-v0", "unknown environment 'NoSuchEnv-v0'"),
        ("bench nosuch.yaml", "config file 'nosuch.yaml' does not exist"),
        ("bench CartPole-v1 --num-envs four", "--num-envs takes whole numbers such as 1,4,16, not 'four'"),
        ("bench CartPole-v1 --num-envs 0,4", "--num-envs must be at least 1, not 0"),
        ("bench CartPole-v1 --seconds soon", "--seconds takes a number, not 'soon'"),
        ("bench CartPole-v1 --seconds 0", "--seconds must be above 0 and at most 3600, not 0"),
        ("bench CartPole-v1 --seconds nan", "--seconds must be above 0"),
    ],
)
def test_mistakes(line: str, message: str, capsys: Captured) -> None:
    assert main(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


def test_a_preset_shows_what_its_network_costs(capsys: Captured) -> None:
    words = ["bench", "ppo/cartpole_no_velocity", "--num-envs", "1", "--seconds", "0.01"]
    assert main([*words, "--json"]) == 0
    network = json.loads(capsys.readouterr().out)["network"]
    assert network["carry_bytes"] == 8 * 2 * 64 * 4
    assert main(words) == 0
    assert f"update {network['update_mflop']:,.15g} MFLOP, carry 4.1 kB" in capsys.readouterr().out
