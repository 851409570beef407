"""What every file of the project keeps to, whoever wrote it."""

from __future__ import annotations

import codecs
import fnmatch
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rl_training.registry import algorithms
from rl_training.version import __version__

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "rl_training"
MAX_FILE_BYTES = 500_000
LARGE_FILES = {ROOT / "tests" / "compat" / "rl_training-0.1.0.tar.gz"}
"""Files that may be larger: the source of the old package, which the compat suite trains with."""

# Spelt so that this file passes its own check.
ROOTS = "|".join(("work", "root", "home", "Users", "farm"))
MACHINE_PATH = re.compile(rf"(?<![\w.:/])/(?:{ROOTS})/\w")
FOREIGN_WORDS = re.compile(
    r"\b(?:"
    + "|".join(codecs.decode(word, "rot13") for word in ("pynhqr", "naguebcvp", "pungtcg", "pbcvybg"))
    + r")\b",
    re.I,
)
LEFT_OVER = re.compile("|".join((r"\bTO" + "DO", r"\bFIX" + "ME", r"\bXX" + r"X\b", r"\bHA" + r"CK\b")))

UNSAFE = {
    "a global random state": re.compile(
        r"\b(?:np|numpy)\.random\.(?:seed|rand|randn|randint|random|choice|shuffle|permutation|normal|uniform"
        r"|get_state|set_state)\b|\btorch\.manual_seed\b|^\s*(?:import random\b|from random import)"
    ),
    "loading that can execute code": re.compile(
        r"^\s*(?:import|from) (?:pickle|dill|shelve|marshal|joblib)\b|\bpickle\.loads?\("
        r"|\btorch\.load\(|\byaml\.(?:load|unsafe_load|full_load)\(|(?<![.\w])(?<!def )(?:eval|exec)\("
    ),
    "an error that is swallowed": re.compile(r"except\b[^:]*:\s*(?:pass|\.\.\.)\s*$"),
}


def ignored(path: Path) -> bool:
    """True for what .gitignore keeps out of the project; `path` is relative to its root."""
    patterns = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().split()]
    return any(
        fnmatch.fnmatch(path.parts[0] if pattern.startswith("/") else path.name, pattern.lstrip("/"))
        for pattern in [*patterns, ".git"]
    )


def walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if ignored(path.relative_to(ROOT)):
            continue
        if path.is_dir():
            yield from walk(path)
        else:
            yield path


FILES = list(walk(ROOT))
TEXTS = {path: path.read_text() for path in FILES if path.suffix not in {".png", ".gif", ".jpg", ".mp4", ".ico", ".gz"}}


def places(pattern: re.Pattern[str], under: Path = ROOT) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path, text in TEXTS.items()
        if path.is_relative_to(under)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_the_walk_sees_the_project() -> None:
    assert SOURCE / "types.py" in FILES
    assert ROOT / "Makefile" in FILES
    assert not any(".venv" in path.parts for path in FILES)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (MACHINE_PATH, "open('/" + "home/someone/x')", True),
        (MACHINE_PATH, "https://example.org/" + "home/x", False),
        (LEFT_OVER, "# TO" + "DO: later", True),
        (UNSAFE["a global random state"], "np.random.seed(1)", True),
        (UNSAFE["a global random state"], "np.random.default_rng(1)", False),
        (UNSAFE["loading that can execute code"], "yaml.load(text)", True),
        (UNSAFE["loading that can execute code"], "yaml.safe_load(text)", False),
        (UNSAFE["an error that is swallowed"], "except OSError: pass", True),
    ],
)
def test_the_patterns_find_what_they_are_for(pattern: re.Pattern[str], text: str, found: bool) -> None:
    assert bool(pattern.search(text)) is found


def test_no_paths_of_one_machine() -> None:
    assert places(MACHINE_PATH) == []


def test_no_words_that_do_not_belong_here() -> None:
    assert places(FOREIGN_WORDS) == []


def test_nothing_left_over() -> None:
    assert places(LEFT_OVER) == []


@pytest.mark.parametrize("what", UNSAFE)
def test_source_has_no(what: str) -> None:
    assert places(UNSAFE[what], SOURCE) == []


def test_no_large_files() -> None:
    large = {path: path.stat().st_size for path in FILES if path.stat().st_size > MAX_FILE_BYTES}
    assert {path: size for path, size in large.items() if path not in LARGE_FILES} == {}


def test_every_package_folder_says_why_it_is_designed_so() -> None:
    folders = {path.parent for path in FILES if path.is_relative_to(SOURCE) and path.suffix in {".py", ".yaml"}}
    packages = {folder for folder in folders if folder.parent in {SOURCE, SOURCE.parent}}
    packages |= {ROOT / name for name in ("configs", "examples", "scripts", "benchmarks", "tests", "tools")}
    assert [str(folder.relative_to(ROOT)) for folder in sorted(packages) if not (folder / "README.md").is_file()] == []


def test_test_files_have_unique_names() -> None:
    names = [path.name for path in FILES if path.is_relative_to(ROOT / "tests") and path.name.startswith("test_")]
    assert sorted(names) == sorted(set(names))


def test_the_version_is_the_same_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    changelog = (ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## (\d\S*)", changelog, re.M)
    assert newest is not None
    released, current = (tuple(map(int, text.split("."))) for text in (newest[1], __version__))
    assert released == current or (released < current and "\n## Unreleased\n" in changelog)


def test_citation_has_what_the_format_requires() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"title", "message", "authors", "type", "license"} <= citation.keys()
    assert all("name" in author or "family-names" in author for author in citation["authors"])


def test_every_pin_is_exact_and_every_dependency_is_pinned() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line) for line in lines)
    pinned = {normalized(line.split("==")[0]) for line in lines}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: needs for name, needs in project["optional-dependencies"].items() if name != "envpool"}
    wanted = {normalized(need) for needs in (project["dependencies"], *extras.values()) for need in needs}
    assert wanted - {"rl-training"} - pinned == set()


def normalized(requirement: str) -> str:
    """The bare name of a requirement as the package index compares it."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name[0]).lower()


@pytest.mark.parametrize("name", algorithms.names())
def test_every_algorithm_has_a_page_and_a_preset(name: str) -> None:
    assert (ROOT / "docs" / "algorithms" / f"{name}.md").is_file()
    assert list((SOURCE / "presets" / name).glob("*.yaml"))


def test_continuous_integration_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert script.read_text().splitlines()[-1] == "make test"
