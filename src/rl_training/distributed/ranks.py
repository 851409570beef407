"""The processes of a data-parallel run (ranks): who has which shards, and how they exchange what they need.

torchrun starts the ranks; a process that was started without it is the only rank. Rank 0 leads: it has the run
directory and tells the others what to do next. Numbers that all ranks must have alike are exchanged by `gathered` and
`gathered_tensors`, in the order of the shards, so that it does not matter how many ranks there are.

Tensors on GPUs travel by NCCL, everything else by gloo.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from time import perf_counter
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from rl_training.system.error_text import describe
from rl_training.system.launch import Launch, launched
from rl_training.types import (
    CheckpointError,
    ConfigError,
    EnvError,
    FollowedError,
    LostRankError,
    NonFiniteError,
    RLTrainingError,
)

T = TypeVar("T")
TIMEOUT = timedelta(hours=6)
"""The longest that ranks wait for each other: rank 0 evaluates and saves while they do. One that dies is noticed at
once, because its connections close."""
KINDS: dict[str, type[RLTrainingError]] = {
    kind.__name__: kind for kind in (ConfigError, CheckpointError, EnvError, NonFiniteError, RLTrainingError)
}
"""Errors that are raised on every rank as what they are."""


@dataclass(frozen=True)
class Failure:
    """An error of one rank, as the others are told."""

    rank: int
    kind: str
    text: str
    name: str = ""
    """Name of the tensor of a `NonFiniteError`."""

    @classmethod
    def of(cls, rank: int, error: Exception) -> Failure:
        kind = next((name for name, kind in KINDS.items() if isinstance(error, kind)), "")
        name = error.name if isinstance(error, NonFiniteError) else ""
        return cls(rank, kind, str(error) if kind else describe(error), name)

    def error(self) -> RLTrainingError:
        text = f"rank {self.rank}: {self.text}"
        return (
            NonFiniteError(text, self.name)
            if self.kind == "NonFiniteError"
            else KINDS.get(self.kind, RLTrainingError)(text)
        )


class Ranks:
    """The processes that share the shards of a run. This one alone, unless `setup_distributed` has joined others."""

    def __init__(self, launch: Launch | None = None) -> None:
        self.launch = launch or Launch()
        self.seconds = 0.0
        """Time spent in exchanges, waiting for the others included."""
        self.is_over = False
        """Whether the ranks have stopped following each other, so that no order reaches anybody."""
        self.has_told = False

    @property
    def rank(self) -> int:
        return self.launch.rank

    @property
    def count(self) -> int:
        return self.launch.ranks

    @property
    def leads(self) -> bool:
        return self.launch.rank == 0

    # -- exchanges of all ranks ---------------------------------------------------------------------------------------

    def gather(self, value: T) -> list[T]:
        """What every rank gives, in their order. Anything that can be pickled: all ranks are processes of one run."""
        if self.count == 1:
            return [value]
        found: list[Any] = [None] * self.count
        with self._exchange():
            dist.all_gather_object(found, value)
        return found

    def gather_tensors(self, tensor: Tensor) -> list[Tensor]:
        """The same for tensors of one shape, on their device."""
        if self.count == 1:
            return [tensor]
        found = [torch.empty_like(tensor) for _ in range(self.count)]
        with self._exchange():
            dist.all_gather(found, tensor)
        return found

    def attempt(
        self, work: Callable[[], T], numbers: Callable[[T], Sequence[int]] = lambda _: ()
    ) -> tuple[T, list[int]]:
        """Do something that may fail on one rank only. If it fails anywhere it does on all of them, with that error.

        Returns its result and the sum of the `numbers` of every rank's result; each rank gives as many.
        """
        error: Exception | None = None
        result: Any = None
        mine: Sequence[int] = ()
        try:
            result = work()
            mine = numbers(result)
        except Exception as raised:
            error = raised
        if self.count == 1:
            if error is not None:
                raise error
            return result, list(mine)
        status = torch.zeros(1 + MOST_NUMBERS, dtype=torch.int64)
        status[0] = error is not None
        status[1 : 1 + len(mine)] = torch.tensor(list(mine), dtype=torch.int64)
        total = torch.stack(self.gather_tensors(status)).sum(0).tolist()
        if total[0]:
            self._fail(error)
        return result, total[1 : 1 + len(mine)]

    def _fail(self, error: Exception | None) -> None:
        """Raise the error of the first rank that has one, on all ranks."""
        failures = self.gather(None if error is None else Failure.of(self.rank, error))
        self.is_over = True
        first = next(failure for failure in failures if failure is not None)
        if error is not None and (self.leads or not Failure.of(self.rank, error).kind):
            raise error  # what nobody expected is shown where it happened, with its traceback
        raise first.error() if self.leads else FollowedError(first.text)

    # -- orders of rank 0 ---------------------------------------------------------------------------------------------

    def tell(self, value: T | None = None) -> T:
        """What rank 0 gives, on every rank."""
        if self.count == 1:
            return value  # type: ignore[return-value]
        self.has_told = True
        box = [value]
        with self._exchange():
            dist.broadcast_object_list(box, src=0)
        return box[0]  # type: ignore[return-value]

    def give_up(self) -> None:
        """Tell the other ranks, which wait for the first word of rank 0, that there is none."""
        if self.leads and not self.has_told and not self.is_over:
            self.tell(None)
        self.is_over = True

    def led(self, work: Callable[[], T]) -> T:
        """The result of what rank 0 alone does, on every rank; an error is raised there and ends the others."""
        if self.count == 1:
            return work()
        result: Any = None
        error: Exception | None = None
        if self.leads:
            try:
                result = work()
            except Exception as raised:
                error = raised
        failed = self.tell(error is not None)
        if failed:
            self.is_over = True
            raise error if error is not None else FollowedError("rank 0 has failed")
        told: T = self.tell(result)
        return told

    def send(self, value: Any, to: int) -> None:
        """Give something to one rank, which calls `receive`."""
        with self._exchange():
            dist.send_object_list([value], to)

    def receive(self, sender: int) -> Any:
        """What that rank sends."""
        box: list[Any] = [None]
        with self._exchange():
            dist.recv_object_list(box, sender)
        return box[0]

    def collect(self, value: T) -> list[T]:
        """What every rank gives, on rank 0; nothing elsewhere."""
        found: list[Any] = [None] * self.count if self.leads else []
        with self._exchange():
            dist.gather_object(value, found if self.leads else None, dst=0)
        return found

    @contextmanager
    def _exchange(self) -> Iterator[None]:
        began = perf_counter()
        try:
            yield
        except RuntimeError as error:  # what torch raises where a connection is closed or times out
            self.is_over = True
            raise LostRankError(
                "another process of this run has ended, or cannot be reached, so this one stops; the last checkpoint "
                "stands, and `rl resume` goes on from it with any number of processes"
            ) from error
        finally:
            self.seconds += perf_counter() - began


MOST_NUMBERS = 3
"""Numbers that `Ranks.attempt` adds up at most."""


class RankShards:
    """The shards of a run over its ranks; see `build_context.Shards`. Each rank has as many, in order."""

    def __init__(self, ranks: Ranks, count: int) -> None:
        self.ranks = ranks
        self.count = count
        each = count // ranks.count
        self.own = range(ranks.rank * each, (ranks.rank + 1) * each)

    def owner(self, shard: int) -> int:
        """The rank that has a shard."""
        return shard // (self.count // self.ranks.count)

    def gathered(self, own: Sequence[T]) -> list[T]:
        return [one for several in self.ranks.gather(list(own)) for one in several]

    def gathered_tensors(self, own: Sequence[Tensor]) -> list[Tensor]:
        return [one for several in self.ranks.gather_tensors(torch.stack(list(own))) for one in several]


def setup_distributed(shards: int, device: str = "cpu") -> Ranks:
    """Join the other processes of this run, where torchrun started several; ConfigError if they cannot share its
    shards.

    `device` is that of the config: with cuda each process takes the GPU of its number on its host.
    """
    launch = launched()
    if shards % launch.ranks:
        raise ConfigError(
            f"torchrun started {launch.ranks} processes, which do not divide training.shards {shards}; give "
            f"--nproc-per-node a divisor of it, or set training.shards to a multiple of {launch.ranks}"
        )
    if launch.ranks == 1:
        return Ranks()
    on_gpus = device != "cpu" and torch.cuda.is_available()
    if on_gpus:
        if launch.local_rank >= torch.cuda.device_count():
            raise ConfigError(
                f"torchrun started process {launch.local_rank} on a host with {torch.cuda.device_count()} GPUs; give "
                "--nproc-per-node that number, or device: cpu"
            )
        torch.cuda.set_device(launch.local_rank)
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpus else "gloo", timeout=TIMEOUT)
        atexit.register(dist.destroy_process_group)
    return Ranks(launch)


def gpu_hint(shards: int, gpus: int, words: Sequence[str]) -> str | None:
    """The command that uses all GPUs of this host, where a run is about to use one of several; None elsewhere."""
    if gpus < 2 or launched().ranks > 1:
        return None
    ranks = max(number for number in range(1, gpus + 1) if shards % number == 0)
    command = " ".join(words) or "train ..."
    if ranks > 1:
        start = f"torchrun --nproc-per-node {ranks} -m rl_training {command}"
        return f"this host has {gpus} GPUs; to learn on {ranks}: {start}"
    return (
        f"this host has {gpus} GPUs; to learn on all: torchrun --nproc-per-node {gpus} -m rl_training {command} "
        f"--training.shards {gpus}"
    )
