"""Whether a saved replay buffer can be loaded into the one at hand; a refusal says what to change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rl_training.types import CheckpointError, StateDict


class RingFormat(NamedTuple):
    """What two replay buffers must have in common for one to load the state of the other."""

    columns: Mapping[str, str]
    """Column name to dtype and shape."""
    capacity: int
    num_envs: int
    is_prioritized: bool

    def check(self, saved: StateDict, *, may_resize: bool) -> None:
        """Raise CheckpointError unless `saved`, the state of a replay buffer, fits; capacities may differ if
        `may_resize`."""
        for name, mine in self.columns.items():
            theirs = saved["layout"].get(name, "nothing")
            if theirs != mine:
                raise CheckpointError(
                    f"saved '{name}' is {theirs}, this run needs {mine}: the checkpoint belongs to another environment "
                    "or buffer"
                )
        if saved["capacity"] != self.capacity and not may_resize:
            raise CheckpointError(
                f"the saved replay buffer holds {saved['capacity']:,} transitions, this one {self.capacity:,}: "
                "resume with the same buffer.size"
            )
        if saved["num_envs"] != self.num_envs:
            raise CheckpointError(
                f"the saved replay buffer has rows of {saved['num_envs']} environments, this one of {self.num_envs}: "
                "resume with the same env.num_envs"
            )
        if ("priorities" in saved) != self.is_prioritized:
            kinds = ("uniform", "prioritised")
            theirs, mine = kinds["priorities" in saved], kinds[self.is_prioritized]
            raise CheckpointError(f"the saved replay buffer is {theirs}, this one {mine}: resume with the same buffer")
