"""The README of each package folder is true: the files it names exist, and none of its folder's files is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "rl_training"
FOLDERS = [SOURCE, *sorted({path.parent for path in SOURCE.glob("*/*") if path.suffix in {".py", ".yaml", ".md"}})]


def name_of(folder: Path) -> str:
    return folder.name


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_the_files_it_names_exist(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    known = {path.name for path in SOURCE.rglob("*.py")}
    assert [name for name in re.findall(r"`([\w]+\.py)`", text) if name not in known] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_a_list_of_files_is_complete(folder: Path) -> None:
    """A README that lists its files lists them all."""
    text = (folder / "README.md").read_text()
    if len(re.findall(r"^\| [^|]*`\w+\.py`", text, re.M)) < 3:
        return
    files = sorted(path.name for path in folder.glob("*.py") if path.name not in {"__init__.py", "__main__.py"})
    assert [name for name in files if f"`{name}`" not in text] == [], f"add them to {folder.name}/README.md"
    if folder == SOURCE:
        folders = sorted(path.parent.name for path in folder.glob("*/README.md"))
        assert [name for name in folders if f"`{name}/`" not in text] == []
