"""Several runs advanced by one vmapped program, for accelerators; over all devices of the process (`device_spread.py`).

Each run remains a trainer in its own thread with its own directory. Only the call of the program is shared: the last
thread to arrive makes it for all. A run that has ended or failed is replaced by a copy of another, so that the program,
and with it every bit of the other runs, stays the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rl_training.jax.training.device_spread import DeviceSpread, spread_devices

Advanced = tuple[Any, Any]
"""A loop after some rollouts, and their record."""


class BatchedRuns:
    """Joins the calls of up to `width` runs, on each of several devices, into one; a chunk is as long as the shortest
    that any of them requests."""

    def __init__(self, chunk: Callable[[Any, Any, Any], Advanced], width: int, description: str | None = None) -> None:
        def together(runs: tuple[tuple[Any, Any], ...], count: Any) -> tuple[Advanced, ...]:
            loops, times = jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs)
            advanced = jax.vmap(chunk, in_axes=(0, None, 0))(loops, count, times)
            return tuple(jax.tree.map(lambda leaf, i=i: leaf[i], advanced) for i in range(width))

        devices = spread_devices()
        self.program = DeviceSpread(together, width, devices, description)
        self.most = width * len(devices)
        """Runs that are advanced together at most."""
        self.lock = threading.Lock()
        self.members = 0
        self.waiting: list[tuple[tuple[Any, Any], int, Future[Advanced]]] = []

    def join(self) -> None:
        """Add a run; the others wait for its calls from now on."""
        with self.lock:
            self.members += 1

    def leave(self) -> None:
        """Remove a run; the others no longer wait for it."""
        with self.lock:
            self.members -= 1
            self._go()

    def chunk(self, loop: Any, count: Any, times: Any) -> Advanced:
        """The loop after at most `count` rollouts; blocks until all other runs have called it too."""
        result: Future[Advanced] = Future()
        with self.lock:
            self.waiting.append(((loop, times), int(count), result))
            self._go()
        return result.result()

    def _go(self) -> None:
        """Advance the waiting runs, if no run is missing."""
        if not self.waiting or len(self.waiting) < min(self.members, self.most):
            return
        runs, counts, results = zip(*self.waiting, strict=True)
        self.waiting = []
        try:
            advanced = self.program(runs, np.int32(min(counts)))
        except Exception as error:  # passed to all waiting threads, not only to the one that made the call
            for result in results:
                result.set_exception(error)
            return
        for result, one in zip(results, advanced, strict=True):
            result.set_result(one)


def is_accelerated() -> bool:
    """Whether programs run on an accelerator instead of the CPU."""
    return jax.default_backend() != "cpu"
