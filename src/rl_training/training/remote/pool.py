"""The contract of a pool of runners: where they are, how orders reach them, and what happens when one is lost.

`InlinePool` keeps them in this process. It is what a plan of a run and tests without a cluster use; the pool of a Ray
cluster is `distributed/ray_runners.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from rl_training.training.remote.delivery import Delivery, copied
from rl_training.training.remote.runner import Order, Runner
from rl_training.types import RLTrainingError, StateDict

MakeRunner = Callable[[Sequence[int]], Runner]
"""Builds the runner of the environments with these indices; called where the runner is to be."""
Weights = Any
"""The state of a policy, where every runner can read it."""
Ticket = Any
"""An order that was sent, hashable."""


class RunnerLostError(RLTrainingError):
    """The process or the node of a runner is gone."""


class RunnerPool(Protocol):
    """Runners, numbered from 0. Each does one order after the other."""

    def connect(self) -> int:
        """Find the place where runners are to be; returns how many may run there at a time. Called once, first."""

    def start(self, shares: Sequence[Sequence[int]], states: Mapping[int, StateDict]) -> None:
        """Start a runner for each share of the environments, with the states that they have; called once."""

    def restore(self, states: Mapping[int, StateDict]) -> None:
        """Bring the environments of running runners to other states."""

    def share(self, state: StateDict) -> Weights:
        """Put the state of a policy where all runners can read it; it is gone with the last order that uses it."""

    def send(self, runner: int, order: Order, weights: Weights) -> Ticket:
        """Order a rollout or block; returns at once."""

    def ready(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Wait until at least one has ended; returns all that have, in the given order."""

    def fetch(self, ticket: Ticket) -> Delivery:
        """What was collected; RunnerLostError, or the error of an environment or policy. Frees what holds it."""

    def replace(self, runner: int, states: Mapping[int, StateDict]) -> None:
        """Start another runner in place of one that was lost; its other orders are lost with it. RunnerLostError if it
        is lost before it has begun."""

    def close(self) -> None:
        """End all runners. May be called without `start`, and twice."""


class InlinePool:
    """Runners in this process, which work when they are waited for."""

    def __init__(self, make: MakeRunner, size: int = 1) -> None:
        self.make, self.size = make, size
        self.shares: list[list[int]] = []
        self.runners: list[Runner] = []
        self.waiting: deque[tuple[int, int, Order, Weights]] = deque()
        self.sent = 0

    def connect(self) -> int:
        return self.size

    def start(self, shares: Sequence[Sequence[int]], states: Mapping[int, StateDict]) -> None:
        self.shares = [list(share) for share in shares]
        self.runners = [self.make(share) for share in shares]
        self.restore(states)

    def restore(self, states: Mapping[int, StateDict]) -> None:
        for runner in self.runners:
            runner.restore(states)

    def share(self, state: StateDict) -> Weights:
        return copied(state)  # as they are now: orders may wait while the learner goes on

    def send(self, runner: int, order: Order, weights: Weights) -> Ticket:
        self.sent += 1
        self.waiting.append((self.sent, runner, order, weights))
        return self.sent

    def ready(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        return [min(tickets)]

    def fetch(self, ticket: Ticket) -> Delivery:
        job = next(job for job in self.waiting if job[0] == ticket)
        self.waiting.remove(job)
        _, runner, order, weights = job
        return self.runners[runner].collect(order, weights)

    def replace(self, runner: int, states: Mapping[int, StateDict]) -> None:
        self.waiting = deque(job for job in self.waiting if job[1] != runner)
        self.runners[runner].close()
        self.runners[runner] = self.make(self.shares[runner])
        self.runners[runner].restore(states)

    def close(self) -> None:
        for runner in self.runners:
            runner.close()
        self.runners = []


def shares_of(num_envs: int, runners: int) -> list[list[int]]:
    """Environments in order, as evenly as possible over at most `num_envs` runners.

    >>> shares_of(5, 2)
    [[0, 1, 2], [3, 4]]
    """
    runners = min(runners, num_envs)
    size, longer = divmod(num_envs, runners)
    starts = [k * size + min(k, longer) for k in range(runners + 1)]
    return [list(range(starts[k], starts[k + 1])) for k in range(runners)]
