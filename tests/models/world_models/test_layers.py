"""Layers of world models against worked-out numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from rl_training.models.world_models.image_decoder import ImageDecoder
from rl_training.models.world_models.image_encoder import ImageEncoder
from rl_training.models.world_models.layers import BlockLinear, NormedLayer, NormedMLP, RMSNorm, dense
from rl_training.numerics.initial_weights import truncated_normal
from rl_training.types import ConfigError


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_rms_norm_and_silu() -> None:
    normed = RMSNorm(2).double()(torch.tensor([[3.0, 4.0]], dtype=torch.float64))
    np.testing.assert_allclose(normed.detach()[0], [0.8485247433, 1.1313663244], atol=1e-10)
    np.testing.assert_allclose(F.silu(normed).detach()[0], [0.5941858852, 0.8554158518], atol=1e-10)


def test_truncated_normal_numbers() -> None:
    numbers = truncated_normal(rng(), (500, 400), fan_in=25, scale=3.0)
    assert numbers.dtype == np.float32
    assert numbers.std() == pytest.approx(3.0 / 5.0, rel=0.01)
    assert np.abs(numbers).max() <= 2.0 * 1.1368473 * 3.0 / 5.0  # two standard deviations before they were cut off
    assert (truncated_normal(rng(), (3,), 1, scale=0.0) == 0.0).all()
    assert np.array_equal(truncated_normal(rng(), (50,), 3), truncated_normal(rng(), (50,), 3))


def test_dense_layers_start_with_fan_in_and_without_bias() -> None:
    layer = dense(rng(), 400, 300)
    assert layer.weight.std().item() == pytest.approx(1.0 / 20.0, rel=0.02)
    assert layer.bias.abs().max().item() == 0.0
    assert dense(rng(), 4, 3, scale=0.0).weight.abs().max().item() == 0.0


def test_a_block_linear_layer_is_a_block_diagonal_matrix() -> None:
    layer = BlockLinear(rng(), 12, 8, 4)
    full = torch.zeros(12, 8)
    for block in range(4):
        full[3 * block : 3 * block + 3, 2 * block : 2 * block + 2] = layer.weight[block].detach()
    x = torch.randn(5, 12, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(layer(x), x @ full)


def test_blocks_count_the_whole_input_as_fan_in() -> None:
    weights = BlockLinear(rng(), 512, 512, 8).weight
    assert weights.std().item() == pytest.approx(1.0 / np.sqrt(512.0), rel=0.02)


def test_blocks_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ConfigError, match="5 blocks"):
        BlockLinear(rng(), 12, 10, 5)


def test_parameters_of_a_normed_network() -> None:
    assert count(NormedLayer(rng(), 24, 64)) == 24 * 64 + 64 + 64
    assert count(NormedMLP(rng(), 24, 64, 3)) == 10_112  # the encoder of size1m on walker
    assert count(NormedMLP(rng(), 640, 64, 1, 255, 0.0)) == 57_663  # its reward head
    assert count(NormedMLP(rng(), 640, 64, 1, 1)) == 41_153  # its continue head
    assert count(NormedMLP(rng(), 640, 64, 3, 12, 0.01)) == 50_316  # its policy
    assert count(NormedMLP(rng(), 640, 64, 3, 255, 0.0)) == 66_111  # its value
    assert count(NormedMLP(rng(), 640, 64, 3, 24)) == 51_096  # its decoder


def test_an_output_of_scale_zero_starts_at_zero() -> None:
    network = NormedMLP(rng(), 7, 16, 2, 255, 0.0)
    assert network(torch.randn(3, 7)).abs().max().item() == 0.0


def test_images_go_in_and_come_out() -> None:
    encoder = ImageEncoder(rng(), (3, 32, 32), depth=2)
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    tokens = encoder(images)
    assert tokens.shape == (4, encoder.out_features) == (4, 2 * 2 * 8)
    torch.testing.assert_close(encoder(images.to(torch.float32) / 255.0), tokens)
    decoder = ImageDecoder(rng(), (32, 12), (3, 32, 32), depth=2, units=8, blocks=4)
    decoded = decoder(torch.randn(4, 44))
    assert decoded.shape == (4, 3, 32, 32)
    assert 0.0 < decoded.min().item() < decoded.max().item() < 1.0


@pytest.mark.parametrize("features", [(0, 12), (32, 0)])
def test_a_decoder_without_one_of_the_parts(features: tuple[int, int]) -> None:
    decoder = ImageDecoder(rng(), features, (1, 16, 16), depth=2, units=8)
    assert decoder(torch.randn(2, sum(features))).shape == (2, 1, 16, 16)


def test_blocks_of_the_decoder_are_groups_of_channels() -> None:
    decoder = ImageDecoder(rng(), (8, 0), (1, 32, 32), depth=1, units=8, blocks=4)
    features = torch.zeros(1, 8)
    features[0, :2] = 1.0  # only the first block of the state
    assert decoder.from_deter is not None
    grouped = decoder.from_deter(features).view(1, 4, 2, 2, 1)
    assert grouped[:, 1:].abs().max().item() == 0.0


def test_images_of_odd_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="multiples of 16, not 84x84; resize them"):
        ImageEncoder(rng(), (3, 84, 84), depth=2)


def test_an_image_decoder_can_learn_a_picture() -> None:
    decoder = ImageDecoder(rng(), (0, 4), (1, 16, 16), depth=4, units=16)
    optimizer = torch.optim.Adam(decoder.parameters(), lr=1e-3)
    target = torch.zeros(2, 1, 16, 16)
    target[0, 0, 3:6, 3:6] = 1.0
    target[1, 0, 9:12, 9:12] = 1.0
    codes = torch.eye(4)[:2]
    for _ in range(170):
        loss = (decoder(codes) - target).square().sum((1, 2, 3)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1.0  # nine bright pixels: predicting black costs 9


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
