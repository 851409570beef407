"""Every kind of part comes from a user's own module in three ways, and a mistake in one is answered with its cure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import own_parts
import pytest
import torch
from extending_runs import KINDS, WAYS

import rl_training
from rl_training.registry import Registry, import_plugins, installed_plugins
from rl_training.types import ConfigError, EnvError

HERE = Path(__file__).parent

PART = """
@rl_training.register_{kind}("{way}_{kind}")
class {name}(own_parts.{name}):
    pass
"""


def registering(way: str) -> str:
    """A module whose decorators register a part of each kind under the name `<way>_<kind>`."""
    parts = [PART.format(kind=kind, way=way, name=kind.capitalize()) for kind in KINDS]
    return "\n".join(["import own_parts", "import rl_training", *parts])


def install(folder: Path, package: str, entry_point: str) -> None:
    """What pip leaves behind of a package that offers a plugin."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[rl_training.plugins]\ntheirs = {entry_point}\n")


def run(folder: Path, *words: str) -> Any:
    """The JSON that a Python program prints, with the user's modules on its path."""
    variables = {**os.environ, "PYTHONPATH": f"{folder}:{HERE}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words], env=variables, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    (folder / "decorated_parts.py").write_text(registering("decorated"))
    (folder / "installed_parts.py").write_text(registering("installed"))
    install(folder, "own-parts", "installed_parts")
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> Any:
    return run(folder, str(HERE / "extending_runs.py"), str(folder))


EXPECTED = {
    "algorithm": 7,
    "network": [5, 4],
    "environment": [15.0],
    "wrapper": [2.0],
    "buffer": 2,
    "logger": [128, 256],
    "callback": 2,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_part_of_ones_own_is_trained_with(way: str, kind: str, found: Any):
    assert found[f"{way} {kind}"] == EXPECTED[kind]


def test_parts_are_found_again_by_another_process_and_by_workers(folder: Path, found: Any):
    """The run, whose environment and wrapper were built in a worker process, knows its plugins."""
    scores = run(folder, "-m", "rl_training.cli", "eval", found["together"], "--episodes", "2", "--json")
    assert scores["returns"] == [30.0, 30.0], "five steps, 3 points each, doubled by the wrapper"


# -- mistakes ---------------------------------------------------------------------------------------------------------

NUMBER = 3


class NoUpdate(rl_training.BaseAlgorithm):
    def act(self, obs: Any, rng: Any, *, deterministic: bool = False) -> Any:
        return rng.integers(2, size=len(obs))


class WrongResult(NoUpdate):
    def update(self, batch: Any) -> Any:
        return {"loss": 1.0}


class OutOfReach(own_parts.Algorithm):
    def setup(self) -> None:
        super().setup()
        self.critic = torch.nn.Linear(4, 1)


class TakesPolicy(own_parts.Algorithm):
    def setup(self) -> None:
        super().setup()
        self.policy = self.networks["policy"]  # type: ignore[assignment]


class HalfAnAlgorithm:
    def __init__(self, ctx: Any, hparams: Any) -> None:
        self.policy = self

    def update(self, batch: Any) -> Any: ...


class NoContext:
    def __init__(self) -> None: ...


class NoEval:
    def log(self, row: Any, /) -> None: ...

    def close(self) -> None: ...


class NoWidth(own_parts.Buffer):
    def __init__(self, num_steps: int, num_envs: int) -> None: ...


def here(name: str) -> str:
    return f"{__name__}:{name}"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"algo": "no_such_module:A"}, "algorithm 'no_such_module:A': cannot import .*is it on PYTHONPATH"),
        ({"algo": here("NoUpdat")}, "has no 'NoUpdat'; did you mean 'NoUpdate'"),
        ({"algo": here("NUMBER")}, "is a int; it must be an AlgorithmSpec or a class such as one derived from"),
        ({"algo": here("NoUpdate")}, r"NoUpdate has no update\(\); write `def update\(self, batch\)` in it"),
        ({"algo": here("WrongResult")}, "WrongResult.update returned a dict; return UpdateResult"),
        ({"algo": here("OutOfReach")}, r"keeps self.critic out of self.networks.*add self.networks\[\"critic\"\]"),
        ({"algo": here("TakesPolicy")}, "sets self.policy, which is taken; put it into self.networks"),
        ({"algo": here("HalfAnAlgorithm")}, r"has no observe\(\); derive it from rl_training.BaseAlgorithm"),
        ({"algo": here("NoContext")}, r"is called with \(ctx, hparams\) and does not take that: too many"),
        ({"algo": "own_parts:Algorithm", "env": {"normalize_obs": True}}, r"env.wrappers: \[normalize_obs\]"),
        ({"algo": "own_parts:Algorithm", "hparams": {"lerning_rate": 1}}, "did you mean 'learning_rate'"),
        ({"network": {"critic": {"type": "own_parts:Netwrk"}}}, "did you mean 'Network'"),
        ({"network": {"critic": {"type": here("NUMBER")}}}, "is a int; it must be a class or a function"),
        ({"env_id": "own_parts:Enviroment"}, "did you mean 'Environment'"),
        ({"env_id": here("NoContext")}, "not a gymnasium.Env; derive your class from gymnasium.Env"),
        ({"env": {"wrappers": [here("NUMBER")]}}, "wrapper '.*' is a int; it must be a class or a function"),
        ({"env": {"wrappers": ["own_parts:Wrapper"]}}, "wrapper 'own_parts:Wrapper' failed .*factor"),
        ({"env": {"wrappers": [{"name": "own_parts:Wrapper", "kwargs": {"facto": 1}}]}}, "did you mean 'factor'"),
        ({"buffer": {"type": "own_parts:Wrapper"}}, "derive it from rl_training.data.rollout_buffer.RolloutBuffer"),
        ({"buffer": {"type": "replay"}}, "'replay' does not fit 'ppo', which learns from rollouts"),
        ({"buffer": {"type": here("NoWidth")}}, r"is called with \(num_steps=, .*unexpected keyword"),
        (
            {"logging": {"sinks": [here("NoEval")]}},
            r"has no log_eval\(\); it needs what rl_training.logging.logger.Sink lists",
        ),
        ({"logging": {"sinks": ["own_parts:Logger"]}}, "missing a required argument: 'path'"),
        ({"logging": {"sinks": [{"name": "own_parts:Logger", "kwargs": {"pth": 1}}]}}, "did you mean 'path'"),
        ({"callbacks": [here("NoEval")]}, r"has no on_start\(\); derive it from rl_training.Callback"),
        ({"callbacks": [here("NUMBER")]}, "callback '.*' is a int; it must be a class"),
        ({"callbacks": [{"name": "own_parts:Callback", "kwargs": {"x": 1}}]}, r"takes no 'x' \(it takes: none\)"),
        ({"plugins": ["own_parts:Algorithm"]}, "cannot import 'own_parts:Algorithm'.*list the module alone"),
        ({"plugins": ["no_such_module"]}, "plugins: cannot import 'no_such_module'.*is it on PYTHONPATH"),
    ],
)
def test_a_mistake_is_answered_with_its_cure(given: dict[str, Any], message: str, tmp_path: Path):
    mapping = {"output_dir": str(tmp_path), "training": {"num_eval_episodes": 0}, "logging": {"terminal": False}}
    logging = {**mapping["logging"], **given.get("logging", {})}  # type: ignore[dict-item]
    with pytest.raises((ConfigError, EnvError), match=message):
        rl_training.train({**mapping, **given, "logging": logging})
    runs = list(tmp_path.glob("*__seed*"))
    assert not runs or given == {"algo": here("WrongResult")}, "only the run that had begun left something behind"


