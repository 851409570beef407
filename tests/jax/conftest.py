"""The programs of these tests are compiled once: the workers of a session share one cache folder.

Most of them are tiny and run for a moment, so they are compiled without optimisation, which takes half of the time.
What is tested as users run it asks for `as_users_compile`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session", autouse=True)
def compile_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.getbasetemp()
    shared = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    os.environ["XDG_CACHE_HOME"] = str(shared / "cache")  # also for the processes that tests start
    from rl_training.jax.runtime import configure

    configure()


@pytest.fixture(autouse=True)
def optimisation(request: pytest.FixtureRequest, compile_cache: None) -> Iterator[None]:
    """Set the optimisation level while a test runs; module fixtures are compiled with full optimisation."""
    import jax

    jax.config.update("jax_disable_most_optimizations", "as_users_compile" not in request.fixturenames)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def as_users_compile() -> None:
    """Request full optimisation from `optimisation`."""


@pytest.fixture
def compilations() -> Iterator[Counter[str]]:
    """How often each function was compiled since the test began."""
    import jax

    counted: Counter[str] = Counter()

    def listen(name: str, seconds: float, **facts: Any) -> None:
        if "backend_compile" in name:
            counted[str(facts.get("fun_name"))] += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield counted
    jax.monitoring.clear_event_listeners()
