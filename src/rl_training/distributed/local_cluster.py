"""`rl cluster up --local N`: a real Ray cluster of several nodes on this machine, and the way to a cluster elsewhere.

The head has no CPUs and each node is a raylet of its own, all bound to 127.0.0.1. Every process is recorded with its
start time in `<output_dir>/.cluster/cluster.json`, so that `down` ends exactly these: another Ray of the machine is
left alone.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rl_training.runs.holder import process_start
from rl_training.runs.names import readable_errors
from rl_training.system.atomic_io import atomic_write
from rl_training.types import ConfigError, RunError

FOLDER, RECORD = ".cluster", "cluster.json"
START_SECONDS = 90.0
"""How long one node may take to start on a busy machine."""
END_SECONDS = 8.0
"""Time between SIGTERM and SIGKILL."""
STARTED = "Ray runtime started"
"""What `ray start` prints when a node is up."""
OBJECT_STORE = 100_000_000
"""Bytes of each node's object store: members exchange nothing through it."""
SETTINGS = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_failure_threshold": 3,
    "worker_niceness": 0,
}
"""Ray notices a dead node after about 4 s instead of 20, and members do not yield to every other process."""
LOG_LINES = 15
EXECUTOR_CURE = "or name yours: --executor ray:HOST:PORT"
ADDRESS_CURE = "or name yours: --address HOST:PORT"
"""How to name another cluster, where an executor is chosen and for the commands about clusters."""
_children: list[subprocess.Popen[bytes]] = []
"""Nodes that this process has started: kept, because they outlive it and must not be waited for."""


@dataclass(frozen=True)
class NodeProcess:
    """A node of the local cluster: the process that keeps its raylet, and the processes below it."""

    name: str
    pid: int
    started: float
    raylet: int | None = None
    """Process id of the raylet."""

    def is_alive(self) -> bool:
        return _is_same(self.pid, self.started)


class LocalCluster:
    """The cluster that belongs to an output directory, running or not."""

    def __init__(self, output_dir: Path) -> None:
        self.folder = output_dir.absolute() / FOLDER

    # -- what is there ------------------------------------------------------------------------------------------------

    def record(self) -> dict[str, Any] | None:
        """What `up` has written; None if there is no cluster."""
        try:
            found = json.loads((self.folder / RECORD).read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def nodes(self) -> list[NodeProcess]:
        """The head first, then the nodes in the order of their start."""
        record = self.record() or {}
        return [NodeProcess(**node) for node in record.get("nodes", [])]

    def address(self) -> str | None:
        """Where the head listens; None if it does not run."""
        record, nodes = self.record(), self.nodes()
        return str(record["address"]) if record is not None and nodes and nodes[0].is_alive() else None

    # -- up -----------------------------------------------------------------------------------------------------------

    def up(self, num_nodes: int, cpus: int) -> str:
        """Start a head and `num_nodes` nodes of `cpus` CPUs each; returns the address. RunError if one is running."""
        if any(node.is_alive() for node in self.nodes()):
            raise RunError(
                f"a cluster of '{self.folder.parent}' is running (at {self.address()}); `rl cluster down` ends it"
            )
        self.down()  # what is left of one that was killed
        with readable_errors(f"cannot create a cluster in output_dir '{self.folder.parent}'"):
            self.folder.mkdir(parents=True, exist_ok=True)
        port = _free_port()
        temp = tempfile.mkdtemp(prefix="rl-ray-")  # short: the names of Ray's sockets have at most 107 bytes
        record: dict[str, Any] = {"address": f"127.0.0.1:{port}", "temp": temp, "nodes": []}
        try:
            head = ["--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={temp}"]
            self._start("head", [*head, f"--system-config={json.dumps(SETTINGS)}"], record)
            for number in range(num_nodes):
                self._start(f"node_{number}", [f"--address=127.0.0.1:{port}", f"--num-cpus={cpus}"], record)
        except BaseException:
            self.down()
            raise
        return str(record["address"])

    def add_node(self, cpus: int) -> NodeProcess:
        """One more node."""
        record = self.record()
        if record is None or self.address() is None:
            raise RunError(f"no cluster of '{self.folder.parent}' is running; `rl cluster up --local 2` starts one")
        name = f"node_{len(record['nodes']) - 1}"
        return self._start(name, [f"--address={record['address']}", f"--num-cpus={cpus}"], record)

    def _start(self, name: str, flags: list[str], record: dict[str, Any]) -> NodeProcess:
        """Start one node, wait until it is up, and record its process; RunError with its log if it does not come."""
        log = self.folder / f"{name}.log"
        common = ["--node-ip-address=127.0.0.1", f"--object-store-memory={OBJECT_STORE}", "--disable-usage-stats"]
        ports = ["--min-worker-port=0", "--max-worker-port=0"]
        if "--head" in flags:
            ports.append(f"--ray-client-server-port={_free_port()}")
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "rl_training.distributed.local_node",
                    "start",
                    *flags,
                    *common,
                    *ports,
                    "--block",
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"},
            )
        _children.append(process)
        # recorded before it is up: whatever happens meanwhile, `down` finds it
        node = NodeProcess(name, process.pid, process_start(process.pid) or 0.0)
        record["nodes"].append(asdict(node))
        self._write(record)
        deadline = time.monotonic() + START_SECONDS
        while STARTED not in log.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RunError(f"the {name} of the cluster did not start; its log {log} ends:\n{_tail(log, record)}")
            time.sleep(0.1)
        node = NodeProcess(name, node.pid, node.started, _raylet_of(node.pid))
        record["nodes"][-1] = asdict(node)
        self._write(record)
        return node

    def _write(self, record: dict[str, Any]) -> None:
        atomic_write(self.folder / RECORD, json.dumps(record, indent=2).encode() + b"\n")

    # -- down ---------------------------------------------------------------------------------------------------------

    def down(self) -> int:
        """End every process that `up` has started, and nothing else; returns how many nodes were running."""
        import psutil

        record = self.record()
        if record is None:
            return 0
        nodes = self.nodes()
        running = [node for node in nodes if node.is_alive()]
        doomed: list[psutil.Process] = []
        for node in reversed(running):
            with suppress(psutil.Error):
                parent = psutil.Process(node.pid)
                doomed += [parent, *parent.children(recursive=True)]
        doomed += _left_behind(str(record["temp"]))
        for process in doomed:
            with suppress(psutil.Error):  # the raylets first end their workers, whose members save
                process.terminate()
        _, alive = psutil.wait_procs(doomed, timeout=END_SECONDS)
        for process in alive:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(alive, timeout=END_SECONDS)
        for child in _children:
            child.poll()  # no zombies
        shutil.rmtree(str(record["temp"]), ignore_errors=True)
        with suppress(OSError):
            (self.folder / RECORD).unlink()
        return len(running)


