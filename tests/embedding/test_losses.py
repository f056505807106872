from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.embedding.losses import (
    decorrelation_loss,
    distance_loss,
    match_loss,
    random_loss,
    readout_alignment,
    readout_loss,
    spread_loss,
)

shapes = st.tuples(st.integers(1, 6), st.integers(2, 8))
seeds = st.integers(0, 2**32 - 1)


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


@given(seed=seeds, shape=shapes)
@settings(max_examples=40, deadline=None)
def test_match_is_the_mean_squared_distance(seed, shape):
    mapped, watermark = draw(seed, *shape), np.sign(draw(seed + 1, shape[1]))
    found = match_loss(torch.tensor(mapped), torch.tensor(watermark)).item()
    total = sum(
        (mapped[i][j] - watermark[j]) ** 2 for i in range(shape[0]) for j in range(shape[1])
    )
    assert found == pytest.approx(total / (shape[0] * shape[1]))


@given(seed=seeds, shape=shapes, scale=st.floats(0.1, 100))
@settings(max_examples=40, deadline=None)
def test_random_is_the_squared_cosine_summed_over_the_sources(seed, shape, scale):
    sources = [draw(seed + i, *shape) for i in range(3)]
    watermark = np.sign(draw(seed + 9, shape[1]))
    expected = 0.0
    for source in sources:
        cosines = [
            row @ watermark / math.sqrt(row @ row) / math.sqrt(watermark @ watermark)
            for row in source
        ]
        expected += sum(cosine**2 for cosine in cosines) / len(cosines)
    tensors = [torch.tensor(source * scale) for source in sources]
    assert random_loss(tensors, torch.tensor(watermark)).item() == pytest.approx(expected)


def test_random_is_least_for_orthogonal_and_greatest_for_parallel_outputs():
    watermark = torch.tensor([1.0, -1.0, 1.0, -1.0])
    orthogonal = torch.tensor([[1.0, 1.0, -1.0, -1.0], [2.0, 2.0, 0.0, 0.0]])
    assert random_loss([orthogonal], watermark).item() == pytest.approx(0, abs=1e-12)
    parallel = torch.stack([watermark * 3, -watermark])  # the opposite is as readable
    assert random_loss([parallel, parallel, parallel], watermark).item() == pytest.approx(3)


@given(seed=seeds, shape=shapes, num_bits=st.integers(1, 5), margin=st.floats(0.1, 2))
@settings(max_examples=40, deadline=None)
def test_readout_is_the_hinge_of_every_bit(seed, shape, num_bits, margin):
    outputs, readout = draw(seed, *shape), np.sign(draw(seed + 1, num_bits, shape[1]))
    bits = np.sign(draw(seed + 2, num_bits))
    terms = [
        max(0.0, margin - bits[i] * (readout[i] @ row) / math.sqrt(row @ row))
        for row in outputs
        for i in range(num_bits)
    ]
    found = readout_loss(
        torch.tensor(outputs), torch.tensor(readout), torch.tensor(bits), margin
    ).item()
    assert found == pytest.approx(sum(terms) / len(terms), abs=1e-9)


def test_readout_vanishes_once_every_bit_is_beyond_the_margin():
    readout = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    outputs = torch.tensor([[5.0, 0.0]], requires_grad=True)
    loss = readout_loss(outputs, readout, torch.tensor([1.0, 1.0]), 0.5)
    torch.autograd.backward(loss)
    assert loss.item() == 0
    assert outputs.grad is not None
    assert not outputs.grad.any()


@given(seed=seeds, shape=shapes, scale=st.floats(0.01, 100))
@settings(max_examples=40, deadline=None)
def test_distance_is_in_units_of_the_reference_variance(seed, shape, scale):
    outputs, reference = draw(seed, shape[0] + 1, shape[1]), draw(seed + 1, shape[0] + 1, shape[1])
    expected = ((outputs - reference) ** 2).mean() / reference.var(axis=0).mean()
    found = distance_loss(torch.tensor(outputs * scale), torch.tensor(reference * scale)).item()
    assert found == pytest.approx(expected, rel=1e-6)


def test_distance_is_zero_for_equal_outputs_and_finite_for_a_constant_reference():
    reference = torch.ones(4, 3)
    assert distance_loss(reference, reference).item() == 0
    assert math.isfinite(distance_loss(reference + 1, reference).item())


# --- spread and decorrelation --------------------------------------------------------------------


def some_outputs(seed: int, rows: int = 64, width: int = 6) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def test_spread_loss_is_zero_from_the_asked_share_on_and_grows_below():
    reference = some_outputs(0)
    centre = torch.full((6,), 3.0)
    values = [
        spread_loss(centre + share * reference, reference, 0.5) for share in (0, 0.25, 0.5, 1)
    ]
    assert [round(value.item(), 4) for value in values] == [1.0, 0.25, 0.0, 0.0]


def test_decorrelation_loss_sees_linear_images_and_nothing_else():
    reference = some_outputs(1, rows=4000)
    mixed = reference @ some_outputs(2, rows=6) + 5.0
    unrelated = some_outputs(3, rows=4000)
    crooked = (reference * 3.0).cos()  # a function of the reference, but an even one
    losses = [decorrelation_loss(part, reference).item() for part in (mixed, unrelated, crooked)]
    assert losses[0] > 0.1
    assert max(losses[1:]) < 0.01


def test_decorrelation_loss_does_not_depend_on_scale_or_shift():
    outputs, reference = some_outputs(4), some_outputs(5)
    moved = decorrelation_loss(7.0 * outputs - 2.0, 0.1 * reference + 1.0)
    assert moved.item() == pytest.approx(decorrelation_loss(outputs, reference).item(), rel=1e-4)


def test_outputs_all_alike_have_finite_losses_and_gradients():
    outputs = torch.ones(8, 6, requires_grad=True)
    reference = some_outputs(6, rows=8)
    total = spread_loss(outputs, reference, 0.5) + decorrelation_loss(outputs, reference)
    total.backward()
    assert torch.isfinite(total)
    assert torch.isfinite(outputs.grad).all()


@given(seed=seeds, shape=shapes, num_bits=st.integers(1, 5), margin=st.floats(0.1, 2))
@settings(max_examples=40, deadline=None)
def test_alignment_is_what_all_derived_bits_say_together(seed, shape, num_bits, margin):
    outputs, readout = draw(seed, *shape), np.sign(draw(seed + 1, num_bits, shape[1]))
    bits = np.sign(draw(seed + 2, num_bits))
    expected = 0.0
    for row in outputs:
        unit = row / math.sqrt(row @ row)
        expected += abs(sum(bits[i] * (readout[i] @ unit) for i in range(num_bits)) / num_bits)
    tensors = [torch.tensor(each) for each in (outputs, readout, bits)]
    for sign in (1, -1):  # the opposite is as readable
        found = readout_alignment(sign * tensors[0], *tensors[1:], margin).item()
        assert found == pytest.approx(expected / len(outputs) / margin, abs=1e-12)
