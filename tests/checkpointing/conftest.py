"""The folder that checkpoint tests write to: in memory where possible, since syncing a real disk takes milliseconds."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    """An empty run directory."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="rl-checkpoints-", dir=memory))
    yield folder
    shutil.rmtree(folder)
