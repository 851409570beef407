"""Which observations are images, and which of their axes holds the channels."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rl_training.assembly.build import build_trainer
from rl_training.config.loading import config_to_mapping, parse_stored
from rl_training.config.schema import TrainConfig
from rl_training.models.backbones.mlp import encode_leaf
from rl_training.numerics.encoding import encode_leaf_numpy, leaf_features, picture_axes, pictures_of
from rl_training.types import ACTION_MASK, BoxSpec, DictSpec

FIRST, LAST = (0, 1, 2), (2, 0, 1)


def box(shape: tuple[int, ...], low: float = 0.0, high: float = 255.0, dtype: Any = np.uint8) -> BoxSpec:
    return BoxSpec(np.full(shape, low, dtype), np.full(shape, high, dtype), np.dtype(dtype))


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((84, 84, 4), LAST),
        ((4, 84, 84), FIRST),
        ((84, 84, 3), LAST),
        ((3, 84, 84), FIRST),
        ((1, 84, 84), FIRST),
        ((84, 84, 1), LAST),
        ((10, 10, 10), LAST),
        ((10, 10, 16), LAST),
        ((7, 7, 20), LAST),
        ((20, 7, 7), FIRST),
        ((3, 3, 64), LAST),
        ((64, 3, 3), FIRST),
        ((60, 80, 3), LAST),
        ((3, 60, 80), FIRST),
        ((10, 5, 1), LAST),
        ((4, 84, 4), LAST),
        ((4, 84, 84, 3), (0, 3, 1, 2)),
        ((4, 84, 84, 1), (0, 3, 1, 2)),
        ((4, 3, 84, 84), (0, 1, 2, 3)),
    ],
)
def test_channels_of_a_picture(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    assert picture_axes(shape) == axes


@pytest.mark.parametrize(
    ("leaf", "is_one"),
    [
        (box((84, 84, 3)), True),
        (box((84, 84, 3), high=1.0, dtype=np.float32), True),
        (box((4, 84, 84, 3)), True),
        (box((84, 84, 3), high=7.0, dtype=np.float32), False),
        (box((84, 84, 3), low=-1.0, high=1.0, dtype=np.float32), False),
        (box((84, 84)), False),
        (box((9,)), False),
    ],
)
def test_pictures_are_bytes_or_0_to_1_with_three_axes(leaf: BoxSpec, is_one: bool) -> None:
    assert list(pictures_of(leaf)) == ["obs"] * is_one
    space = DictSpec({"seen": leaf, "speed": box((3,)), ACTION_MASK: box((4, 4, 4), high=1)})
    assert list(pictures_of(space)) == ["seen"] * is_one


class Screen(gym.Env[Any, Any]):
    observation_space = gym.spaces.Dict(
        {"screen": gym.spaces.Box(0, 255, (8, 8, 3), np.uint8), "speed": gym.spaces.Box(-1, 1, (2,))}
    )
    action_space = gym.spaces.Discrete(2)

    def reset(self, **options: Any) -> Any:
        super().reset(**options)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, False, False, {}


def test_an_image_goes_through_convolutions(tmp_path: Path) -> None:
    """Small ones through those for grids; before there were encoders, torch flattened them."""
    trainer: Any = build_trainer(TrainConfig(algo="ppo", env_id="Screen-v0", output_dir=str(tmp_path)), Screen)
    trainer.close()
    names = [name for name, _ in trainer.algorithm.network.named_parameters()]
    assert "actor.images.screen.convolutions.0.weight" in names


def test_a_stored_run_without_encoders_still_flattens_images() -> None:
    mapping = config_to_mapping(TrainConfig(algo="ppo", env_id="Screen-v0"))
    for section in ("actor", "critic"):
        del mapping["network"][section]["encoder"], mapping["network"][section]["memory"]
    stored = parse_stored(mapping)
    assert (stored.network.actor.encoder.type, stored.network.critic.encoder.type) == ("mlp", "mlp")
    assert parse_stored(config_to_mapping(TrainConfig(algo="ppo"))).network.actor.encoder.type == "auto"


def built(algo: str, tmp_path: Path, screen: type[Screen] = Screen) -> list[str]:
    """The warnings of building a run on that screen."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        build_trainer(TrainConfig(algo=algo, env_id="Screen-v0", output_dir=str(tmp_path)), screen).close()
    return [str(warning.message) for warning in caught if "picture" in str(warning.message)]


