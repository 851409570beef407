"""The command `rl`: runs one command line, and turns every outcome into an exit code and a readable line.

Nothing heavy is imported here: help, completion and config checks answer at once.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.cli.dispatch import dispatch
from rl_training.cli.exit_codes import EXIT_BROKEN_PIPE, EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_USAGE
from rl_training.cli.output import note
from rl_training.cli.parser import UsageError
from rl_training.system.formatting import wrapped
from rl_training.system.launch import launched

if TYPE_CHECKING:
    from rl_training.config.schema import TrainConfig

__all__ = ["load_config", "main"]


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
    """Run a command line; every outcome becomes an exit code and, where it failed, a readable line."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # modules beside the config, as with `python -m`; installed ones come first
    show_traceback = "--traceback" in words or os.environ.get("RL_TRAINING_TRACEBACK", "") not in ("", "0")
    try:
        with short_warnings(not show_traceback):
            code = dispatch([word for word in words if word != "--traceback"])
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # the reader of the pipe (head, less) has ended: stay silent, also when Python flushes stdout at exit
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
    """Forget the secrets of this command's configs: the next command of the process must not hide them."""
    secrets = sys.modules.get("rl_training.runs.redaction")
    if secrets is not None:
        secrets.forget()


def leave_compiler(code: int) -> None:
    """Exit without waiting for programs that still compile in the background, for which Python would wait."""
    executables = sys.modules.get("rl_training.jax.programs.disk_cache")
    if executables is not None and executables.are_coming():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def spare_last_collection() -> None:
    """Skip the garbage collection at exit: it takes 0.3 s with jax and 0.5 s with torch imported, and frees nothing
    that the end of the process does not free."""
    atexit.register(gc.freeze)


@contextlib.contextmanager
def short_warnings(wanted: bool) -> Iterator[None]:
    """Print warnings for the user as one line each, without the line of code that raised them."""
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
    """Say on stderr what went wrong, without a traceback where the user can fix it, and choose the exit code."""
    from rl_training.system.error_text import TEXT_LIMIT, message_of, traceback_text
    from rl_training.system.terminal_text import printable

    said = message_of(error, TEXT_LIMIT)
    if isinstance(error, UsageError):
        expected, code = True, EXIT_USAGE
    else:
        from rl_training.types import ConfigError, FollowedError, RLTrainingError

        expected = isinstance(error, RLTrainingError)
        code = EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILURE
        said = without_secrets(said, error)
        if isinstance(error, FollowedError):
            return code
    if code == EXIT_USAGE and launched().local_rank > 0:
        return code  # with torchrun the first process of each host says what all of them find
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
    """A text without secrets. Only errors raised by user code are searched for assignments such as `password=x`."""
    from rl_training.runs.redaction import console_redactor
    from rl_training.types import EnvError, RLTrainingError

    redactor = console_redactor()
    ours = error is None or (isinstance(error, RLTrainingError) and not isinstance(error, EnvError))
    return redactor.values(text) if ours else redactor.traceback(text)
