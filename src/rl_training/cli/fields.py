"""Config fields as flags: from `--hparams.clip-coef 0.1` to the field and a value of its type.

Names and types come from the config tree itself; the value is checked later, together with the file it overrides.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from rl_training.cli.parser import Command, FieldFlag, FieldFlags, UsageError, closest_word
from rl_training.config.fields import FieldDoc, field_docs, hint_at, is_mapping, options_of, section_of
from rl_training.config.loading import canonical_key, parse_override_value
from rl_training.config.resolution import NETWORK_PARTS
from rl_training.config.schema import builtin_spec
from rl_training.registry import algorithms

NOT_FLAGS = frozenset({"base"})
"""Fields that only make sense in a file."""


def flag_of(path: str) -> str:
    return path.replace("_", "-")


def all_fields(algo: str | None = None) -> Mapping[str, FieldDoc]:
    """Every field by path; with the hyperparameters of one algorithm, or of all of them."""
    return _fields_of((algo,) if algo is not None else tuple(algorithms.names()))


@cache  # each flag of a command line asks, and reading the fields of all algorithms takes tens of milliseconds
def _fields_of(names: tuple[str, ...]) -> Mapping[str, FieldDoc]:
    merged: dict[str, FieldDoc] = {}
    for name in names:
        merged = {**field_docs(name), **merged}
    return {path: doc for path, doc in merged.items() if path not in NOT_FLAGS}


def field_hint(path: str) -> Any:
    """The type of a field; of a hyperparameter, that of the first algorithm that has it. Any for what is unknown."""
    parts = tuple(path.split("."))
    if parts[0] != "hparams":
        return hint_at(parts, Mapping[str, Any])
    specs = (builtin_spec(name) for name in algorithms.names())
    hints = (hint_at(parts, spec.hparams) for spec in specs if spec is not None)
    return next((hint for hint in hints if hint is not Any), Any)


def find_field(flag: str, command: Command[Any]) -> FieldFlag:
    """The field behind a flag; UsageError with a suggestion where there is none."""
    path = canonical_key(flag)
    fields = all_fields()
    if path in fields:
        return FieldFlag(path, is_switch=set(options_of(field_hint(path))) <= {bool, type(None)})
    if path in NOT_FLAGS:
        return FieldFlag(path, is_switch=False)  # the loader says where it belongs
    parts = path.split(".")
    prefixes = [".".join(parts[:length]) for length in range(1, len(parts))]
    if parts[0] == "hparams" and len(parts) > 1:
        return FieldFlag(path, is_switch=False)  # perhaps of an algorithm outside the package; the loader knows
    if any(prefix in fields and is_mapping(field_hint(prefix)) for prefix in prefixes):
        return FieldFlag(path, is_switch=False)  # a key of `kwargs`
    if parts[-1] in NETWORK_PARTS and f"{path}.type" in fields:
        return FieldFlag(f"{path}.type", is_switch=False)  # `--network.actor.memory gru`, as in files
    if any(name.startswith(f"{path}.") for name in fields):
        inside = ", ".join(f"--{flag_of(name)}" for name in list(fields) if name.startswith(f"{path}."))
        raise UsageError(f"'--{flag}' is a section; its fields are {inside}")
    raise UsageError(f"unknown flag '--{flag}'{suggestion(flag, fields, command)} (see 'rl {command.name} --help')")


def suggestion(flag: str, fields: Mapping[str, FieldDoc], command: Command[Any]) -> str:
    """The field of the same last name in another section (`--lr`, `--clip-coef`), or the closest spelling."""
    leaf = flag.split(".")[-1]
    sections = dict.fromkeys(path.rpartition(".")[0] for path in fields)
    same_name = [path for section in sections if (path := canonical_key(f"{section}.{leaf}".lstrip("."))) in fields]
    if same_name:
        return f"; did you mean '--{flag_of(same_name[0])}'?"
    leaves = {flag_of(path.split(".")[-1]): flag_of(path) for path in fields}
    whole_flags = {name: name for name in (*map(flag_of, fields), *(option.name for option in command.flags))}
    known = {**leaves, **whole_flags}
    close = closest_word(flag_of(flag), known) or closest_word(flag_of(leaf), known)
    return f"; did you mean '--{known[close]}'?" if close else ""


def field_values(flags: FieldFlags) -> dict[str, Any]:
    """The config fields of a command line, by flag as typed, as values for the loader."""
    spelt = {path: flags.spelt.get(path, path) for path in flags.texts}
    # a part by its plain name sets its type alone: its other fields stay what the file says
    spelt |= {path: path for path, flag in spelt.items() if flag.split(".")[-1] in NETWORK_PARTS}
    return {spelt[path]: value_of(path, text, spelt[path]) for path, text in flags.texts.items()}


def value_of(path: str, text: str, flag: str) -> Any:
    """`text` read as YAML, with what a shell user means: text stays text, `64,64` is a list, 1e6 is a whole number."""
    options = [option for option in options_of(field_hint(path)) if option is not type(None)]
    lists = [option for option in options if typing.get_origin(option) in (tuple, list)]
    if lists and typing.get_args(lists[0])[0] is not str and "," in text and not text.startswith(("[", "{")):
        return [parse_override_value(part.strip(), flag) for part in text.split(",") if part.strip()]
    value = parse_override_value(text, flag)
    if int in options and float not in options and isinstance(value, float) and value.is_integer():
        return int(value)
    if len(options) == 1 and lists and isinstance(value, int | float):
        return [value]
    return value


# -- for help and completion ------------------------------------------------------------------------------------------


def field_flags(algo: str | None) -> list[str]:
    return [flag_of(path) for path in all_fields(algo)]


def field_choices(flag: str) -> list[str]:
    """The values a field can have, where they are few: words of a Literal, true and false."""
    choices: list[str] = []
    for option in options_of(field_hint(canonical_key(flag))):
        if typing.get_origin(option) is Literal:
            choices += [str(choice) for choice in typing.get_args(option)]
        elif option is bool:
            choices += ["true", "false"]
    return choices


def section_sentence(section: str, algo: str) -> str:
    """The first line of the docstring of a section's class."""
    spec = builtin_spec(algo) if section == "hparams" else None
    hint = (
        spec.hparams if spec is not None else hint_at(tuple(section.split(".")) if section else (), Mapping[str, Any])
    )
    documented = section_of(hint)
    return (documented.__doc__ or "").strip().split("\n")[0] if documented is not None else ""
