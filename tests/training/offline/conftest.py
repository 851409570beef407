"""A dataset that the tests of offline runs share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rl_training.data.datasets.native import write_native
from rl_training.eval import record
from rl_training.training.offline.recording import Amount


@pytest.fixture(scope="session")
def random_pendulum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random actions in Pendulum, with reference scores."""
    data = record(None, Amount(steps=1000), random_env="Pendulum-v1")
    scored = replace(data, info=replace(data.info, ref_min=-1200.0, ref_max=-150.0))
    return write_native(scored, tmp_path_factory.mktemp("data") / "random")
