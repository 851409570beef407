"""Steps as they were collected, in order, until they are stored elsewhere: what `env.overlap` collects for replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rl_training.types import Array, Carry, Obs, StateDict, VectorStep

_COLUMNS = ("obs", "actions", "rewards", "terminated", "truncated", "is_first", "valid", "next_obs", "extras")


class StepBlock:
    """A block of steps of N environments, and how many env steps and episodes each of them counted."""

    def __init__(self) -> None:
        self.steps: list[VectorStep] = []
        self.counts: list[tuple[int, int]] = []
        """(env steps, finished episodes) of each step."""

    def clear(self) -> None:
        """Start a new block."""
        self.steps, self.counts = [], []

    def begin(self, obs: Obs, carry: Carry) -> None:
        """Nothing to do: steps are collected one by one, and `clear` starts a block."""

    def store(self, step: VectorStep) -> None:
        """Keep a copy of one step of all environments."""
        self.steps.append(VectorStep(**{name: _mapped(np.array, getattr(step, name)) for name in _COLUMNS}))

    def count(self, env_steps: int, episodes: int) -> None:
        """Count the latest step."""
        self.counts.append((env_steps, episodes))

    def state_dict(self) -> StateDict:
        """Each column of all steps in one array (T, N, ...)."""
        columns = {name: _stacked([getattr(step, name) for step in self.steps]) for name in _COLUMNS}
        return {**columns, "counts": np.array(self.counts, np.int64)}

    def load_state_dict(self, state: StateDict, /) -> None:
        self.counts = [(int(env_steps), int(episodes)) for env_steps, episodes in state["counts"]]
        self.steps = [
            VectorStep(**{name: _mapped(lambda column: column[t].copy(), state[name]) for name in _COLUMNS})  # noqa: B023
            for t in range(len(self.counts))
        ]


def _mapped(function: Callable[[Any], Array], tree: Any) -> Any:
    return {key: function(leaf) for key, leaf in tree.items()} if isinstance(tree, dict) else function(tree)


def _stacked(trees: list[Any]) -> Any:
    if isinstance(trees[0], dict):
        return {key: np.stack([tree[key] for tree in trees]) for key in trees[0]}
    return np.stack(trees)
