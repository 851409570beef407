"""Command lines to typed records: one small parser for every command, standard library only.

A flag is an option of the command or, for commands that take them, a field of the config by its path. The value of an
option is converted here; the value of a field stays text, which `fields` reads by the type of the field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

Values = Literal["", "runs", "presets", "checkpoints", "shells"]
"""Where completion finds the values of a flag or an argument."""
OPTION, ARGUMENT = "option", "argument"
"""Metadata of a record's field: its Option, or its Positional."""


class UsageError(Exception):
    """A command line that cannot be understood; exit code 2."""


def as_typed(text: str, flag: str) -> str:
    """The conversion of an option that takes any text."""
    return text


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
    """Title that the option is listed under on a long help page."""
    values: Values = ""
    convert: Callable[[str, str], Any] = as_typed
    """(text, flag) -> value; UsageError where the text is no such value."""


@dataclass(frozen=True)
class Positional:
    """Arguments without a flag: fewest, most, and whether the record holds one value or a tuple."""

    fewest: int
    most: int
    is_tuple: bool = False
    values: Values = ""


HELP = Option("help", "show this help")


@dataclass(frozen=True)
class FieldFlags:
    """Config fields that were given as flags."""

    texts: Mapping[str, str] = field(default_factory=dict)
    """Canonical path of the field to the text it was given; the last flag wins."""
    spelt: Mapping[str, str] = field(default_factory=dict)
    """Canonical path to the flag as it was typed, without the dashes."""

    def with_text(self, path: str, text: str) -> FieldFlags:
        """The same flags with another text for one field."""
        return replace(self, texts={**self.texts, path: text})

    def without(self, path: str) -> FieldFlags:
        """The same flags but for one field."""
        return replace(self, texts={known: text for known, text in self.texts.items() if known != path})


@dataclass(frozen=True, kw_only=True)
class FieldOptions:
    """Base of the records of commands for which every config field is a flag too."""

    words: tuple[str, ...] = ()
    """The whole command line as it was typed, from `rl` on."""
    given: tuple[str, ...] = ()
    """Names of the command's own flags that were typed, in their order."""
    fields: FieldFlags = FieldFlags()


class Record(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


OptionsT = TypeVar("OptionsT", bound=Record)


@dataclass(frozen=True)
class Command(Generic[OptionsT]):
    """One command: what `--help` shows, what the parser accepts, and the function that does the work."""

    name: str
    summary: str
    usage: str
    options: type[OptionsT]
    """A frozen dataclass whose fields are declared with the functions of `flags`; the parser fills it."""
    run: Callable[[OptionsT], int]
    """Returns the exit code. Heavy modules are imported inside it."""
    examples: tuple[str, ...] = ()
    notes: str = ""
    short_forms: tuple[Option, ...] = ()
    """Config fields that have a short flag; listed behind the first option, `--config`."""

    @property
    def takes_fields(self) -> bool:
        """Whether every field of the config is a flag too."""
        return issubclass(self.options, FieldOptions)

    @cached_property
    def flags(self) -> tuple[Option, ...]:
        """Every option in the order of the help page."""
        own = tuple(
            replace(one.metadata[OPTION], name=one.name.replace("_", "-"))
            for one in dataclasses.fields(self.options)
            if OPTION in one.metadata
        )
        return (*own[:1], *self.short_forms, *own[1:], HELP)

    @cached_property
    def arguments(self) -> dict[str, Positional]:
        """The positional arguments by the field of the record that holds them."""
        return {
            one.name: one.metadata[ARGUMENT] for one in dataclasses.fields(self.options) if ARGUMENT in one.metadata
        }

    @property
    def fewest(self) -> int:
        return sum(argument.fewest for argument in self.arguments.values())

    @property
    def most(self) -> int:
        return sum(argument.most for argument in self.arguments.values())


@dataclass(frozen=True)
class FieldFlag:
    """A config field as the parser sees it: its canonical path, and whether it may stand alone for "true"."""

    path: str
    is_switch: bool


FindField = Callable[[str], FieldFlag]
"""From a flag without its dashes to the field it sets; raises UsageError with a suggestion."""


def closest_word(word: str, known: Iterable[str]) -> str | None:
    import difflib  # only a mistake needs it

    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)), None)


def closest(word: str, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?" or an empty string."""
    close = closest_word(word, known)
    return f"; did you mean '{close}'?" if close else ""


def is_flag(token: str) -> bool:
    return token.startswith("--") and len(token) > 2


def wants_help(argv: Sequence[str]) -> bool:
    return any(token in ("-h", "--help") for token in argv)


@dataclass
class _Parsed:
    """A command line taken apart, before it becomes the command's record."""

    positional: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    spelt: dict[str, str] = field(default_factory=dict)


def parse(command: Command[OptionsT], argv: Sequence[str], find_field: FindField) -> OptionsT:
    """The record of a command line (`argv` after the command's name).

    `--x value` and `--x=value` are equal, and so are `-` and `_` in the name of a flag.
    """
    parsed = _taken_apart(command, list(argv), find_field)
    if len(parsed.positional) < command.fewest:
        raise UsageError(f"'rl {command.name}' needs {command.usage.split()[0]} (see 'rl {command.name} --help')")
    values: dict[str, Any] = {name.replace("-", "_"): value for name, value in parsed.options.items()}
    rest = parsed.positional
    for name, argument in command.arguments.items():
        taken, rest = rest[: argument.most], rest[argument.most :]
        values |= {name: tuple(taken)} if argument.is_tuple else {name: taken[0]} if taken else {}
    if command.takes_fields:
        values["words"] = ("rl", *command.name.split(), *argv)
        values["given"] = tuple(parsed.options)
        values["fields"] = FieldFlags(parsed.texts, parsed.spelt)
    return command.options(**values)


def _taken_apart(command: Command[Any], rest: list[str], find_field: FindField) -> _Parsed:
    options = {option.name: option for option in command.flags}
    parsed = _Parsed()
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
        parsed.texts[found.path] = text
        parsed.spelt[found.path] = spelt
    return parsed


def _add_positional(command: Command[Any], parsed: _Parsed, token: str, bare_switch: str) -> None:
    if token.startswith("-") and token != "-":
        raise UsageError(f"unknown flag '{token}'; flags start with two dashes (see 'rl {command.name} --help')")
    if len(parsed.positional) >= command.most:
        hint = f"; {bare_switch} takes true or false" if bare_switch else ""
        hint = hint or ("" if command.most else f"; 'rl {command.name}' takes only flags")
        raise UsageError(f"unexpected argument '{token}'{hint} (see 'rl {command.name} --help')")
    parsed.positional.append(token)


def _required(flag: str, given: str | None, rest: list[str]) -> str:
    if given is not None:
        return given
    if not rest or is_flag(rest[0]):
        raise UsageError(f"{flag} needs a value")
    return rest.pop(0)


def _option_value(option: Option, given: str | None, rest: list[str]) -> Any:
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
    return option.convert(value, option.name)


def _field_text(found: FieldFlag, flag: str, given: str | None, rest: list[str]) -> str:
    if not found.is_switch or given is not None:
        return _required(flag, given, rest)
    if rest and rest[0].lower() in ("true", "false"):
        return rest.pop(0)
    return "true"
