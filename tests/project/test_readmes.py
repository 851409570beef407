"""The README of every package folder is true: its table of files is the modules' own first lines, none left out."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "rl_training"


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme_tables", ROOT / "tools" / "readme_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = load_tool()
FOLDERS: list[Path] = TOOL.folders()


def name_of(folder: Path) -> str:
    return str(folder.relative_to(SOURCE.parent))


def test_every_folder_with_modules_is_looked_at() -> None:
    """The other tests of this file cannot pass for lack of folders."""
    assert len(FOLDERS) >= 30
    assert {SOURCE, SOURCE / "envs", SOURCE / "envs" / "workers", SOURCE / "jax" / "models"} <= set(FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_the_table_of_files_is_up_to_date(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    assert TOOL.with_table(text, folder) == text, "run: python tools/readme_tables.py"


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_the_table_lists_every_module(folder: Path) -> None:
    """Read from the README itself, not from the tool that wrote it."""
    rows = re.findall(r"^\| `([\w]+\.py|\w+/)` \| (.+) \|$", (folder / "README.md").read_text(), re.MULTILINE)
    names = [name for name, _ in rows]
    modules = {path.name for path in folder.glob("*.py")} - {"__init__.py"}
    assert modules <= set(names)
    assert all(len(text) > 10 for _, text in rows)


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_the_files_that_its_text_names_exist(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    known = {path.name for folder in ("src", "examples", "tests") for path in (ROOT / folder).rglob("*.py")}
    named = re.findall(r"`(?:[\w]+/)*([\w]+\.py)`", text)
    assert [name for name in named if name not in known] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_it_says_more_than_its_table(folder: Path) -> None:
    """A title and at least a sentence about why the folder is as it is."""
    text = (folder / "README.md").read_text()
    around = text[: text.index(TOOL.BEGIN)] + text[text.index(TOOL.END) :]
    assert text.startswith("# ")
    assert len(around.split()) >= 20


def test_the_layout_page_is_up_to_date() -> None:
    text = TOOL.LAYOUT_PAGE.read_text()
    assert TOOL.with_layout(text) == text, "run: python tools/readme_tables.py"
    for folder in (folder for folder in FOLDERS if folder.parent == SOURCE):
        assert re.search(rf"^{folder.name}/ +\w", text, re.M), folder.name
