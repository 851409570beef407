"""From words to a command that runs: find it in the table, show its help, or parse its flags and call it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rl_training.cli import help as help_pages
from rl_training.cli.commands import COMMANDS, load_command
from rl_training.cli.exit_codes import EXIT_USAGE
from rl_training.cli.parser import Command, FieldFlag, OptionsT, UsageError, closest, parse, wants_help


def dispatch(words: list[str]) -> int:
    """Find the command and run it."""
    if not words:
        print(help_pages.overview(), file=sys.stderr)
        return EXIT_USAGE
    if words[0] == "help":
        words = [*words[1:], "--help"]
    if words[0] in ("-h", "--help"):
        print(help_pages.overview())
        return 0
    if words[0] in ("-V", "--version"):
        from rl_training.version import __version__

        print(f"rl {__version__}")
        return 0
    if words[0] == "_complete":
        from rl_training.cli.completion import print_candidates

        return print_candidates(words[1:])
    command, rest = find_command(words)
    if command is None:
        print(help_pages.family(words[0]))
        return 0
    if wants_help(rest):
        print(help_pages.page(command, rest))
        return 0
    return command.run(parse_words(command, rest))


def find_command(words: Sequence[str]) -> tuple[Command[Any] | None, list[str]]:
    """The command that `words` start with and what follows it; None for the help of a family (`rl config --help`)."""
    first, rest = words[0], list(words[1:])
    if first in COMMANDS:
        return load_command(first), rest
    family = [name.split()[1] for name in COMMANDS if name.startswith(f"{first} ")]
    if not family:
        names = sorted({name.split()[0] for name in COMMANDS})
        kind = "flag" if first.startswith("-") else "command"
        hint = "" if kind == "flag" else closest(first, names)
        raise UsageError(f"unknown {kind} '{first}'{hint} (see 'rl --help')")
    if rest and f"{first} {rest[0]}" in COMMANDS:
        return load_command(f"{first} {rest[0]}"), rest[1:]
    if rest and wants_help(rest[:1]):
        return None, rest
    if rest:
        raise UsageError(f"unknown command '{first} {rest[0]}'{closest(rest[0], family)} (see 'rl {first} --help')")
    raise UsageError(f"'rl {first}' needs one of {', '.join(family)} (see 'rl {first} --help')")


def parse_words(command: Command[OptionsT], words: Sequence[str]) -> OptionsT:
    """The record of options of a command line."""

    def find_field(flag: str) -> FieldFlag:
        from rl_training.cli.fields import find_field as find

        return find(flag, command)

    return parse(command, words, find_field)
