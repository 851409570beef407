"""Runs over several devices: the program of one device, on each of them, without any exchange.

Each device advances as many runs as a program holds (`training.runs_per_program`) by the same machine code, so a run
has the same bits on any number of devices. (One program over a mesh is compiled in another way; its last bits differ.)
A run stays on its device between two chunks. Only devices of this process are used: of several processes
(`jax.distributed`) each trains its own runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from rl_training.jax.programs.disk_cache import Program


def spread_devices() -> list[Any]:
    """The devices over which runs are spread: all of this process, or the one that the config names."""
    chosen = jax.config.values["jax_default_device"]
    return jax.local_devices() if chosen is None else [chosen]


class DeviceSpread:
    """Advances up to `each` runs on each of `devices`."""

    def __init__(
        self, together: Callable[..., Any], each: int, devices: Sequence[Any], description: str | None
    ) -> None:
        """`together` takes a tuple of `each` runs and a count, and returns what each of them leads to."""
        self.each, self.devices = each, list(devices)
        if len(self.devices) == 1:
            self.programs = [Program(together, description)]
        else:
            self.programs = [Program(together, description, devices=[device]) for device in devices]

    def __call__(self, runs: Sequence[Any], count: Any) -> list[Any]:
        """What the runs lead to, in their order."""
        order = sorted(range(len(runs)), key=lambda i: place_of(runs[i]))
        shares = [order[begin : begin + self.each] for begin in range(0, len(order), self.each)]

        def advance(number: int) -> Any:
            share = [runs[i] for i in shares[number]]
            filled = (*share, *[share[0]] * (self.each - len(share)))
            here = filled if len(self.devices) == 1 else jax.device_put(filled, self.devices[number])
            return self.programs[number](here, count)

        # accelerators take a program and return at once, so all of them work at the same time
        advanced = [advance(number) for number in range(len(shares))]
        found: dict[int, Any] = {}
        for share, several in zip(shares, advanced, strict=True):
            found |= zip(share, several, strict=False)  # the results of copies are dropped
        return [found[i] for i in range(len(runs))]


def place_of(run: Any) -> int:
    """The number of the device that a run was on, so that it stays there; 0 for a new one."""
    leaf = jax.tree.leaves(run)[0]
    return min(device.id for device in leaf.devices()) if isinstance(leaf, jax.Array) else 0
