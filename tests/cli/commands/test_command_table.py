"""The table of commands says what the files say, and neither imports anything heavy."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

import rl_training.cli.commands
from rl_training.cli.commands import COMMANDS, FIRST, OTHERS, RUNS, load_command

FOLDER = Path(rl_training.cli.commands.__file__).parent


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_agrees_with_the_file(name: str) -> None:
    command = load_command(name)
    assert (command.name, command.summary) == (name, COMMANDS[name].summary)


def test_every_file_with_a_command_is_in_the_table_once() -> None:
    modules = [entry.module for entry in FIRST + RUNS + OTHERS]
    files = [path for path in sorted(FOLDER.glob("*/*.py")) if "COMMAND = " in path.read_text()]
    assert sorted(modules) == sorted(f"{path.parent.name}.{path.stem}" for path in files)
    assert len(modules) == len(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_a_frozen_record_of_keywords(name: str) -> None:
    record = load_command(name).options
    assert record.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert all(one.kw_only for one in dataclasses.fields(record))


@pytest.mark.parametrize("name", COMMANDS)
def test_flags_are_unique_and_help_comes_last(name: str) -> None:
    names = [option.name for option in load_command(name).flags]
    assert len(set(names)) == len(names)
    assert names[-1] == "help"


def test_the_files_import_the_standard_library_alone() -> None:
    program = (
        "import sys\nfrom rl_training.cli.commands import COMMANDS, load_command\n"
        "for name in COMMANDS: load_command(name)\n"
        "print([name for name in ('numpy', 'pydantic', 'yaml', 'sqlite3', 'torch', 'jax') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_help_imports_no_file_of_a_command() -> None:
    program = (
        "import sys\nfrom rl_training.cli import main\nmain(['--help'])\nmain(['_complete', 're'])\n"
        "print([name for name in sys.modules if name.startswith('rl_training.cli.commands.') or name == 'numpy'])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-3:] == ["resume", "record", "[]"]
