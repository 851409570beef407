"""MBPO: imagined transitions, what the policy learns from, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from dreamer_cases import box
from torch import Tensor

from rl_training.algorithms.sac import GaussianActor
from rl_training.algorithms.world_models.mbpo import MBPO, imagined_transitions
from rl_training.build_context import BuildContext
from rl_training.config.schema import BackboneConfig, MemoryConfig, NetworkConfig
from rl_training.dynamics.base import State
from rl_training.dynamics.ensemble import Draws, Ensemble, Scales
from rl_training.hparams.ensembles import EnsembleConfig
from rl_training.hparams.mbpo import MBPOConfig
from rl_training.seeding import Streams
from rl_training.types import Batch, ConfigError

NARROW = NetworkConfig(BackboneConfig(hidden_dims=(8,)), BackboneConfig(hidden_dims=(8,)))
SIZE = 8


class Counter(Ensemble):
    """Counts up by 1, earns what it counts, and ends at 3."""

    def step(self, obs: Tensor, actions: Tensor, draws: Draws | None, scales: Scales | None = None) -> State:
        after = obs + 1.0
        return {"obs": after, "reward": after[..., 0], "terminated": (after[..., 0] >= 3.0).to(torch.float32)}


def mbpo(network: NetworkConfig = NARROW, **given: Any) -> MBPO:
    ensemble = EnsembleConfig(kwargs={"members": 2, "hidden": 8, "layers": 1})
    hp = {"batch_size": SIZE, "real_updates": 0, "real_ratio": 0.25, "dynamics": ensemble, **given}
    ctx = BuildContext(box(1, 10.0), box(1, 2.0), network=network, streams=Streams(0))
    return MBPO(ctx, MBPOConfig(**hp))


def real_batch(rows: int = 2 * SIZE) -> Batch:
    rng = np.random.default_rng(0)
    return {
        "obs": rng.uniform(-9, -8, (rows, 1)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (rows, 1)).astype(np.float32),
        "rewards": np.full(rows, 7.0, np.float32),
        "next_obs": rng.uniform(-9, -8, (rows, 1)).astype(np.float32),
        "terminated": np.zeros(rows, bool),
    }


def test_a_rollout_ends_where_the_model_ends_it() -> None:
    algorithm = mbpo()
    algorithm.model.__class__ = Counter
    assert isinstance(algorithm.actor, GaussianActor)
    obs = torch.tensor([[0.0], [2.0]])
    found = imagined_transitions(
        algorithm.model, algorithm.actor, obs, torch.zeros(4, 2, 1), torch.rand(4, 2, algorithm.model.noise_size)
    )
    steps = sorted(zip(found["obs"][:, 0], found["rewards"], found["terminated"], strict=True))
    assert steps == [(0.0, 1.0, 0.0), (1.0, 2.0, 0.0), (2.0, 3.0, 1.0), (2.0, 3.0, 1.0)]
    assert np.abs(found["actions"]).max() <= 1.0


def test_the_policy_learns_from_a_share_of_real_transitions() -> None:
    algorithm = mbpo()
    algorithm.model.__class__ = Counter
    mixed = algorithm.mixed(real_batch())
    assert {name: len(column) for name, column in mixed.items()} == dict.fromkeys(mixed, SIZE)
    assert (mixed["rewards"] == 7.0).sum() == SIZE // 4
    assert mixed["terminated"].dtype == bool


def test_the_first_updates_are_on_real_transitions_only() -> None:
    algorithm, batch = mbpo(real_updates=1), real_batch()
    assert (algorithm.mixed(batch)["rewards"] == 7.0).all()
    algorithm.update(batch)
    assert not (algorithm.mixed(batch)["rewards"] == 7.0).all()


def test_the_model_learns_as_often_as_asked() -> None:
    algorithm = mbpo(model_every_updates=2)
    logged = ["model_nll" in algorithm.update(real_batch()).metrics for _ in range(4)]
    assert logged == [True, False, True, False]
    assert algorithm.schedule.batch_size == 2 * SIZE


def test_losses_of_the_policy_do_not_reach_the_model() -> None:
    algorithm = mbpo(model_every_updates=1000)
    algorithm.update(real_batch())
    before = algorithm.learners["model"].parameters.values.clone()
    algorithm.update(real_batch())
    assert torch.equal(before, algorithm.learners["model"].parameters.values)


def test_memory_and_n_step_targets_are_refused_in_words() -> None:
    memory = BackboneConfig(hidden_dims=(8,), memory=MemoryConfig("gru", 8))
    with pytest.raises(ConfigError, match="mbpo imagines single transitions"):
        mbpo(NetworkConfig(memory, memory), batch_size=16)
    with pytest.raises(ConfigError, match="n_step must be 1"):
        mbpo(n_step=2)
    with pytest.raises(ConfigError, match="real_ratio must be between 0 and 1"):
        mbpo(real_ratio=1.5)