def test_a_broken_installed_plugin_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    install(tmp_path, "their-parts", "no_such_module_of_theirs")
    monkeypatch.syspath_prepend(tmp_path)
    assert [entry.name for entry in installed_plugins()] == ["theirs"]
    with pytest.raises(ConfigError, match=r"their-parts offers the plugin 'theirs', .* mend or uninstall that package"):
        import_plugins([])


def test_a_name_stands_for_one_part():
    parts = Registry("thing", {"ours": "own_parts:NUMBER"})
    parts.register("mine")(own_parts.Network)
    parts.register("mine")(type("Network", (), {"__module__": "own_parts"}))  # a module that is imported again
    parts.register("mine")(type("Network", (), {"__module__": "__main__"}))  # or that was started as a script
    parts.register("theirs")(own_parts.Network)
    with pytest.raises(ConfigError, match="already registered"):
        parts.register("theirs")(type("Network", (), {"__module__": "their_parts"}))
    parts.add("mine", own_parts.Network)
    with pytest.raises(ConfigError, match="thing 'mine' is already registered; choose another name"):
        parts.register("mine")(own_parts.Buffer)
    with pytest.raises(ConfigError, match="thing 'ours' is already registered"):
        parts.register("ours")(own_parts.Buffer)
    with parts.override("mine", own_parts.Buffer):
        assert parts.get("mine") is own_parts.Buffer
    assert parts.get("mine") is own_parts.Network
