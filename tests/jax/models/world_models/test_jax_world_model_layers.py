"""Layers, two-hot predictions and LaProp in JAX against worked-out numbers and their torch twins."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from rl_training.hparams.optimizer import OptimizerConfig
from rl_training.jax.models.optimization import build_optimizer
from rl_training.jax.models.world_models.layers import (
    block_linear,
    block_linear_init,
    normed_mlp,
    normed_mlp_init,
    rms_norm,
)
from rl_training.jax.models.world_models.two_hot import symexp, symlog, two_hot, two_hot_loss, two_hot_mean
from rl_training.models.world_models.layers import BlockLinear, NormedMLP
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
    values = jnp.array([-1000.0, -1.0, 0.5, 10.0])
    np.testing.assert_allclose(symlog(values), [-6.9087548, -0.6931472, 0.4054651, 2.3978953], rtol=1e-6)
    np.testing.assert_allclose(symexp(symlog(values)), values, rtol=1e-5)


def test_two_hot() -> None:
    np.testing.assert_allclose(two_hot(jnp.array([0.25, -1.5, 3.0]), FIVE)[0], [0, 0, 0.75, 0.25, 0], atol=1e-7)
    logprobs = jax.nn.log_softmax(jnp.array([[0.0, 1.0, 2.0, 0.0, -1.0]]))
    assert float(two_hot_loss(logprobs, jnp.array([0.25]), FIVE)[0]) == pytest.approx(1.0237440658, abs=1e-6)
    assert float(two_hot_mean(logprobs, FIVE)[0]) == pytest.approx(-0.2390758299, abs=1e-6)
    bins = jnp.asarray(symexp_bins(255), jnp.float32)
    assert (two_hot_mean(jax.nn.log_softmax(jnp.zeros((3, 255))), bins) == 0.0).all()


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
