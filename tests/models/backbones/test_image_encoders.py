"""Convolutional encoders: which image gets which, what they compute, and that the memory format changes no number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms.rollout import take_rows
from rl_training.config import BackboneConfig
from rl_training.config.loading import parse_config
from rl_training.config.networks import encoders_of, spelt_out
from rl_training.config.schema import EncoderConfig, MemoryConfig, NetworkConfig
from rl_training.models.backbones.cnn import ImageEncoder, shifted, to_channels
from rl_training.models.backbones.composed import Backbone, RememberingBackbone
from rl_training.models.networks import ActorCritic
from rl_training.numerics.images import FEATURES, image_layout
from rl_training.types import BoxSpec, ConfigError, DictSpec, DiscreteSpec


def image(*shape: int, high: float = 255, dtype: Any = np.uint8) -> BoxSpec:
    return BoxSpec(np.zeros(shape, dtype), np.full(shape, high, dtype), np.dtype(dtype))


ATARI = image(4, 84, 84)


def random_images(leaf: BoxSpec, count: int = 3) -> Tensor:
    rng = np.random.default_rng(1)
    return torch.from_numpy(rng.integers(0, 256, (count, *leaf.shape)).astype(leaf.dtype))


def encoder_of(leaf: BoxSpec, kind: str) -> ImageEncoder:
    return ImageEncoder("obs", image_layout(leaf), kind, np.random.default_rng(0))


class TestChoice:
    @pytest.mark.parametrize(
        ("leaf", "encoder"),
        [
            (ATARI, "nature"),
            (image(84, 84, 3), "nature"),
            (image(36, 36, 3), "nature"),
            (image(35, 35, 3), "grid"),
            (image(7, 7, 3), "grid"),
            (image(64, 64, 3, high=1.0, dtype=np.float32), "nature"),
            (image(4, 60, 80, 3), "nature"),
        ],
    )
    def test_auto_decides_by_the_picture(self, leaf: BoxSpec, encoder: str) -> None:
        assert encoders_of(leaf, EncoderConfig()) == {"obs": encoder}

    def test_what_is_no_picture_is_flattened(self) -> None:
        assert encoders_of(image(10, high=1.0, dtype=np.float32), EncoderConfig()) == {}
        assert encoders_of(image(3, 8, 8, high=7.0, dtype=np.float32), EncoderConfig()) == {}
        assert encoders_of(ATARI, EncoderConfig("mlp")) == {}
        assert encoders_of(DiscreteSpec(5), EncoderConfig()) == {}

    def test_each_key_has_its_own(self) -> None:
        space = DictSpec({"camera": ATARI, "map": image(9, 9, 3), "speed": image(2, high=1.0, dtype=np.float32)})
        assert encoders_of(space, EncoderConfig()) == {"camera": "nature", "map": "grid"}
        assert encoders_of(space, EncoderConfig("small", keys={"map": "mlp"})) == {"camera": "small"}
        with pytest.raises(ConfigError, match="no observation is called 'camer'; did you mean 'camera'"):
            encoders_of(space, EncoderConfig(keys={"camer": "small"}))
        with pytest.raises(ConfigError, match="unknown encoder 'natur'"):
            encoders_of(space, EncoderConfig(keys={"camera": "natur"}))

    def test_an_encoder_that_does_not_fit_says_the_sizes(self) -> None:
        with pytest.raises(ConfigError, match=r"'obs' is 20 x 20 pixels, too small for encoder 'nature'.* 3 x 3"):
            encoder_of(image(20, 20, 3), "nature")
        with pytest.raises(ConfigError, match="needs an image, a Box of three axes; observation 'obs' has the shape"):
            encoders_of(image(10, high=1.0, dtype=np.float32), EncoderConfig("nature"))

    def test_the_channel_axis_can_be_said(self) -> None:
        assert image_layout(image(5, 40, 6), "first").channels == 5
        assert image_layout(image(5, 40, 6), "last").channels == 6
        assert image_layout(image(4, 84, 84, 3))[1:4] == (12, 84, 84)


class TestShorthands:
    def test_types_that_stand_for_memories(self) -> None:
        cfg = spelt_out(BackboneConfig(type="rnn", hidden_dims=(32, 16)))
        assert (cfg.type, cfg.hidden_dims, cfg.memory) == ("mlp", (32,), MemoryConfig("lstm", 16))

    def test_types_that_stand_for_encoders(self) -> None:
        cfg = spelt_out(BackboneConfig(type="impala"))
        assert (cfg.type, cfg.encoder.type, cfg.hidden_dims) == ("mlp", "impala", (64, 64))

    def test_plain_names_of_encoders_and_memories(self) -> None:
        cfg = parse_config({"algo": "ppo", "network": {"actor": {"memory": "gru", "encoder": "small"}}})
        assert (cfg.network.actor.memory, cfg.network.actor.encoder) == (MemoryConfig("gru"), EncoderConfig("small"))

    def test_a_memory_needs_a_width(self) -> None:
        with pytest.raises(ConfigError, match="network 'gru' needs hidden_dims"):
            spelt_out(BackboneConfig(type="gru", hidden_dims=()))


class TestNumbers:
    @pytest.mark.parametrize(
        ("kind", "leaf"),
        [("nature", ATARI), ("small", image(84, 84, 3)), ("impala", image(3, 20, 20)), ("grid", image(7, 9, 3))],
    )
    def test_features_are_as_wide_as_said(self, kind: str, leaf: BoxSpec) -> None:
        features = encoder_of(leaf, kind)(random_images(leaf))
        assert features.shape == (3, FEATURES[kind])
        assert torch.isfinite(features).all()

    def test_nature_is_a_plain_torch_network_of_scaled_pictures(self) -> None:
        """No memory format, no folded factor: the network as one would write it down."""
        encoder = encoder_of(ATARI, "nature")
        plain = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(3136, 512),
            nn.ReLU(),
        )
        ours = list(encoder.parameters())
        with torch.no_grad():
            for mine, theirs in zip(ours, plain.parameters(), strict=True):
                theirs.copy_(mine)
        images = random_images(ATARI)
        wanted = plain(images.float() / 255.0)
        assert torch.allclose(encoder(images), wanted, atol=1e-5)
        encoder(images).square().sum().backward()
        wanted.square().sum().backward()
        for mine, theirs in zip(ours, plain.parameters(), strict=True):
            assert mine.grad is not None
            assert theirs.grad is not None
            assert torch.allclose(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5 * float(theirs.grad.abs().max()))

    def test_weights_are_channels_last(self) -> None:
        encoder = encoder_of(ATARI, "nature")
        for layer in encoder.convolutions.modules():
            if isinstance(layer, nn.Conv2d) and layer.in_channels > 1:
                assert layer.weight.is_contiguous(memory_format=torch.channels_last)
        assert to_channels(random_images(ATARI), encoder.layout).is_contiguous(memory_format=torch.channels_last)

    def test_a_picture_is_the_same_with_its_channels_first_or_last(self) -> None:
        first, last = image(3, 64, 64), image(64, 64, 3)
        images = random_images(first)
        features = encoder_of(first, "small")(images)
        assert torch.equal(encoder_of(last, "small")(images.permute(0, 2, 3, 1)), features)

    def test_codes_are_one_hot(self) -> None:
        high = np.broadcast_to(np.array([10, 5, 3], np.uint8), (7, 7, 3))
        leaf = BoxSpec(np.zeros((7, 7, 3), np.uint8), high, np.dtype(np.uint8))
        encoder = encoder_of(leaf, "grid")
        codes = torch.zeros(1, 7, 7, 3, dtype=torch.uint8)
        codes[0, 2, 4] = torch.tensor([5, 1, 2])
        planes = to_channels(codes, encoder.layout)
        assert planes.shape == (1, 21, 7, 7)
        assert planes.sum((2, 3)).tolist()[0][:3] == [48.0, 0.0, 0.0]
        assert planes[0, :, 2, 4].nonzero().flatten().tolist() == [5, 11 + 1, 17 + 2]


class TestRandomShift:
    IMAGE = torch.arange(9.0).reshape(1, 1, 3, 3)

    @pytest.mark.parametrize(
        ("offset", "wanted"),
        [
            ((1, 1), [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
            ((0, 1), [[0, 1, 2], [0, 1, 2], [3, 4, 5]]),
            ((2, 2), [[4, 5, 5], [7, 8, 8], [7, 8, 8]]),
        ],
    )
    def test_known_offsets(self, offset: tuple[int, int], wanted: list[list[float]]) -> None:
        assert shifted(self.IMAGE, torch.tensor([offset]), 1)[0, 0].tolist() == wanted

    def test_each_picture_has_its_own(self) -> None:
        images = self.IMAGE.expand(2, 1, 3, 3)
        moved = shifted(images, torch.tensor([[1, 1], [0, 1]]), 1)
        assert torch.equal(moved[0], images[0])
        assert not torch.equal(moved[1], images[1])


class TestComposed:
    def test_everything_at_once(self) -> None:
        space = DictSpec({"camera": ATARI, "goal": DiscreteSpec(5), "action_mask": image(2, high=1, dtype=np.int8)})
        cfg = BackboneConfig(hidden_dims=(32,), memory=MemoryConfig("gru", 16), encoder=EncoderConfig("small"))
        backbone = RememberingBackbone(space, cfg, np.random.default_rng(0))
        assert backbone.layers[0].in_features == 256 + 5
        obs = {"camera": random_images(ATARI), "goal": torch.tensor([0, 1, 2]), "action_mask": torch.ones(3, 2)}
        assert backbone(obs).shape == (3, backbone.out_features) == (3, 16)

    def test_names_of_weights(self) -> None:
        backbone = Backbone(ATARI, BackboneConfig(type="mlp", hidden_dims=()), np.random.default_rng(0))
        assert [name for name, _ in backbone.named_parameters()][:2] == [
            "images.obs.convolutions.0.weight",
            "images.obs.convolutions.0.bias",
        ]


@pytest.mark.parametrize("shape", [(4, 40, 40), (40, 40, 3)])
def test_images_can_be_arranged_once_for_many_passes(shape: tuple[int, ...]) -> None:
    """Only the order in memory changes: the same rows, and the same features bit for bit."""
    rng = np.random.default_rng(0)
    network = NetworkConfig(actor=BackboneConfig(encoder=EncoderConfig(type="nature"), hidden_dims=()), shared=True)
    actor_critic = ActorCritic(image(*shape), DiscreteSpec(3), network, rng)
    images = torch.from_numpy(rng.integers(0, 256, (6, *shape), np.uint8))
    arranged = actor_critic.arranged(images)
    assert isinstance(arranged, torch.Tensor)
    assert torch.equal(arranged, images)
    assert arranged.is_contiguous(memory_format=torch.channels_last) == (shape[0] == 4)
    index = torch.tensor([4, 0, 5])
    taken = take_rows(arranged, index)
    assert torch.equal(taken, images[index])
    assert taken.stride()[1:] == arranged.stride()[1:]
    with torch.no_grad():
        assert torch.equal(actor_critic.actor(taken), actor_critic.actor(images[index]))