class SteeredScreen(Screen):
    action_space = gym.spaces.Box(-1, 1, (1,))  # type: ignore[assignment]


def test_a_picture_that_is_flattened_comes_with_one_warning(tmp_path: Path) -> None:
    (message,) = built("crossq", tmp_path, SteeredScreen)
    assert "observation 'screen' is a picture (8, 8, 3), which crossq flattens to 192 numbers" in message
    for algo in ("ppo", "dqn", "sac", "random"):
        assert built(algo, tmp_path) == [], "which has convolutions, or no network"
    assert built("td3", tmp_path, SteeredScreen) == []


class TestFlatCodes:
    """Images of codes that no convolution reads: one-hot as well, number by number in the order of the flat image."""

    COUNTS = np.broadcast_to(np.array([10, 5, 3], np.uint8), (2, 2, 3))
    LEAF = BoxSpec(np.zeros((2, 2, 3), np.uint8), COUNTS, np.dtype(np.uint8))

    def test_each_number_is_one_of_its_codes(self) -> None:
        image = np.zeros((1, 2, 2, 3), np.uint8)
        image[0, 1, 0] = [6, 1, 3]  # the third of four cells
        features = encode_leaf_numpy(self.LEAF, image)
        assert features.shape == (1, leaf_features(self.LEAF)) == (1, 4 * 21)
        assert features.dtype == np.float32
        cell = 2 * 21
        assert features[0].nonzero()[0].tolist() == [
            *(0, 11, 17, 21, 32, 38),
            *(cell + 6, cell + 11 + 1, cell + 17 + 3),
            *(63, 74, 80),
        ]
        np.testing.assert_allclose(features[0, [6 + cell, cell + 12, cell + 20]], np.sqrt([11.0, 6.0, 4.0]), rtol=1e-6)

    def test_features_have_a_mean_square_of_one(self) -> None:
        images = np.random.default_rng(1).integers(0, self.COUNTS.astype(int) + 1, (4, 2, 2, 3)).astype(np.uint8)
        np.testing.assert_allclose(np.square(encode_leaf_numpy(self.LEAF, images)).mean(1), 1.0, rtol=1e-6)

    def test_torch_gives_the_same(self) -> None:
        images = np.random.default_rng(0).integers(0, self.COUNTS.astype(int) + 1, (5, 2, 2, 3)).astype(np.uint8)
        wanted = encode_leaf_numpy(self.LEAF, images)
        assert np.count_nonzero(wanted) == 5 * 12
        np.testing.assert_array_equal(encode_leaf(self.LEAF, torch.from_numpy(images)).numpy(), wanted)

    def test_a_key_differs_from_a_ball_as_much_as_from_a_wall(self) -> None:
        images = np.zeros((3, 2, 2, 3), np.uint8)
        images[:, 0, 0, 0] = [5, 6, 2]
        key, ball, wall = encode_leaf_numpy(self.LEAF, images)
        assert np.abs(key - ball).sum() == np.abs(key - wall).sum() == 2 * np.float32(np.sqrt(11))

    def test_other_boxes_are_numbers(self) -> None:
        assert box((2, 2, 3)).codes is None
        assert box((2, 2, 3), high=32).codes is None
        assert box((12,), high=5).codes is None
        assert box((2, 2, 3), high=1.0, dtype=np.float32).codes is None
        np.testing.assert_array_equal(
            encode_leaf_numpy(box((1, 1, 3)), np.array([[[[0, 51, 255]]]], np.uint8)), np.float32([[0.0, 0.2, 1.0]])
        )


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_no_observations_are_encoded_as_no_rows(shape: tuple[int, ...]) -> None:
    leaf = box(shape, -1.0, 1.0, np.float32)
    assert encode_leaf_numpy(leaf, np.zeros((0, *shape), np.float32)).shape == (0, leaf_features(leaf))
