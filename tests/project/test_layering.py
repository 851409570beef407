"""Imports go down only, and each heavy library is imported only where it belongs.

Read from the syntax tree, so that imports inside functions count as well.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
PACKAGE = "rl_training"

# From the bottom to the top, one layer per line. A unit is a module or a folder of the package; it may import units of
# its own layer and of those below. Inside a layer and inside a folder the imports must not form a circle.
LAYERS = """
version
types
system trust
registry seeding
numerics hparams
config presets
guards build_context
runs
checkpointing
logging
export
envs data models
dynamics
algorithms jax
training
distributed
monitoring
assembly
trainer eval
testing
experiments
cli dashboard
__init__ __main__
"""

# Libraries that any module may import: small, quick, and always installed.
LIGHT = frozenset({"numpy", "pydantic", "yaml", "psutil"})

# Library -> the units that may import it, anywhere in their text.
ALLOWED: dict[str, frozenset[str]] = {
    "torch": frozenset({"models", "dynamics", "algorithms", "monitoring", "distributed", "assembly"}),
    "jax": frozenset({"jax"}),
    "optax": frozenset({"jax"}),
    "gymnasium": frozenset({"envs", "training", "jax"}),
    "ale_py": frozenset({"envs"}),
    "cv2": frozenset({"envs"}),
    "minigrid": frozenset({"envs"}),
    "pettingzoo": frozenset({"envs"}),
    "mpe2": frozenset({"envs"}),
    "ray": frozenset({"distributed"}),
    "h5py": frozenset({"data"}),
    "PIL": frozenset({"data"}),
    "rich": frozenset({"logging", "experiments"}),
    "matplotlib": frozenset({"experiments"}),
    "duckdb": frozenset({"experiments"}),
    "optuna": frozenset({"experiments"}),
    "fsspec": frozenset({"experiments"}),
    "wandb": frozenset({"logging"}),
    "imageio": frozenset({"logging"}),
    "imageio_ffmpeg": frozenset({"logging"}),
    "fastapi": frozenset({"dashboard"}),
    "starlette": frozenset({"dashboard"}),
    "uvicorn": frozenset({"dashboard"}),
    "onnx": frozenset({"export"}),
    "onnxruntime": frozenset({"export"}),
}

# (unit, what it imports) -> why the rule is broken there.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("data", "torch"): "a buffer hands out tensors where its user gave it a device; imported only then",
}


@dataclass(frozen=True)
class Import:
    """`module` imports `target` (dotted names) at `line`."""

    module: str
    target: str
    path: Path
    line: int
    at_import: bool
    """Executed when the module is imported, not in a function and not for the type checker alone."""

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(SOURCE.parent)}:{self.line}"


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


def unit_of(module: str) -> str:
    """`rl_training.envs.factory` -> `envs`; the package itself -> `__init__`."""
    return [*module.split("."), "__init__"][1]


def imports_of(path: Path) -> Iterator[Import]:
    module = module_name(path)
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    if module == f"{PACKAGE}.__init__":
        package = [PACKAGE]
    tree = ast.parse(path.read_text(), str(path))
    at_import = set(executed_at_import(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            targets = [f"{prefix}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            yield Import(module, target, path, node.lineno, node in at_import)


def executed_at_import(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if function or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            continue
        yield child
        yield from executed_at_import(child)


MODULES = {module_name(path): path for path in sorted((SOURCE / PACKAGE).rglob("*.py"))}
IMPORTS = [found for path in MODULES.values() for found in imports_of(path)]
LAYER_OF = {unit: height for height, layer in enumerate(LAYERS.split("\n")) for unit in layer.split()}


def inside(target: str) -> bool:
    return target.split(".")[0] == PACKAGE


def imported_module(target: str) -> str:
    """The module behind `package.module.name`: the longest prefix that is one of ours."""
    parts = target.split(".")
    for end in range(len(parts), 1, -1):
        if (name := ".".join(parts[:end])) in MODULES:
            return name
    return f"{PACKAGE}.__init__" if len(parts) < 3 else ".".join(parts[:2])


def test_every_module_has_a_layer() -> None:
    strangers = sorted({unit_of(module) for module in MODULES} - set(LAYER_OF))
    assert not strangers, f"{strangers}: give each its place in LAYERS of {Path(__file__).name}"
    gone = sorted(set(LAYER_OF) - {unit_of(module) for module in MODULES} - {"presets"})  # presets holds data only
    assert not gone, f"{gone}: no longer there, remove them from LAYERS of {Path(__file__).name}"


def test_imports_go_down_only() -> None:
    wrong = []
    for found in IMPORTS:
        if not inside(found.target):
            continue
        importer, imported = unit_of(found.module), unit_of(imported_module(found.target))
        if importer not in LAYER_OF or imported not in LAYER_OF or (importer, imported) in EXCEPTIONS:
            continue
        if LAYER_OF[imported] > LAYER_OF[importer]:
            wrong.append(f"{found.place}: '{importer}' imports '{imported}', which lies above it")
    assert not wrong, "\n".join([*wrong, "move the shared part down, or pass it in from above"])


def test_no_circles_among_modules() -> None:
    graph = {
        module: {imported_module(i.target) for i in IMPORTS if i.module == module and i.at_import and inside(i.target)}
        for module in MODULES
    }
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, "circle of imports: " + " -> ".join([*way[way.index(module) :], module])
        if module not in done:
            for below in sorted(graph.get(module, set()) - {module}):
                visit(below, (*way, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_libraries_are_imported_only_where_they_belong() -> None:
    wrong = []
    for found in IMPORTS:
        library, unit = found.target.split(".")[0], unit_of(found.module)
        if library in sys.stdlib_module_names or library in LIGHT or inside(found.target):
            continue
        allowed = ALLOWED.get(library)
        if allowed is None:
            wrong.append(f"{found.place}: '{library}' is in neither LIGHT nor ALLOWED of {Path(__file__).name}")
        elif unit not in allowed and (unit, library) not in EXCEPTIONS:
            wrong.append(f"{found.place}: '{unit}' imports '{library}', which only {sorted(allowed)} may")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("exception", EXCEPTIONS, ids=str)
def test_exceptions_are_still_needed(exception: tuple[str, str]) -> None:
    unit, target = exception
    uses = [i for i in IMPORTS if unit_of(i.module) == unit]
    targets = {unit_of(imported_module(i.target)) if inside(i.target) else i.target.split(".")[0] for i in uses}
    assert target in targets, f"{exception} is no longer needed: remove it from EXCEPTIONS"
