"""Archives of runs in object stores: `s3://...`, `gs://...` and every other address that fsspec knows."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from rl_training.experiments.keeping.archive import SUFFIX, pack
from rl_training.experiments.keeping.cleanup import clean
from rl_training.runs.directory import RunDir
from rl_training.types import ConfigError, RunError


def pack_to_store(run: RunDir, address: str, *, remove: bool = False) -> int:
    """Pack a run, write the archive to an address and compare its size there; returns that size in bytes.

    Never overwrites. With `remove` the run is cleaned afterwards: its config and final metrics stay.
    """
    try:
        import fsspec

        store, path = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"--output {address}: {error}") from None
    try:
        if store.exists(path):
            raise RunError(f"'{address}' exists already; remove it, or choose another address with --output")
        with tempfile.TemporaryDirectory(prefix="rl-archive-") as folder:
            archive = pack(run, Path(folder) / f"{run.path.name}{SUFFIX}")
            size = archive.stat().st_size
            with open(archive, "rb") as source, store.open(path, "wb") as target:
                shutil.copyfileobj(source, target)
        if store.size(path) != size:
            raise RunError(f"'{address}' has {store.size(path)} bytes instead of {size}; the run is left as it is")
    except OSError as error:
        raise RunError(f"cannot write '{address}': {error}") from error
    if remove and (problem := clean(run).problem):
        raise RunError(f"'{address}' is written, but run '{run.path}' could not be cleaned: {problem}")
    return size
