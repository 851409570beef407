"""The command `rl`: finds the command, runs it, and turns every outcome into an exit code and a readable line.

Nothing heavy is imported here: help, completion and config checks answer at once.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.cli.arguments import Arguments, Command, FieldFlag, UsageError, closest, parse, wants_help
from rl_training.cli.commands import COMMANDS
from rl_training.cli.output import note
from rl_training.system.error_text import TEXT_LIMIT, message_of, traceback_text
from rl_training.system.formatting import wrapped
from rl_training.system.imports import without_collections

if TYPE_CHECKING:
    from rl_training.config.schema import TrainConfig

__all__ = ["load_config", "main"]

EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 1, 2, 130, 141


def load_config(path: str | Path) -> TrainConfig:
    """The config of a file or a preset name."""
    from rl_training.config.loading import load_config as load

    return load(path)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    if argv is not None:
        return outcome(list(argv))
    spare_last_collection()
    code = outcome(sys.argv[1:])
    leave_compiler(code)
    return code


def outcome(words: list[str]) -> int:
    """Every outcome of a command as an exit code and, where it failed, a readable line."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # modules beside the config, as with `python -m`; installed ones come first
    show_traceback = "--traceback" in words or os.environ.get("RL_TRAINING_TRACEBACK", "") not in ("", "0")
    try:
        with short_warnings(not show_traceback):
            code = dispatch([word for word in words if word != "--traceback"])
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # the reader (head, less) has gone: stay silent, also when Python flushes stdout at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except Exception as error:
        return report(error, show_traceback)
    finally:
        forget_secrets()


def forget_secrets() -> None:
    """What this command found in a config is not hidden in the texts of the next one of this process."""
    secrets = sys.modules.get("rl_training.runs.redaction")
    if secrets is not None:
        secrets.forget()


def leave_compiler(code: int) -> None:
    """End at once if a run was given up while its program was still compiled, for which Python would wait."""
    executables = sys.modules.get("rl_training.jax.programs.disk_cache")
    if executables is not None and executables.are_coming():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def spare_last_collection() -> None:
    """At its end Python searches for unused cycles among all that was imported, which takes 0.3 s with jax and 0.5 s
    with torch, and finds nothing that the end of the process does not free."""
    atexit.register(gc.freeze)


@contextlib.contextmanager
def short_warnings(wanted: bool) -> Iterator[None]:
    """Warnings to the user as one line each, without the place in the code that they were raised from."""
    from rl_training.system.terminal_text import printable

    usual = warnings.formatwarning

    def short(message: Warning | str, category: type[Warning], *place: Any, **line: Any) -> str:
        is_for_user = category is UserWarning
        text = f"warning: {message}\n" if is_for_user else usual(message, category, *place, **line)
        public = printable(without_secrets(text), lines=True)
        return wrapped(public, sys.stderr) if is_for_user else public

    warnings.formatwarning = short if wanted else usual
    try:
        yield
    finally:
        warnings.formatwarning = usual


def report(error: Exception, show_traceback: bool) -> int:
    """Say what went wrong on stderr, without a traceback where the user can mend it, and choose the exit code."""
    from rl_training.system.terminal_text import printable

    said = message_of(error, TEXT_LIMIT)
    if isinstance(error, UsageError):
        expected, code = True, EXIT_USAGE
    else:
        from rl_training.types import ConfigError, RLTrainingError

        expected = isinstance(error, RLTrainingError)
        code = EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILURE
        said = without_secrets(said, error)
    if expected and not show_traceback and error.__cause__ is None:
        note(f"error: {said}")
        return code
    from rl_training.cli.failures import cause_text, failure_text, missing_module

    if expected:
        trace = traceback_text(error) if show_traceback else cause_text(error)
    elif (missing := missing_module(error)) is not None and not show_traceback:
        trace, said, code = "", missing, EXIT_USAGE
    else:
        trace, said = failure_text(error, whole=show_traceback)
        said = without_secrets(said, error)
    sys.stderr.write(printable(without_secrets(trace, error), lines=True))
    note(f"error: {said}")
    return code


def without_secrets(text: str, error: Exception | None = None) -> str:
    """What is shown of an error or a warning. Only texts of the user's own code are searched for `password=x`."""
    from rl_training.runs.redaction import console_redactor
    from rl_training.types import EnvError, RLTrainingError

    redactor = console_redactor()
    ours = error is None or (isinstance(error, RLTrainingError) and not isinstance(error, EnvError))
    return redactor.values(text) if ours else redactor.traceback(text)


def dispatch(words: list[str]) -> int:
    """Find the command and run it."""
    from rl_training.cli import help as help_pages

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
    return run_command(command, parse_words(command, rest))


def find_command(words: Sequence[str]) -> tuple[Command | None, list[str]]:
    """The command that `words` start with and what follows it; None for the help of a family (`rl config --help`)."""
    first, rest = words[0], list(words[1:])
    if first in COMMANDS:
        return COMMANDS[first], rest
    family = [name.split()[1] for name in COMMANDS if name.startswith(f"{first} ")]
    if not family:
        names = sorted({name.split()[0] for name in COMMANDS})
        kind = "flag" if first.startswith("-") else "command"
        hint = "" if kind == "flag" else closest(first, names)
        raise UsageError(f"unknown {kind} '{first}'{hint} (see 'rl --help')")
    if rest and f"{first} {rest[0]}" in COMMANDS:
        return COMMANDS[f"{first} {rest[0]}"], rest[1:]
    if rest and wants_help(rest[:1]):
        return None, rest
    if rest:
        raise UsageError(f"unknown command '{first} {rest[0]}'{closest(rest[0], family)} (see 'rl {first} --help')")
    raise UsageError(f"'rl {first}' needs one of {', '.join(family)} (see 'rl {first} --help')")


def parse_words(command: Command, words: Sequence[str]) -> Arguments:
    def find_field(flag: str) -> FieldFlag:
        from rl_training.cli.overrides import find_field as find

        return find(flag, command)

    return parse(command, words, find_field)


def run_command(command: Command, arguments: Arguments) -> int:
    module_name, _, function = command.run.partition(":")
    with without_collections():
        module = importlib.import_module(module_name)
    code: int = getattr(module, function)(arguments)
    return code
