"""Calls of environments that are under way in this process: constructors, resets and steps, for the watchdog.

Noting a call costs the training loop two assignments; everything else is done by who asks.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol


class Call(NamedTuple):
    """One call of one environment. The next call of the same method is another one."""

    env_index: int
    """Of the environment, among those of the run."""
    name: str
    """Of the environment."""
    doing: str
    """What is called, such as "step()"."""
    identity: tuple[object, ...]
    """What differs from call to call."""


class Caller(Protocol):
    """An environment that says what it is being asked to do."""

    def call_under_way(self) -> Call | None: ...


_environments: list[weakref.ref[Caller]] = []
_constructors: dict[int, Call] = {}
_lock = threading.Lock()
"""For the two above; never held while an environment works."""


def register(environment: Caller) -> None:
    """From now on `calls_under_way` asks this environment, as long as it exists."""
    with _lock:
        _environments[:] = [reference for reference in _environments if reference() is not None]
        _environments.append(weakref.ref(environment))


@contextmanager
def constructing(index: int, name: str) -> Iterator[None]:
    """Inside, the constructor of an environment is under way."""
    mark = object()
    with _lock:
        _constructors[id(mark)] = Call(index, name, "its constructor", (id(mark),))
    try:
        yield
    finally:
        with _lock:
            del _constructors[id(mark)]


def calls_under_way() -> set[Call]:
    """What the environments of this process are doing now, in whatever thread."""
    with _lock:
        found = set(_constructors.values())
        environments = [reference() for reference in _environments]
    calls = (environment.call_under_way() for environment in environments if environment is not None)
    return found | {call for call in calls if call is not None}
