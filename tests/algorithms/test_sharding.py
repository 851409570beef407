"""Gradients and statistics of shards, put together, are those of the whole batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.ppo import PPO, Coefficients
from rl_training.algorithms.rollout import Rollout
from rl_training.algorithms.sharding import ShardedKernel, ShardedRollout, ShardedRows
from rl_training.assembly.build import build_trainer
from rl_training.config.loading import parse_config
from rl_training.distributed.ranks import Ranks, RankShards
from rl_training.numerics.normalization import ObsNormalizer, RunningMeanStd, moments_of
from rl_training.types import BoxSpec, RLTrainingError

COEFFICIENTS = Coefficients(0.2, 0.01, 0.5, None)


def ppo(shards: int, **hparams: Any) -> PPO:
    """PPO of a run with this number of shards, always with the same weights."""
    cfg = {
        "algo": "ppo",
        "env_id": "CartPole-v1",
        "env": {"num_envs": 8},
        "hparams": {"kernel": "reference", **hparams},
        "training": {"shards": shards},
    }
    trainer = build_trainer(parse_config(cfg))
    trainer.close()
    assert isinstance(trainer.algorithm, PPO)
    return trainer.algorithm


def rollout(rows: int, seed: int = 0) -> Rollout:
    """Made-up transitions of CartPole."""
    rng = np.random.default_rng(seed)
    columns = [torch.from_numpy(rng.standard_normal(rows, dtype=np.float32)) for _ in range(4)]
    obs = torch.from_numpy(rng.standard_normal((rows, 4), dtype=np.float32))
    return Rollout(obs, torch.from_numpy(rng.integers(2, size=rows)), -columns[0].abs(), *columns[1:])


def cut(whole: Rollout, sizes: list[int]) -> list[Rollout]:
    """The rows of a rollout as those of several shards."""
    return [whole.rows(index) for index in torch.arange(sum(sizes)).split(sizes)]


@pytest.mark.parametrize("sizes", [[16, 16], [5, 20, 7], [1, 31]])
def test_the_gradient_of_shards_is_that_of_the_minibatch(sizes: list[int]) -> None:
    whole, alone, sharded = rollout(sum(sizes)), ppo(1), ppo(2)
    shards = RankShards(Ranks(), len(sizes))
    expected = alone.gradient(whole, COEFFICIENTS)
    parts = ShardedRollout(shards, cut(whole, sizes))
    kernel = ShardedKernel(
        sharded.reference_kernel(), shards, {"network": sharded.policy.parameters.grad}, adds_up=True
    )
    found = kernel.gradient("network", sharded.loss, parts.whole(), COEFFICIENTS)
    torch.testing.assert_close(sharded.policy.parameters.grad, alone.policy.parameters.grad, rtol=1e-5, atol=1e-6)
    for name, value in expected.items():
        assert float(found[name]) == pytest.approx(float(value), rel=1e-5, abs=1e-6), name


def test_gradients_of_several_minibatches_add_up() -> None:
    sharded, shards = ppo(2), RankShards(Ranks(), 2)
    rows = ShardedRollout(shards, cut(rollout(32), [16, 16])).whole()
    once = sharded.gradient(rows, COEFFICIENTS)
    gradient = sharded.policy.parameters.grad.clone()
    twice = sharded.gradient(rows, COEFFICIENTS)
    torch.testing.assert_close(sharded.policy.parameters.grad, 2.0 * gradient)
    assert torch.equal(torch.as_tensor(once["loss"]), torch.as_tensor(twice["loss"]))


def test_every_minibatch_has_its_share_of_every_shard() -> None:
    parts = ShardedRollout(RankShards(Ranks(), 2), cut(rollout(24), [8, 16]))
    minibatches = parts.split(np.random.default_rng(0), 4)
    assert [[len(places) for places in index] for index in minibatches] == [[2, 4]] * 4
    for number, size in enumerate((8, 16)):
        assert sorted(torch.cat([index[number] for index in minibatches]).tolist()) == list(range(size))
    assert parts.rows(minibatches[0]).weights == pytest.approx([1 / 3, 2 / 3])


def test_a_shard_without_transitions_is_named() -> None:
    whole = rollout(8)
    with pytest.raises(RLTrainingError, match="shard 1 has no transition"):
        ShardedRollout(RankShards(Ranks(), 2), [whole, whole.rows(torch.arange(0))])


def test_each_shard_draws_from_its_own_stream() -> None:
    streams, mine = [np.random.default_rng(seed) for seed in (1, 2)], [np.random.default_rng(0)]

    @contextmanager
    def drawing_from(rng: np.random.Generator) -> Iterator[None]:
        mine.append(rng)
        yield
        mine.pop()

    rows = ShardedRows(["a", "b"], [0.5, 0.5], streams, drawing_from)
    assert [(part, mine[-1].random()) for part in rows] == [
        (part, np.random.default_rng(seed).random()) for part, seed in (("a", 1), ("b", 2))
    ]
    assert mine[-1].random() == np.random.default_rng(0).random()


def test_merged_moments_are_those_of_all_rows() -> None:
    rows = np.random.default_rng(0).normal(1e5, 1.0, (60_000, 3))
    merged, together = RunningMeanStd((3,)), RunningMeanStd((3,))
    for piece in np.array_split(rows, 7):
        merged.merge(moments_of(piece))
    merged.merge(moments_of(rows[:0]))
    together.update(rows)
    assert merged.count == together.count == 60_000
    np.testing.assert_allclose(merged.mean, rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(merged.var, rows.var(0), rtol=1e-6)
    np.testing.assert_array_equal(together.mean, rows.mean(0))


def test_an_observation_normalizer_updates_by_its_moments() -> None:
    ones = np.ones(2, np.float32)
    one, other = (ObsNormalizer(BoxSpec(-ones, ones, ones.dtype)) for _ in range(2))
    obs, valid = np.random.default_rng(1).normal(size=(5, 4, 2)).astype(np.float32), np.ones((5, 4), bool)
    valid[3, 2] = False
    one.update(obs, valid)
    other.merge(other.moments(obs, valid))
    assert one.state_dict()["obs"]["count"] == 19
    np.testing.assert_array_equal(one(obs), other(obs))
