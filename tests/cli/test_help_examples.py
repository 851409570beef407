"""Every command that a help page, a message or a page of the docs suggests is one that there is, with flags it has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_cases import fake_run

from rl_training.cli import main
from rl_training.cli.commands import COMMANDS as TABLE
from rl_training.cli.commands import load_command
from rl_training.cli.dispatch import find_command, parse_words
from rl_training.cli.help import overview
from rl_training.config.schema import TrainConfig
from rl_training.experiments.launching.groups import SeedGroup
from rl_training.experiments.launching.sweeps import find_runs

ROOT = Path(__file__).parents[2]
COMMANDS = {name: load_command(name) for name in TABLE}
SUGGESTED = re.compile(r"""(?:'|`)(rl [a-z][^'`\n"]*)(?:'|`)""")
CHEAP = (
    "list",
    "show",
    "tag",
    "note",
    "diff",
    "index rebuild",
    "presets",
    "algorithms",
    "config show",
    "completion",
    "cleanup",
)
CHEAP_ANALYSIS = ("compare", "export")


def words_of(line: str) -> list[str]:
    """What a shell makes of a line: no comment, no redirection, no `source <(...)` around it."""
    inner = re.search(r"<\((rl [^)]*)\)", line)
    words = shlex.split(inner[1] if inner else line, comments=True)
    return words[1 : words.index(">")] if ">" in words else words[1:]


def parses(line: str) -> None:
    words = words_of(line)
    command, rest = find_command(words)
    if command is not None and "--help" not in rest:
        parse_words(command, rest)


EXAMPLES = [example for command in COMMANDS.values() for example in command.examples]


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_of_help_pages_are_understood(line: str) -> None:
    parses(line)


def test_examples_of_the_overview_are_understood() -> None:
    lines = [line for line in overview().splitlines() if line.startswith("  rl ")]
    assert len(lines) >= 4
    for line in lines:
        parses(line)


def suggestions() -> Iterator[tuple[str, str]]:
    """Commands in the texts of the package, as far as they do not depend on a value."""
    for path in sorted((ROOT / "src" / "rl_training").rglob("*.py")):
        for found in SUGGESTED.finditer(path.read_text()):
            yield path.name, found[1].partition("{")[0]


def test_commands_that_messages_suggest_exist() -> None:
    found = list(suggestions())
    assert len(found) > 40
    for file, line in found:
        words = [word.rstrip(",").split("|")[0] for word in line.split()[1:] if word not in ("COMMAND", "KIND", "...")]
        if not words or words[0] in ("_complete", "--help"):
            continue
        command, rest = find_command([*words, *(["--help"] if len(words) == 1 else [])])
        flags = [word.split("=")[0].removeprefix("--") for word in rest if word.startswith("--")]
        known = {"help", *(option.name for option in command.flags)} if command else {"help"}
        is_field = command is not None and command.takes_fields
        assert is_field or set(flags) <= known, f"{file}: {line}"


def documented() -> list[str]:
    lines = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for block in re.findall(r"```(?:bash|sh|console)\n(.*?)```", path.read_text(), re.DOTALL):
            text = block.replace("\\\n", " ")
            lines += [line.strip().removeprefix("$ ") for line in text.splitlines()]
    return [line for line in lines if line.startswith("rl ")]


def test_commands_of_the_docs_are_understood() -> None:
    lines = documented()
    assert len(lines) > 50
    for line in lines:
        parses(re.split(r"\s[|&;]", line)[0])


@pytest.fixture
def with_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    group = SeedGroup.create(TrainConfig(name="seeds", output_dir="runs"), [0, 1])
    for seed in (0, 1):
        fake_run(Path("runs"), seed, reward=100.0 * seed, group=group.info.id)
    fake_run(Path("runs"), 2, reward=500.0, name="baseline", tags=["old"])
    fake_run(Path("runs"), 3, reward=400.0, algo="a2c", tags=["new"])
    assert isinstance(find_runs("latest-group", "runs"), SeedGroup)


@pytest.mark.usefixtures("with_runs")
@pytest.mark.parametrize(
    "line",
    [
        example
        for command in COMMANDS.values()
        if command.name in (*CHEAP, *CHEAP_ANALYSIS)
        for example in command.examples
        if "--html" not in example and "--plots" not in example and "--help" not in example
    ],
)
def test_cheap_examples_work(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words_of(line)) == 0, capsys.readouterr().err


@pytest.mark.usefixtures("with_runs")
def test_the_examples_of_rl_plot_work() -> None:
    assert main(words_of(COMMANDS["plot curves"].examples[0])) == 0
    assert Path("curves.png").read_bytes().startswith(b"\x89PNG")
    assert main(words_of(COMMANDS["plot compare"].examples[0])) == 0


@pytest.mark.usefixtures("with_runs")
def test_the_newest_sweep_has_a_name_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words_of("rl plot sensitivity latest-sweep")) == 2
    assert "holds no sweeps" in capsys.readouterr().err
