"""What was typed, taken apart: one small parser for every command, standard library only.

A flag is one of the command's own options or, for commands that take them, a field of the config by its path. Field
values stay text here; `overrides` reads them by the field's type.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field


class UsageError(Exception):
    """A command line that cannot be understood; exit code 2."""


@dataclass(frozen=True)
class Option:
    """A flag of a command. Without `metavar` it is a switch; with `field` it is the short form of a config field."""

    name: str
    help: str
    metavar: str = ""
    optional_value: bool = False
    choices: tuple[str, ...] = ()
    field: str = ""
    section: str = ""
    """Title that the options of a long page are put under."""


HELP = Option("help", "show this help")
TRUST = Option("trust-plugins", "agree to the code of a run that was not made here; remembered, see 'rl trust list'")
JSON = Option("json", "print one JSON value on stdout, everything else on stderr")
OUTPUT_DIR = Option("output-dir", "folder to look for RUN in (default runs)", "DIR")


@dataclass(frozen=True)
class Command:
    """One command as a record: what `--help` shows, what the parser accepts, and the function that does the work."""

    name: str
    summary: str
    run: str
    """Where the work is, as "module:function"; imported only when the command runs."""
    usage: str = ""
    arguments: tuple[int, int] = (0, 0)
    """Fewest and most positional arguments."""
    options: tuple[Option, ...] = ()
    takes_fields: bool = False
    """Every field of the config is a flag too."""
    examples: tuple[str, ...] = ()
    notes: str = ""


@dataclass
class Arguments:
    """A parsed command line: positional arguments, options by name, config fields as text."""

    words: list[str]
    """The whole command line as it was typed, from `rl` on."""
    positional: list[str] = field(default_factory=list)
    options: dict[str, str | bool] = field(default_factory=dict)
    overrides: dict[str, str] = field(default_factory=dict)
    """Canonical path of a config field to the text it was given; the last flag wins."""
    spelt: dict[str, str] = field(default_factory=dict)
    """Canonical path to the flag as it was typed, without the dashes."""

    def text(self, name: str) -> str | None:
        """The value of an option, or None where it was not given or is a bare switch."""
        value = self.options.get(name)
        return value if isinstance(value, str) else None

    def switch(self, name: str) -> bool:
        return name in self.options

    def number(self, name: str, *, low: int = 0) -> int | None:
        """The value of an option as a whole number of at least `low`."""
        text = self.text(name)
        if text is None:
            return None
        try:
            value = int(text.replace("_", "")) if "e" not in text.lower() else whole(float(text))
        except ValueError:
            raise UsageError(f"--{name} takes a whole number, not '{text}'") from None
        if value < low:
            raise UsageError(f"--{name} must be at least {low}, not {value}")
        return value


@dataclass(frozen=True)
class FieldFlag:
    """A config field as the parser sees it: its canonical path, and whether it may stand alone for "true"."""

    path: str
    is_switch: bool


FindField = Callable[[str], FieldFlag]
"""From a flag without its dashes to the field it sets; raises UsageError with a suggestion."""


def whole(value: float) -> int:
    """1e6 as an int; ValueError for 1.5 and for infinities."""
    if not value.is_integer():
        raise ValueError(f"{value} is not a whole number")
    return int(value)


def closest_word(word: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)), None)


def closest(word: str, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?" or an empty string."""
    close = closest_word(word, known)
    return f"; did you mean '{close}'?" if close else ""


def is_flag(token: str) -> bool:
    return token.startswith("--") and len(token) > 2


def wants_help(argv: Sequence[str]) -> bool:
    return any(token in ("-h", "--help") for token in argv)


def parse(command: Command, argv: Sequence[str], find_field: FindField) -> Arguments:
    """Take `argv` (after the command's name) apart. `--x value` and `--x=value` are equal, `-` and `_` in names too."""
    options = {option.name: option for option in command.options}
    parsed = Arguments(["rl", *command.name.split(), *argv])
    rest = list(argv)
    bare_switch = ""
    while rest:
        token = rest.pop(0)
        if not is_flag(token):
            _add_positional(command, parsed, token, bare_switch)
            continue
        spelt, equals, value = token[2:].partition("=")
        given = value if equals else None
        name = spelt.replace("_", "-")
        option = options.get(name)
        bare_switch = ""
        if option is not None and not option.field:
            parsed.options[name] = _option_value(option, given, rest)
            continue
        if option is None and not command.takes_fields:
            hint = closest(f"--{name}", [f"--{known}" for known in options])
            raise UsageError(f"unknown flag '--{spelt}'{hint} (see 'rl {command.name} --help')")
        found = FieldFlag(option.field, is_switch=False) if option else find_field(spelt)
        text = _field_text(found, f"--{spelt}", given, rest)
        bare_switch = f"--{spelt}" if found.is_switch and given is None else ""
        parsed.overrides[found.path] = text
        parsed.spelt[found.path] = spelt
    if len(parsed.positional) < command.arguments[0]:
        raise UsageError(f"'rl {command.name}' needs {command.usage.split()[0]} (see 'rl {command.name} --help')")
    return parsed


def _add_positional(command: Command, parsed: Arguments, token: str, bare_switch: str) -> None:
    if token.startswith("-") and token != "-":
        raise UsageError(f"unknown flag '{token}'; flags start with two dashes (see 'rl {command.name} --help')")
    if len(parsed.positional) >= command.arguments[1]:
        hint = f"; {bare_switch} takes true or false" if bare_switch else ""
        hint = hint or ("" if command.arguments[1] else f"; 'rl {command.name}' takes only flags")
        raise UsageError(f"unexpected argument '{token}'{hint} (see 'rl {command.name} --help')")
    parsed.positional.append(token)


def _required(flag: str, given: str | None, rest: list[str]) -> str:
    if given is not None:
        return given
    if not rest or is_flag(rest[0]):
        raise UsageError(f"{flag} needs a value")
    return rest.pop(0)


def _option_value(option: Option, given: str | None, rest: list[str]) -> str | bool:
    if not option.metavar:
        if given is not None:
            raise UsageError(f"--{option.name} takes no value, not '{given}'")
        return True
    if option.optional_value and given is None and (not rest or is_flag(rest[0])):
        return True
    value = _required(f"--{option.name}", given, rest)
    if option.choices and value not in option.choices:
        raise UsageError(
            f"--{option.name} is one of {', '.join(option.choices)}, not '{value}'{closest(value, option.choices)}"
        )
    return value


def _field_text(found: FieldFlag, flag: str, given: str | None, rest: list[str]) -> str:
    if not found.is_switch or given is not None:
        return _required(flag, given, rest)
    if rest and rest[0].lower() in ("true", "false"):
        return rest.pop(0)
    return "true"
