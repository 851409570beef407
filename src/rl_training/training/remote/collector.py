"""Collectors over runners: one that waits for all of them, and one that takes what has come.

Both do for a trainer what `training.collector.Collector` does in this process. `RemoteCollector` gives the same steps
for any number of runners. `AsyncCollector` keeps runners at work while the learner learns, so what it gives depends
on the clock; how far the acting policy was behind is in its metrics.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from rl_training.training.collector import CollectStats
from rl_training.training.remote.delivery import Delivery, merged
from rl_training.training.remote.fleet import Fleet, RemoteEnvs
from rl_training.training.remote.pool import RunnerLostError, Ticket, Weights
from rl_training.training.remote.runner import Order
from rl_training.types import Metrics, Policy, Progress, StateDict, TransitionSink, VectorStep

IN_FLIGHT = 2
"""Orders that a runner has at a time in asynchronous collection, so that it need not wait for the learner. Where a
batch has a rollout of every environment, those that wait for a slower runner count too: no queue grows."""
MEASURED = 3
"""Rollouts after the first whose times decide on the warning that runners do not pay."""


class RemoteCollector:
    """Every environment takes the ordered steps with the same weights; the slowest runner is waited for."""

    in_order = True

    def __init__(self, fleet: Fleet, policy: Policy, progress: Progress) -> None:
        self.fleet = fleet
        self.policy = policy
        self.progress = progress
        self.env = RemoteEnvs(fleet, in_order=self.in_order)
        self.num_envs = fleet.num_envs
        self.watchers: list[Callable[[VectorStep], None]] = []
        self.costs = Costs()

    def watch(self, look: Callable[[VectorStep], None]) -> None:
        """Show every step to `look` from now on, after it was stored."""
        self.watchers.append(look)

    def collect(self, num_steps: int, sink: TransitionSink, policy: Policy | None = None) -> CollectStats:
        """Take `num_steps` steps in every environment and store them in `sink`."""
        return self.store(self.gather(Order(num_steps, self.progress.env_steps), policy), sink)

    def gather(self, order: Order, policy: Policy | None = None) -> Delivery:
        """What all environments see while they do an order with `policy` as it is now."""
        began = perf_counter()
        self.fleet.open()
        pool = self.fleet.pool
        weights = pool.share((self.policy if policy is None else policy).state_dict())
        broadcast = perf_counter()
        tickets = {pool.send(runner, order, weights): runner for runner in range(len(self.fleet.shares))}
        found: dict[int, Delivery] = {}
        while tickets:
            for ticket in pool.ready(list(tickets)):
                runner = tickets.pop(ticket)
                try:
                    found[runner] = pool.fetch(ticket)
                except RunnerLostError as error:
                    self.fleet.replace(runner, error)
                    tickets[pool.send(runner, order, weights)] = runner
        whole = merged([found[runner] for runner in sorted(found)])
        for runner in found:
            self.fleet.accept(runner, whole.states_of(self.fleet.shares[runner]))
        self.costs.count(began, broadcast, whole)
        return whole

    def store(self, whole: Delivery, sink: TransitionSink) -> CollectStats:
        """Give the steps of a delivery to a sink."""
        sink.begin({}, whole.initial_carry)
        for step in whole.steps():
            sink.store(step)
            for look in self.watchers:
                look(step)
        return self.stats_of(whole)

    def stats_of(self, whole: Delivery) -> CollectStats:
        frames = sum(int(state["collector"].get("env_frames", 0)) for state in self.fleet.states.values())
        counts = {"system/runners": len(self.fleet.shares), "system/lost_runners": self.fleet.lost}
        return CollectStats(
            env_steps=whole.num_steps * len(whole.indices),
            episodes=[ended.episode for ended in whole.episodes],
            acting_seconds=whole.acting_seconds,
            env_seconds=whole.env_seconds,
            env_frames=frames,
            metrics={**self.costs.metrics(), **counts},
        )

    def state_dict(self) -> StateDict:
        """Random stream, carry and counts of every environment, by its index, whatever the number of runners."""
        return {"cells": self.fleet.saved("collector")}

    def load_state_dict(self, state: StateDict, /) -> None:
        self.fleet.load("collector", state["cells"])

    def drop_open_episodes(self) -> None:
        """Every environment starts a new episode; random streams and counts of resets go on."""
        for index, state in self.fleet.states.items():
            self.fleet.states[index] = without_episode(state)


@dataclass
class Costs:
    """Where the time of remote collection goes, and whether it pays."""

    broadcast: float = 0.0
    wall: float = 0.0
    walls: list[float] = field(default_factory=list)
    works: list[float] = field(default_factory=list)
    is_decided: bool = False

    def note(self, began: float, broadcast: float) -> None:
        """Times of a rollout that is complete now: asked for at `began`, its weights sent at `broadcast`."""
        self.broadcast, self.wall = broadcast - began, perf_counter() - broadcast

    def count(self, began: float, broadcast: float, whole: Delivery) -> None:
        self.note(began, broadcast)
        if self.is_decided:
            return
        self.walls.append(self.broadcast + self.wall)
        self.works.append(whole.acting_seconds + whole.env_seconds)
        if len(self.walls) > MEASURED:  # the first one started the runners
            self.is_decided = True
            wall, work = min(self.walls[1:]), min(self.works[1:])
            if work < wall:
                warnings.warn(
                    f"env.collector: ray does not pay here: a rollout takes {1000 * wall:.0f} ms, of which its "
                    f"environments and its policy need {1000 * work:.0f} ms in one process; use env.collector: local",
                    stacklevel=2,
                )

    def metrics(self) -> Metrics:
        return {"time/broadcast_ms": 1000 * self.broadcast, "time/gather_ms": 1000 * self.wall}


def without_episode(state: StateDict) -> StateDict:
    """The state of an environment that begins a new episode next."""
    env = {key: state["env"][key] for key in ("strategy", "env", "reset_count")}
    collector: dict[str, Any] = dict(state["collector"])
    for name, value in (("is_first", True), ("resetting", False), ("returns", 0), ("lengths", 0)):
        array = collector[name].copy()
        array[...] = value
        collector[name] = array
    return {"env": {**env, "open": False}, "collector": collector}


# -- without waiting --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Flight:
    """An order on its way, and the update whose weights act in it."""

    runner: int
    version: int


@dataclass(frozen=True)
class Arrived:
    """What one environment saw, and the update whose weights acted."""

    delivery: Delivery
    version: int


class AsyncCollector(RemoteCollector):
    """Runners always have the next order; a batch is made of what came first.

    With `mixing` it is the oldest rollouts, whichever environments they are of; without, one of each environment in
    order, as a replay buffer needs them.
    """

    in_order = False

    def __init__(
        self, fleet: Fleet, policy: Policy, progress: Progress, *, mixing: bool, max_policy_lag: int | None = None
    ) -> None:
        super().__init__(fleet, policy, progress)
        self.mixing = mixing
        self.max_policy_lag = max_policy_lag
        self.flights: dict[Ticket, Flight] = {}
        self.queue: deque[Arrived] = deque()
        self.ordered: dict[int, int] = {}
        """Steps that each runner was told to take since this process began."""
        self.started_at = 0
        self.dropped = 0
        self.lags: list[int] = []

    def gather(self, order: Order, policy: Policy | None = None) -> Delivery:
        """A batch of `num_envs` rollouts; meanwhile and afterwards runners go on with `policy` as it is now."""
        began = perf_counter()
        self.fleet.open()
        if not self.ordered:
            self.started_at = order.env_steps
        weights = self.fleet.pool.share((self.policy if policy is None else policy).state_dict())
        broadcast = perf_counter()
        self._drop_late()
        self._top_up_all(order, weights)
        while (batch := self._batch()) is None:
            self._receive(order, weights)
        self._top_up_all(order, weights)  # what was taken makes room: runners work while the learner does
        self.costs.note(began, broadcast)
        self.lags = [self.progress.updates - arrived.version for arrived in batch]
        return merged([arrived.delivery for arrived in batch])

    def stats_of(self, whole: Delivery) -> CollectStats:
        stats = super().stats_of(whole)
        stats.metrics.update(
            {
                "rollout/policy_lag_mean": sum(self.lags) / len(self.lags),
                "rollout/policy_lag_max": max(self.lags),
                "system/dropped_rollouts": self.dropped,
            }
        )
        return stats

    def _top_up_all(self, order: Order, weights: Weights) -> None:
        for _ in range(IN_FLIGHT):
            for runner in range(len(self.fleet.shares)):
                self._top_up(runner, order, weights)

    def _top_up(self, runner: int, order: Order, weights: Weights) -> None:
        """Give a runner its next order, unless it has enough of them."""
        ahead = sum(flight.runner == runner for flight in self.flights.values())
        if not self.mixing:  # it waits for the others with what they have not delivered yet
            first = self.fleet.shares[runner][0]
            ahead += sum(arrived.delivery.indices[0] == first for arrived in self.queue)
        if ahead >= IN_FLIGHT:
            return
        done = self.ordered.get(runner, 0)
        self.ordered[runner] = done + order.num_steps
        env_steps = order.env_steps
        if order.env_steps_per_step:  # this order begins where the orders that are still in flight end
            env_steps = self.started_at + done * order.env_steps_per_step
        waits = max(order.warmup_steps * order.env_steps_per_step + order.env_steps - env_steps, 0)
        warmup = -(-waits // order.env_steps_per_step) if order.env_steps_per_step else 0
        own = replace(order, env_steps=env_steps, warmup_steps=warmup)
        self.flights[self.fleet.pool.send(runner, own, weights)] = Flight(runner, self.progress.updates)

    def _receive(self, order: Order, weights: Weights) -> None:
        """Wait for the next deliveries, and order what comes after them."""
        for ticket in self.fleet.pool.ready(list(self.flights)):
            flight = self.flights.pop(ticket, None)
            if flight is None:
                continue  # lost together with its runner
            try:
                delivery = merged([self.fleet.pool.fetch(ticket)])
            except RunnerLostError as error:
                gone = [key for key, other in self.flights.items() if other.runner == flight.runner]
                self.ordered[flight.runner] -= (1 + len(gone)) * order.num_steps
                for key in gone:
                    del self.flights[key]
                self.fleet.replace(flight.runner, error)
            else:
                self.fleet.accept(flight.runner, delivery.states)
                self._keep(delivery, flight)
            for _ in range(IN_FLIGHT):
                self._top_up(flight.runner, order, weights)

    def _keep(self, delivery: Delivery, flight: Flight) -> None:
        self.queue.extend(Arrived(part, flight.version) for part in delivery.single())
        self._drop_late()

    def _drop_late(self) -> None:
        """Drop rollouts beyond `max_policy_lag`: those that come too late, and those that became so in the queue."""
        if self.max_policy_lag is None:
            return
        oldest = self.progress.updates - self.max_policy_lag
        kept = deque(arrived for arrived in self.queue if arrived.version >= oldest)
        self.dropped += len(self.queue) - len(kept)
        self.queue = kept

    def _batch(self) -> list[Arrived] | None:
        """The next batch, if it is complete."""
        if len(self.queue) < self.num_envs:
            return None
        if self.mixing:
            return [self.queue.popleft() for _ in range(self.num_envs)]
        first: dict[int, Arrived] = {}
        for arrived in self.queue:
            first.setdefault(arrived.delivery.indices[0], arrived)
        if len(first) < self.num_envs:
            return None
        taken = [first[index] for index in range(self.num_envs)]
        chosen = {id(arrived) for arrived in taken}
        self.queue = deque(arrived for arrived in self.queue if id(arrived) not in chosen)
        return taken

    def load_state_dict(self, state: StateDict, /) -> None:
        """What was on its way is dropped."""
        super().load_state_dict(state)
        self._forget()

    def drop_open_episodes(self) -> None:
        super().drop_open_episodes()
        self._forget()

    def _forget(self) -> None:
        self.flights, self.ordered = {}, {}
        self.queue.clear()
