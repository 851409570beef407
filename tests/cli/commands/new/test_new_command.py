"""`rl new` writes starts that pass their own tests and train from their own configs, and never harms what is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rl_training.cli import main

KINDS = ("algorithm", "network", "env")
BACKENDS = {"torch": "8 passed", "jax": "8 passed"}
"""And how many tests their starts bring."""
Captured = pytest.CaptureFixture[str]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # compiles in half of the time
    }
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module", params=list(BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, backend: str) -> Path:
    folder = tmp_path_factory.mktemp(f"new_{backend}")
    for kind in KINDS:
        assert main(["new", kind, f"my_{kind}", "--backend", backend, "--dir", str(folder)]) == 0
    return folder


def test_what_is_written_passes_its_own_tests(folder: Path, backend: str) -> None:
    done = run(folder, "pytest", "-q", "-p", "no:cacheprovider", "-W", "error")
    assert done.returncode == 0, done.stdout + done.stderr
    assert BACKENDS[backend] in done.stdout


def test_what_is_written_keeps_the_usual_format(folder: Path) -> None:
    for words in (("check", "--select", "E,F,I,B,UP,RUF"), ("format", "--check")):
        done = run(folder, "ruff", words[0], "--isolated", "--line-length", "120", *words[1:], ".")
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_trains_from_its_config(kind: str, folder: Path, backend: str) -> None:
    words = ["train", f"my_{kind}.yaml", "--total-timesteps", "512", "--logging.tensorboard", "false", "--json"]
    done = run(folder, "rl_training.cli", *words)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["metrics"]["env_steps"] >= 512
    assert f"backend: {backend}" in (folder / result["run"] / "configs" / "resolved.yaml").read_text()


def test_it_says_what_to_type_next(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # a command adds the folder it is typed in
    assert main(["new", "env", "grid_world"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("wrote grid_world.py, test_grid_world.py, grid_world.yaml\n")
    assert out.endswith("next\n  pytest test_grid_world.py\n  rl train grid_world.yaml\n")
    assert "class GridWorld(gym.Env):" in (tmp_path / "grid_world.py").read_text()
    assert main(["new", "env", "other", "--dir", "deep/er"]) == 0
    assert "next\n  cd deep/er\n" in capsys.readouterr().out


@pytest.mark.parametrize("there", ["mine.py", "test_mine.py", "mine.yaml"])
def test_nothing_is_overwritten(there: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / there).write_text("precious")
    assert main(["new", "network", "mine", "--dir", str(tmp_path)]) == 2
    assert f"{there} exists and is not overwritten; choose another name or --dir" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "precious"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("MyAlgorithm", "cannot be the name of a module: lower-case letters, digits and '_'"),
        ("MyAlgorithm2", "try 'my_algorithm2'"),
        ("my-algorithm", "try 'my_algorithm'"),
        ("2fast", "try 'fast'"),
        ("class", "try 'my_class'"),
        ("../up", "try 'up'"),
        ("é", "try 'my_part'"),
        ("random", "random.py); try 'my_random'"),
        ("sys", "'sys' is the name of a module that exists already (built-in); try 'my_sys'"),
        ("torch", "torch/__init__.py); try 'my_torch'"),
    ],
)
def test_bad_names_are_refused_with_a_better_one(name: str, message: str, tmp_path: Path, capsys: Captured) -> None:
    assert main(["new", "algorithm", name, "--dir", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_kind_that_does_not_exist(capsys: Captured) -> None:
    assert main(["new", "algoritm", "mine"]) == 2
    assert "unknown command 'new algoritm'; did you mean 'algorithm'?" in capsys.readouterr().err
