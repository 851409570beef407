"""Old runs, made once per session, whichever test process asks first."""

from __future__ import annotations

import fcntl
import json
import os
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.register_assert_rewrite("compat_runs")

from compat_cases import GROUPS  # noqa: E402
from compat_runs import Outcome, Played, play, unpack  # noqa: E402

Make = Callable[[Path], Played]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all test processes of a session."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compat"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def old_package(shared: Path) -> Path:
    """The folder that the old package is imported from."""
    with open(shared / "source.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "source").exists():
            unpack(shared / "unpacking")
            (shared / "unpacking").rename(shared / "source")
    return shared / "source" / "src"


@pytest.fixture(scope="session")
def played(shared: Path, old_package: Path) -> Callable[[str], Played]:
    """Finds what was made of a group of cases."""
    return lambda name: once(shared / name, lambda folder: play(name, GROUPS[name], folder, shared, old_package))


@pytest.fixture(scope="session")
def played_once(shared: Path) -> Callable[[str, Make], Played]:
    """The same for anything else: (name, how it is made in a folder) -> what was made."""
    return lambda name, make: once(shared / name, make)


def once(folder: Path, make: Make) -> Played:
    """What `make` made in `folder`, by this process or by another. What failed once fails for everybody, at once."""
    folder.mkdir(exist_ok=True)
    record = folder / "played.json"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not record.exists():
            record.write_text(json.dumps(_recorded(folder, make)))
    found = json.loads(record.read_text())
    assert "failure" not in found, found["failure"]
    old, today = ({name: Outcome(**one) for name, one in found[side].items()} for side in ("old", "today"))
    return Played(folder, old, today)


def _recorded(folder: Path, make: Make) -> dict[str, object]:
    try:
        made = make(folder)
    except Exception:
        return {"failure": traceback.format_exc()}
    return {side: {key: asdict(one) for key, one in getattr(made, side).items()} for side in ("old", "today")}
