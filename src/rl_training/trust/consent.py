"""Whose code may run here: the gate in front of every import, hook and address that a config names.

A config that the user gives (in Python, as a file or as flags) is consent. A config that was found on a disk (in a run
directory, a group, a captured update) is not: `scope` then lasts as long as something of it runs, and `require` refuses
everything that is not part of the package. What is asked for inside of a refusing scope is refused by default, also in
threads that were started meanwhile and, because workers are told the consent they run under, in worker processes.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rl_training.types import TrustError

FLAG = "add --trust-plugins (in Python trust_plugins=True)"
MAX_NAMES, MAX_LENGTH = 5, 100


@dataclass(frozen=True)
class Consent:
    """What may run: everything where the config is the user's `own` or the user `trusted` it; built-in parts if not."""

    level: Literal["own", "trusted", "none"]
    subject: str = "this config"
    """What the config belongs to, for messages."""

    def refusal(self, names: Iterable[str]) -> TrustError:
        """The one sentence for code that nobody agreed to."""
        shown = [_readable(name) for name in names]
        more = [f"and {len(shown) - MAX_NAMES} more"] if len(shown) > MAX_NAMES else []
        return TrustError(
            f"{self.subject} was not made here, or changed since, and asks for what is not part of rl_training "
            f"({', '.join([*shown[:MAX_NAMES], *more])}); nothing of it was executed; if you trust it, {FLAG}"
        )


OWN = Consent("own")
_consent: ContextVar[Consent | None] = ContextVar("consent", default=None)
_refusing: list[Consent] = []
"""The refusing scopes that are open in this process, for threads that were started without a context."""
_lock = threading.Lock()


def current() -> Consent:
    """The consent that holds here."""
    inside = _consent.get()
    if inside is not None:
        return inside
    if threading.current_thread() is threading.main_thread():  # nothing else can have started it
        return OWN
    with _lock:
        return _refusing[-1] if _refusing else OWN


@contextmanager
def scope(consent: Consent) -> Iterator[None]:
    """Inside, `consent` decides."""
    token = _consent.set(consent)
    try:
        with _refusal(consent) if consent.level == "none" else nullcontext():
            yield
    finally:
        _consent.reset(token)


@contextmanager
def _refusal(consent: Consent) -> Iterator[None]:
    """What a refusing scope does to the whole process. The working directory, which `rl` and `python -m` put on the
    search path, may be a folder that somebody sent: no library is taken from there, and no plugin is looked for."""
    with _lock:
        _refusing.append(consent)
        kept = [entry for entry in sys.path if not _is_working_directory(entry)]
        left_out = [(place, entry) for place, entry in enumerate(sys.path) if _is_working_directory(entry)]
        sys.path[:] = kept
    try:
        yield
    finally:
        with _lock:
            _refusing.remove(consent)
            for place, entry in left_out:
                sys.path.insert(place, entry)


def _is_working_directory(entry: str) -> bool:
    package = str(Path(__file__).resolve().parents[2])
    here = os.path.abspath(entry or os.curdir)
    return here == os.getcwd() and here != package


@contextmanager
def given_by_user() -> Iterator[None]:
    """Inside, the user's own config runs; but what a stored config has begun stays under its consent."""
    with scope(_consent.get() or OWN):
        yield


def require(what: str, name: str) -> None:
    """Refuse `name`, which is not part of the package, where nobody has agreed to it: TrustError."""
    consent = current()
    if consent.level == "none":
        raise consent.refusal([f"{what} {name}"])


def _readable(text: str) -> str:
    """A name from somebody's file without anything that a terminal would obey."""
    plain = "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
    return plain if len(plain) <= MAX_LENGTH else f"{plain[: MAX_LENGTH - 3]}..."
