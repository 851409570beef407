"""List what has outgrown a room: long files, long functions, wide signatures. A hint to look, never a failure.

python tools/size_hints.py [FOLDER ...]
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "examples", "scripts", "benchmarks", "tools")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 8


@dataclass(frozen=True)
class Hint:
    """One place, its size and the size a reader would like."""

    where: str
    what: str
    size: int
    limit: int

    def __str__(self) -> str:
        return f"  {self.where}: {self.size} {self.what} (about {self.limit})"


def count_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Parameters a caller sees: without self and cls."""
    arguments = function.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def hints_of(source: str, name: str) -> Iterator[Hint]:
    """The hints of one file's text."""
    num_lines = len(source.splitlines())
    if num_lines > MAX_FILE_LINES:
        yield Hint(name, "lines", num_lines, MAX_FILE_LINES)
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        where = f"{name}:{node.lineno} {node.name}()"
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > MAX_FUNCTION_LINES:
            yield Hint(where, "lines", length, MAX_FUNCTION_LINES)
        if count_parameters(node) > MAX_PARAMETERS:
            yield Hint(where, "parameters", count_parameters(node), MAX_PARAMETERS)


def main(folders: list[str]) -> int:
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    hints = [hint for path in paths for hint in hints_of(path.read_text(), str(path.relative_to(ROOT)))]
    print(f"size hints: {len(hints)} in {len(paths)} files" + (", worth a look:" if hints else ""))
    for hint in hints:
        print(hint)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(FOLDERS)))
