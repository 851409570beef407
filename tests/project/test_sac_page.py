"""The page of SAC that follows a batch to the Bellman target: its hops exist, and each one leads to the next."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "rl_training"
PAGE = ROOT / "docs" / "algorithms" / "sac.md"
PLACE = r"`([\w/]+\.py)` · `([\w.]+)`"


def functions_of(file: str) -> dict[str, ast.FunctionDef]:
    """Functions and methods of a module, methods as Class.method."""
    found: dict[str, ast.FunctionDef] = {}
    for node in ast.parse((SOURCE / file).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}": inner for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


def hops() -> list[tuple[str, str]]:
    rows = re.findall(rf"^\| (\d) \| {PLACE} \|", PAGE.read_text(), re.MULTILINE)
    assert [number for number, _, _ in rows] == [str(i + 1) for i in range(len(rows))]
    return [(file, name) for _, file, name in rows]


def test_every_place_exists() -> None:
    places = re.findall(PLACE, PAGE.read_text())
    assert len(places) >= 8
    for file, name in places:
        assert name in functions_of(file), f"{file} has no {name}"


def test_at_most_five_hops_from_update_to_the_target() -> None:
    assert hops()[0] == ("algorithms/sac.py", "SAC.update")
    assert hops()[-1] == ("algorithms/sac.py", "SAC.targets_of")
    assert len(hops()) <= 5


def test_each_hop_calls_the_next() -> None:
    """By name, except out of the kernel, which calls the loss that the hop before it hands over."""
    bodies = [ast.unparse(functions_of(file)[name]) for file, name in hops()]
    names = [name.rpartition(".")[2] for _, name in hops()]
    for here, following in zip(range(len(bodies) - 1), names[1:], strict=True):
        caller = bodies[here - 1] if hops()[here][1] == "ReferenceKernel.gradient" else bodies[here]
        assert following in caller, f"{hops()[here][1]} does not lead to {following}"
    assert "td_targets(" in bodies[-1]


def test_the_update_fits_on_a_screen() -> None:
    update = functions_of("algorithms/sac.py")["SAC.update"]
    assert update.end_lineno is not None
    assert update.end_lineno - update.lineno + 1 <= 40
