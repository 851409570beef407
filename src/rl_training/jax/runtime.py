"""How jax is set up in this process: one thread per program, and a compile cache in the user's cache folder.

Everything here must happen before the first computation, because XLA reads its flags once: a process in which jax
already computes (a notebook, say) keeps the threads it has.
"""

from __future__ import annotations

import os
from pathlib import Path

SINGLE_THREAD = "--xla_cpu_multi_thread_eigen=false"
"""Small matrix products are slower on several threads, and their bits would depend on how many there are."""


def configure(num_threads: int = 1, device: str = "auto") -> None:
    """Threads, cache and dispatch; costs nothing the second time."""
    flags = os.environ.get("XLA_FLAGS", "")
    if num_threads == 1 and SINGLE_THREAD not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {SINGLE_THREAD}".strip()
    import jax

    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    # computations run in the thread that asks for them, so that runs in several threads share no queue
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if jax.config.values.get("jax_compilation_cache_dir") is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def cache_folder() -> Path:
    """Compiled programs, by the XDG convention. They are code: nobody else may write there."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "rl_training" / "jax"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
