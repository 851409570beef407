"""Nothing imports from `algorithms/kernels/` but the property of an algorithm that chooses its kernel."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src" / "rl_training"
KERNELS = "rl_training.algorithms.kernels"
CHOOSERS = {"dqn.py", "ppo.py", "sac.py", "td3.py"}


def imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def imports_of_kernels(tree: ast.AST) -> list[tuple[str, list[str]]]:
    """(function or "" at module level, names) of every import from the folder."""
    found: list[tuple[str, list[str]]] = []

    def visit(node: ast.AST, function: str) -> None:
        names = [name for name in imported_names(node) if name.startswith(KERNELS)]
        if names:
            found.append((function, [name.rpartition(".")[2] for name in names]))
        inside = node.name if isinstance(node, ast.FunctionDef) else function
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(tree, "")
    return found


def test_only_the_choice_of_a_kernel_imports_one() -> None:
    outside = [path for path in SOURCE.rglob("*.py") if path.parent != SOURCE / "algorithms" / "kernels"]
    found = {str(path.relative_to(SOURCE)): imports_of_kernels(ast.parse(path.read_text())) for path in outside}
    expected = {f"algorithms/{name}": [("kernel", ["FastKernel", "fits"])] for name in CHOOSERS}
    assert {name: places for name, places in found.items() if places} == expected


def test_the_check_sees_an_import_at_module_level() -> None:
    tree = ast.parse(f"from {KERNELS}.ppo import FastKernel\n\ndef f():\n    import {KERNELS}.mlp\n")
    assert imports_of_kernels(tree) == [("", ["FastKernel"]), ("f", ["mlp"])]


def test_every_fast_kernel_is_chosen_somewhere() -> None:
    folder = SOURCE / "algorithms" / "kernels"
    with_kernel = {path.name for path in folder.glob("*.py") if "class FastKernel" in path.read_text()}
    assert with_kernel == CHOOSERS
