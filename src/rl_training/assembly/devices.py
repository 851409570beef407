"""The device of torch, and the number of threads of torch and NumPy; for jax see `jax/runtime.py`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from rl_training.config.schema import TrainConfig
from rl_training.system.imports import without_collections
from rl_training.system.launch import launched
from rl_training.system.threads import blas_threads, set_blas_threads
from rl_training.types import ConfigError


def resolve_device(cfg: TrainConfig) -> str:
    """The device to run on: the requested one if it is available, else the CPU with one warning. Of several processes
    of one run (torchrun) each takes the GPU of its number."""
    import torch

    launch = launched()
    if launch.ranks > 1 and cfg.device.startswith(("cuda", "auto")) and torch.cuda.is_available():
        return f"cuda:{launch.local_rank}"
    if cfg.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    wanted = torch.device(cfg.device)
    if (
        wanted.type == "cpu"
        or (wanted.type == "cuda" and (wanted.index or 0) < torch.cuda.device_count())
        or (wanted.type == "mps" and torch.backends.mps.is_available())
    ):
        return cfg.device
    return without_device(cfg)


def without_device(cfg: TrainConfig) -> str:
    """The fallback where the requested device is missing, or a refusal with `strict_device`."""
    if cfg.strict_device:
        raise ConfigError(f"device '{cfg.device}' is not available here; drop strict_device to run on the CPU")
    warnings.warn(f"device '{cfg.device}' is not available here: running on the CPU", stacklevel=2)
    return "cpu"


@contextmanager
def pinned_threads(count: int, backend: str = "torch") -> Iterator[None]:
    """Fix the number of threads of backend and NumPy, which a run needs to be reproduced bit for bit."""
    blas_before = blas_threads()
    set_blas_threads(count)
    try:
        with torch_threads(count) if backend == "torch" else nullcontext():
            yield
    finally:
        if blas_before is not None:
            set_blas_threads(blas_before)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    with without_collections():  # usually the first import of torch in a process
        import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def as_many_threads() -> Callable[[], None]:
    """What gives another thread the number of torch threads that this one has: OpenMP counts them per thread."""
    import torch

    count = torch.get_num_threads()
    return lambda: torch.set_num_threads(count)
