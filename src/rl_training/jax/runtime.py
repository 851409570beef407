"""Setup of jax in this process: one thread per program, and a compilation cache in the user's cache folder.

Everything here must happen before the first computation, because XLA reads its flags once: a process in which jax has
already computed something (a notebook, say) keeps its threads.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from rl_training.system.imports import without_collections

SINGLE_THREAD = "--xla_cpu_multi_thread_eigen=false"
"""Small matrix products are slower on several threads, and their bits would depend on the number of threads."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""Options of mallopt, from malloc.h."""

_threads: list[int] = []
"""Number of XLA threads in this process, once it is known."""


def configure(num_threads: int = 1, device: str = "auto") -> None:
    """Set threads, compilation cache and dispatch; further calls cost nothing."""
    if not _threads:
        keep_freed_memory()
        _threads.append(start_with(num_threads))
    with without_collections():
        import jax
    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    # synchronous dispatch: computations run in the calling thread, so that runs in several threads share no queue
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if jax.config.values.get("jax_compilation_cache_dir") is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def keep_freed_memory() -> None:
    """Tell the C library (glibc) to keep what was freed, in one heap for all threads, instead of returning it.

    XLA frees the temporary arrays of a program after every call. As fresh pages of the operating system, the hundreds
    of megabytes of a world model's update cost a quarter of its time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return
    for option, value in ((M_ARENA_MAX, 1), (M_MMAP_THRESHOLD, 1 << 30), (M_TRIM_THRESHOLD, (1 << 31) - 1)):
        mallopt(option, value)


def threads() -> int:
    """Threads that one operation may use: the number XLA was started with, whatever a later run asks for."""
    return _threads[0]


def start_with(num_threads: int) -> int:
    """Set the number of XLA threads if XLA has not started yet; returns the number it has."""
    if "jax" in sys.modules:
        from jax._src.xla_bridge import backends_are_initialized  # there is no public function for this

        if backends_are_initialized():
            return 1 if SINGLE_THREAD in os.environ.get("XLA_FLAGS", "") else usable_cores()
    if num_threads == 1:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {SINGLE_THREAD}".strip()
        return 1
    os.environ["NPROC"] = str(num_threads)  # the size of XLA's thread pool
    return num_threads


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_device(device: str) -> bool:
    """Run programs on `device` (cuda, cuda:1, mps, ...) from now on; False if it is not available."""
    import jax

    if device in ("auto", "cpu"):
        return True
    kind, _, index = device.partition(":")
    try:
        jax.config.update("jax_default_device", jax.devices({"mps": "METAL"}.get(kind, kind))[int(index or 0)])
    except (RuntimeError, IndexError):
        return False
    return True


def cache_folder() -> Path:
    """The folder of compiled programs, by the XDG convention. They are code, so only the user may write there."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "rl_training" / "jax"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
