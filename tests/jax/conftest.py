"""The programs of these tests are compiled once: the workers of a session share one cache folder."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def compile_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.getbasetemp()
    shared = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    os.environ["XDG_CACHE_HOME"] = str(shared / "cache")  # also for the processes that tests start
    from rl_training.jax.runtime import configure

    configure()
