"""The Ray driver, in a process of its own: `python -m rl_training.distributed.ray_driver ADDRESS`.

Ray ends the process of a driver that has lost its cluster. So the driver is a child of the parent and speaks with it in
JSON lines, orders on stdin and events on stdout; when it is gone, the parent lives and says what to do.

| order | | event | |
|---|---|---|---|
| `start` id words env log folder resources | start a member | `ready` nodes | connected |
| `signal` id number | pass a signal on | `state` slots nodes | every two seconds |
| `check` id folder nonce | probe every node | `started` id where | a member's process runs |
| `close` | stop all members, then end | `exit` id code | a member has ended; null: lost |
| end of stdin | the parent is gone: the same | `checked` id nodes · `gone` why | |
"""

from __future__ import annotations

import json
import logging
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rl_training.distributed.local_node import LOOPBACK, keep_loopback
from rl_training.distributed.ray_member import MemberActor, probe_node
from rl_training.types import RunError

POLL_SECONDS = 0.5
STATE_SECONDS = 2.0
GCS_MISSES = 2
"""Failed connections to the head in a row after which the cluster counts as gone."""
CLOSE_SECONDS = 12.0
"""Time for members to save and stop when the driver ends."""
PROBE_SECONDS = 60.0
SMALL = 1e-6
GRPC_SECONDS = 10.0
"""How long a busy head may take to answer."""
FRAME_HEADER, SETTINGS_FRAME = 9, 4
"""Bytes of the header of an HTTP/2 frame, whose fourth is its type; a server's first frame holds its settings."""
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, SETTINGS_FRAME, 0, 0, 0, 0, 0])
"""What a client says first (RFC 9113, section 3.4): the preface and settings without entries."""


class Remote:
    """A member as the driver knows it."""

    def __init__(self, actor: Any, number: int, starting: Any, log: str) -> None:
        self.actor, self.number, self.starting = actor, number, starting
        self.log = log
        self.node: str | None = None
        self.polling: Any = None


