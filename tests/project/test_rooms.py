"""The floor plan: few modules at the top, no overfull folder, and tests that stand where their subject stands."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE, TESTS = ROOT / "src" / "rl_training", ROOT / "tests"

MAX_AT_THE_TOP = 10
MAX_IN_A_FOLDER = 16
CROWDED = frozenset({"hparams", "algorithms"})
"""One file per algorithm: these may hold more. So may the folders of commands."""
ACROSS = frozenset({"project", "faults", "conformance", "learning", "examples", "compat", "helpers"})
"""Folders of tests that follow a question through the whole package instead of one of its rooms."""


def folders(root: Path) -> set[str]:
    """Folders with Python files in them, relative to `root`."""
    found = {str(path.parent.relative_to(root)) for path in root.rglob("*.py")}
    return {name for name in found if name != "." and "templates" not in name}


def test_few_modules_at_the_top() -> None:
    modules = sorted(path.name for path in SOURCE.glob("*.py"))
    assert len(modules) <= MAX_AT_THE_TOP, f"a top-level file is a noun that everybody says or a front door: {modules}"


def test_no_folder_is_overfull() -> None:
    sizes = {name: len(list((SOURCE / name).glob("*.py"))) for name in folders(SOURCE)}
    full = {name: size for name, size in sizes.items() if size > MAX_IN_A_FOLDER and name not in CROWDED}
    assert full == {}


def test_tests_mirror_the_package() -> None:
    rooms = folders(SOURCE)
    assert len(rooms) >= 30
    strangers = {name for name in folders(TESTS) if name.split("/")[0] not in ACROSS} - rooms
    assert strangers == set(), "a folder of tests bears the name of the folder of src/rl_training that it tests"


def test_tests_at_the_top_are_of_modules_at_the_top() -> None:
    modules = {path.stem for path in SOURCE.glob("*.py")}
    names = {path.stem.removeprefix("test_") for path in TESTS.glob("test_*.py")}
    assert names <= modules


def test_folders_across_are_there() -> None:
    assert {name for name in ACROSS if not (TESTS / name).is_dir()} <= {"compat"}
