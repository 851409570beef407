"""Shell completion: three small scripts that ask `rl _complete` what could come next."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_training.cli.commands import COMMANDS, load_command
from rl_training.cli.parser import Command, Values, is_flag

BASH = """\
_rl_complete() {
    local IFS=$'\\n'
    COMPREPLY=($("${COMP_WORDS[0]}" _complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _rl_complete rl
"""

ZSH = """\
#compdef rl
_rl_complete() {
    local -a found
    found=(${(f)"$(${words[1]} _complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -a found; else _files; fi
}
compdef _rl_complete rl
"""

FISH = """\
function __rl_complete
    set -l typed (commandline -opc) (commandline -ct)
    $typed[1] _complete $typed[2..-1] 2>/dev/null
end
complete -c rl -a '(__rl_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
MAX_RUNS = 200


def print_candidates(words: Sequence[str]) -> int:
    """`words` after `rl`, the last one half typed (or empty); one candidate per line."""
    # bash splits --flag=value into three words
    typed = [word for word in words[:-1] if word != "="]
    current = "" if not words or words[-1] == "=" else words[-1]
    for candidate in candidates(typed, current):
        if candidate.startswith(current) and candidate.isprintable():
            print(candidate)
    return 0


def candidates(typed: Sequence[str], current: str) -> list[str]:
    """Everything that may follow `typed`; the caller keeps what starts with `current`."""
    if not typed:
        return ["--help", "--version"] if current.startswith("-") else first_words()
    command, rest = command_of(typed)
    if command is None:
        return [name.split()[1] for name in COMMANDS if name.startswith(f"{typed[0]} ")]
    if rest and is_flag(rest[-1]):
        values = flag_values(command, rest[-1][2:].replace("_", "-"))
        if values is not None:
            return values
    if current.startswith("-"):
        return [f"--{name}" for name in flag_names(command, rest)]
    return positional_values(command)


def first_words() -> list[str]:
    return list(dict.fromkeys(name.split()[0] for name in COMMANDS))


def command_of(typed: Sequence[str]) -> tuple[Command[Any] | None, list[str]]:
    for length in (1, 2):
        name = " ".join(typed[:length])
        if name in COMMANDS:
            return load_command(name), list(typed[length:])
    return None, []


def flag_names(command: Command[Any], rest: Sequence[str]) -> list[str]:
    names = [option.name for option in command.flags]
    if command.takes_fields:
        from rl_training.cli.fields import field_flags

        names += [flag for flag in field_flags(chosen_algo(rest)) if flag not in names]
    return names


def flag_values(command: Command[Any], flag: str) -> list[str] | None:
    """What may follow a flag; None after a switch, an empty list where the shell should offer files."""
    option = next((option for option in command.flags if option.name == flag), None)
    if option is not None and not option.metavar:
        return None
    if option is not None and option.choices:
        return list(option.choices)
    if option is not None and not option.field:
        return known_values(option.values)
    if flag in ("algo", "algorithm.name"):
        from rl_training.registry import algorithms

        return algorithms.names()
    from rl_training.cli.fields import field_choices

    return field_choices(option.field if option else flag)


def positional_values(command: Command[Any]) -> list[str]:
    first = next(iter(command.arguments.values()), None)
    return [] if first is None else known_values(first.values)


def known_values(kind: Values) -> list[str]:
    """What can be offered for a flag or an argument; an empty list leaves it to the shell, which offers files."""
    if kind == "runs":
        return run_names()
    if kind == "presets":
        return presets()
    return {"checkpoints": ["latest", "best"], "shells": list(SCRIPTS)}.get(kind, [])


def presets() -> list[str]:
    from rl_training.config.loading import preset_names

    return preset_names()


def run_names(output_dir: str = "runs") -> list[str]:
    """`latest`, the newest run directories here, the newest groups and sweeps."""
    found: list[str] = []
    places = {output_dir: "run.json", f"{output_dir}/groups": "group.json", f"{output_dir}/sweeps": "sweep.json"}
    for folder, record in places.items():
        names: list[str] = []
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            names = sorted((e.name for e in entries if Path(e.path, record).is_file()), key=lambda n: n[-15:])
        found += names[-MAX_RUNS:]
    return ["latest", *found]


def chosen_algo(words: Sequence[str]) -> str | None:
    """The algorithm that a command line names: by flag, or as the first part of a preset."""
    from rl_training.registry import algorithms

    for flag, value in itertools.pairwise(words):
        if flag in ("--algo", "--algorithm.name") and value in algorithms:
            return value
    first = words[0].partition("/")[0] if words else ""
    return first if first in algorithms else None
