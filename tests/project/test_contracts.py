"""Contracts are asked for by type, not by `getattr`, and objects are complete when they are constructed.

Read from the syntax tree. Both lists of exceptions give a reason for each place, and lose those that are gone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "rl_training"

CONTRACTS = re.compile(r"\b(algorithm|agent|trainer|hparams|hp)\b")
"""Names of variables that hold an algorithm, a trainer or hyperparameters."""
PROBES: dict[str, str] = {
    "training/contract.py": "the boundary: completes what an algorithm of a user leaves out",
    "jax/host.py": "the boundary of JAX algorithms: the tuple HYPER of a module against the hyperparameters it names",
}
"""Files that may ask whether an algorithm, a trainer or hyperparameters have something."""

BUILT_IN_ONE_PHASE = ("assembly", "training", "trainer.py")
ASSIGNED: dict[str, str] = {
    "training/collector.py: stats": "the record that `collect` creates, fills and returns",
    "training/compiled.py: self.agent.state": "a chunk donates the learner's state and returns the next one",
    "training/offline/compiled.py: self.algorithm.state": "as in training/compiled.py",
}
"""Attributes of other objects than `self` that are assigned all the same."""


def probes(tree: ast.AST) -> Iterator[str]:
    """Calls of `hasattr` and `getattr` that ask a contract for a name; reading a field of a variable name is none."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
            continue
        if node.func.id not in ("getattr", "hasattr") or not CONTRACTS.search(ast.unparse(node.args[0])):
            continue
        reads_a_field = node.func.id == "getattr" and len(node.args) == 2 and not isinstance(node.args[1], ast.Constant)
        if not reads_a_field:
            yield f"line {node.lineno}: {ast.unparse(node)}"


def assignments(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(owner and attribute, line) wherever an attribute of something else than `self` is assigned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
                yield ast.unparse(node), node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            yield ast.unparse(node), node.lineno


def files(*units: str) -> Iterator[tuple[str, ast.AST]]:
    """The modules of some units, or of the whole package, with their names below it."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        if not units or name.split("/")[0] in units:
            yield name, ast.parse(path.read_text())


def test_only_the_boundary_asks_whether_an_algorithm_has_something() -> None:
    found = {name: list(probes(tree)) for name, tree in files()}
    outside = {name: places for name, places in found.items() if places and name not in PROBES}
    assert outside == {}, "put it into a protocol, and the default into training/contract.py"
    assert [name for name in PROBES if not found[name]] == [], "no longer there; remove them from PROBES"


def test_what_counts_as_asking() -> None:
    source = 'a = getattr(algorithm, "x", None)\nb = hasattr(self.trainer, name)\nc = getattr(parts.hparams, "n")\n'
    assert len(list(probes(ast.parse(source)))) == 3
    fine = 'a = getattr(self.hp, name)\nb = getattr(env, "exact", False)\nc = algorithm.policy\n'
    assert list(probes(ast.parse(fine))) == []


def test_no_attribute_is_assigned_from_outside() -> None:
    found = {}
    for name, tree in files(*BUILT_IN_ONE_PHASE):
        for target, line in assignments(tree):
            owner = target if f"{name}: {target}" in ASSIGNED else target.rpartition(".")[0]
            found[f"{name}: {owner}"] = f"line {line}: {target}"
    outside = {place: what for place, what in found.items() if place not in ASSIGNED}
    assert outside == {}, "make it an argument of the constructor or of a method"
    assert [place for place in ASSIGNED if place not in found] == [], "no longer there; remove them from ASSIGNED"


def test_what_counts_as_an_assignment() -> None:
    source = (
        "trainer.callbacks = []\nself.sink.block = None\nself.total, other.total = 1, 2\ntrainer.steps += 1\n"
        "trainer.beta: float = 0.4\nfor run.k in range(3):\n    pass\nsetattr(trainer, 'x', 1)\n"
    )
    assert [line for _, line in sorted(assignments(ast.parse(source)), key=lambda found: found[1])] == [*range(1, 7), 8]
    fine = "self.total = 1\nself.seconds['guard'] += 1\ncount = trainer.num_steps\n"
    assert list(assignments(ast.parse(fine))) == []
