"""Messages about unexpected exceptions: which code raised them, where, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import re
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path

from rl_training.system.error_text import MESSAGE_LIMIT, message_of, shortened, traceback_text
from rl_training.types import CheckpointError, RunError

PACKAGE = str(Path(__file__).resolve().parents[1])
STANDARD = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\](?P<package>[^/\\.]+)")
MODULES = {
    "jax": ("jax", "jaxlib"),
    "atari": ("ale_py", "cv2"),
    "mujoco": ("mujoco",),
    "dm-control": ("dm_control", "shimmy"),
    "box2d": ("Box2D",),
    "classic": ("pygame",),
    "minigrid": ("minigrid",),
    "video": ("imageio", "imageio_ffmpeg"),
    "analysis": ("pandas", "scipy", "matplotlib", "duckdb"),
    "tracking": ("wandb",),
    "tune": ("optuna",),
}
"""Extra to the modules that it installs."""
SAID = 500
"""Characters of an exception's own text in the sentence about it."""
DEPENDENCIES = frozenset(
    {"torch", "numpy", "gymnasium", "pydantic", "pydantic_core", "yaml", "psutil", "safetensors", "rich", "tensorboard"}
).union(*MODULES.values())
"""Libraries that the package calls itself: an exception raised inside one of them is counted as its caller's."""


@dataclass(frozen=True)
class Origin:
    """The code outside the package that raised an exception."""

    whose: str
    """`your own code`, or the name of an installed package."""
    file: str
    line: int
    function: str
    trace: str
    """The traceback from the first frame outside the package on."""


def origin_of(error: BaseException) -> Origin | None:
    """Where an exception was raised, if that is outside this package and its dependencies."""
    frames = list(traceback.extract_tb(error.__traceback__))
    owners = [_owner(frame.filename) for frame in frames]
    decisive = [number for number, owner in enumerate(owners) if owner is not None]
    if isinstance(error, SyntaxError) and error.filename and _owner(error.filename) not in (None, PACKAGE):
        return Origin(str(_owner(error.filename)), error.filename, error.lineno or 0, "", _last(error))
    if not decisive or owners[decisive[-1]] == PACKAGE:
        return None
    last = frames[decisive[-1]]
    ours = max((number for number in decisive if owners[number] == PACKAGE), default=-1)
    first = next(number for number in decisive if number > ours)
    way = ["Traceback (most recent call last):\n", *traceback.format_list(frames[first:])]
    return Origin(str(owners[decisive[-1]]), last.filename, last.lineno or 0, last.name, "".join(way) + _last(error))


def failure_text(error: BaseException, *, whole: bool = False) -> tuple[str, str]:
    """An unexpected exception: its traceback and one sentence. `whole`: with the frames of this package too."""
    everything = traceback_text(error)
    origin = origin_of(error)
    if origin is None:
        ask = "this is a fault of rl_training; please report it with the lines above and the command"
        return everything, f"unexpected {type(error).__name__}; {ask}"
    where = f"{origin.file}, line {origin.line}" + (f" ({origin.function})" if origin.function else "")
    said = message_of(error, SAID).strip().split("\n")[0]
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    hint = "" if whole or origin.function == "" else "; --traceback shows the whole way there"
    return everything if whole else origin.trace, f"{what}, raised in {origin.whose}, {where}{hint}"


def cause_text(error: BaseException) -> str:
    """The short traceback of code outside this package that caused an expected error; "" without one.

    An OSError while a run is read or written is the answer of the operating system, not a fault of any code.
    """
    cause = error.__cause__
    is_answer = isinstance(cause, OSError) and isinstance(error, RunError | CheckpointError)
    origin = None if cause is None or is_answer else origin_of(cause)
    return "" if origin is None else origin.trace


def _last(error: BaseException) -> str:
    """The last line of Python's report of an exception, shortened."""
    try:
        lines = traceback.format_exception_only(error)
    except Exception:  # code of the error itself
        lines = [f"{type(error).__name__}: {message_of(error)}\n"]
    return "".join(shortened(line, MESSAGE_LIMIT, tail=0.0) for line in lines)


def missing_module(error: BaseException) -> str | None:
    """What to install where a module is missing that this package needs; None for any other error."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or origin_of(error) is not None:
        return None
    module = error.name.split(".")[0]
    extra = next((extra for extra, modules in MODULES.items() if module in modules), None)
    if extra is None and module not in DEPENDENCIES:
        return None
    package = f"'rl-training[{extra}]'" if extra else "rl-training"
    return f"the module '{module}' is missing: pip install {package}"


def _owner(file: str) -> str | None:
    """The package that a file belongs to, `your own code`, or None for Python itself and for our dependencies."""
    if file.startswith("<"):
        return None
    path = str(Path(file).resolve())
    if path.startswith(PACKAGE):
        return PACKAGE
    if found := INSTALLED.search(path):
        package = found["package"]
        return None if package in DEPENDENCIES else f"the installed package '{_distribution(package)}'"
    return None if path.startswith(STANDARD) else "your own code"


def _distribution(package: str) -> str:
    return importlib.metadata.packages_distributions().get(package, [package])[0]
