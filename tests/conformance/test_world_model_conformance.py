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
    assert "Discrete actions or Box actions of a float dtype" in report.refused["RLProbe/MultiDiscrete-v0"]


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
    assert "for Discrete actions take dreamer" in report.refused["CartPole-v1"]


def test_dreamer_conforms_with_pixels() -> None:
    config = {"env": {"kwargs": {"obs": "pixels"}}}
    assert check_algorithm("dreamer", environments=["RLProbe/Catch-v0"], hparams=DREAMER, config=config).trained_on


ENSEMBLE = {"kwargs": {"members": 2, "hidden": 8, "layers": 1}}
PETS = {
    "batch_size": 4,
    "learning_starts": 16,
    "plan_horizon": 2,
    "candidates": 4,
    "elites": 2,
    "iterations": 2,
    "dynamics": ENSEMBLE,
}
MBPO = {"batch_size": 8, "learning_starts": 16, "updates_per_step": 1, "real_updates": 4, "dynamics": ENSEMBLE}


@pytest.mark.parametrize(("algo", "hparams"), [("pets", PETS), ("mbpo", {**MBPO, "rollout_steps": 2})])
def test_pets_and_mbpo_conform_on_vectors_with_bounded_actions(algo: str, hparams: dict[str, Any]) -> None:
    network = {"actor": {"hidden_dims": [8]}, "critic": {"hidden_dims": [8]}}
    report = check_algorithm(algo, hparams=hparams, config={"network": network} if algo == "mbpo" else {})
    assert set(report.trained_on) | set(report.refused) == set(ENVIRONMENTS)
    assert "Pendulum-v1" in report.trained_on
    assert "one vector of real numbers" in report.refused["RLProbe/DictObs-v0"]
    assert "needs Box actions" in report.refused["CartPole-v1"]


@pytest.mark.parametrize("kind", ["rssm", "stochastic", "deterministic"])
def test_dynamics_conform_on_every_kind_of_space(kind: str) -> None:
    hparams = {**SMALL, "dynamics": {"type": kind}}
    environments = list(ENVIRONMENTS) if kind == "rssm" else ["Pendulum-v1"]
    report = check_algorithm("dynamics", hparams=hparams, environments=environments)
    assert "Pendulum-v1" in report.trained_on
    if kind == "rssm":
        assert set(report.refused) == {"RLProbe/MultiDiscrete-v0", "RLProbe/MultiBinary-v0", "RLProbe/MaskedArms-v0"}


def test_dynamics_conform_with_an_ensemble() -> None:
    hparams = {**SMALL, "dynamics": {"type": "ensemble", **ENSEMBLE}}
    assert check_algorithm("dynamics", environments=["Pendulum-v1"], hparams=hparams).trained_on
