"""Forward and backward pass of an MLP in NumPy, over views of its torch parameters.

For a 64 x 64 network torch spends most of a minibatch launching tiny operations. The other files of this
folder put their own loss between `forward` and `backward`; gradients are written straight into the flat vector that
Adam reads. Ensembles of E critics take the same functions, with a first axis of E.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from torch import nn

from rl_training.models.backbones.mlp import MLP
from rl_training.models.critics import EnsembleLinear, QCritics
from rl_training.models.observed import Seen, named, rows_of
from rl_training.numerics.encoding import encode_leaf_numpy
from rl_training.types import Array


class Linear(NamedTuple):
    """A layer's weights (out, in), its bias, where their gradients go, and the activation after it.

    The arrays are views of the parameters and of their gradients; for an ensemble they are (E, out, in), biases
    (E, 1, out) and their gradients (E, out).
    """

    weight: Array
    bias: Array
    weight_grad: Array
    bias_grad: Array
    activation: Literal["tanh", "relu"] | None


def is_plain(backbone: nn.Module) -> bool:
    """An MLP of linear layers with a known activation after each."""
    if type(backbone) is not MLP:
        return False
    layers = list(backbone.layers)
    linears, activations = layers[::2], layers[1::2]
    return all(type(layer) is nn.Linear for layer in linears) and all(
        type(layer) in (nn.Tanh, nn.ReLU) for layer in activations
    )


def encode(backbone: MLP, obs: Seen) -> Array:
    """Observations to flat features (B, F)."""
    columns = named(rows_of(obs))
    parts = [encode_leaf_numpy(leaf, columns[name].numpy()) for name, leaf in backbone.leaves.items()]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def is_plain_ensemble(critics: nn.Module) -> bool:
    """Critics of linear layers with a known activation after each."""
    if type(critics) is not QCritics or critics.encoder is None or critics.shared is not None:
        return False
    layers = [*critics.layers, critics.output]
    return all(type(layer) is EnsembleLinear for layer in layers[::2]) and all(
        type(layer) in (nn.Tanh, nn.ReLU) for layer in layers[1::2]
    )


def layers_of(body: MLP | QCritics, output: nn.Module) -> list[Linear]:
    """The linear maps from features to a head's outputs, of one network or of E critics."""
    modules = [*body.layers, output]
    return [
        linear_of(module, following)
        for module, following in zip(modules, [*modules[1:], None], strict=True)
        if isinstance(module, nn.Linear | EnsembleLinear)
    ]


def linear_of(layer: nn.Linear | EnsembleLinear, following: nn.Module | None) -> Linear:
    assert layer.weight.grad is not None
    assert layer.bias.grad is not None
    arrays = (layer.weight.detach(), layer.bias.detach(), layer.weight.grad, layer.bias.grad)
    weight, bias, weight_grad, bias_grad = (tensor.numpy() for tensor in arrays)
    if isinstance(layer, EnsembleLinear):  # stores weights as (E, in, out) and biases as (E, 1, out)
        weight, weight_grad, bias_grad = weight.swapaxes(1, 2), weight_grad.swapaxes(1, 2), bias_grad[:, 0]
    return Linear(weight, bias, weight_grad, bias_grad, activation_of(following))


def activation_of(module: nn.Module | None) -> Literal["tanh", "relu"] | None:
    if isinstance(module, nn.Tanh):
        return "tanh"
    return "relu" if isinstance(module, nn.ReLU) else None


def forward(layers: list[Linear], features: Array) -> list[Array]:
    """The input and the output of every layer, (B, width) each; (E, B, width) for an ensemble."""
    outputs = [features]
    for layer in layers:
        y = outputs[-1] @ layer.weight.swapaxes(-1, -2)
        y += layer.bias
        if layer.activation == "tanh":
            np.tanh(y, out=y)
        elif layer.activation == "relu":
            np.maximum(y, 0.0, out=y)
        outputs.append(y)
    return outputs


def backward(layers: list[Linear], outputs: list[Array], gradient: Array) -> None:
    """Backpropagate the gradient with respect to the last output, which is overwritten, into those of every layer."""
    ones = np.ones(gradient.shape[-2], np.float32)
    for i in range(len(layers) - 1, -1, -1):
        layer = layers[i]
        multiply_slope(gradient, layer, outputs[i + 1])
        np.matmul(gradient.swapaxes(-1, -2), outputs[i], out=layer.weight_grad)
        np.matmul(ones, gradient, out=layer.bias_grad)  # a sum over rows, but four times faster than np.sum
        if i > 0:
            gradient = gradient @ layer.weight


def input_gradient(layers: list[Linear], outputs: list[Array], gradient: Array) -> Array:
    """Gradient with respect to the input, (E, B, inputs) for an ensemble; gradients of the layers stay untouched."""
    for layer, y in zip(reversed(layers), reversed(outputs[1:]), strict=True):
        multiply_slope(gradient, layer, y)
        gradient = gradient @ layer.weight
    return gradient


def multiply_slope(gradient: Array, layer: Linear, y: Array) -> None:
    """Multiply a gradient by the derivative of a layer's activation, whose values are y; in place."""
    if layer.activation == "tanh":
        slope = y * y
        np.subtract(1.0, slope, out=slope)
        gradient *= slope
    elif layer.activation == "relu":
        gradient *= y > 0.0


def mean(values: Array) -> float:
    """The mean of a vector, without the overhead of `ndarray.mean`."""
    return float(np.add.reduce(values)) / len(values)
