"""What runs on the nodes of a Ray cluster: an actor that starts one `rl` process and follows it, and a probe of a node.

The process holds a lifeline to its actor: when the node's raylet dies, Ray ends the actor, and the process saves and
stops by itself. The actor stops it too when the driver has not asked for `BEAT_LIMIT` seconds, so that nothing is left
working when the driver or the network is gone. Ray starts neither of them a second time: going on with a run is a
decision of the parent, which asks the run's lock first.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rl_training.runs.holder import WHERE_VARIABLE
from rl_training.system.file_systems import host_name
from rl_training.system.lifeline import Lifeline
from rl_training.system.machine import versions

BEAT_LIMIT = 15.0
"""Seconds without a question of the driver after which a member is stopped."""
NODE_DIGITS = 6
"""Digits of a node's id in messages."""


class MemberActor:
    """One member on a node. Every method returns at once: the driver's questions are its heartbeat."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = Lifeline()
        self._heard = time.monotonic()
        threading.Thread(target=self._watch_driver, name="driver-watch", daemon=True).start()

    def start(self, words: Sequence[str], env: Mapping[str, str], log: str, folder: str) -> dict[str, Any]:
        """Start the process of a member; returns where that is."""
        import ray

        node = str(ray.get_runtime_context().get_node_id())
        where = f"ray node {node[:NODE_DIGITS]}"
        variables = {**os.environ, **env, **self._lifeline.variables(), WHERE_VARIABLE: f"ray node {node}"}
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rl_training", *words],
                cwd=folder if os.path.isdir(folder) else None,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[self._lifeline.descriptor],
                env=variables,
            )
        self._heard = time.monotonic()
        return {"where": where, "node": node, "pid": self._process.pid, "host": host_name()}

    def poll(self) -> int | None:
        """The exit code of the process, None while it runs."""
        self._heard = time.monotonic()
        return None if self._process is None else self._process.poll()

    def send_signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _watch_driver(self) -> None:
        while time.monotonic() - self._heard < BEAT_LIMIT:
            time.sleep(0.5)
        self._lifeline.close()
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=30)
        os._exit(0)


def probe_node(folder: str, nonce: str, node: str) -> dict[str, Any]:
    """What a node has: its versions, and what is wrong with the output directory there, if anything.

    The file `nonce` was written by the parent. The node reads it, and writes, locks, renames and reads one of its own.
    """
    problem = folder_problem(folder, nonce, node)
    return {"node": node, "host": host_name(), "versions": versions(), "problem": problem}


def folder_problem(folder: str, nonce: str, node: str) -> str | None:
    """Why an output directory cannot be used from here; None if it can."""
    root = Path(folder)
    own, renamed = root / f"{nonce}.{node}.tmp", root / f"{nonce}.{node}"
    try:
        if not (root / nonce).is_file():
            return "it is not the same folder there: it is not shared"
        with open(own, "wb") as file:
            file.write(node.encode())
            file.flush()
            with suppress(OSError):  # a file system without flock: runs then lock by files
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fsync(file.fileno())
        os.rename(own, renamed)
        if renamed.read_bytes() != node.encode():
            return "what is written there does not read back"
    except OSError as error:
        return f"it cannot be written there ({error.strerror})"
    finally:
        with suppress(OSError):
            own.unlink()
    return None
