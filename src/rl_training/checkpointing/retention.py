"""Which checkpoints of a run are kept: the newest, the best, and one per fixed number of env steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rl_training.types import ConfigError


@dataclass(frozen=True)
class Retention:
    """The rules of `checkpoint:` in a config."""

    keep_last: int = 3
    """This many of the newest intact checkpoints, 2 or more."""
    keep_best: bool = True
    """The checkpoint that `best` names."""
    keep_every: int = 0
    """The first checkpoint of every this many env steps; 0 keeps none."""

    def __post_init__(self) -> None:
        if self.keep_last < 2:
            raise ConfigError(
                f"checkpoint.keep_last is {self.keep_last}; at least 2, so that there is one to fall back on"
            )
        if self.keep_every < 0:
            raise ConfigError(f"checkpoint.keep_every is {self.keep_every}; it counts env steps, 0 turns it off")

    def kept(self, steps: Sequence[int], best: int | None, is_intact: Callable[[int], bool]) -> set[int]:
        """The steps to keep out of `steps`, oldest first. Only intact checkpoints count towards `keep_last`, so two
        that load always remain."""
        keep: set[int] = set()
        good = 0
        for step in reversed(steps):
            if good == self.keep_last:
                break
            keep.add(step)
            good += is_intact(step)
        if self.keep_best and best is not None:
            keep.add(best)
        if self.keep_every:
            firsts: dict[int, int] = {}
            for step in steps:
                firsts.setdefault(step // self.keep_every, step)
            keep.update(firsts.values())
        return keep
