"""The page that follows a transition through the code names files and functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "path-of-a-transition.md"


def names_in(path: Path) -> set[str]:
    """Functions, classes and methods of a module, methods as Class.method."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return names


def test_every_hop_exists():
    places = re.findall(r"`([\w/]+\.py)` · `([\w.]+)`", PAGE.read_text())
    assert len(places) >= 12
    for file, name in places:
        assert name in names_in(ROOT / "src" / "rl_training" / file), f"{file} has no {name}"


def test_eight_hops():
    assert re.findall(r"^\| (\d) \|", PAGE.read_text(), re.MULTILINE) == list("12345678")


def test_line_counts_are_true():
    counted: dict[str, int] = {}
    for name, lines in re.findall(r"`(\w+\.py)`, (\d+) lines", PAGE.read_text()):
        counted.setdefault(name, int(lines))  # ours is the first column
    for name in ("ppo.py", "on_policy.py"):
        length = len((ROOT / "src" / "rl_training" / "algorithms" / name).read_text().splitlines())
        assert abs(length - counted[name]) <= 10, f"{name} has {length} lines; say so in {PAGE.name}"
