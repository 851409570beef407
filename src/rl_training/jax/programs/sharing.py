"""Functions and compiled programs shared by the runs of one process: many seeds and grid points compile once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from rl_training.hparams.schedules import Schedule

T = TypeVar("T")

_made: dict[str, Any] = {}
_lock = threading.Lock()


def shared(key: str, make: Callable[[], T]) -> T:
    """The result of `make()`, called once per key in this process."""
    with _lock:
        if key not in _made:
            _made[key] = make()
        made: T = _made[key]
        return made


def fingerprint(*parts: Any) -> str:
    """A key that is equal for equal descriptions of a program: their `repr`, with arrays printed completely."""
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        return repr(parts)


def shape_of(hparams: Any, leaves: Iterable[str]) -> dict[str, Any]:
    """The part of the hyperparameters that determines a program: of those in `leaves`, only whether they are set and
    the type of their schedule."""
    values = {f.name: getattr(hparams, f.name) for f in fields(hparams)} if is_dataclass(hparams) else dict(hparams)
    for name in leaves:
        value = values.get(name)
        values[name] = value.type if isinstance(value, Schedule) else value is not None
    return values
