"""Imports that cost less: without garbage collection, or only when a name is first used."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def without_collections() -> Iterator[None]:
    """Pause the garbage collector while importing: imported objects are permanent, and collecting them costs a fifth of
    the import time. Only for imports: environments create reference cycles, whose memory would not be freed."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for the `__init__.py` of a package: a name is imported from its module when it is first used."""

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return get
