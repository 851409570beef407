"""The pages that follow a transition, a config value and a checkpoint through the code name what exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "path-of-a-transition.md"
LAYOUT = ROOT / "docs" / "code-layout.md"
SOURCE = ROOT / "src" / "rl_training"


def names_in(path: Path) -> set[str]:
    """Functions, classes and methods of a module, methods as Class.method."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return names


@pytest.mark.parametrize(("page", "least"), [(PAGE, 12), (LAYOUT, 25)], ids=lambda value: getattr(value, "stem", ""))
def test_every_hop_exists(page: Path, least: int):
    places = re.findall(r"`([\w/]+\.py)` · `([\w.]+)`", page.read_text())
    assert len(places) >= least
    missing = [f"{file} has no {name}" for file, name in places if name not in names_in(SOURCE / file)]
    assert missing == [], f"bring the hops of {page.name} up to date"


def test_every_place_of_the_layout_page_exists():
    """Paths in its tables and texts, apart from those with a <name> to fill in."""
    named = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?|[a-z_]+\.py)`", LAYOUT.read_text())
    assert len(named) >= 20
    assert [name for name in named if not (SOURCE / name).exists() and not (ROOT / name).exists()] == []


def test_the_ways_are_numbered_from_one():
    text = LAYOUT.read_text()
    tables = re.findall(r"^\| hop \|.*\n\|[-|]+\|\n((?:\| \d+ \|.*\n)+)", text, re.MULTILINE)
    assert len(tables) == 3, "a config value, a checkpoint, and its way back"
    for table in tables:
        hops = [int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)]
        assert hops == list(range(1, len(hops) + 1))


def test_the_glossary_has_the_words_one_must_know():
    words = set(re.findall(r"^\| \*\*([\w ]+)\*\* \|", LAYOUT.read_text(), re.MULTILINE))
    needed = {"lane", "part", "carry", "stream", "rollout", "block", "segment", "seal", "member", "trial", "kernel"}
    assert needed <= words
    assert len(words) >= 20


def test_eight_hops():
    assert re.findall(r"^\| (\d) \|", PAGE.read_text(), re.MULTILINE) == list("12345678")


def test_line_counts_are_true():
    counted: dict[str, int] = {}
    for name, lines in re.findall(r"`(\w+\.py)`, (\d+) lines", PAGE.read_text()):
        counted.setdefault(name, int(lines))  # ours is the first column
    for name in ("ppo.py", "on_policy.py"):
        length = len((SOURCE / "algorithms" / name).read_text().splitlines())
        assert abs(length - counted[name]) <= 10, f"{name} has {length} lines; say so in {PAGE.name}"
