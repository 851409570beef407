"""Whether this process is one of several that torchrun started for one run: read from its environment variables."""

from __future__ import annotations

import os
from typing import NamedTuple

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun tells the processes that it starts."""


class Launch(NamedTuple):
    """The place of this process among those of its run."""

    rank: int = 0
    """Number of this process; 0 is the one that writes the run directory."""
    ranks: int = 1
    """Number of processes."""
    local_rank: int = 0
    """Number of this process on its host: the GPU that it takes."""


def launched() -> Launch:
    """The place of this process; the only one of its run where nothing says otherwise."""
    if not all(os.environ.get(name) for name in VARIABLES):
        return Launch()
    try:
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return Launch(rank, ranks, int(os.environ.get("LOCAL_RANK", rank)))
    except ValueError:
        return Launch()


def leads() -> bool:
    """Whether this process speaks for its run: with torchrun only the first one prints what concerns all of them."""
    return launched().rank == 0
