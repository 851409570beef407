"""What networks cost, against arithmetic by hand: rows, updates, carries, images."""

from __future__ import annotations

from typing import Any

import pytest

from rl_training.assembly.cost import plan
from rl_training.config.loading import parse_config

CARTPOLE = {"env_id": "CartPole-v1", "env": {"num_envs": 2}}
LAYERS = 2 * (4 * 8 + 8 * 8)
"""Operations of two layers of 8 behind CartPole's four numbers."""


def cost_of(**config: Any) -> dict[str, Any]:
    return plan(parse_config(config))


def part(**fields: Any) -> dict[str, Any]:
    return {"network": {"actor": fields, "critic": fields}}


def test_ppo_evaluates_once_and_learns_three_forwards_an_epoch() -> None:
    hparams = {"num_steps": 100, "num_epochs": 3, "num_minibatches": 2}
    cost = cost_of(**CARTPOLE, algo="ppo", hparams=hparams, **part(hidden_dims=[8, 8]))
    actor, critic = LAYERS + 2 * 8 * 2, LAYERS + 2 * 8
    first_layers = 2 * 2 * (4 * 8)  # observations need no gradient
    rows = 2 * 100
    epochs = 3 * rows * (3 * (actor + critic) - first_layers)
    edges = 50 * 2 * critic  # values of the last observations, once in the two counted steps of a hundred
    assert cost["forward_mflop"] == pytest.approx(actor / 1e6, rel=0.01)
    assert cost["update_mflop"] == pytest.approx((rows * (actor + critic) + epochs + edges) / 1e6, rel=0.01)
    assert cost["parameters"] == 2 * (5 * 8 + 9 * 8) + 9 * 2 + 9
    assert "carry_bytes" not in cost


@pytest.mark.parametrize(("double", "forwards"), [(False, 4), (True, 5)])
def test_dqn_adds_a_forward_of_the_target_and_one_to_choose(double: bool, forwards: int) -> None:
    config = {"algo": "dqn", "buffer": {"size": 1000}, "hparams": {"batch_size": 64, "double": double}}
    cost = cost_of(**CARTPOLE, **config, network={"critic": {"hidden_dims": [8, 8]}})
    row = LAYERS + 2 * 8 * 2
    assert cost["update_mflop"] == pytest.approx(64 * (forwards * row - 2 * 4 * 8) / 1e6, rel=0.01)


def test_a_delayed_actor_counts_by_its_share() -> None:
    config = {"env_id": "Pendulum-v1", "algo": "td3", "buffer": {"size": 1000}, **part(hidden_dims=[8])}
    often, seldom = (cost_of(**config, hparams={"actor_every_updates": every})["update_mflop"] for every in (1, 3))
    assert 0.4 < seldom / often < 0.8


@pytest.mark.parametrize(("memory", "numbers"), [("gru", 6), ("lstm", 2 * 6)])
def test_carries_are_counted_for_every_environment_and_network(memory: str, numbers: int) -> None:
    cost = cost_of(**CARTPOLE, algo="ppo", **part(hidden_dims=[8], memory={"type": memory, "size": 6}))
    assert cost["carry_bytes"] == 2 * 2 * numbers * 4
    assert cost["update_mflop"] > 100 * cost["forward_mflop"]


def test_a_transformer_carries_its_window() -> None:
    short, long = (
        cost_of(**CARTPOLE, algo="ppo", **part(hidden_dims=[8], memory={"type": "transformer", "window": window}))
        for window in (4, 16)
    )
    assert 3.5 < long["carry_bytes"] / short["carry_bytes"] < 6.0


def test_memory_in_replay_is_counted_with_its_burn_in() -> None:
    network = {"critic": {"hidden_dims": [8], "memory": {"type": "gru", "size": 8}}}
    config = {"algo": "dqn", "network": network, "buffer": {"size": 1000}}
    hparams = {"sequence_length": 8, "batch_size": 64, "stored_state": True}
    short, long = (
        cost_of(**CARTPOLE, **config, hparams={**hparams, "burn_in": steps})["update_mflop"] for steps in (0, 8)
    )
    assert 1.2 < long / short < 2.0


PONG = {
    "env_id": "PongNoFrameskip-v4",
    "env": {"num_envs": 2, "wrappers": ["atari"]},
    "network": {"shared": True, "actor": {"encoder": "small", "hidden_dims": []}},
}


def test_images_are_counted_once_for_rollouts_twice_for_replay_and_by_frame() -> None:
    image = 4 * 84 * 84
    assert cost_of(**PONG, algo="ppo", hparams={"num_steps": 8})["image_bytes"] == 2 * 8 * image
    network = {"network": {"critic": {"encoder": "small", "hidden_dims": []}}}
    replay = {**PONG, **network, "algo": "dqn", "hparams": {"batch_size": 4}}
    assert cost_of(**replay, buffer={"size": 160})["image_bytes"] == 2 * 160 * image
    frames = cost_of(**replay, buffer={"size": 160, "type": "frames"})["image_bytes"]
    assert frames == (160 + 10 + 2 * 4 * 2) * 84 * 84


def test_the_arithmetic_of_a_convolution() -> None:
    cost = cost_of(**PONG, algo="ppo", hparams={"num_steps": 8})
    convolutions = 2 * (20 * 20 * 16 * 4 * 64 + 9 * 9 * 32 * 16 * 16)
    layer, heads = 2 * 9 * 9 * 32 * 256, 2 * 256 * 6
    assert cost["forward_mflop"] == pytest.approx((convolutions + layer + heads) / 1e6, rel=0.01)


def test_what_has_no_network_is_planned_without_arithmetic() -> None:
    cost = cost_of(algo="random", **CARTPOLE)
    assert "update_mflop" not in cost
    assert cost["env_steps"] > 0
