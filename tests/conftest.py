"""The tests have a config home of their own: whoever runs them keeps theirs, keys and consents, as it is. Parts that a
test registers need not stay for others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_training import registry


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


@pytest.fixture
def registrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers, itself or by a plugin that it imports, is forgotten after it."""
    for parts in vars(registry).values():
        if isinstance(parts, registry.Registry):
            monkeypatch.setattr(parts, "_entries", dict(parts._entries))
            monkeypatch.setattr(parts, "_registered_by", dict(parts._registered_by))
