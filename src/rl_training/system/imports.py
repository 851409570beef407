"""Imports that cost less: without garbage collection, or only when a name is first used."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