class Driver:
    """Connected to one cluster; holds one actor per member."""

    def __init__(self, address: str) -> None:
        import ray

        self.ray: Any = ray  # most of it is not typed
        self.address = address
        local: dict[str, Any] = {}
        if address.rpartition(":")[0] in (LOOPBACK, "localhost"):
            keep_loopback()
            local = {"_node_ip_address": LOOPBACK}
        self.ray.init(
            address=address, log_to_driver=False, logging_level=logging.ERROR, namespace="rl_training", **local
        )
        self.actor_class: Any = self.ray.remote(MemberActor)
        self.members: dict[int, Remote] = {}
        self.orders: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.resources: Mapping[str, float] = {"cpus": 1.0, "gpus": 0.0}
        self.misses = 0

    def run(self) -> int:
        threading.Thread(target=self._read_orders, name="orders", daemon=True).start()
        tell(event="ready", nodes=self.nodes())
        next_state = 0.0
        while True:
            now = time.monotonic()
            if now >= next_state:
                next_state = now + STATE_SECONDS
                if not self._look():
                    return 1
            self._poll()
            try:
                order = self.orders.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
            if order is None or order["op"] == "close":
                self._stop_all(CLOSE_SECONDS)
                return 0
            self._obey(order)

    def _read_orders(self) -> None:
        for line in sys.stdin:
            self.orders.put(json.loads(line))
        self.orders.put(None)

    def _obey(self, order: dict[str, Any]) -> None:
        if order["op"] == "start":
            self._start(order)
        elif order["op"] == "signal":
            member = self.members.get(order["id"])
            if member is not None:
                member.actor.send_signal.remote(order["number"])
        elif order["op"] == "check":
            tell(event="checked", id=order["id"], nodes=self._check(order["folder"], order["nonce"]))
        elif order["op"] == "resources":
            self.resources = order["resources"]

    def _start(self, order: dict[str, Any]) -> None:
        asked = order["resources"]
        memory = asked.get("memory_mb")
        actor = self.actor_class.options(
            num_cpus=asked["cpus"],
            num_gpus=asked["gpus"],
            memory=None if memory is None else memory * 2**20,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        ).remote()
        starting = actor.start.remote(order["words"], order["env"], order["log"], order["folder"])
        self.members[order["id"]] = Remote(actor, order["id"], starting, order["log"])

    # -- watching -----------------------------------------------------------------------------------------------------

    def nodes(self) -> list[dict[str, Any]]:
        """Every node that Ray knows, alive or not."""
        return [
            {
                "id": node["NodeID"],
                "alive": bool(node["Alive"]),
                "host": node["NodeManagerHostname"],
                "cpus": float(node["Resources"].get("CPU", 0.0)),
                "gpus": float(node["Resources"].get("GPU", 0.0)),
                "is_head": "node:__internal_head__" in node["Resources"],
            }
            for node in self.ray.nodes()
        ]

    def _look(self) -> bool:
        """Report the state of the cluster; False if its head is gone."""
        self.misses = 0 if is_reachable(self.address) else self.misses + 1
        if self.misses >= GCS_MISSES:
            tell(event="gone", why="its head does not answer any more")
            self._stop_all(CLOSE_SECONDS / 2)
            return False
        if self.misses:
            return True
        nodes = self.nodes()
        dead = {node["id"] for node in nodes if not node["alive"]}
        for member in list(self.members.values()):
            if member.node in dead:
                self._end(member, None)
        tell(event="state", slots=self._slots(nodes), nodes=nodes)
        return True

    def _slots(self, nodes: list[dict[str, Any]]) -> int:
        """Members that fit on the cluster now, those that run included."""
        cpus, gpus = self.resources["cpus"], self.resources["gpus"]
        free = self.ray.available_resources()
        fits = sum(
            min(_times(node["cpus"], cpus), _times(node["gpus"], gpus) if gpus else 10**9)
            for node in nodes
            if node["alive"]
        )
        running = len(self.members)
        room = min(_times(free.get("CPU", 0.0), cpus), _times(free.get("GPU", 0.0), gpus) if gpus else 10**9)
        return int(min(fits, running + room))

    def _poll(self) -> None:
        """Ask every member, without waiting for the answer of any."""
        for member in list(self.members.values()):
            pending = member.starting if member.starting is not None else member.polling
            if pending is None:
                member.polling = member.actor.poll.remote()
                continue
            done, _ = self.ray.wait([pending], timeout=0)
            if not done:
                continue
            try:
                answer = self.ray.get(pending)
            except self.ray.exceptions.RayTaskError as error:  # the process could not even be started
                with suppress(OSError), open(member.log, "a", encoding="utf-8") as log:
                    log.write(f"error: its process cannot be started there: {error.cause}\n")
                self._end(member, 1)
                continue
            except self.ray.exceptions.RayError:
                self._end(member, None)
                continue
            if member.starting is not None:
                member.starting, member.node = None, answer["node"]
                tell(event="started", id=member.number, where=answer["where"])
            elif answer is not None:
                self._end(member, answer)
            else:
                member.polling = None

    def _end(self, member: Remote, code: int | None) -> None:
        del self.members[member.number]
        self.ray.kill(member.actor)
        tell(event="exit", id=member.number, code=code)

    def _stop_all(self, seconds: float) -> None:
        """Stop every member as after SIGTERM and wait for them to save; actors speak without the head too."""
        for member in self.members.values():
            member.actor.send_signal.remote(15)
        deadline = time.monotonic() + seconds
        while self.members and time.monotonic() < deadline:
            self._poll()
            time.sleep(0.1)

    def _check(self, folder: str, nonce: str) -> list[dict[str, Any]]:
        """Probe the output directory and the versions of every node that is alive and has CPUs."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        alive = [node for node in self.nodes() if node["alive"] and node["cpus"] > 0]
        probe = self.ray.remote(probe_node)
        asked = [
            probe.options(
                num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["id"], soft=False)
            ).remote(folder, nonce, node["id"])
            for node in alive
        ]
        found = []
        for node, answer in zip(alive, asked, strict=True):
            try:
                found.append(self.ray.get(answer, timeout=PROBE_SECONDS))
            except Exception as error:  # whatever a strange node answers is reported, not raised
                text = str(error).strip().splitlines()
                problem = f"it cannot run a task of rl_training ({text[-1][:200] if text else type(error).__name__})"
                found.append({"node": node["id"], "host": node["host"], "versions": None, "problem": problem})
        return found


def _times(available: float, needed: float) -> int:
    """How often `needed` fits into `available`."""
    return int(available / needed + SMALL)


def is_reachable(address: str, timeout: float = 2.0) -> bool:
    """Whether something listens at an address."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=timeout):
            return True
    except (OSError, ValueError):
        return False


def require_cluster(address: str, cure: str) -> None:
    """RunError in one sentence if no Ray cluster listens at an address; `cure` says how to name another one."""
    if not is_reachable(address):
        raise RunError(f"no Ray cluster answers at {address}; start one with `rl cluster up --local 2`, {cure}")
    if not is_grpc(address):
        raise RunError(
            f"what listens at {address} is not the head of a Ray cluster (its port is 6379 unless you chose another; "
            f"8265 is the dashboard's); start one with `rl cluster up --local 2`, {cure}"
        )


def is_grpc(address: str) -> bool:
    """Whether a server at an address speaks HTTP/2, as Ray's head does: anything else keeps Ray waiting for minutes."""
    if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return True  # encrypted: the answer cannot be read
    host, _, port = address.rpartition(":")
    answer = b""
    try:
        with socket.create_connection((host, int(port)), timeout=GRPC_SECONDS) as connection:
            connection.sendall(HTTP2_PREFACE)
            while len(answer) < FRAME_HEADER and (received := connection.recv(FRAME_HEADER)):
                answer += received
    except OSError:
        return False
    return len(answer) >= FRAME_HEADER and answer[3] == SETTINGS_FRAME


def tell(**event: Any) -> None:
    """One event to the parent; without one there is nobody to tell."""
    try:
        sys.__stdout__.write(json.dumps(event) + "\n")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]
    except (OSError, ValueError):
        pass


def main() -> None:
    code = 1
    try:
        driver = Driver(sys.argv[1])
        code = driver.run()
        if code == 0:
            driver.ray.shutdown()
    except Exception as error:
        text = str(error).strip().splitlines()
        tell(event="gone", why=f"{type(error).__name__}: {text[0][:300] if text else ''}")
        raise
    finally:
        os._exit(code)  # Ray's own threads would wait for a cluster that is gone


if __name__ == "__main__":
    main()
