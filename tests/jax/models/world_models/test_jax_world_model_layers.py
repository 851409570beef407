"""Layers, two-hot predictions and LaProp in JAX against worked-out numbers and their torch twins."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from rl_training.hparams.optimizer import OptimizerConfig
from rl_training.jax.models.optimization import build_optimizer
from rl_training.jax.models.world_models.image_decoder import ImageDecoder
from rl_training.jax.models.world_models.image_encoder import (
    encoder_features,
    image_encoder,
    image_encoder_init,
    scaled_image,
)
from rl_training.jax.models.world_models.layers import (
    block_linear,
    block_linear_init,
    normed_mlp,
    normed_mlp_init,
    rms_norm,
)
from rl_training.jax.models.world_models.two_hot import symexp, symlog, two_hot, two_hot_loss, two_hot_mean
from rl_training.models.world_models.image_decoder import ImageDecoder as TorchImageDecoder
from rl_training.models.world_models.image_encoder import ImageEncoder
from rl_training.models.world_models.layers import BlockLinear, NormedMLP
from rl_training.numerics.images import ImageLayout
from rl_training.numerics.symlog import symexp_bins
from rl_training.types import ConfigError

FIVE = np.array([-2, -1, 0, 1, 2], np.float32)  # an array of JAX would start XLA when the tests are collected


def test_rms_norm_and_silu() -> None:
    normed = rms_norm(jnp.array([[3.0, 4.0]]), jnp.ones(2))
    np.testing.assert_allclose(normed[0], [0.8485247433, 1.1313663244], atol=1e-6)
    np.testing.assert_allclose(jax.nn.silu(normed)[0], [0.5941858852, 0.8554158518], atol=1e-6)


def test_layers_are_those_of_torch() -> None:
    x = np.random.default_rng(1).standard_normal((5, 12), np.float32)
    params, twin = (
        block_linear_init(np.random.default_rng(0), 12, 8, 4),
        BlockLinear(np.random.default_rng(0), 12, 8, 4),
    )
    np.testing.assert_allclose(block_linear(params, jnp.asarray(x)), twin(torch.from_numpy(x)).detach(), atol=1e-6)
    network = NormedMLP(np.random.default_rng(0), 12, 16, 2, 3)
    same = normed_mlp_init(np.random.default_rng(0), 12, 16, 2, 3)
    np.testing.assert_allclose(normed_mlp(same, jnp.asarray(x)), network(torch.from_numpy(x)).detach(), atol=1e-5)


def test_symlog() -> None:
    values, expected = jnp.array([-1000.0, -1.0, 0.5, 10.0]), [-6.9087548, -0.6931472, 0.4054651, 2.3978953]
    np.testing.assert_allclose(symlog(values), expected, rtol=1e-6)
    np.testing.assert_allclose(symlog(np.asarray(values)), expected, rtol=1e-6)
    np.testing.assert_allclose(symexp(symlog(values)), values, rtol=1e-5)
    powers = symexp(jnp.array([-2.0, 0.5, 3.0, 20.0]))
    np.testing.assert_allclose(powers, [-6.389056098931, 0.6487212707, 19.085536923188, 485165194.4097903], rtol=1e-6)


def test_two_hot() -> None:
    np.testing.assert_allclose(two_hot(jnp.array([0.25, -1.5, 3.0]), FIVE)[0], [0, 0, 0.75, 0.25, 0], atol=1e-7)
    logprobs = jax.nn.log_softmax(jnp.array([[0.0, 1.0, 2.0, 0.0, -1.0]]))
    assert float(two_hot_loss(logprobs, jnp.array([0.25]), FIVE)[0]) == pytest.approx(1.0237440658, abs=1e-6)
    assert float(two_hot_mean(logprobs, FIVE)[0]) == pytest.approx(-0.2390758299, abs=1e-6)
    bins = jnp.asarray(symexp_bins(255), jnp.float32)
    assert (two_hot_mean(jax.nn.log_softmax(jnp.zeros((3, 255))), bins) == 0.0).all()


@pytest.mark.parametrize(
    ("value", "lower", "weights"),
    [
        (0.1, 127, (0.4136882061551783, 0.5863117938448217)),
        (1.0, 131, (0.6173290787, 0.3826709213)),
        (-1.0, 122, (0.3826709213, 0.6173290787)),
        (5.0, 138, (0.6407064037, 0.3592935963)),
        (100.0, 156, (0.7105292606, 0.2894707394)),
    ],
)
def test_targets_over_255_bins(value: float, lower: int, weights: tuple[float, float]) -> None:
    bins = symexp_bins(255).astype(np.float32)
    target = two_hot(jnp.array([value]), bins)[0]
    np.testing.assert_allclose(target[lower : lower + 2], weights, atol=1e-5)
    assert float(target.sum()) == pytest.approx(1.0, abs=1e-6)
    assert float(two_hot_mean(jnp.log(target + 1e-37), bins)) == pytest.approx(value, rel=1e-5)


def test_values_beyond_the_bins_are_on_the_outermost() -> None:
    target = two_hot(jnp.array([-1e12, 1e12]), symexp_bins(255).astype(np.float32))
    assert target[0, 0] == target[1, -1] == 1.0


LAYOUT = ImageLayout((2, 0, 1), 3, 32, 16, 1.0 / 255.0)


def by_torch_names(params: dict[str, Any]) -> dict[str, torch.Tensor]:
    """JAX parameters as a state dict of the torch twin: matrices of linear layers are transposed."""
    transposed = ("linear.weight", "from_stoch.weight")
    return {
        name: torch.from_numpy(np.array(value.T if name.endswith(transposed) else value))
        for name, value in params.items()
    }


def test_the_image_encoder_is_that_of_torch() -> None:
    """Bytes (height, width, channels) to features, and the gradient of every parameter."""
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (2, 32, 16, 3), dtype=np.uint8)
    params = image_encoder_init(np.random.default_rng(0), LAYOUT, 2)
    twin = ImageEncoder(np.random.default_rng(0), (3, 32, 16), 2)
    assert encoder_features(LAYOUT, 2) == twin.out_features
    for name, value in by_torch_names(params).items():
        assert torch.equal(twin.state_dict()[name], value), name
    weights = rng.standard_normal((2, twin.out_features))

    def loss(params: Any) -> tuple[Any, Any]:
        features = image_encoder(params, scaled_image(images, LAYOUT))
        return (weights * features).sum(), features

    with jax.enable_x64(True):  # what is compared is the mathematics, not the rounding of sums over pixels
        grads, features = jax.jit(jax.grad(loss, has_aux=True))(in_float64(params))
    expected = twin.double()((torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255.0).double())
    np.testing.assert_allclose(features, expected.detach(), atol=1e-5)
    (torch.from_numpy(weights) * expected).sum().backward()
    assert_gradients(grads, twin)


def test_the_image_decoder_is_that_of_torch() -> None:
    """Features to images, with blocks of channels, and the gradient of every parameter."""
    rng = np.random.default_rng(1)
    decoder = ImageDecoder(LAYOUT, deter=8, stoch=6, depth=2, units=5, blocks=4)
    params = decoder.init(np.random.default_rng(0))
    twin = TorchImageDecoder(np.random.default_rng(0), (8, 6), (3, 32, 16), depth=2, units=5, blocks=4)
    for name, value in by_torch_names(params).items():
        assert torch.equal(twin.state_dict()[name], value), name
    features, weights = rng.standard_normal((2, 14)), rng.standard_normal((2, 32, 16, 3))

    def loss(params: Any) -> tuple[Any, Any]:
        images = decoder.apply(params, jnp.asarray(features))
        return (weights * images).sum(), images

    with jax.enable_x64(True):
        grads, images = jax.jit(jax.grad(loss, has_aux=True))(in_float64(params))
    expected = twin.double()(torch.from_numpy(features)).permute(0, 2, 3, 1)
    np.testing.assert_allclose(images, expected.detach(), atol=1e-5)
    (torch.from_numpy(weights) * expected).sum().backward()
    assert_gradients(grads, twin)


@pytest.mark.parametrize("features", [(8, 0), (0, 6)], ids=["deterministic", "random"])
def test_an_image_decoder_takes_features_of_one_kind_alone(features: tuple[int, int]) -> None:
    """Those of deterministic dynamics, which have no random ones, and of stochastic dynamics, which have no others."""
    decoder = ImageDecoder(LAYOUT, *features, depth=2, units=5, blocks=2)
    params = decoder.init(np.random.default_rng(0))
    twin = TorchImageDecoder(np.random.default_rng(0), features, (3, 32, 16), depth=2, units=5, blocks=2)
    ours = by_torch_names(params)
    assert ours.keys() == twin.state_dict().keys()
    assert all(torch.equal(twin.state_dict()[name], value) for name, value in ours.items())
    images = jax.eval_shape(decoder.apply, params, np.zeros((2, sum(features)), np.float32))
    assert images.shape == (2, 32, 16, 3)


@pytest.mark.slow
@pytest.mark.parametrize("features", [(8, 0), (0, 6)], ids=["deterministic", "random"])
def test_images_of_features_of_one_kind_are_those_of_torch(features: tuple[int, int]) -> None:
    decoder = ImageDecoder(LAYOUT, *features, depth=2, units=5, blocks=2)
    twin = TorchImageDecoder(np.random.default_rng(0), features, (3, 32, 16), depth=2, units=5, blocks=2)
    given = np.random.default_rng(1).standard_normal((2, sum(features)), np.float32)
    images = decoder.apply(decoder.init(np.random.default_rng(0)), jnp.asarray(given))
    expected = twin(torch.from_numpy(given)).permute(0, 2, 3, 1)
    np.testing.assert_allclose(images, expected.detach(), atol=1e-5)


def in_float64(params: dict[str, Any]) -> dict[str, Any]:
    return {name: value.astype(np.float64) for name, value in params.items()}


def assert_gradients(grads: dict[str, Any], twin: torch.nn.Module) -> None:
    """To 1e-5 of the largest entry of each tensor."""
    ours = by_torch_names({name: np.asarray(value) for name, value in grads.items()})
    for name, parameter in twin.named_parameters():
        assert parameter.grad is not None
        limit = 1e-5 * float(parameter.grad.abs().max())
        np.testing.assert_allclose(ours[name], parameter.grad, rtol=0, atol=limit, err_msg=name)


def test_laprop_against_worked_out_numbers() -> None:
    optimizer = build_optimizer(OptimizerConfig("laprop"))
    params = {"p": jnp.array([3.0, 4.0]), "bias": jnp.zeros(1)}
    state = optimizer.init(params)
    params, state = optimizer.update(params, {"p": jnp.array([30.0, 40.0]), "bias": jnp.array([7.0])}, state, {}, 0.1)
    np.testing.assert_allclose(params["p"], [2.9, 3.9], rtol=1e-6)
    np.testing.assert_allclose(params["bias"], [-0.1], rtol=1e-5)
    params, state = optimizer.update(params, {"p": jnp.array([0.3, -0.4]), "bias": jnp.zeros(1)}, state, {}, 0.1)
    np.testing.assert_allclose(params["p"], [2.82908931, 3.8761738479], rtol=1e-6)


def test_laprop_refuses_what_it_does_not_take() -> None:
    with pytest.raises(ConfigError, match="takes no 'weight_decay'"):
        build_optimizer(OptimizerConfig("laprop", {"weight_decay": 0.1}))
