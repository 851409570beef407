"""The tests have a config home of their own: whoever runs them keeps theirs, keys and consents, as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_config_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For the whole session, because fixtures of a session train too; processes that tests start inherit it."""
    folder = tmp_path_factory.mktemp("config_home")
    before = {name: os.environ.get(name) for name in ("XDG_CONFIG_HOME", "RL_TRAINING_TRUST_KEY")}
    os.environ["XDG_CONFIG_HOME"] = str(folder)
    os.environ.pop("RL_TRAINING_TRUST_KEY", None)
    yield folder
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