def find_address(given: str | None, output_dir: Path, *, cure: str = EXECUTOR_CURE) -> str:
    """The address of the cluster that is meant: as given, of `rl cluster up`, or of RAY_ADDRESS; RunError if none."""
    if given not in (None, "auto"):
        host, _, port = str(given).rpartition(":")
        if not host or not port.isdecimal():
            raise ConfigError(f"Ray cluster: '{given}' is not an address; write HOST:PORT, such as 10.0.0.1:6379")
        return str(given)
    known = LocalCluster(output_dir).address() or os.environ.get("RAY_ADDRESS")
    if not known or known == "auto":
        raise RunError(
            f"no Ray cluster of '{output_dir}' is running; start one with `rl cluster up --local 2 --output-dir "
            f"{output_dir}`, {cure}"
        )
    return known


def _is_same(pid: int, started: float) -> bool:
    now = process_start(pid)
    return now is not None and abs(now - started) <= 2.0


def _raylet_of(pid: int) -> int | None:
    import psutil

    with suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            if child.name() == "raylet":
                return int(child.pid)
    return None


def _left_behind(temp: str) -> list[Any]:
    """Processes of a node that was killed, found by the cluster's own folder in their command line."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(f"{temp}/" in word or word.endswith(temp) for word in process.cmdline()):
                found.append(process)
    return found


def _free_port() -> int:
    """A free port outside the range that Ray gives to workers."""
    for _ in range(100):
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RunError("no free port was found between 20000 and 32000")


def _tail(log: Path, record: dict[str, Any]) -> str:
    """The end of what a node printed, and of its raylet's log, which says why it gave up."""
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
    raylets = sorted(Path(record["temp"]).glob("session_2*/logs/raylet*.out"), key=lambda path: path.stat().st_mtime)
    for path in raylets[-1:]:
        lines += [f"{path}:", *path.read_text(errors="replace").splitlines()[-LOG_LINES:]]
    return "\n".join(lines)
