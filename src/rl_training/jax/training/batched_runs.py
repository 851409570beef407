"""Runs that take their chunks together: the loops of several as one vmapped program, for accelerators.

Each run stays what it is, a trainer in a thread with its own directory. Only the call of the program is shared: whoever
comes last makes it for all. Where a run has ended or failed, a copy of another takes its place, so that the program,
and with it every bit of the others, stays the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.programs.disk_cache import Program

Advanced = tuple[Any, Any]
"""A loop after some rollouts, and their record."""


class Together:
    """Where up to `width` runs meet; a chunk is as long as the shortest that one of them asks for."""

    def __init__(self, chunk: Callable[[Any, Any, Any], Advanced], width: int, description: str | None = None) -> None:
        def together(runs: tuple[tuple[Any, Any], ...], count: Any) -> tuple[Advanced, ...]:
            loops, times = jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs)
            advanced = jax.vmap(chunk, in_axes=(0, None, 0))(loops, count, times)
            return tuple(jax.tree.map(lambda leaf, i=i: leaf[i], advanced) for i in range(width))

        self.width = width
        self.program = Program(together, description)
        self.lock = threading.Lock()
        self.members = 0
        self.waiting: list[tuple[tuple[Any, Any], int, Future[Advanced]]] = []

    def join(self) -> None:
        """One more run takes part: the others wait for it."""
        with self.lock:
            self.members += 1

    def leave(self) -> None:
        with self.lock:
            self.members -= 1
            self._go()

    def chunk(self, loop: Any, count: Any, times: Any) -> Advanced:
        """The loop after at most `count` rollouts, as soon as the others have come here too; `times` are its own."""
        result: Future[Advanced] = Future()
        with self.lock:
            self.waiting.append(((loop, times), int(count), result))
            self._go()
        return result.result()

    def _go(self) -> None:
        """Advance those who wait, if nobody is missing."""
        if not self.waiting or len(self.waiting) < min(self.members, self.width):
            return
        runs, counts, results = zip(*self.waiting, strict=True)
        self.waiting = []
        try:
            copies = [runs[0]] * (self.width - len(runs))
            advanced = self.program((*runs, *copies), np.int32(min(counts)))
        except Exception as error:  # who asked is told, whoever made the call
            for result in results:
                result.set_exception(error)
            return
        for result, one in zip(results, advanced, strict=False):  # copies go unasked for
            result.set_result(one)


def is_accelerated() -> bool:
    """Whether programs run on something else than the CPU."""
    return jax.default_backend() != "cpu"
