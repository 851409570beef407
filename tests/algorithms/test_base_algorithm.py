"""BaseAlgorithm by hand: its metrics, and its own checkpoints."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.build_context import BuildContext
from rl_training.envs.probes.control import TwoArms
from rl_training.seeding import Streams
from rl_training.training.env_runner import EnvRunner
from rl_training.types import BoxSpec, CheckpointError, DiscreteSpec

MyAlgorithm: Any = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "my_algorithm.py"))["MyAlgorithm"]
BOX = BoxSpec(np.full(1, -1, np.float32), np.full(1, 1, np.float32), np.dtype(np.float32))


def made(seed: int = 0) -> Any:
    ctx = BuildContext(BOX, DiscreteSpec(2), streams=Streams(seed))
    return MyAlgorithm(ctx, MyAlgorithm.Hparams())


def learnt(algorithm: Any, updates: int = 3) -> Any:
    runner = EnvRunner([TwoArms], algorithm.policy)
    for _ in range(updates):
        algorithm.update(runner.collect_rollouts(64)[0])
    return algorithm


def test_get_metrics_gives_those_of_the_latest_update() -> None:
    algorithm = made()
    assert algorithm.get_metrics() == {}
    batch, _ = EnvRunner([TwoArms], algorithm.policy).collect_rollouts(64)
    result = algorithm.update(batch)
    assert algorithm.get_metrics() == {name: float(value) for name, value in result.metrics.items()}
    assert algorithm.get_metrics()["return_to_go"] == pytest.approx(batch["rewards"].mean())


def test_a_checkpoint_brings_networks_and_optimisers_back(tmp_path: Path) -> None:
    algorithm = learnt(made())
    algorithm.ctx.progress.advance(env_steps=192)
    assert algorithm.save_checkpoint(tmp_path).name == "step_000000000192"
    other = made(seed=1)
    other.load_checkpoint(tmp_path)
    for name, value in algorithm.networks["policy"].state_dict().items():
        assert torch.equal(value, other.networks["policy"].state_dict()[name]), name
    assert learnt(algorithm, 1).get_metrics() == learnt(other, 1).get_metrics(), "Adam goes on where it was"


def test_another_step_or_an_empty_folder_is_refused(tmp_path: Path) -> None:
    made().save_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="no checkpoint of step 5"):
        made().load_checkpoint(tmp_path, 5)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        made().load_checkpoint(tmp_path / "elsewhere")
