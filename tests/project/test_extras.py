"""The extras of pyproject.toml: their bounds, the pins of constraints.txt, and what the suites ask for."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rl_training.envs.suites import SUITES

ROOT = Path(__file__).parents[2]


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def requirements(extra: str) -> list[Requirement]:
    """What an extra asks for, those of the extras it is made of included."""
    found = []
    for need in map(Requirement, project()["optional-dependencies"][extra]):
        if canonicalize_name(need.name) == "rl-training":
            found += [inner for other in need.extras for inner in requirements(other)]
        else:
            found.append(need)
    return found


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {
        canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines) if version
    }


@pytest.mark.parametrize("extra", [name for name in project()["optional-dependencies"] if name != "envpool"])
def test_every_pin_is_allowed_by_the_bounds(extra: str) -> None:
    needs = [*requirements(extra), *map(Requirement, project()["dependencies"])]
    for need in needs:
        assert need.specifier.contains(pins()[canonicalize_name(need.name)], prereleases=True), str(need)


@pytest.mark.parametrize("extra", ["mujoco", "dm-control", "all", "dev"])
def test_what_needs_mujoco_keeps_it_below_4(extra: str) -> None:
    """dm-control takes any newer MuJoCo, and Gymnasium's environments import imageio, which comes with its extra."""
    by_name = {need.name: need for need in requirements(extra) if need.name != "gymnasium" or "mujoco" in need.extras}
    assert not by_name["mujoco"].specifier.contains("4.0.0")
    assert "mujoco" in by_name["gymnasium"].extras


def test_every_suite_names_an_extra_that_exists() -> None:
    assert {suite.extra for suite in SUITES if suite.extra is not None} <= project()["optional-dependencies"].keys()
