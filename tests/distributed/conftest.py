"""One real Ray cluster for all cluster tests: a head and two nodes of one CPU each, on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_cases import started

from rl_training.distributed.local_cluster import LocalCluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = Path(tmp_path_factory.mktemp("cluster")) / "runs"
    made = started(LocalCluster(folder))
    yield made
    made.down()
