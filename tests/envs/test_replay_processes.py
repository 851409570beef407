"""Conformance per environment family across processes: recorded here, resumed from disk in a fresh interpreter.

State that stays in the memory of one process (a library's global generator, a physics world, the hash seed) cannot hide
a difference here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import replay_process

from rl_training.envs import list_envs

FAMILIES = {
    "classic control": ["CartPole-v1", "Acrobot-v1", "Pendulum-v1"],
    "toy text": ["Blackjack-v1", "FrozenLake-v1", "Taxi-v4"],
    "box2d": ["LunarLander-v3", "BipedalWalker-v3"],
    "mujoco": ["InvertedPendulum-v5", "Hopper-v5"],
    "dm_control": ["dm_control/cartpole-swingup-v0"],
    "minigrid": ["MiniGrid-DoorKey-5x5-v0"],
    "atari": ["BreakoutNoFrameskip-v0"],
}


def replayed(folder: Path, env_ids: list[str]) -> dict[str, str | None]:
    """The differences found by a fresh process with another hash seed."""
    program = replay_process.__file__
    environ = {**os.environ, "PYTHONHASHSEED": "99"}
    done = subprocess.run(
        [sys.executable, program, str(folder), *env_ids], cwd=folder, env=environ, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    differences: dict[str, str | None] = json.loads(done.stdout)
    return differences


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log into the working directory
    for env_id in FAMILIES[family]:
        replay_process.record(tmp_path, env_id, cuts=3, steps=120)
    assert replayed(tmp_path, FAMILIES[family]) == dict.fromkeys(FAMILIES[family])


def test_a_walker_that_keeps_its_world_is_found_out(tmp_path: Path) -> None:
    """Without `FreshWorld` BipedalWalker continues differently in another process: the test above can fail."""
    replay_process.record(tmp_path, "bare:BipedalWalker-v3", cuts=6, steps=150)
    (difference,) = replayed(tmp_path, ["bare:BipedalWalker-v3"]).values()
    assert difference is not None


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"dm_control", "minigrid", "atari"}))
def test_every_environment_of_a_family(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (suite,) = [suite for suite in list_envs() if suite.name == family]
    differences = {}
    for env_id in suite.ids:
        replay_process.record(tmp_path, env_id, cuts=6, steps=40 if env_id.startswith("CarRacing") else 300)
        differences |= replayed(tmp_path, [env_id])  # one process each: no other environment has run in it
    assert differences == dict.fromkeys(suite.ids)
