"""Algorithms with replay keep the rules with images and with memory too: exact resume, owned randomness, masks."""

from __future__ import annotations

from typing import Any

import image_cases
import pytest
from sampling import sampled

from rl_training.testing import check_algorithm

assert image_cases.KINDS
SHIFTED = {"encoder": {"random_shift": 1, "features": 8}, "hidden_dims": [8]}
SEQUENCES = {"sequence_length": 4, "burn_in": 2}


def network(part: dict[str, Any]) -> dict[str, Any]:
    return {"network": {"actor": {**part, "encoder": {}}, "critic": part}}


def memory(kind: str, **options: Any) -> dict[str, Any]:
    return network({"hidden_dims": [8], "memory": {"type": kind, "size": 8, **options}})


MOVED = [
    ("dqn", "Discrete"),
    ("dqn", "Dict"),
    ("sac", "Box"),
    ("sac", "Dict"),
    ("td3", "Box"),
    ("ddpg", "Box"),
]


@pytest.mark.parametrize(("algo", "env_id"), sampled(MOVED, (("dqn", "Dict"), ("sac", "Box"), ("td3", "Box"))))
def test_conforms_with_images_that_are_moved_at_random(algo: str, env_id: str) -> None:
    assert check_algorithm(algo, environments=[f"TestImages/{env_id}-v0"], config=network(SHIFTED)).trained_on


REMEMBERING = [
    (algo, env_id, kind)
    for algo, env_id in (("dqn", "CartPole-v1"), ("sac", "Pendulum-v1"), ("td3", "Pendulum-v1"))
    for kind in ("gru", "lstm", "transformer")
]
OFTEN = [("dqn", "CartPole-v1", "gru"), ("sac", "Pendulum-v1", "lstm"), ("td3", "Pendulum-v1", "transformer")]


@pytest.mark.parametrize(("algo", "env_id", "kind"), sampled(REMEMBERING, OFTEN))
def test_conforms_with_every_memory(algo: str, env_id: str, kind: str) -> None:
    options = {"window": 3} if kind == "transformer" else {}
    check_algorithm(algo, environments=[env_id], hparams=SEQUENCES, config=memory(kind, **options))


STORED = {
    "stored state": {"stored_state": True},
    "stored state, prioritised, three steps": {"stored_state": True, "prioritized": True, "n_step": 3},
    "rainbow": {"prioritized": True, "dueling": True, "distribution": "c51", "atoms": 5, "noisy": True},
}


@pytest.mark.parametrize("options", STORED.values(), ids=list(STORED))
def test_conforms_with_the_options_of_r2d2(options: dict[str, Any]) -> None:
    check_algorithm("dqn", environments=["CartPole-v1"], hparams={**SEQUENCES, **options}, config=memory("gru"))


@pytest.mark.parametrize("algo", ["dqn", "sac"])
def test_conforms_with_masks_and_memory(algo: str) -> None:
    config = memory("gru")
    assert check_algorithm(algo, environments=["RLProbe/MaskedArms-v0"], hparams=SEQUENCES, config=config).trained_on


@pytest.mark.parametrize(("algo", "env_id"), [("dqn", "Dict"), ("sac", "Dict"), ("td3", "Box")])
def test_conforms_with_images_and_memory(algo: str, env_id: str) -> None:
    part = {**SHIFTED, "memory": {"type": "gru", "size": 8}}
    check_algorithm(algo, environments=[f"TestImages/{env_id}-v0"], hparams=SEQUENCES, config=network(part))


def test_conforms_with_memory_and_a_prioritised_buffer_of_an_actor_critic() -> None:
    config = {**memory("gru"), "buffer": {"type": "prioritized"}}
    check_algorithm("sac", environments=["Pendulum-v1"], hparams=SEQUENCES, config=config)


def test_conforms_with_memory_and_normalisation() -> None:
    config = {**memory("gru"), "env": {"normalize_obs": True, "normalize_reward": True}}
    check_algorithm("dqn", environments=["CartPole-v1"], hparams={**SEQUENCES, "stored_state": True}, config=config)
