"""The one-file scripts give the weights of the package's own runs, bit for bit."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training import train
from rl_training.assembly.devices import pinned_threads
from rl_training.checkpointing.manager import CheckpointManager
from rl_training.checkpointing.state_tree import flatten
from rl_training.config.loading import config_to_mapping, load_config
from rl_training.hparams.world_models import SIZES

EXAMPLES = Path(__file__).parents[2] / "examples"
PRESETS = {
    "ppo_cartpole": "ppo/cartpole",
    "ppo_recurrent": "ppo/cartpole_no_velocity",
    "reinforce_cartpole": "reinforce/cartpole",
    "dqn_cartpole": "dqn/cartpole",
    "sac_pendulum": "sac/pendulum",
    "td3_pendulum": "td3/pendulum",
    "dreamer_catch": "dreamer/catch",
}
"""Scripts, and the presets whose runs they are."""
STEPS = {
    "ppo_cartpole": 2_048,
    "ppo_recurrent": 2_048,
    "reinforce_cartpole": 4_096,
    "dqn_cartpole": 1_200,
    "sac_pendulum": 600,
    "td3_pendulum": 1_100,
    "dreamer_catch": 520,
}
"""A few rollouts, or some 50 to 200 updates from replay."""
LONGER = {
    "ppo_cartpole": 6_000,
    "reinforce_cartpole": 12_000,
    "dqn_cartpole": 2_000,
    "sac_pendulum": 700,
    "td3_pendulum": 1_200,
    "dreamer_catch": 700,
}
CASES = [*STEPS.items(), *(pytest.param(*case, marks=pytest.mark.slow) for case in LONGER.items())]
WITHOUT: dict[str, dict[str, Any]] = {
    "ppo_cartpole": {"hparams.kernel": "reference"},
    "ppo_recurrent": {"env.normalize_obs": False, "env.normalize_reward": False},
    "dqn_cartpole": {"hparams.kernel": "reference"},
    "sac_pendulum": {"hparams.kernel": "reference"},
    "td3_pendulum": {"hparams.kernel": "reference"},
    "reinforce_cartpole": {"env.normalize_reward": False},
}
"""What a script leaves out of its preset."""


def path_of(script: str) -> Path:
    return EXAMPLES / f"{script}_reference.py"


def test_the_main_algorithms_have_a_script():
    assert {path.stem.removesuffix("_reference") for path in EXAMPLES.glob("*_reference.py")} == set(PRESETS)


@pytest.mark.parametrize(("script", "steps"), CASES)
def test_same_weights_as_the_package(script: str, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One script is started as a user does, the others run here, where torch is imported already."""
    seed = 4
    saved = tmp_path / "weights.npz"
    words = [str(path_of(script)), "--total-timesteps", str(steps), "--seed", str(seed), "--save", str(saved)]
    if script == "ppo_cartpole":
        subprocess.run([sys.executable, *words], check=True, cwd=tmp_path)
    else:
        monkeypatch.setattr(sys, "argv", words)
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
        with pinned_threads(1):
            runpy.run_path(words[0], run_name="__main__")
    overrides = {
        **WITHOUT.get(script, {}),
        "seed": seed,
        "output_dir": str(tmp_path),
        "training.total_timesteps": steps,
        "training.num_eval_episodes": 0,
        "logging.terminal": False,
    }
    result = train(load_config(PRESETS[script], overrides))
    ours = flatten(CheckpointManager(result.run_dir).load_latest({"policy"}).parts["policy"]["network"]).arrays
    theirs = list(np.load(saved).values())
    assert len(ours) == len(theirs) >= 6
    for (name, weights), expected in zip(ours.items(), theirs, strict=True):
        np.testing.assert_array_equal(weights, expected, err_msg=name)


@pytest.mark.parametrize("script", PRESETS)
def test_settings_are_those_of_the_preset(script: str):
    namespace: dict[str, Any] = {"__name__": script}
    sys.modules.setdefault(script, type(sys)(script))
    exec(compile(path_of(script).read_text(), str(path_of(script)), "exec"), namespace)
    settings = asdict(namespace["Settings"]())
    preset = config_to_mapping(load_config(PRESETS[script]))
    hparams = preset["hparams"]
    for name in set(settings) & set(hparams):
        value = hparams[name]
        assert settings[name] == ((value["start"], value["end"]) if isinstance(value, dict) else value), name
    assert settings["num_envs"] == preset["env"]["num_envs"]
    assert settings["total_timesteps"] == preset["training"]["total_timesteps"]
    assert settings.get("buffer_size") == preset["buffer"]["size"]
    if script == "dreamer_catch":
        widths = SIZES[hparams["size"]]
        assert all(settings[name] == asdict(widths)[name] for name in ("deter", "units", "classes", "bins"))
        assert (settings["latents"], settings["units"]) == (widths.stoch, widths.hidden)
        return
    network, layers = preset["network"]["critic"], [settings["hidden"]] * (1 if "memory_size" in settings else 2)
    assert list(network["hidden_dims"]) == layers
    if "memory_size" in settings:
        assert preset["network"]["actor"] == network
        assert (network["memory"]["type"], network["memory"]["size"]) == ("gru", settings["memory_size"])
        assert preset["env"]["wrappers"][0]["kwargs"]["indices"] == list(settings["seen"])


@pytest.mark.parametrize("script", PRESETS)
def test_needs_torch_numpy_and_gymnasium_only(script: str):
    imported = set(re.findall(r"^(?:import|from) (\w+)", path_of(script).read_text(), re.MULTILINE))
    assert imported - set(sys.stdlib_module_names) == {"torch", "numpy", "gymnasium"}
