"""Images in DQN, SAC and TD3: who trains the shared encoder, who sees through it, and how images are moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms.dqn import DQN
from rl_training.algorithms.sac import SAC
from rl_training.algorithms.td3 import TD3
from rl_training.build_context import BuildContext
from rl_training.config.schema import BackboneConfig, EncoderConfig, NetworkConfig
from rl_training.hparams.dqn import DQNConfig
from rl_training.hparams.sac import SACConfig
from rl_training.hparams.td3 import TD3Config
from rl_training.models.observed import Encoded
from rl_training.models.random_shift import RandomShift
from rl_training.types import Batch, BoxSpec, ConfigError, DictSpec, DiscreteSpec

IMAGE = BoxSpec(np.zeros((3, 12, 12), np.uint8), np.full((3, 12, 12), 255, np.uint8), np.dtype(np.uint8))
SPEED = BoxSpec(np.full(2, -1, np.float32), np.ones(2, np.float32), np.dtype(np.float32))
BOX = BoxSpec(np.float32([-1.0]), np.float32([1.0]), np.dtype(np.float32))
ROWS = 4


def network(shift: int = 0, **critic: Any) -> NetworkConfig:
    encoder = EncoderConfig(features=8, random_shift=shift)
    return NetworkConfig(BackboneConfig(hidden_dims=(8,)), BackboneConfig(hidden_dims=(8,), encoder=encoder, **critic))


def context(action_space: Any = BOX, shift: int = 0, space: Any = IMAGE) -> BuildContext:
    return BuildContext(space, action_space, network=network(shift))


def batch(actions: Any) -> Batch:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2, ROWS, *IMAGE.shape), np.uint8)
    ends = np.zeros(ROWS, bool)
    return {
        "obs": images[0],
        "next_obs": images[1],
        "actions": actions,
        "rewards": np.ones(ROWS, np.float32),
        "terminated": ends,
        "truncated": ends,
    }


CONTINUOUS = np.float32([[0.1], [-0.2], [0.3], [0.9]])


def built(algo: str, shift: int = 0) -> Any:
    return SAC(context(shift=shift), SACConfig()) if algo == "sac" else TD3(context(shift=shift), TD3Config())


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_the_loss_of_the_critics_trains_the_encoder_and_that_of_the_actor_does_not(algo: str) -> None:
    algorithm = built(algo)
    rows, alpha = algorithm.prepare(batch(CONTINUOUS)), [0.1] if algo == "sac" else []
    encoder = algorithm.critics.shared
    algorithm.kernel.gradient("critics", algorithm.critics_objective, rows, *alpha)
    assert all(parameter.grad.abs().sum() > 0 for parameter in encoder.parameters())
    algorithm.learners["critics"].optimizer.zero_grad()
    algorithm.kernel.gradient("actor", algorithm.actor_objective, rows, *alpha)
    assert all(parameter.grad.abs().sum() == 0 for parameter in encoder.parameters())
    assert all(parameter.grad.abs().sum() > 0 for parameter in algorithm.actor.backbone.parameters())


@pytest.mark.parametrize("algo", ["sac", "td3"])
def test_the_encoder_is_one_and_the_target_has_a_copy_that_lags(algo: str) -> None:
    algorithm = built(algo)
    critics, target = algorithm.critics, algorithm.targets["critics"].network
    names = [name for name, _ in algorithm.actor.named_parameters()]
    assert not any("conv" in name or "shared" in name for name in names), "the actor has no convolutions of its own"
    own, lagging = (list(part.shared.parameters()) for part in (critics, target))
    assert {p.data_ptr() for p in own}.isdisjoint(p.data_ptr() for p in lagging)
    assert all(torch.equal(a, b) for a, b in zip(own, lagging, strict=True))
    for _ in range(2):
        algorithm.update(batch(CONTINUOUS))
    differs = [(a - b).abs().max() for a, b in zip(own, lagging, strict=True)]
    assert all(difference > 0 for difference in differs), "the encoder learns, its copy follows slowly"


def test_an_encoder_looks_once_at_what_it_has_seen_and_another_one_again() -> None:
    sac = built("sac")
    raw = torch.from_numpy(batch(CONTINUOUS)["obs"])
    shown = sac.critics.shown(raw)
    assert isinstance(shown, Encoded)
    assert sac.critics.shown(shown) is shown
    target = sac.targets["critics"].network
    with torch.no_grad():
        target.shared.body.images["obs"].projection.bias.add_(1.0)
    other = target.shown(shown)
    assert isinstance(other, Encoded)
    assert not torch.equal(other.seen, shown.seen)
    actions = torch.from_numpy(CONTINUOUS)
    assert torch.equal(sac.critics(shown, actions), sac.critics(raw, actions))
    assert torch.equal(target(shown, actions), target(raw, actions))


def test_the_policy_saves_and_loads_the_encoder() -> None:
    sac, obs = built("sac"), batch(CONTINUOUS)["obs"]
    other = SAC(BuildContext(IMAGE, BOX, network=network(), streams=type(sac.ctx.streams)(7)), SACConfig())
    rng, first = np.random.default_rng(0), np.ones(ROWS, bool)

    def act(algorithm: SAC) -> Any:
        return algorithm.policy.act(obs, {}, first, rng, deterministic=True).actions

    assert not np.array_equal(act(sac), act(other))
    other.policy.load_state_dict(sac.policy.state_dict())
    assert np.array_equal(act(sac), act(other))


def test_frames_stay_bytes_until_the_network() -> None:
    rows = DQN(context(DiscreteSpec(2), shift=2), DQNConfig()).prepare(batch(np.int64([0, 1, 1, 0])))
    assert isinstance(rows.obs, torch.Tensor)
    assert rows.obs.dtype == torch.uint8


def test_shifts_are_drawn_from_the_generator_of_the_algorithm() -> None:
    sampled = batch(np.int64([0, 1, 1, 0]))
    still, moving = (DQN(context(DiscreteSpec(2), shift=shift), DQNConfig()) for shift in (0, 2))
    before = still.rng.bit_generator.state
    assert np.array_equal(still.prepare(sampled).obs, sampled["obs"])
    assert still.rng.bit_generator.state == before, "nothing is drawn where nothing moves"

    expected = np.random.Generator(type(moving.rng.bit_generator)())
    expected.bit_generator.state = moving.rng.bit_generator.state
    rows = moving.prepare(sampled)
    for seen, raw in ((rows.obs, sampled["obs"]), (rows.next_obs, sampled["next_obs"])):
        padded = np.pad(raw, ((0, 0), (0, 0), (2, 2), (2, 2)), mode="edge")
        for row, (down, right) in enumerate(expected.integers(0, 5, (ROWS, 2))):
            assert np.array_equal(seen[row], padded[row, :, down : down + 12, right : right + 12])


def test_all_images_of_a_row_move_alike_whatever_their_axes_and_other_observations_stay() -> None:
    last = BoxSpec(IMAGE.low.transpose(1, 2, 0), IMAGE.high.transpose(1, 2, 0), IMAGE.dtype)
    space = DictSpec({"first": IMAGE, "last": last, "speed": SPEED})
    shift = RandomShift(space, BackboneConfig(encoder=EncoderConfig(random_shift=3)))
    images = torch.from_numpy(batch(CONTINUOUS)["obs"])
    obs = {"first": images, "last": images.permute(0, 2, 3, 1), "speed": torch.rand(ROWS, 2)}
    offsets = shift.draw(ROWS, np.random.default_rng(1))
    moved = shift(obs, offsets)
    assert isinstance(moved, dict)
    assert torch.equal(moved["first"], moved["last"].permute(0, 3, 1, 2))
    assert not torch.equal(moved["first"], images)
    assert moved["speed"] is obs["speed"]


def test_what_does_not_combine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"random_shift moves images .* there are none"):
        DQN(context(DiscreteSpec(2), shift=2, space=SPEED), DQNConfig())
    unlike = NetworkConfig(BackboneConfig(encoder=EncoderConfig("impala")), BackboneConfig())
    with pytest.raises(ConfigError, match=r"share one encoder, that of network\.critic"):
        SAC(BuildContext(IMAGE, BOX, network=unlike), SACConfig())
    own = NetworkConfig(BackboneConfig(type="cnn"), BackboneConfig())
    with pytest.raises(ConfigError, match=r"network\.actor\.type 'cnn' cannot"):
        SAC(BuildContext(IMAGE, BOX, network=own), SACConfig())
