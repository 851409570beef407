"""Every command and every piece of code in the tutorial is run, in order, in an empty folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tutorial_steps import Step, steps_of

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "tutorial.md"
STEPS = steps_of(PAGE)
Results = dict[Step, tuple[int, str]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("tutorial")
    done = subprocess.run(
        [sys.executable, str(HERE / "tutorial_runs.py"), str(PAGE)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(STEPS, map(tuple, json.loads(done.stdout)), strict=True))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.title)
def test_step(step: Step, results: Results) -> None:
    code, output = results[step]
    assert code == 0, output


def output_of(line: str, results: Results) -> str:
    (found,) = (output for step, (_, output) in results.items() if step.text == line)
    return found


def return_of(line: str, results: Results) -> float:
    found = re.search(r"return\D+(-?[\d.]+)", output_of(line, results))
    assert found is not None, output_of(line, results)
    return float(found[1])


def test_what_the_tutorial_claims(results: Results) -> None:
    """The agent beats chance, and the walks are nearly the best there are."""
    assert return_of("rl eval first --episodes 20", results) > return_of("rl eval latest --episodes 20", results)
    for name in ("walk", "walk-net"):
        assert return_of(f"rl eval {name} --episodes 20", results) > 0.7
