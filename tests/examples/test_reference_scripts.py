"""The one-file scripts give the weights of the package's own runs, bit for bit."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training import train
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.checkpointing.state_tree import flatten
from rl_training.config.loading import config_to_mapping, load_config
from rl_training.hparams.world_models import SIZES

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = {path.stem.split("_")[0]: path.name for path in EXAMPLES.glob("*_reference.py")}
PRESETS = {"sac": "sac/pendulum", "td3": "td3/pendulum", "dreamer": "dreamer/catch"}
STEPS = {"ppo": 6_000, "reinforce": 12_000, "dqn": 2_000, "sac": 700, "td3": 1_200, "dreamer": 700}
WITHOUT: dict[str, dict[str, Any]] = {
    "ppo": {"hparams.kernel": "reference"},
    "dqn": {"hparams.kernel": "reference"},
    "sac": {"hparams.kernel": "reference"},
    "td3": {"hparams.kernel": "reference"},
    "reinforce": {"env.normalize_reward": False},
}
"""What a script leaves out of its preset."""


def preset_of(algo: str) -> str:
    return PRESETS.get(algo, f"{algo}/cartpole")


def test_the_main_algorithms_have_a_script():
    assert set(SCRIPTS) == {"ppo", "reinforce", "dqn", "sac", "td3", "dreamer"}


@pytest.mark.parametrize("algo", SCRIPTS)
def test_same_weights_as_the_package(algo: str, tmp_path: Path):
    steps, seed = STEPS[algo], 4
    saved = tmp_path / "weights.npz"
    command = [sys.executable, str(EXAMPLES / SCRIPTS[algo]), "--total-timesteps", str(steps), "--seed", str(seed)]
    subprocess.run([*command, "--save", str(saved)], check=True, cwd=tmp_path)
    overrides = {
        **WITHOUT.get(algo, {}),
        "seed": seed,
        "output_dir": str(tmp_path),
        "training.total_timesteps": steps,
        "training.num_eval_episodes": 0,
        "logging.terminal": False,
    }
    result = train(load_config(preset_of(algo), overrides))
    ours = flatten(CheckpointManager(result.run_dir).load_latest({"policy"}).parts["policy"]["network"]).arrays
    theirs = list(np.load(saved).values())
    assert len(ours) == len(theirs) >= 6
    for (name, weights), expected in zip(ours.items(), theirs, strict=True):
        np.testing.assert_array_equal(weights, expected, err_msg=name)


@pytest.mark.parametrize("algo", SCRIPTS)
def test_settings_are_those_of_the_preset(algo: str):
    namespace: dict[str, Any] = {"__name__": algo}
    sys.modules.setdefault(algo, type(sys)(algo))
    exec(compile((EXAMPLES / SCRIPTS[algo]).read_text(), SCRIPTS[algo], "exec"), namespace)
    settings = asdict(namespace["Settings"]())
    preset = config_to_mapping(load_config(preset_of(algo)))
    hparams = preset["hparams"]
    for name in set(settings) & set(hparams):
        value = hparams[name]
        assert settings[name] == ((value["start"], value["end"]) if isinstance(value, dict) else value), name
    assert settings["num_envs"] == preset["env"]["num_envs"]
    assert settings["total_timesteps"] == preset["training"]["total_timesteps"]
    assert settings.get("buffer_size") == preset["buffer"]["size"]
    if algo == "dreamer":
        widths = SIZES[hparams["size"]]
        assert all(settings[name] == asdict(widths)[name] for name in ("deter", "units", "classes", "bins"))
        assert (settings["latents"], settings["units"]) == (widths.stoch, widths.hidden)
    else:
        assert list(preset["network"]["critic"]["hidden_dims"]) == [settings["hidden"]] * 2


@pytest.mark.parametrize("script", SCRIPTS.values())
def test_needs_torch_numpy_and_gymnasium_only(script: str):
    imported = set(re.findall(r"^(?:import|from) (\w+)", (EXAMPLES / script).read_text(), re.MULTILINE))
    assert imported - set(sys.stdlib_module_names) == {"torch", "numpy", "gymnasium"}
