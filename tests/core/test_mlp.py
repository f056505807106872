"""The extractor's forward pass from plain arrays."""

import itertools

import numpy as np
import pytest

from nsmark.core.mlp import Layer, mlp_forward
from nsmark.errors import EvidenceError


def make_layers(*sizes: int, seed: int = 0) -> list[Layer]:
    rng = np.random.default_rng(seed)
    return [
        (
            rng.standard_normal((wide, narrow)).astype(np.float32),
            rng.standard_normal(wide).astype(np.float32),
        )
        for narrow, wide in itertools.pairwise(sizes)
    ]


def test_relu_stands_between_layers_but_not_after_the_last() -> None:
    layers: list[Layer] = [
        (np.array([[1.0], [-1.0]], np.float32), np.array([0.0, 0.5], np.float32)),
        (np.array([[1.0, -2.0]], np.float32), np.array([-1.0], np.float32)),
    ]

    # x=3: hidden (3, max(-2.5, 0)=0) → 3 − 1; x=-1: hidden (0, 1.5) → −3 − 1.
    assert mlp_forward(np.array([[3.0], [-1.0]]), layers).tolist() == [[2.0], [-4.0]]


def test_one_layer_is_linear_and_may_be_negative() -> None:
    layers = make_layers(3, 2)
    inputs = np.random.default_rng(1).standard_normal((50, 3))

    outputs = mlp_forward(inputs, layers)

    assert (outputs < 0).any()
    assert np.allclose(outputs, inputs @ layers[0][0].T + layers[0][1], atol=1e-5)


def test_three_layers_agree_with_double_precision() -> None:
    layers = make_layers(8, 16, 12, 4)
    inputs = np.random.default_rng(1).standard_normal((7, 8))
    hidden = inputs
    for weight, bias in layers[:-1]:
        hidden = np.maximum(hidden @ weight.astype(float).T + bias, 0)
    expected = hidden @ layers[-1][0].astype(float).T + layers[-1][1]

    outputs = mlp_forward(inputs, layers)

    assert outputs.shape == (7, 4)
    assert outputs.dtype == np.float32
    assert np.abs(outputs - expected).max() < 1e-4


def test_the_trained_network_and_its_plain_arrays_agree() -> None:
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    layers = make_layers(6, 10, 4)
    network = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.ReLU(), torch.nn.Linear(10, 4))
    with torch.no_grad():
        for module, (weight, bias) in zip((network[0], network[2]), layers, strict=True):
            module.weight.copy_(torch.from_numpy(weight))
            module.bias.copy_(torch.from_numpy(bias))
        inputs = torch.from_numpy(np.random.default_rng(2).standard_normal((5, 6))).float()
        expected = network(inputs).numpy()

    assert np.allclose(mlp_forward(inputs.numpy(), layers), expected, atol=1e-5)


def test_inputs_and_weights_stay_as_they_were() -> None:
    layers = make_layers(3, 4, 2)
    inputs = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    copies = [inputs.copy(), *(array.copy() for layer in layers for array in layer)]

    mlp_forward(inputs, layers)

    after = [inputs, *(array for layer in layers for array in layer)]
    assert all((a == b).all() for a, b in zip(copies, after, strict=True))


def test_a_suspect_of_another_dimension_is_refused_with_both_numbers() -> None:
    with pytest.raises(EvidenceError, match="5 dimensions, the extractor wants 3"):
        mlp_forward(np.zeros((2, 5)), make_layers(3, 4, 2))
