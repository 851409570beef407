"""Consent gate: checks every import, hook and address that a config names before it is used.

A config that the user gives (in Python, as a file or as flags) is trusted. A config found on disk (in a run directory,
a group, a captured update) may be untrusted: it then runs inside a refusing `scope`, in which `require` refuses
everything that is not part of the package. The scope also holds in threads started meanwhile and, because the consent
is sent to them, in worker processes.
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

from rl_training.system.terminal_text import printable
from rl_training.types import TrustError

FLAG = "add --trust-plugins (in Python trust_plugins=True)"
MAX_NAMES, MAX_LENGTH = 5, 100


@dataclass(frozen=True)
class Consent:
    """What may run: everything if the config is the user's `own` or `trusted` by the user, else built-in parts only."""

    level: Literal["own", "trusted", "none"]
    subject: str = "this config"
    """The run, group or file of the config, for messages."""

    def refusal(self, names: Iterable[str]) -> TrustError:
        """TrustError that lists the names the user has not consented to."""
        shown = [_readable(name) for name in names]
        more = [f"and {len(shown) - MAX_NAMES} more"] if len(shown) > MAX_NAMES else []
        return TrustError(
            f"{self.subject} was not made here, or changed since, and asks for what is not part of rl_training "
            f"({', '.join([*shown[:MAX_NAMES], *more])}); nothing of it was executed; if you trust it, {FLAG}"
        )


OWN = Consent("own")
_consent: ContextVar[Consent | None] = ContextVar("consent", default=None)
_refusing: list[Consent] = []
"""Refusing scopes that are open in this process, for threads, which start without a context."""
_lock = threading.Lock()


def current() -> Consent:
    """The consent in force in this thread."""
    inside = _consent.get()
    if inside is not None:
        return inside
    if threading.current_thread() is threading.main_thread():  # never started from inside a scope
        return OWN
    with _lock:
        return _refusing[-1] if _refusing else OWN


@contextmanager
def scope(consent: Consent) -> Iterator[None]:
    """Everything inside runs under `consent`."""
    token = _consent.set(consent)
    try:
        with _refusal(consent) if consent.level == "none" else nullcontext():
            yield
    finally:
        _consent.reset(token)


@contextmanager
def _refusal(consent: Consent) -> Iterator[None]:
    """Effects of a refusing scope on the whole process. The working directory, which `rl` and `python -m` put on the
    module search path, may be untrusted itself: it is left out, for libraries and for plugins."""
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
    """Everything inside runs under the user's own consent, unless a scope is open already: that one stays in force."""
    with scope(_consent.get() or OWN):
        yield


def require(what: str, name: str) -> None:
    """TrustError if the consent in force does not allow `name`, which is not part of the package."""
    consent = current()
    if consent.level == "none":
        raise consent.refusal([f"{what} {name}"])


def _readable(text: str) -> str:
    """An untrusted name, safe to print and not too long."""
    plain = printable(text)
    return plain if len(plain) <= MAX_LENGTH else f"{plain[: MAX_LENGTH - 3]}..."
