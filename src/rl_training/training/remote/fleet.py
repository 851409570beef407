"""The runners of a run, with the last known state of each of its environments: opening, losing, resuming them.

States are kept by the index of the environment, so a checkpoint does not say how many runners there were, and a run
goes on with any other number of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from rl_training.envs.episode_log import check_num_envs
from rl_training.system.error_text import describe
from rl_training.training.remote.pool import RunnerLostError, RunnerPool, shares_of
from rl_training.types import RunError, StateDict

MAX_LOSSES = 3
"""Losses of one runner without a delivery in between after which the run ends: its environments may be the cause."""


class Fleet:
    """Opened by the first order; `states` are those at the last boundary between rollouts or blocks."""

    def __init__(self, pool: RunnerPool, num_envs: int, runners: int | None, *, exact: bool) -> None:
        self.pool = pool
        self.num_envs = num_envs
        self.wanted = runners
        self.exact = exact
        """Whether the environments can go on where they were left."""
        self.shares: list[list[int]] = []
        self.states: dict[int, StateDict] = {}
        self.lost = 0
        """Runners that were lost and replaced since the start of this process."""
        self._losses: dict[int, int] = {}
        self._room: int | None = None
        self._stale = False

    def connect(self) -> None:
        """Find the cluster now, before anything else of the run begins."""
        if self._room is None:
            self._room = self.pool.connect()

    def open(self) -> None:
        """Start the runners, or bring those that run to the states of a checkpoint that was loaded since."""
        if not self.shares:
            self.connect()
            assert self._room is not None
            self.shares = shares_of(self.num_envs, self.wanted or max(self._room, 1))
            self.pool.start(self.shares, self.states)
        elif self._stale:
            self.pool.restore(self.states)
        self._stale = False

    def accept(self, runner: int, states: Mapping[int, StateDict]) -> None:
        """Remember where the environments of a runner were left by what it delivered."""
        self._losses.pop(runner, None)
        self.states.update(states)

    def replace(self, runner: int, error: RunnerLostError) -> None:
        """Start another runner from the last boundary; RunError where that cannot give the same run. One that is lost
        before it has begun, with the same node perhaps, is replaced again."""
        while True:
            self._count_loss(runner, error)
            try:
                states = {index: self.states[index] for index in self.shares[runner] if index in self.states}
                return self.pool.replace(runner, states)
            except RunnerLostError as again:
                error = again

    def _count_loss(self, runner: int, error: RunnerLostError) -> None:
        """Say that a runner was lost; RunError if the run cannot go on without it."""
        self.lost += 1
        self._losses[runner] = self._losses.get(runner, 0) + 1
        indices = self.shares[runner]
        named = f"runner {runner} with the environments {indices[0]} to {indices[-1]}"
        if not self.exact:
            raise RunError(
                f"{named} was lost ({error}), and its environments cannot go on where they were left (they restart "
                "at a resume): `rl resume` goes on from the last checkpoint"
            ) from error
        if self._losses[runner] >= MAX_LOSSES:
            raise RunError(
                f"{named} was lost {MAX_LOSSES} times in a row ({error}); does one of them crash its process? Try "
                "env.collector: local"
            ) from error
        warnings.warn(f"{named} was lost ({describe(error)}); another one goes on from the last boundary", stacklevel=3)

    def load(self, kind: str, states: Mapping[str, StateDict]) -> None:
        """Take over the `env` or `collector` states of a checkpoint, by index."""
        self._stale = True
        if not states:  # saved before the first step: environments are new
            self.states = {}
            return
        for index, state in states.items():
            self.states.setdefault(int(index), {})[kind] = state

    def saved(self, kind: str) -> StateDict:
        return {str(index): self.states[index][kind] for index in sorted(self.states)}

    def close(self) -> None:
        self.pool.close()


class RemoteEnvs:
    """The environments of a run as a part of its checkpoint; see `training.host.ResumableEnv`."""

    def __init__(self, fleet: Fleet, *, in_order: bool) -> None:
        self.fleet = fleet
        self.in_order = in_order
        """Whether what is learnt from does not depend on which runner is faster."""

    @property
    def exact(self) -> bool:
        return self.fleet.exact and self.in_order

    def close(self) -> None:
        self.fleet.close()

    def state_dict(self) -> StateDict:
        return {"num_envs": self.fleet.num_envs, "envs": self.fleet.saved("env")}

    def load_state_dict(self, state: StateDict, /) -> None:
        check_num_envs(state, self.fleet.num_envs)
        self.fleet.load("env", state["envs"])
