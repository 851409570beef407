"""Imports of large libraries, made a little quicker."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Around imports: what they make stays, and Python's repeated search in it for unused cycles takes a fifth of the
    time. Not for longer: environments make such cycles, and their memory would not come back."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
