"""Whose code an exception comes from is said, with file and line; only the package's own asks for a report."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rl_training.cli import main
from rl_training.cli.failures import DEPENDENCIES, MODULES, failure_text, missing_module, origin_of

Captured = pytest.CaptureFixture[str]
PARTS = """
    import gymnasium as gym
    import numpy as np
    from rl_training import Callback

    class Broken(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
        action_space = gym.spaces.Discrete(2)

        def __init__(self, where="step", render_mode=None):
            if where == "init":
                raise RuntimeError("no licence")
            self.where = where

        def reset(self, *, seed=None, options=None):
            return np.zeros(3, np.float32), {}

        def step(self, action):
            reward = 1 / 0 if self.where == "step" else 0.0
            return np.zeros(3, np.float32), reward, False, True, {}

    class Bad(Callback):
        def on_start(self, *arguments, **keywords):
            raise ValueError("my callback")

    def network(*arguments, **keywords):
        raise TypeError("my network")
"""


@pytest.fixture(autouse=True)
def with_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("own_parts.py").write_text(textwrap.dedent(PARTS))
    Path("own_name.py").write_text("x = 1\ny = undefined\n")
    Path("own_syntax.py").write_text("def f(:\n")
    for name in ("own_parts", "own_name", "own_syntax"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env-id=own_parts:Broken"], "ZeroDivisionError: division by zero, raised in your own code"),
        (["--env-id=own_parts:Broken", "--env.kwargs.where=init"], "RuntimeError: no licence"),
        (
            ["--env-id=own_parts:Broken", "--env.kwargs.where=x", "--callbacks=[{name: own_parts:Bad}]"],
            "ValueError: my callback, raised in your own code",
        ),
        (
            ["--env-id=own_parts:Broken", "--env.kwargs.where=x", "--network.actor.type=own_parts:network"],
            "TypeError: my network, raised in your own code",
        ),
        (["--env-id=own_name:X"], "NameError: name 'undefined' is not defined, raised in your own code"),
        (["--plugins=own_syntax"], "raised in your own code"),
    ],
)
def test_an_exception_of_ones_own_code_has_a_short_traceback(words: list[str], message: str, capsys: Captured) -> None:
    assert main(["train", "--total-timesteps=64", "--num-envs=2", "--logging.tensorboard=false", *words]) == 1
    err = capsys.readouterr().err
    assert message in err
    assert "please report" not in err
    assert "own_" in err.partition("line ")[0]
    assert "rl_training/trainer" not in err


def test_the_whole_way_is_shown_on_request(capsys: Captured) -> None:
    assert main(["train", "--env-id=own_name:X", "--traceback"]) == 1
    err = capsys.readouterr().err
    assert "rl_training/registry.py" in err
    assert "own_name.py, line 2" in err


def test_a_fault_of_the_package_asks_for_a_report(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_training.cli.commands.listings.presets.matching", None)
    assert main(["presets"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("error: unexpected TypeError; this is a fault of rl_training; please report")


def raised(code: str, file: str) -> BaseException:
    try:
        exec(compile(code, file, "exec"), {})
    except BaseException as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        return error
    raise AssertionError


def test_an_installed_package_is_named() -> None:
    error = raised("1 / 0", "/somewhere/site-packages/maze_game/env.py")
    origin = origin_of(error)
    assert origin is not None
    assert origin.whose == "the installed package 'maze_game'"
    _, sentence = failure_text(error)
    assert "raised in the installed package 'maze_game', /somewhere/site-packages/maze_game/env.py, line 1" in sentence
    assert origin_of(raised("1 / 0", "/somewhere/site-packages/torch/nn.py")) is None


def test_a_missing_module_of_ours_comes_with_the_line_to_type() -> None:
    error = ModuleNotFoundError("No module named 'jaxlib'", name="jaxlib.xla")
    assert missing_module(error) == "the module 'jaxlib' is missing: pip install 'rl-training[jax]'"
    assert missing_module(ModuleNotFoundError(name="torch")) == "the module 'torch' is missing: pip install rl-training"
    assert missing_module(ModuleNotFoundError(name="something_else")) is None
    assert missing_module(raised("import nothing_here", "/somewhere/mine.py")) is None
    assert {module for modules in MODULES.values() for module in modules} <= DEPENDENCIES


HIDDEN = """
import sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None
from rl_training.cli import main
lines = sys.argv[2:]
for line in lines:
    print(line, "->", main(line.split()), flush=True)
"""


def test_every_missing_extra_is_exit_code_2_with_the_line_to_type() -> None:
    hidden = "jax,Box2D,mujoco,ale_py,minigrid,shimmy,imageio_ffmpeg,wandb,optuna,duckdb,matplotlib"
    cases = {
        "train ppo/cartpole --backend jax": "jax",
        "train --env-id LunarLander-v3": "box2d",
        "bench LunarLander-v3": "box2d",
        "train --algo sac --env-id Hopper-v5": "mujoco",
        "train --algo dqn --env-id ALE/Pong-v5": "atari",
        "train --env-id MiniGrid-Empty-5x5-v0": "minigrid",
        "train --env-id dm_control/cartpole-swingup-v0": "dm-control",
        "train ppo/cartpole --logging.video-frequency 1000": "video",
        "train ppo/cartpole --logging.wandb.enabled": "tracking",
        "tune ppo_tune.yaml": "tune",
    }
    Path("ppo_tune.yaml").write_text("base_config: ppo/cartpole\nsampler: tpe\n")
    result = subprocess.run(
        [sys.executable, "-c", HIDDEN, hidden, *cases], capture_output=True, text=True, check=False, timeout=120
    )
    assert [line.rpartition(" -> ")[2] for line in result.stdout.splitlines() if " -> " in line] == ["2"] * len(cases)
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == len(cases)
    for line, extra in zip(errors, cases.values(), strict=True):
        assert f"pip install 'rl-training[{extra}]'" in line
