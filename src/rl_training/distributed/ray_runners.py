"""`RayRunners`: the runners of one run as actors of a Ray cluster (`env.collector: ray`).

Weights are put into the object store once per rollout; what runners deliver comes back through it and is freed as soon
as it was merged. An actor that is gone, for whatever reason, is reported as lost: the run decides what follows. Ray is
imported by `connect`, in the process that trains.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.distributed.last_words import LastWords
from rl_training.distributed.local_cluster import find_address
from rl_training.distributed.local_node import LOOPBACK, keep_loopback
from rl_training.distributed.ray_driver import is_reachable, require_cluster
from rl_training.distributed.ray_executor import require_ray
from rl_training.training.remote.delivery import Delivery, sent_once
from rl_training.training.remote.pool import MakeRunner, RunnerLostError, Ticket, Weights
from rl_training.training.remote.runner import Order, Runner
from rl_training.trust.consent import Consent, current, scope
from rl_training.types import EnvError, RLTrainingError, RunError, StateDict

START_SECONDS = 120.0
"""How long a runner may wait for a free CPU and build its environments."""
LOOK_SECONDS = 2.0
"""Between two looks at the head of the cluster while deliveries are waited for."""
MISSES = 2
"""Failed connections to the head in a row after which the cluster counts as gone."""
RUNNERS_CURE = "or set RAY_ADDRESS=HOST:PORT for yours"
ENDED = (
    "error: this process was ended from outside, by a signal or by Ray, which ends it at once when the node of the "
    "cluster that it is connected to is gone; the last checkpoint stands, and `rl resume` goes on from it"
)
END_SECONDS = 5.0
"""Time for runners to close their environments."""
SMALLEST_SHARE = 0.01
"""Of a CPU, where there are more runners than CPUs."""


@dataclass(frozen=True)
class Surroundings:
    """What a runner on another node takes over from the process that trains."""

    consent: Consent = field(default_factory=current)
    """The consent to foreign code under which the run was started counts wherever its runners are."""
    sys_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    folder: str = field(default_factory=os.getcwd)

    def enter(self) -> ExitStack:
        """Take it over for good."""
        sys.path += [entry for entry in self.sys_path if entry and entry not in sys.path]
        if os.path.isdir(self.folder):
            os.chdir(self.folder)
        lifetime = ExitStack()
        lifetime.enter_context(scope(self.consent))
        return lifetime


class RunnerActor:
    """A runner in a process of its own."""

    def __init__(self, make: MakeRunner, indices: Sequence[int], surroundings: Surroundings) -> None:
        self._lifetime = surroundings.enter()
        self._runner: Runner = make(indices)

    def pid(self) -> int:
        return os.getpid()

    def restore(self, states: Mapping[int, StateDict]) -> None:
        self._runner.restore(states)

    def collect(self, order: Order, weights: StateDict) -> Delivery:
        return self._runner.collect(order, weights)

    def close(self) -> None:
        self._runner.close()


class RayRunners:
    """See `training.remote.pool.RunnerPool`."""

    def __init__(self, make: MakeRunner, output_dir: Path, wanted: int | None = None) -> None:
        require_ray("env.collector: ray")
        self.make = make
        self.output_dir = output_dir
        self.wanted = wanted
        self.shares: list[list[int]] = []
        self.actors: list[Any] = []
        self.pids: list[int] = []
        """Process ids of the runners, each on its own node."""
        self._cpus = 0.0
        self._misses = 0
        self._ray: Any = None
        self._is_ours = False
        self._last_words: LastWords | None = None

    # -- the cluster --------------------------------------------------------------------------------------------------

    def connect(self) -> int:
        self.address = find_address(None, self.output_dir, cure=RUNNERS_CURE)
        require_cluster(self.address, RUNNERS_CURE)
        ray = self._ray = _import_ray()
        if not ray.is_initialized():
            self._is_ours = True
            with KeptSignals():
                ray.init(
                    address=self.address,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    namespace="rl_training",
                    **_local(self.address),
                )
            self._last_words = LastWords(ENDED)
        self._cpus = float(ray.cluster_resources().get("CPU", 0.0))
        if self._cpus < SMALLEST_SHARE:
            raise RunError(f"the Ray cluster at {self.address} has no node with CPUs")
        if self.wanted is not None and self.wanted > self._cpus:
            warnings.warn(
                f"env.runners is {self.wanted} and the Ray cluster has {self._cpus:g} CPUs: runners will share them",
                stacklevel=2,
            )
        return max(int(self._cpus), 1)

    def _raise_if_gone(self) -> None:
        """RunError once the head of the cluster has not answered twice; Ray itself would end this process later."""
        self._misses = 0 if is_reachable(self.address) else self._misses + 1
        if self._misses >= MISSES:
            self._is_ours = False  # there is nothing left to disconnect from
            self.actors = []
            raise RunError(
                f"the Ray cluster at {self.address} is gone: its head does not answer any more; the last checkpoint "
                "stands, and `rl resume` goes on from it on another cluster"
            )

    # -- runners ------------------------------------------------------------------------------------------------------

    def start(self, shares: Sequence[Sequence[int]], states: Mapping[int, StateDict]) -> None:
        self.shares = [list(share) for share in shares]
        self.actors = [self._actor(share) for share in self.shares]
        self.pids = [self._begun(runner) for runner in range(len(self.actors))]
        self.restore(states)

    def _actor(self, indices: Sequence[int]) -> Any:
        share = min(1.0, max(int(100 * self._cpus / len(self.shares)) / 100, SMALLEST_SHARE))
        made: Any = self._ray.remote(RunnerActor).options(
            num_cpus=share, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        return made.remote(self.make, list(indices), Surroundings())

    def _begun(self, runner: int) -> int:
        """Wait until a runner is there; returns its process id."""
        deadline = time.monotonic() + START_SECONDS
        asked = self.actors[runner].pid.remote()
        while not self._ray.wait([asked], timeout=LOOK_SECONDS)[0]:
            self._raise_if_gone()
            if time.monotonic() > deadline:
                raise RunError(
                    f"runner {runner} of {len(self.actors)} did not start on the Ray cluster within "
                    f"{START_SECONDS:.0f} s: are its CPUs taken by other runs (`rl cluster status`)? Lower env.runners"
                )
        return int(self._got(asked))

    def restore(self, states: Mapping[int, StateDict]) -> None:
        """A runner that is lost meanwhile is noticed by its next order."""
        told = [self._restoring(runner, states) for runner in range(len(self.actors))]
        for call in (call for call in told if call is not None):
            with suppress(RunnerLostError):
                self._answer(call)

    def _restoring(self, runner: int, states: Mapping[int, StateDict]) -> Any:
        """The call that brings the environments of a runner to their states; None where there are none."""
        own = {index: states[index] for index in self.shares[runner] if index in states}
        return self.actors[runner].restore.remote(own) if own else None

    def replace(self, runner: int, states: Mapping[int, StateDict]) -> None:
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(self.actors[runner])
        self.actors[runner] = self._actor(self.shares[runner])
        self.pids[runner] = self._begun(runner)
        if (call := self._restoring(runner, states)) is not None:
            self._answer(call)

    # -- orders -------------------------------------------------------------------------------------------------------

    def share(self, state: StateDict) -> Weights:
        return self._ray.put(sent_once(state))

    def send(self, runner: int, order: Order, weights: Weights) -> Ticket:
        return self.actors[runner].collect.remote(order, weights)

    def ready(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        looked = time.monotonic()
        while True:
            done, _ = self._ray.wait(list(tickets), timeout=LOOK_SECONDS)
            if done:
                # all that have ended, not the first one alone
                done, _ = self._ray.wait(list(tickets), num_returns=len(tickets), timeout=0)
                return [ticket for ticket in tickets if ticket in set(done)]
            if time.monotonic() - looked >= LOOK_SECONDS:
                looked = time.monotonic()
                self._raise_if_gone()

    def fetch(self, ticket: Ticket) -> Delivery:
        delivery: Delivery = self._got(ticket)
        return delivery

    def _answer(self, call: Any) -> Any:
        """The same as `_got`, for a call that may take long."""
        while not self._ray.wait([call], timeout=LOOK_SECONDS)[0]:
            self._raise_if_gone()
        return self._got(call)

    def _got(self, ticket: Ticket) -> Any:
        """The answer to a call; errors of environments and policies as they were raised."""
        try:
            return self._ray.get(ticket)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, RLTrainingError):
                raise cause from None
            raise EnvError(f"a runner failed: {type(cause).__name__}: {cause}\n{error.traceback_str}") from None
        except self._ray.exceptions.RayError as error:
            if getattr(error, "actor_init_failed", False):  # it would not start anywhere else either
                raise EnvError(f"a runner cannot be made: {error}") from None
            self._raise_if_gone()
            lines = str(error).strip().splitlines()
            raise RunnerLostError(lines[0][:200] if lines else type(error).__name__) from None

    def close(self) -> None:
        ray = self._ray
        if ray is None:
            return
        if self.actors and ray.is_initialized():
            with suppress(Exception):
                ray.wait(
                    [actor.close.remote() for actor in self.actors], num_returns=len(self.actors), timeout=END_SECONDS
                )
            for actor in self.actors:
                with suppress(Exception):
                    ray.kill(actor)
        self.actors = []
        if self._is_ours:
            self._is_ours = False
            ray.shutdown()
        if self._last_words is not None:
            self._last_words.close()


def _import_ray() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own, about libraries that it imports
        import ray
    return ray


def _local(address: str) -> dict[str, Any]:
    """Keep Ray on this machine where the cluster is."""
    if address.rpartition(":")[0] not in (LOOPBACK, "localhost"):
        return {}
    keep_loopback()
    return {"_node_ip_address": LOOPBACK}


class KeptSignals:
    """Signal handlers are those of the run, whatever is done inside."""

    def __enter__(self) -> None:
        self.is_main = threading.current_thread() is threading.main_thread()
        self.before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def __exit__(self, *error: object) -> None:
        if self.is_main:
            for number, handler in self.before.items():
                if handler is not None:
                    signal.signal(number, handler)
