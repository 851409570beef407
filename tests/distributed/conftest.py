"""One real Ray cluster for all cluster tests: a head and two nodes of one CPU each, on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_training.distributed.local_cluster import LocalCluster
from rl_training.types import RunError

ATTEMPTS = 3
"""A raylet gives up when a busy machine does not start its helpers in time; then the start is tried again."""


def started(cluster: LocalCluster, nodes: int = 2) -> LocalCluster:
    """The cluster, up; after the last attempt the error ends with the raylet's log."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            cluster.up(nodes, 1)
            return cluster
        except RunError:
            if attempt == ATTEMPTS:
                raise
    raise AssertionError


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = Path(tmp_path_factory.mktemp("cluster")) / "runs"
    made = started(LocalCluster(folder))
    yield made
    made.down()
