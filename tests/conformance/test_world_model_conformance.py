"""Dreamer and PlaNet keep the rules of every algorithm, with each kind of dynamics and observation."""

from __future__ import annotations

from typing import Any

import pytest

from rl_training.testing import ENVIRONMENTS, check_algorithm

WIDTHS = {"deter": 8, "hidden": 8, "stoch": 2, "classes": 3, "units": 8, "layers": 1, "depth": 1, "bins": 5}
SMALL: dict[str, Any] = {
    "size": "custom",
    "custom": WIDTHS,
    "batch_size": 3,
    "sequence_length": 4,
    "train_ratio": 2,
    "learning_starts": 16,
}
DREAMER = {**SMALL, "imagine_horizon": 2}
PLANET = {**SMALL, "plan_horizon": 2, "candidates": 4, "elites": 2, "iterations": 2}


def test_dreamer_conforms_on_every_kind_of_space() -> None:
    report = check_algorithm("dreamer", hparams=DREAMER)
    assert set(report.trained_on) | set(report.refused) == set(ENVIRONMENTS)
    assert set(report.refused) == {"RLProbe/MultiDiscrete-v0", "RLProbe/MultiBinary-v0", "RLProbe/MaskedArms-v0"}


@pytest.mark.parametrize(
    "options",
    [
        {"context": "zero", "imagine_last": 2},
        {"dynamics": {"kwargs": {"latent": "gaussian"}}, "actor_gradient": "dynamics", "value_target": "slow"},
        {"return_scale": "none", "dynamics": {"type": "stochastic"}},
        {"dynamics": {"type": "deterministic", "kwargs": {"open_loop": 2}}},
    ],
    ids=["context", "earlier versions", "stochastic", "deterministic"],
)
def test_dreamer_conforms_with_its_options(options: dict[str, Any]) -> None:
    assert check_algorithm("dreamer", environments=["Pendulum-v1"], hparams={**DREAMER, **options}).trained_on


@pytest.mark.parametrize("kind", ["rssm", "stochastic", "deterministic"])
def test_planet_conforms_with_every_kind_of_dynamics(kind: str) -> None:
    hparams = {**PLANET, "dynamics": {"type": kind}}
    report = check_algorithm("planet", environments=["Pendulum-v1", "CartPole-v1"], hparams=hparams)
    assert report.trained_on == ("Pendulum-v1",)
    assert "needs Box actions" in report.refused["CartPole-v1"]


def test_dreamer_conforms_with_pixels() -> None:
    config = {"env": {"kwargs": {"obs": "pixels"}}}
    assert check_algorithm("dreamer", environments=["RLProbe/Catch-v0"], hparams=DREAMER, config=config).trained_on
