"""Messages between a vector environment and its workers: kinds, payload records and wire format.

Each command gets one answer, and at most one command is open. A message is a fixed header and, rarely, a pickled
payload: actions, observations and rewards are in shared memory, so a step without infos is nine bytes each way.
"""

from __future__ import annotations

import signal
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.vector.utils import CloudpickleWrapper

from rl_training.trust.consent import Consent
from rl_training.types import RLTrainingError

# trainer <-> server: fixed size, with file descriptors attached
REQUEST = struct.Struct("<cq")
ANSWER = struct.Struct("<q")
SPAWN, EXIT_CODE = b"s", b"x"
STILL_RUNNING = 1 << 32
"""Answer to EXIT_CODE outside the range of exit codes."""

# trainer <-> worker: kind, and length of the payload that follows
HEADER = struct.Struct("<cQ")
BUILD, ATTACH, RESET, STEP, CALL, CLOSE = b"B", b"A", b"R", b"S", b"C", b"Q"
DONE, FAILED = b"D", b"F"
CHUNK = 1 << 16

TRACE_SIGNAL = signal.SIGRTMIN + 7 if sys.platform == "linux" else signal.SIGUSR1
"""Makes a hung worker write its traceback, for the error message. Not a signal that schedulers send to all processes of
a job: workers that are at work ignore those."""


@dataclass(frozen=True)
class Setup:
    """Everything a worker needs to build its environments as the trainer would."""

    worker: int
    first_env: int
    env_fns: tuple[bytes, ...]
    sys_path: tuple[str, ...]
    cwd: str
    environ: dict[str, str]
    consent: Consent
    """The consent that the trainer runs under."""
    reset_counts: tuple[int, ...] = ()
    """After a restart: how many resets each environment has had, so that its seeds continue and do not repeat."""


@dataclass(frozen=True)
class Built:
    """A worker's answer to BUILD: properties of its environments."""

    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    metadata: dict[str, Any]
    render_mode: str | None
    exact: bool
    streams: tuple[tuple[int, int] | None, ...]
    """(seed, index) of each environment's log, from which the seed of any of its resets follows."""


class ResetCommand(NamedTuple):
    """One seed per environment of the worker; only those in `mask` are reset."""

    seeds: list[int | None]
    options: dict[str, Any] | None
    mask: list[bool]


class CallCommand(NamedTuple):
    """Call a method, or read an attribute, of every environment of the worker, with arguments for each."""

    name: str
    arguments: list[tuple[tuple[Any, ...], dict[str, Any]]]


class Failure(NamedTuple):
    """A failed command: the environment it failed in, and why."""

    env_index: int
    cause: str
    traceback: str
    error: RLTrainingError | None
    """The exception itself if it is an RLTrainingError, whose message is written for users."""


class EnvInfo(NamedTuple):
    """A non-empty info dict and the index of its environment."""

    env_index: int
    info: dict[str, Any]


def dumps_by_value(value: Any) -> bytes:
    """Pickle with the code of what a script or notebook defines, which another process cannot import."""
    return bytes(ForkingPickler.dumps(CloudpickleWrapper(value)))


def dumps(value: Any) -> bytes:
    """Pickle by reference if possible, which is faster. Only for answers: the reader must have the same modules."""
    try:
        return bytes(ForkingPickler.dumps(value))
    except Exception:
        return dumps_by_value(value)


def loads(data: bytes) -> Any:
    value = ForkingPickler.loads(data)
    return value.fn if isinstance(value, CloudpickleWrapper) else value


def pack(kind: bytes, payload: bytes = b"") -> bytes:
    return HEADER.pack(kind, len(payload)) + payload


def read_message(read: Callable[[], bytes]) -> tuple[bytes, bytes]:
    """(kind, payload) from as many `read()`s as needed; `read` raises at the end of the channel."""
    data = read()
    while len(data) < HEADER.size:
        data += read()
    kind, length = HEADER.unpack_from(data)
    size = HEADER.size + length
    if len(data) < size:
        whole = bytearray(data)
        while len(whole) < size:
            whole += read()
        data = bytes(whole)
    return kind, data[HEADER.size :]
