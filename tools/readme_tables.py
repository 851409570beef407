"""Write the file tables of the READMEs in `src/rl_training` from the first docstring line of each module.

python tools/readme_tables.py [--check]

A README has its table between two comments, `<!-- files -->` and `<!-- end of files -->`: a row per module, then a row
per folder below it. The text around the table is written by hand.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "rl_training"
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


def with_table(text: str, folder: Path) -> str:
    """The text of a README with its table brought up to date."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{folder.name}/README.md: no place for the table; add the lines '{BEGIN}' and '{END}'")
    return f"{before}{BEGIN}\n{table(folder)}\n{END}{after}"


def main() -> int:
    stale = []
    for folder in folders():
        readme = folder / "README.md"
        text = readme.read_text()
        fresh = with_table(text, folder)
        if fresh != text:
            stale.append(str(readme.relative_to(SOURCE.parent)))
            if "--check" not in sys.argv[1:]:
                readme.write_text(fresh)
    if stale and "--check" in sys.argv[1:]:
        print("stale, run python tools/readme_tables.py:", ", ".join(stale))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
