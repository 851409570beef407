"""`RayExecutor`: members as processes on the nodes of a Ray cluster. Ray itself is only imported by the driver.

Before the first member starts, every node is probed: it must see the output directory and have the versions of this
host. The driver is a child process (`ray_driver.py`), so that losing the cluster never ends the parent.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rl_training.config.sections.executor import ExecutorConfig
from rl_training.distributed.executors import LOST, ExecutorGoneError, Resources, Task
from rl_training.distributed.local_cluster import EXECUTOR_CURE, find_address
from rl_training.distributed.ray_driver import require_cluster
from rl_training.distributed.ray_member import NODE_DIGITS
from rl_training.runs.holder import Holder
from rl_training.system.machine import versions
from rl_training.types import ConfigError, RunError

CONNECT_SECONDS = 90.0
CHECK_SECONDS = 120.0
CLOSE_SECONDS = 20.0
COMPARED = ("rl-training", "torch", "jax", "numpy", "gymnasium", "python")
"""What must be the same on all nodes."""


class RayHandle:
    """A member on a node of the cluster."""

    holder: Holder | None = None

    def __init__(self, executor: RayExecutor, number: int) -> None:
        self._executor, self.number = executor, number
        self.where = "ray, waiting for a node"
        self.exit_code: int | None = None
        self.is_running = False

    def poll(self) -> int | None:
        self._executor.raise_if_gone()
        return self.exit_code

    def wait(self) -> int | None:
        """Its exit code after the executor was closed; LOST if the driver never heard of it."""
        deadline = time.monotonic() + CLOSE_SECONDS
        while self.exit_code is None and self._executor.is_connected() and time.monotonic() < deadline:
            time.sleep(0.05)
        return LOST if self.exit_code is None else self.exit_code

    def send_signal(self, number: int, /) -> None:
        self._executor.order(op="signal", id=self.number, number=int(number))


class RayDriver:
    """The driver process, seen from the parent: orders go in, events come out of a thread."""

    def __init__(self, address: str, log: Path | None = None, *, cure: str = EXECUTOR_CURE) -> None:
        """Connect to the cluster at `address`; RunError in one sentence, which ends with `cure`, if that fails."""
        require_ray()
        require_cluster(address, cure)
        self.address = address
        self.slots = 0
        self.nodes: list[dict[str, Any]] = []
        self.gone: str | None = None
        self._answers: dict[int, Any] = {}
        self._ready = threading.Event()
        self._handles: dict[int, RayHandle] = {}
        self._numbers = 0
        self._orders: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        """Lines to be written. A signal may arrive while another order is given, and its handler gives one too: putting
        into this queue is safe then, writing to a pipe or taking a lock is not."""
        output: Any = subprocess.DEVNULL if log is None else open(log, "ab")  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rl_training.distributed.ray_driver", address],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                start_new_session=True,
            )
        finally:
            if log is not None:
                output.close()
        self._thread = threading.Thread(target=self._listen, name="ray-driver", daemon=True)
        self._writer = threading.Thread(target=self._write, name="ray-orders", daemon=True)
        self._thread.start()
        self._writer.start()
        if not self._ready.wait(CONNECT_SECONDS) or self.gone is not None:
            self.end()
            why = self.gone or f"no answer within {CONNECT_SECONDS:.0f} s"
            raise RunError(f"cannot connect to the Ray cluster at {address}: {why}")

    def order(self, **order: Any) -> None:
        """Send an order; a driver that is gone is noticed by the next question."""
        self._orders.put(json.dumps(order) + "\n")

    def register(self, handle: RayHandle) -> None:
        self._handles[handle.number] = handle

    def new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def is_connected(self) -> bool:
        return self.gone is None and self._thread.is_alive()

    def check(self, output_dir: Path) -> list[dict[str, Any]]:
        """What every node says about itself and about the output directory."""
        output_dir.mkdir(parents=True, exist_ok=True)
        nonce = f".probe-{uuid.uuid4().hex}"
        number = self.new_number()
        (output_dir / nonce).write_text("")
        try:
            self.order(op="check", id=number, folder=str(output_dir), nonce=nonce)
            deadline = time.monotonic() + CHECK_SECONDS
            while number not in self._answers:
                if not self.is_connected() or time.monotonic() > deadline:
                    raise RunError(f"the nodes of the Ray cluster at {self.address} do not answer; {self.gone or ''}")
                time.sleep(0.05)
            found: list[dict[str, Any]] = self._answers.pop(number)
            for node in found:
                written = output_dir / f"{nonce}.{node['node']}"
                if node["problem"] is None and not written.is_file():
                    node["problem"] = "what is written there does not arrive here: it is not shared"
            return found
        finally:
            for path in output_dir.glob(f"{nonce}*"):
                with suppress(OSError):
                    path.unlink()

    def end(self) -> None:
        """Close the connection; members that still run are stopped by the driver."""
        self.order(op="close")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=CLOSE_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._orders.put(None)
        self._writer.join(timeout=5)
        self._thread.join(timeout=5)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _write(self) -> None:
        """Pass orders on, in order, until there are no more."""
        stdin = self._process.stdin
        assert stdin is not None
        while (line := self._orders.get()) is not None:
            with suppress(OSError, ValueError):
                stdin.write(line)
                stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError, KeyError):
                self._hear(json.loads(line))
        self.gone = self.gone or "its driver process has ended"
        self._ready.set()

    def _hear(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind in ("ready", "state"):
            self.nodes = event["nodes"]
            self.slots = event.get("slots", self.slots)
            self._ready.set()
        elif kind == "checked":
            self._answers[event["id"]] = event["nodes"]
        elif kind == "gone":
            self.gone = event["why"]
        elif kind in ("started", "exit") and (handle := self._handles.get(event["id"])) is not None:
            if kind == "started":
                handle.where, handle.is_running = event["where"], True
            else:
                handle.is_running = False
                handle.exit_code = LOST if event["code"] is None else event["code"]


class RayExecutor:
    """Starts members on a Ray cluster that is running."""

    name = "ray"
    is_remote = True

    def __init__(self, config: ExecutorConfig, *, output_dir: Path, name: str = "") -> None:
        """Connect, and check every node before anything starts."""
        require_ray()
        address = find_address(config.address, output_dir)
        self._most = config.max_slots
        self._folder = os.getcwd()
        folder = output_dir / ".cluster"
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / f"driver_{os.getpid()}.log"
        self._driver = RayDriver(address, self._log)
        try:
            self._driver.order(op="resources", resources={"cpus": config.cpus, "gpus": config.gpus})
            nodes = self._driver.check(output_dir)
            problems = problems_of(nodes, output_dir, versions(), allow_mismatch=config.allow_version_mismatch)
            if problems:
                raise RunError(problems[0])
            self._wait_for_slots()
        except BaseException:
            self.close()
            raise

    def slots(self) -> int:
        self.raise_if_gone()
        return self._driver.slots if self._most is None else min(self._driver.slots, self._most)

    def start(self, task: Task, /) -> RayHandle:
        self.raise_if_gone()
        handle = RayHandle(self, self._driver.new_number())
        self._driver.register(handle)
        self.order(
            op="start",
            id=handle.number,
            words=list(task.words),
            env=dict(task.env),
            log=str(task.log),
            folder=self._folder,
            resources=asked(task.resources),
        )
        return handle

    def lost(self, holder: Holder, /) -> bool | None:
        """Ray knows which of its nodes are dead, also those of an earlier parent."""
        kind, _, node = holder.where.partition("ray node ")
        if kind or not node:
            return None
        alive = {known["id"]: known["alive"] for known in self._driver.nodes}
        return True if alive.get(node) is False else None

    def close(self) -> None:
        was_connected = self._driver.is_connected()
        self._driver.end()
        if was_connected:
            with suppress(OSError):
                self._log.unlink()

    def order(self, **order: Any) -> None:
        self._driver.order(**order)

    def is_connected(self) -> bool:
        return self._driver.is_connected()

    def raise_if_gone(self) -> None:
        if not self._driver.is_connected():
            raise ExecutorGoneError(f"the Ray cluster at {self._driver.address} is gone: {self._driver.gone}")

    def _wait_for_slots(self) -> None:
        """Until the driver has counted what fits; a cluster without room for one member is refused."""
        deadline = time.monotonic() + 10
        while self._driver.slots == 0 and time.monotonic() < deadline:
            self.raise_if_gone()
            time.sleep(0.1)
        if self._driver.slots == 0:
            raise RunError(
                f"no node of the Ray cluster at {self._driver.address} has the CPUs or GPUs of one run free; ask for "
                "less with `executor: {cpus: ..., gpus: ...}`, or add nodes"
            )


def asked(resources: Resources) -> dict[str, Any]:
    return {"cpus": resources.cpus, "gpus": resources.gpus, "memory_mb": resources.memory_mb}


def require_ray(what: str = "executor ray") -> None:
    """ConfigError with the pip line where Ray is not installed; `what` needs it."""
    try:
        is_there = importlib.util.find_spec("ray") is not None
    except ValueError:  # what stands in for the module is none
        is_there = False
    if not is_there:
        raise ConfigError(f"{what} needs an extra: pip install 'rl-training[ray]'")


def problems_of(
    nodes: Sequence[Mapping[str, Any]], output_dir: Path, ours: Mapping[str, str], *, allow_mismatch: bool = False
) -> list[str]:
    """What keeps the nodes of a cluster from running members, a sentence each; empty if nothing does."""
    if not nodes:
        return ["the Ray cluster has no node with CPUs; add one with `ray start --address=...`"]
    found = []
    for node in nodes:
        where = f"node {node['node'][:NODE_DIGITS]} ({node['host']})"
        if node["problem"] is not None:
            found.append(
                f"output_dir '{output_dir}' cannot be used from {where}: {node['problem']}; choose a folder that every "
                "node mounts at the same path"
            )
            continue
        theirs = node["versions"]
        other = [
            f"{name} {theirs.get(name)} instead of {ours.get(name)}"
            for name in COMPARED
            if theirs.get(name) != ours.get(name)
        ]
        if other and not allow_mismatch:
            found.append(
                f"{where} has other versions ({', '.join(other)}); install the same ones there, or write "
                "`executor: {allow_version_mismatch: true}` if results may differ"
            )
    return found
