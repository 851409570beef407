"""Every command and every piece of code in the tutorial is run, in order, in an empty folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tutorial_steps import Step, run_page, steps_of

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
STEPS = steps_of(PAGE)
Results = dict[Step, tuple[int, str]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    done = run_page(PAGE, tmp_path_factory.mktemp("tutorial"))
    return {step: (code, output) for step, code, output in done}


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
