"""What only lists, explains or checks starts without the heavy libraries. Each case is a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "torch",
    "jax",
    "gymnasium",
    "matplotlib",
    "tensorboard",
    "wandb",
    "pandas",
    "scipy",
    "duckdb",
    "optuna",
    "ray",
    "fastapi",
    "uvicorn",
)
ROOT = Path(__file__).parents[2]

IMPORTED = f"""
import atexit, json, sys
@atexit.register
def report():
    print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]), file=sys.stderr)
"""


def heavy_modules_of(program: str, cwd: Path) -> list[str]:
    """The heavy libraries that a Python program has imported when it ends; it must end well."""
    result = subprocess.run(
        [sys.executable, "-c", IMPORTED + program], capture_output=True, text=True, cwd=cwd, check=False
    )
    assert result.returncode == 0, result.stderr
    return list(json.loads(result.stderr.strip().splitlines()[-1]))


LIGHT_MODULES = (
    "config",
    "config.loading",
    "runs.index",
    "runs",
    "logging",
    "checkpointing",
    "cli",
    "experiments.launching.group_runner",
    "experiments.analysis.group_summary",
    "experiments.analysis.plots",
    "experiments.analysis.plotter",
    "experiments.analysis.report",
    "experiments.analysis.export",
    "experiments.launching.sweeps",
    "experiments.keeping.tracker",
    "hparams.ppo",
    "registry",
    "testing",
    "dashboard",
    "dashboard.settings",
    "dashboard.showing",
)


@pytest.mark.parametrize("module", ["rl_training", *(f"rl_training.{name}" for name in LIGHT_MODULES)])
def test_import(module: str, tmp_path: Path) -> None:
    assert heavy_modules_of(f"import {module}", tmp_path) == []


@pytest.mark.parametrize(
    "argv",
    [
        ["--help"],
        ["train", "--help"],
        ["eval", "--help"],
        ["resume", "--help"],
        ["new", "--help"],
        ["new", "algorithm", "my_algorithm"],
        ["presets"],
        ["algorithms"],
        ["list"],
        ["list", "algorithm=ppo and hparams.gamma>0.9"],
        ["config", "show", "ppo/cartpole"],
        ["config", "validate", str(ROOT / "configs/quickstart/ppo_cartpole.yaml")],
    ],
    ids=lambda argv: " ".join(Path(word).name for word in argv),
)
def test_command(argv: list[str], tmp_path: Path) -> None:
    program = f"from rl_training.cli import main\nsys.exit(main({argv!r}))"
    assert heavy_modules_of(program, tmp_path) == []


def test_the_check_sees_a_heavy_import(tmp_path: Path) -> None:
    assert heavy_modules_of("import gymnasium", tmp_path) == ["gymnasium"]
