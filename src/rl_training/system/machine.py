"""Versions, hardware and git state of the working directory, recorded with each run.

Reads only. Packages are looked up by their metadata, not imported, and git may be missing.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rl_training.system.threads import blas_threads
from rl_training.version import __version__

PACKAGES = (
    *("torch", "numpy", "gymnasium", "jax", "jaxlib", "safetensors", "pydantic"),
    *("mujoco", "ale-py", "envpool", "box2d", "box2d-py", "dm-control", "shimmy", "minigrid", "minari", "pettingzoo"),
    *("mpe2", "pygame-ce", "opencv-python-headless"),
)
"""Distributions that can change a run's numbers."""

MAX_DIFF_BYTES = 2**20
MAX_UNTRACKED = 100
GIT_SECONDS = 2.0
"""A repository too large to answer within this is recorded without its diff; training does not wait for it."""


@dataclass(frozen=True)
class GitState:
    """Commit and changes of a repository; `diff` holds uncommitted changes, cut at MAX_DIFF_BYTES."""

    commit: str | None
    branch: str | None
    diff: str
    untracked: tuple[str, ...]
    truncated: bool


def versions() -> dict[str, str]:
    """Python and every installed package that matters to a run."""
    # ours is read from the source: the metadata of an editable installation is as old as the last `pip install`
    return {"python": platform.python_version(), "rl-training": __version__, **_installed(tuple(sys.path))}


@cache  # reading the metadata of twenty packages takes 10 ms, and each run of a process asks
def _installed(path: tuple[str, ...]) -> Mapping[str, str]:
    """The versions of the packages in `PACKAGES` that are installed."""
    found = {}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def hardware() -> dict[str, Any]:
    """CPU, cores and memory; GPUs only if torch is imported already, because asking it costs seconds.

    `blas_threads` is the number of NumPy's BLAS threads, which a run pins like torch's; None if it is not known.
    """
    return {
        "host": socket.gethostname(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "blas_threads": blas_threads(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": _gpu_names(),
    }


def usable_cores() -> int:
    """CPU cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def peak_memory_bytes() -> int:
    """Peak resident memory of this process in bytes, without its worker processes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _cpu_model() -> str:
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _gpu_names() -> list[str]:
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_available():
        return []
    return [cuda.get_device_name(index) for index in range(cuda.device_count())]


class GitQuery:
    """Queries git in the background, from construction on; `result` waits for the answer."""

    def __init__(self, directory: Path | str = ".") -> None:
        status = ["status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--ignore-submodules=dirty"]
        diff = ["diff", "HEAD", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty"]
        self._processes = [_start_git(directory, command) for command in (status, diff)]
        self._deadline = time.monotonic() + GIT_SECONDS

    def __enter__(self) -> GitQuery:
        return self

    def __exit__(self, *exception: object) -> None:
        """Kill the processes and close their pipes, also after an error."""
        for process in self._processes:
            if process is not None:
                process.kill()
                process.wait()
                if process.stdout is not None:
                    process.stdout.close()

    def result(self) -> GitState | None:
        """The repository's state, or None outside a repository and without git."""
        status, diff = _read_all(self._processes, MAX_DIFF_BYTES, self._deadline)
        if status is None:
            return None
        commit = branch = None
        untracked: list[str] = []
        for record in status[:MAX_DIFF_BYTES].decode(errors="replace").split("\0"):
            if record.startswith("# branch.oid ") and not record.endswith("(initial)"):
                commit = record.removeprefix("# branch.oid ")
            elif record.startswith("# branch.head ") and not record.endswith("(detached)"):
                branch = record.removeprefix("# branch.head ")
            elif record.startswith("? ") and len(untracked) < MAX_UNTRACKED:
                untracked.append(record.removeprefix("? "))
        truncated = (diff is None and commit is not None) or len(diff or b"") > MAX_DIFF_BYTES
        text = (diff or b"")[:MAX_DIFF_BYTES].decode(errors="replace")
        return GitState(commit, branch, text, tuple(untracked), truncated)


def _start_git(directory: Path | str, command: list[str]) -> subprocess.Popen[bytes] | None:
    # No prompts, no index refresh on disk, no programs named by the repository's config.
    environ = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    with suppress(OSError):
        return subprocess.Popen(
            ["git", "-c", "core.fsmonitor=false", *command],
            cwd=directory,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    return None


def _read_all(processes: list[subprocess.Popen[bytes] | None], limit: int, deadline: float) -> list[bytes | None]:
    """Output of each process, up to just over `limit` bytes; None if it failed, is missing or took too long."""
    outputs: list[bytes | None] = [None] * len(processes)
    received = [bytearray() for _ in processes]
    with selectors.DefaultSelector() as selector:
        for index, process in enumerate(processes):
            if process is not None and process.stdout is not None:
                selector.register(process.stdout, selectors.EVENT_READ, index)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                chunk = os.read(key.fd, 2**16)
                received[key.data] += chunk
                if not chunk or len(received[key.data]) > limit:
                    selector.unregister(key.fileobj)
        late = {key.data for key in selector.get_map().values()}
    for index, process in enumerate(processes):
        if process is None or process.stdout is None:
            continue
        cut = index in late or len(received[index]) > limit
        process.stdout.close()
        if cut:
            process.kill()
        if (process.wait() == 0 or len(received[index]) > limit) and index not in late:
            outputs[index] = bytes(received[index])
    return outputs
