"""Metrics of several updates as one row."""

from __future__ import annotations

import torch

from rl_training.algorithms.ppo import stacked_mean
from rl_training.numerics.metrics import mean_metrics


def test_every_metric_is_averaged_over_the_updates_that_reported_it() -> None:
    records = [{"critic_loss": 1.0}, {"critic_loss": 2.0, "actor_loss": 4.0}, {"critic_loss": 6.0}]
    assert mean_metrics(records) == {"critic_loss": 3.0, "actor_loss": 4.0}
    assert list(mean_metrics(records)) == ["critic_loss", "actor_loss"]
    assert mean_metrics([]) == {}


def test_tensors_stay_tensors() -> None:
    means = mean_metrics([{"loss": torch.tensor(1.0)}, {"loss": torch.tensor(2.0)}])
    assert isinstance(means["loss"], torch.Tensor)
    assert float(means["loss"]) == 1.5


def test_the_mean_can_be_another_one() -> None:
    records = [{"loss": torch.tensor(1.0), "kl": 0.25}, {"loss": torch.tensor(2.0), "kl": 0.75}]
    means = mean_metrics(records, stacked_mean)
    assert {name: float(value) for name, value in means.items()} == {"loss": 1.5, "kl": 0.5}
    assert means["kl"].dtype == torch.float32
