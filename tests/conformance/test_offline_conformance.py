"""Offline algorithms keep the rules of every algorithm, on datasets of random actions."""

from __future__ import annotations

from typing import Any

import pytest

from rl_training.config.schema import builtin_spec
from rl_training.registry import algorithms
from rl_training.testing import ENVIRONMENTS, check_algorithm

OFFLINE = [name for name in algorithms.names() if algorithms.is_builtin(name) and builtin_spec(name).kind == "offline"]
NARROW = {"hidden_dims": [16, 16]}
NETWORKS: dict[str, Any] = {
    "dt": {"actor": {"memory": {"type": "transformer", "size": 8, "heads": 2, "layers": 1, "window": 4}}}
}
HPARAMS = {"cql": {"num_sampled": 2}, "dt": {"warmup_updates": 0}}
DISCRETE = {"bc", "cql", "dt"}


def config(algo: str, **sections: Any) -> dict[str, Any]:
    return {"network": NETWORKS.get(algo, {"actor": NARROW, "critic": NARROW}), **sections}


@pytest.mark.parametrize("algo", OFFLINE)
def test_conforms_on_every_kind_of_space(algo: str) -> None:
    report = check_algorithm(algo, hparams=HPARAMS.get(algo), config=config(algo))
    assert set(report.trained_on) | set(report.refused) == set(ENVIRONMENTS)
    assert "Pendulum-v1" in report.trained_on
    assert ("CartPole-v1" in report.trained_on) == (algo in DISCRETE)
    assert ("RLProbe/MaskedArms-v0" in report.trained_on) == (algo in DISCRETE)


@pytest.mark.parametrize("algo", OFFLINE)
def test_conforms_with_statistics_of_the_dataset(algo: str) -> None:
    environments = ["CartPole-v1", "Pendulum-v1", "RLProbe/DictObs-v0"]
    settings = config(algo, env={"normalize_obs": True})
    assert check_algorithm(algo, environments=environments, hparams=HPARAMS.get(algo), config=settings).trained_on
