"""How a command declares its flags: functions that make the fields of its record of options.

    @dataclass(frozen=True, kw_only=True)
    class EvalOptions:
        run: str = argument(values="runs")
        episodes: int = whole("episodes to play (default 100)", low=1, default=100)
        json: bool = json_flag()

Each function returns a dataclass field and is typed as the value that the parser puts there, so that the type checker
sees every option of a command.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar, cast, overload

from rl_training.cli.parser import ARGUMENT, OPTION, Option, Positional, UsageError, Values

T = TypeVar("T")
MANY = 1000
"""Most arguments of a command that takes any number of them."""


def _declared(default: T, option: Option) -> T:
    return dataclasses.field(default=default, metadata={OPTION: option})


def switch(help: str, *, section: str = "") -> bool:
    """A flag without a value."""
    return _declared(False, Option("", help, section=section))


@overload
def text(
    help: str, metavar: str, *, choices: tuple[str, ...] = (), section: str = "", values: Values = ""
) -> str | None: ...


@overload
def text(
    help: str, metavar: str, *, choices: tuple[str, ...] = (), section: str = "", values: Values = "", default: str
) -> str: ...


def text(
    help: str,
    metavar: str,
    *,
    choices: tuple[str, ...] = (),
    section: str = "",
    values: Values = "",
    default: str | None = None,
) -> str | None:
    """A flag that takes a text, or one of `choices`."""
    return _declared(default, Option("", help, metavar, choices=choices, section=section, values=values))


def text_or_switch(help: str, metavar: str) -> str | bool:
    """A flag that may stand alone (True) or take a text."""
    return _declared(cast("str | bool", False), Option("", help, metavar, optional_value=True))


@overload
def whole(help: str, metavar: str = "N", *, low: int = 0, section: str = "") -> int | None: ...


@overload
def whole(help: str, metavar: str = "N", *, low: int = 0, section: str = "", default: int) -> int: ...


def whole(help: str, metavar: str = "N", *, low: int = 0, section: str = "", default: int | None = None) -> int | None:
    """A flag that takes a whole number of at least `low`."""
    return _declared(
        default, Option("", help, metavar, section=section, convert=lambda typed, flag: read_whole(typed, flag, low))
    )


def names(help: str, metavar: str) -> tuple[str, ...]:
    """A flag that takes names with commas between them."""
    return converted(read_names, (), help, metavar)


def converted(read: Callable[[str], T], default: T, help: str, metavar: str, *, values: Values = "") -> T:
    """A flag with a conversion of its own, which raises UsageError for a text that it cannot read."""
    return _declared(default, Option("", help, metavar, values=values, convert=lambda typed, flag: read(typed)))


def argument(*, values: Values = "") -> str:
    """A positional argument that must be given."""
    return cast("str", dataclasses.field(metadata={ARGUMENT: Positional(1, 1, values=values)}))


def optional_argument(*, values: Values = "") -> str | None:
    """A positional argument that may be left out."""
    return cast("str | None", dataclasses.field(default=None, metadata={ARGUMENT: Positional(0, 1, values=values)}))


def arguments(fewest: int = 0, most: int = MANY, *, values: Values = "") -> tuple[str, ...]:
    """All further positional arguments."""
    positional = Positional(fewest, most, is_tuple=True, values=values)
    return cast("tuple[str, ...]", dataclasses.field(default=(), metadata={ARGUMENT: positional}))


def read_whole(typed: str, flag: str, low: int = 0) -> int:
    """The value of a flag that takes a whole number, such as 1000, 1_000 or 1e3."""
    try:
        value = int(typed.replace("_", "")) if "e" not in typed.lower() else _exact(float(typed))
    except ValueError:
        raise UsageError(f"--{flag} takes a whole number, not '{typed}'") from None
    if value < low:
        raise UsageError(f"--{flag} must be at least {low}, not {value}")
    return value


def _exact(value: float) -> int:
    if not value.is_integer():
        raise ValueError(f"{value} is not a whole number")
    return int(value)


def read_names(typed: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in typed.split(",") if name.strip())


# -- flags that many commands have ------------------------------------------------------------------------------------


def json_flag() -> bool:
    return switch("print one JSON value on stdout, everything else on stderr")


def output_dir_flag(help: str = "folder to look for RUN in (default runs)") -> str | None:
    return text(help, "DIR")


def read_checkpoint(typed: str) -> int | str:
    """`latest`, `best` or a number of env steps."""
    if typed not in ("latest", "best") and not typed.isdecimal():
        raise UsageError(f"--checkpoint is latest, best or a number of env steps, not '{typed}'")
    return int(typed) if typed.isdecimal() else typed


def checkpoint_flag() -> int | str:
    return converted(
        read_checkpoint,
        read_checkpoint("latest"),
        "latest, best, or the env steps of a saved one (default latest)",
        "WHICH",
        values="checkpoints",
    )


def executor_flag(*, section: str = "") -> str | None:
    return text(
        "where several runs are started: local, threads, slurm, ray[:ADDRESS], or package.module:Name of your own",
        "EXECUTOR",
        section=section,
    )


def trust_flag(help: str = "") -> bool:
    return switch(help or "agree to the code of a run that was not made here; remembered, see 'rl trust list'")


def allow_changed_config_flag(*, section: str = "") -> bool:
    return switch(
        "use a checkpoint even if it belongs to another run or the stored config was edited since", section=section
    )
