"""The pages of `--help`: short for a command, long (every field of the config) where fields are flags."""

from __future__ import annotations

import itertools
import shutil
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rl_training.cli.commands import COMMANDS, FIRST, OTHERS, RUNS, load_command
from rl_training.cli.exit_codes import EXIT_CODES
from rl_training.cli.output import bold
from rl_training.cli.parser import Command, Option
from rl_training.version import __version__

if TYPE_CHECKING:
    from rl_training.config.fields import FieldDoc

MAX_WIDTH = 100
LEFT = 30
"""Columns of the left-hand side; a longer flag has its text on the next line."""

SECTIONS = ("", "env", "hparams", "network", "training", "buffer", "logging", "checkpoint", "monitor")
"""The order of the config's sections on a page."""


def overview() -> str:
    """`rl --help`."""
    lines = [
        bold(f"rl {__version__}") + ": train reinforcement-learning agents, reproducibly",
        "",
        f"{bold('usage')}  rl COMMAND [arguments]      rl COMMAND --help tells more",
        "",
        *(entry(command.name, command.summary, left=18) for command in FIRST),
        "",
        *(entry(command.name, command.summary, left=18) for command in RUNS),
        "",
        *(entry(command.name, command.summary, left=18) for command in OTHERS),
        "",
        bold("examples"),
        "  rl train ppo/cartpole",
        "  rl eval latest --episodes 100",
        "  rl resume latest --total-timesteps 500000",
        "  rl train --algo a2c --env-id Acrobot-v1 --seed 1,2,3",
        "",
        entry("--version", "print the version", left=18),
        entry("--traceback", "show where an error came from (or set RL_TRAINING_TRACEBACK=1)", left=18),
        "",
        fill(f"Exit codes: {EXIT_CODES}."),
    ]
    return "\n".join(lines)


def family(name: str) -> str:
    """`rl config --help`."""
    members = [load_command(known) for known in COMMANDS if known.startswith(f"{name} ")]
    entries = [entry(command.name, command.summary, left=18) for command in members]
    examples = [f"  {command.examples[0]}" for command in members]
    return "\n".join([f"{bold('usage')}  rl {name} COMMAND [arguments]", "", *entries, "", bold("examples"), *examples])


def page(command: Command[Any], words: Sequence[str]) -> str:
    """`rl COMMAND --help`; `words` are what else was typed, which may choose the algorithm whose fields are shown."""
    algo = algo_of(words) if command.takes_fields else ""
    docs = flags_of(algo) if algo else {}
    lines = [
        f"{bold('usage')}  rl {command.name} {command.usage}".rstrip(),
        "",
        fill(f"{command.summary[0].upper()}{command.summary[1:]}."),
        *([fill(command.notes)] if command.notes else []),
        "",
        *option_entries(command.flags, docs),
        "",
        bold("examples"),
        *(f"  {example}" for example in command.examples),
    ]
    shown = {option.field for option in command.flags if option.field == option.name.replace("-", "_")}
    return "\n".join(lines + (field_pages(algo, docs, shown) if algo else []))


def option_entries(options: Sequence[Option], docs: Mapping[str, FieldDoc]) -> list[str]:
    """Every option, under its section where the page has sections; those without one come last."""
    sections = list(dict.fromkeys(option.section for option in options if option.section))
    if not sections:
        return [option_entry(option, docs) for option in options]
    lines: list[str] = []
    for section in [*sections, ""]:
        members = [option_entry(option, docs) for option in options if option.section == section]
        lines += [*([""] if lines else []), *([bold(section)] if section else []), *members]
    return lines


def option_entry(option: Option, docs: Mapping[str, FieldDoc]) -> str:
    default = f" (default {docs[option.field].default})" if option.field in docs else ""
    return entry(f"--{option.name} {option.metavar}".rstrip(), option.help + default)


def flags_of(algo: str) -> Mapping[str, FieldDoc]:
    from rl_training.cli.fields import all_fields

    return all_fields(algo)


def field_pages(algo: str, docs: Mapping[str, FieldDoc], shown: Collection[str]) -> list[str]:
    """Every field that is not `shown` yet, with its sentence, type and default, section by section."""
    from rl_training.cli.fields import flag_of, section_sentence

    lines = [
        "",
        fill(
            "Every field of the config is a flag too. Values are written as in YAML; a list may be 64,64; a field that "
            "is true or false may stand alone for true."
        ),
    ]
    found = dict.fromkeys(path.rpartition(".")[0] for path in docs)
    for section in sorted(found, key=lambda name: (rank(name), name)):
        title = {"": "general", "hparams": f"hparams of {algo}", "env": "environment"}.get(section, section)
        heading = fill(f"{title}  {section_sentence(section, algo)}".rstrip())
        lines += ["", bold(title) + heading[len(title) :]]
        lines += [
            entry(f"--{flag_of(path)}", f"{doc.doc} ({doc.type}; default {doc.default})")
            for path, doc in docs.items()
            if path.rpartition(".")[0] == section and path not in shown
        ]
    return [
        *lines,
        "",
        fill("Hyperparameters of another algorithm: rl train --algo NAME --help (see 'rl algorithms')."),
    ]


def rank(section: str) -> int:
    """Position of a section of the config on a page: what is changed most often comes first."""
    top = section.split(".")[0]
    return SECTIONS.index(top) if top in SECTIONS else len(SECTIONS)


def algo_of(words: Sequence[str]) -> str:
    """The algorithm that a half-written command line chooses: by flag, by preset or file, else ppo."""
    spread = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    for flag, value in itertools.pairwise(spread):
        if flag in ("--algo", "--algorithm.name"):
            return value
    source = next((word for word in words if not word.startswith("-")), None)
    return ("ppo" if source is None else algo_of_source(source)) or "ppo"


def algo_of_source(source: str) -> str | None:
    """The algorithm of a preset or file; None where it cannot be read, which a help page does not report."""
    from rl_training.config.loading import load_config
    from rl_training.types import ConfigError

    try:
        return load_config(source).algo
    except ConfigError:
        return None


def entry(left_text: str, text: str, left: int = LEFT) -> str:
    """Two columns: what to type, and what it does."""
    indent = " " * (left + 4)
    right = textwrap.wrap(text, width() - len(indent), break_on_hyphens=False) or [""]
    if len(left_text) > left:
        return "\n".join([f"  {left_text}", *(indent + line for line in right)])
    head = f"  {left_text:<{left}}  {right[0]}"
    return "\n".join([head.rstrip(), *(indent + line for line in right[1:])])


def fill(text: str) -> str:
    return textwrap.fill(text, width(), break_on_hyphens=False)


def width() -> int:
    return max(60, min(shutil.get_terminal_size((100, 24)).columns, MAX_WIDTH))
