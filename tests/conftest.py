"""The tests have a config home of their own: whoever runs them keeps theirs, keys and consents, as it is. Parts that a
test registers need not stay for others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from rl_training import registry

TRIES = 3
"""How often a test marked `wall_clock` is tried."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Tests marked `wall_clock` promise seconds, which a machine that is busy with other work cannot keep every time:
    one success in a few tries is enough. What is too slow in itself fails every time."""
    if item.get_closest_marker("wall_clock") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for _ in range(TRIES):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if not any(report.failed for report in reports):
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


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
