"""A shell for `rl` commands, a folder in memory, and the uninterrupted runs that everything is compared with."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("fault_runs")

from fault_runs import ENVIRONMENTS, ROLLOUT, Reference, Shell, flags, state_hash, the_run  # noqa: E402


@pytest.fixture(scope="session")
def shell() -> Iterator[Shell]:
    shell = Shell()
    yield shell
    shell.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Empty, and in memory where the system has such a place: a sync of a real disk takes milliseconds."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    made = Path(tempfile.mkdtemp(prefix="rl-faults-", dir=memory))
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="session")
def reference(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Reference]:
    """Finds the uninterrupted run of an environment (and further settings), made once, with a checkpoint at every
    rollout. The tested runs save more rarely and keep fewer, which must not matter."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    known: dict[str, Reference] = {}

    def find(environment: str, settings: dict[str, Any] | None = None) -> Reference:
        keep = {"training.checkpoint_frequency": ROLLOUT, "checkpoint.keep_last": 1000}
        words = flags(ENVIRONMENTS[environment], settings or {}, keep)
        name = f"faults-{state_hash(words)[:16]}"
        if name not in known:
            place = shared / name
            place.mkdir(exist_ok=True)
            with open(place / "lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes share it
                if not (place / "done").exists():
                    shell.run(place, ["train", *words, f"--output_dir={place}/runs"])
                    (place / "done").touch()
            known[name] = Reference.read(the_run(place / "runs"))
        return known[name]

    return find
