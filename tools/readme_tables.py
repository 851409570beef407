"""Write the file tables of the READMEs in `src/rl_training` from the first docstring line of each module.

python tools/readme_tables.py [--check]

A README has its table between two comments, `<!-- files -->` and `<!-- end of files -->`: a row per module, then a row
per folder below it. The text around the table is written by hand. `docs/code-layout.md` has the tree of the package and
its layers in the same way; the layers are those of `tests/project/test_layering.py`.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "rl_training"
LAYOUT_PAGE = ROOT / "docs" / "code-layout.md"
LAYERING_TEST = ROOT / "tests" / "project" / "test_layering.py"
BEGIN, END = "<!-- files -->", "<!-- end of files -->"
LEFT_OUT = frozenset({"__pycache__", "templates"})


def folders() -> list[Path]:
    """Every folder of the package that holds modules, the package itself first."""
    found = {path.parent for path in SOURCE.rglob("*.py")}
    return sorted(folder for folder in found if not LEFT_OUT & set(folder.relative_to(SOURCE).parts))


def first_line(module: Path) -> str:
    """The first line of a module's docstring, without the full stop."""
    text = ast.get_docstring(ast.parse(module.read_text())) or ""
    return text.split("\n", 1)[0].strip().removesuffix(".").replace("|", "\\|")


def table(folder: Path) -> str:
    """The rows of one folder, as Markdown."""
    modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    below = sorted(path for path in folders() if path.parent == folder and path != folder)
    rows = [f"| `{path.name}` | {first_line(path)} |" for path in modules]
    rows += [f"| `{path.name}/` | {first_line(path / '__init__.py')} |" for path in below]
    return "\n".join(["| file | what it is |", "|---|---|", *rows])


def tree() -> str:
    """The package as a tree: a line per top-level module, then a line per folder."""
    width = 24
    modules = sorted(path for path in SOURCE.glob("*.py") if not path.name.startswith("__"))
    lines = [f"{path.name:<{width}}{first_line(path)}" for path in modules]
    for folder in folders():
        if folder != SOURCE:
            name = "  " * (len(folder.relative_to(SOURCE).parts) - 1) + f"{folder.name}/"
            lines.append(f"{name:<{width}}{first_line(folder / '__init__.py')}")
    return "\n".join(["```text", *lines, "```"])


def layers() -> str:
    """The layers of the package, the top one first."""
    for node in ast.parse(LAYERING_TEST.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS":
            text: str = ast.literal_eval(node.value)
            return "\n".join(["```text", *reversed(text.split("\n")[1:-1]), "```"])
    raise SystemExit(f"{LAYERING_TEST.name} has no LAYERS")


def between(text: str, marks: tuple[str, str], content: str, where: str) -> str:
    """The text with what stands between two marks replaced."""
    begin, end = marks
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{where}: no place for what is written there; add the lines '{begin}' and '{end}'")
    return f"{before}{begin}\n{content}\n{end}{after}"


def with_table(text: str, folder: Path) -> str:
    """The text of a README with its table brought up to date."""
    return between(text, (BEGIN, END), table(folder), f"{folder.name}/README.md")


def with_layout(text: str) -> str:
    """The text of the layout page with tree and layers brought up to date."""
    text = between(text, ("<!-- tree -->", "<!-- end of tree -->"), tree(), LAYOUT_PAGE.name)
    return between(text, ("<!-- layers -->", "<!-- end of layers -->"), layers(), LAYOUT_PAGE.name)


def up_to_date() -> dict[Path, str]:
    """Every file that this tool writes into, and what it should say."""
    pages = {folder / "README.md": with_table((folder / "README.md").read_text(), folder) for folder in folders()}
    return {**pages, LAYOUT_PAGE: with_layout(LAYOUT_PAGE.read_text())}


def main() -> int:
    stale = {path: text for path, text in up_to_date().items() if path.read_text() != text}
    if stale and "--check" in sys.argv[1:]:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        print("stale, run python tools/readme_tables.py:", names)
        return 1
    for path, text in stale.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
