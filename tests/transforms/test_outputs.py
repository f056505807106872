"""Changes of outputs: what they keep, what they destroy, and that one draw serves all answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.transforms.outputs import (
    OUTPUT_ALTERATIONS,
    chain,
    damped_whitening,
    expansion,
    first_cut,
    isotropic_noise,
    linear_map,
    near_singular_map,
    noise_per_dimension,
    principal_cut,
    random_cut,
    rounded,
    rounded_per_dimension,
    scale_and_sign,
    signs,
    unit_length,
    whitening,
)

seeds = st.integers(0, 2**32 - 1)


def rows(seed: int, num_texts: int = 40, width: int = 6) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((num_texts, width)) * rng.uniform(0.1, 10, width) + 3


@pytest.mark.parametrize("name", OUTPUT_ALTERATIONS)
def test_every_alteration_keeps_the_shape_and_repeats_with_its_seed(name):
    answers = rows(0)
    drawn = [
        OUTPUT_ALTERATIONS[name].draw(answers, np.random.default_rng(5))(answers) for _ in range(2)
    ]
    assert drawn[0].shape == answers.shape
    assert np.isfinite(drawn[0]).all()
    np.testing.assert_array_equal(*drawn)
    assert not np.allclose(drawn[0], answers)


@given(seed=seeds)
@settings(max_examples=25, deadline=None)
def test_linear_changes_are_the_same_map_for_all_answers(seed):
    rng, answers = np.random.default_rng(seed), rows(seed)
    for draw in (linear_map, random_cut(3)):
        change = draw(answers, rng)
        np.testing.assert_allclose(change(2 * answers), 2 * change(answers), rtol=1e-9)
        np.testing.assert_allclose(change(answers)[:7], change(answers[:7]), rtol=1e-9)


@given(seed=seeds)
@settings(max_examples=25, deadline=None)
def test_whitened_outputs_vary_alike_in_all_directions(seed):
    answers = rows(seed)
    white = whitening(answers, np.random.default_rng(seed))(answers)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(6), atol=1e-8)


def test_scales_and_lengths_keep_directions():
    answers = rows(1)
    for draw in (unit_length, scale_and_sign):
        changed = draw(answers, np.random.default_rng(0))(answers)
        cosines = np.sum(changed * answers, axis=1) / (
            np.linalg.norm(changed, axis=1) * np.linalg.norm(answers, axis=1)
        )
        np.testing.assert_allclose(np.abs(cosines), 1.0, rtol=1e-12)
    lengths = np.linalg.norm(unit_length(answers, np.random.default_rng(0))(answers), axis=1)
    np.testing.assert_allclose(lengths, 1.0)


def test_noise_has_the_size_it_says():
    answers = rows(2, num_texts=20_000)
    spread = answers.std(axis=0)
    by_dimension = noise_per_dimension(0.1)(answers, np.random.default_rng(0))(answers) - answers
    np.testing.assert_allclose(by_dimension.std(axis=0), 0.1 * spread, rtol=0.05)
    alike = isotropic_noise(0.1)(answers, np.random.default_rng(0))(answers) - answers
    np.testing.assert_allclose(alike.std(axis=0), 0.1 * answers.std(), rtol=0.05)


@pytest.mark.parametrize("cut", [principal_cut, random_cut, first_cut])
@pytest.mark.parametrize("dimensions", [1, 3, 6, 9])
def test_cuts_leave_so_many_dimensions_or_all(cut, dimensions):
    answers = rows(3)
    changed = cut(dimensions)(answers, np.random.default_rng(0))(answers)
    assert changed.shape == (40, min(dimensions, 6))
    assert np.linalg.matrix_rank(changed) == min(dimensions, 6)


def test_principal_cut_keeps_most_of_the_variance():
    answers = rows(4)
    kept = principal_cut(2)(answers, np.random.default_rng(0))(answers).var(axis=0).sum()
    largest = np.sort(np.linalg.eigvalsh(np.cov(answers.T, bias=True)))[-2:].sum()
    assert kept == pytest.approx(largest)


def test_rounding_and_signs_leave_few_values():
    answers = rows(5)
    coarse = rounded(15)(answers, np.random.default_rng(0))(answers)
    assert len(np.unique(coarse.round(9))) <= 15
    assert np.abs(coarse - answers).max() <= np.abs(answers).max() / 14 + 1e-9
    assert set(np.unique(signs(answers, np.random.default_rng(0))(answers))) <= {-1.0, 1.0}


def test_a_chain_does_one_after_the_other():
    answers = rows(6)
    together = chain(linear_map, unit_length)(answers, np.random.default_rng(9))(answers)
    rng = np.random.default_rng(9)
    mapped = linear_map(answers, rng)(answers)
    np.testing.assert_allclose(together, unit_length(mapped, rng)(mapped))


@given(seed=seeds, condition=st.floats(1, 1e6), width=st.integers(2, 9))
@settings(max_examples=25, deadline=None)
def test_near_singular_maps_have_the_condition_they_say(seed, condition, width):
    change = near_singular_map(condition)(rows(0, width=width), np.random.default_rng(seed))
    factors = np.linalg.svd(change.matrix, compute_uv=False)
    np.testing.assert_allclose(factors, np.geomspace(1, 1 / condition, width), rtol=1e-6)


@given(seed=seeds)
@settings(max_examples=25, deadline=None)
def test_a_ridge_shrinks_weak_directions_and_none_is_plain_whitening(seed):
    answers = rows(seed)
    plain = whitening(answers, np.random.default_rng(seed))
    undamped = damped_whitening(0.0)(answers, np.random.default_rng(seed))
    np.testing.assert_array_equal(plain.matrix, undamped.matrix)
    np.testing.assert_array_equal(plain.offset, undamped.offset)
    damped = damped_whitening(0.1)(answers, np.random.default_rng(seed))(answers)
    variances = np.linalg.eigvalsh(np.cov(answers.T, bias=True))
    # A direction of variance v comes out with v / (v + ridge · mean).
    expected = variances / (variances + 0.1 * variances.mean())
    np.testing.assert_allclose(np.linalg.eigvalsh(np.cov(damped.T, bias=True)), expected)


def test_the_first_cut_keeps_entries_as_they_are():
    answers = rows(7)
    changed = first_cut(2)(answers, np.random.default_rng(0))(answers)
    np.testing.assert_array_equal(changed, answers[:, :2])


@pytest.mark.parametrize("dimensions", [1, 6, 7, 40])
def test_an_expansion_keeps_lengths_and_angles(dimensions):
    answers = rows(8)
    changed = expansion(dimensions)(answers, np.random.default_rng(0))(answers)
    assert changed.shape == (40, max(dimensions, 6))
    np.testing.assert_allclose(changed @ changed.T, answers @ answers.T, rtol=1e-9, atol=1e-9)
    assert np.abs(changed[:, :6] - answers).max() > 0.1


def test_levels_per_dimension_follow_every_dimension():
    answers = rows(9)
    answers[:, 3] = 0.0  # nothing to round
    coarse = rounded_per_dimension(15)(answers, np.random.default_rng(0))(answers)
    most = np.abs(answers).max(axis=0)
    assert (np.abs(coarse - answers) <= most / 14 + 1e-9).all()
    np.testing.assert_allclose(np.abs(coarse).max(axis=0), most)
    assert all(len(np.unique(column.round(9))) <= 15 for column in coarse.T)
