"""Each further statistic, its invariance, and what it says of the innocent."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.core import (
    alignment,
    centred_matching_degree,
    expected_matching_degree,
    matching_degree,
    null_space_basis,
    predictability,
    projective_matching_degree,
    subspace_overlap,
)
from nsmark.core.null_space import check_matrix
from nsmark.core.statistics import unit_columns
from nsmark.errors import EmptyNullSpaceError, EvidenceError

seeds = st.integers(0, 2**32 - 1)
DIM, TEXTS = 12, 60


def well_conditioned(rng: np.random.Generator, size: int) -> np.ndarray:
    rotation, _ = np.linalg.qr(rng.standard_normal((size, size)))
    other, _ = np.linalg.qr(rng.standard_normal((size, size)))
    return (rotation * rng.uniform(0.5, 2.0, size)) @ other


def two_models(seed: int, dim: int = DIM, texts: int = TEXTS) -> tuple[np.ndarray, np.ndarray]:
    owner, stranger = np.random.default_rng(seed).standard_normal((2, dim, texts))
    return owner, stranger


def text_scales(rng: np.random.Generator, texts: int = TEXTS) -> np.ndarray:
    return rng.choice([-1.0, 1.0], texts) * 10 ** rng.uniform(-2, 2, texts)


# Centred matching degree --------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seeds, st.floats(0, 1000))
def test_centred_degree_vanishes_under_any_affine_map(seed: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    owner, _ = two_models(seed)
    shift = offset * rng.standard_normal((DIM, 1))

    stolen = well_conditioned(rng, DIM) @ owner + shift

    assert centred_matching_degree(owner, stolen) < 1e-3
    assert centred_matching_degree(owner + shift, stolen) < 1e-3


@settings(max_examples=40, deadline=None)
@given(seeds, st.floats(-100, 100))
def test_centred_degree_of_a_stranger_ignores_constants_on_either_side(
    seed: int, offset: float
) -> None:
    rng = np.random.default_rng(seed)
    owner, stranger = two_models(seed)
    shift = offset * rng.standard_normal((DIM, 1))
    degree = centred_matching_degree(owner, stranger)

    assert centred_matching_degree(owner, 3.0 * stranger + shift) == pytest.approx(degree, rel=1e-9)
    assert degree > 0.7 * expected_matching_degree(TEXTS, TEXTS - DIM - 1)


def test_centred_degree_is_the_matching_degree_against_owner_and_ones() -> None:
    owner, stranger = two_models(0)
    basis = null_space_basis(np.vstack([owner, np.ones((1, TEXTS))]))
    centred = stranger - stranger.mean(axis=1, keepdims=True)

    assert basis.shape == (TEXTS, TEXTS - DIM - 1)
    # Both bases span one space; only the invariant form could be compared to the last digit.
    assert centred_matching_degree(owner, stranger) == pytest.approx(
        matching_degree(centred, basis), rel=0.05
    )


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_centred_degree_does_not_depend_on_the_unit_of_the_owners_outputs(unit: float) -> None:
    owner, stranger = two_models(0)

    assert centred_matching_degree(unit * owner, owner) < 1e-3
    assert centred_matching_degree(unit * owner, stranger) == pytest.approx(
        centred_matching_degree(owner, stranger), rel=1e-6
    )


def test_a_shift_hides_a_theft_from_the_plain_degree_but_not_from_the_centred_one() -> None:
    owner, _ = two_models(0)
    shifted = owner + 5.0

    assert matching_degree(shifted, null_space_basis(owner)) > 1.0
    assert centred_matching_degree(owner, shifted) < 1e-3


@pytest.mark.parametrize("value", [1.0, 0.1, 1 / 3, 123.456, 1e6])
def test_constant_outputs_are_no_match(value: float) -> None:
    # 0.1 summed 60 times is not 6: the centred rows are a rounding residue along the ones, which
    # every centred basis annihilates. A broken endpoint must not look like a theft.
    owner, stranger = two_models(0)
    constant = np.full((DIM, TEXTS), value) * np.linspace(0.5, 1.5, DIM)[:, None]

    with pytest.raises(EvidenceError):
        centred_matching_degree(owner, constant)
    with pytest.raises(EvidenceError):
        subspace_overlap(owner, constant)
    # Constant dimensions beside others count as dead, whatever their size.
    mixed = np.vstack([stranger, 1e6 * constant])
    assert centred_matching_degree(owner, mixed) == pytest.approx(
        centred_matching_degree(owner, stranger)
    )
    assert predictability(owner, constant) == pytest.approx(0.0, abs=0.2)


def test_centred_degree_needs_two_texts_more_than_dimensions() -> None:
    owner, _ = two_models(0, dim=8, texts=9)

    with pytest.raises(EmptyNullSpaceError) as caught:
        centred_matching_degree(owner, owner)

    assert caught.value.needed == 10


# Alignment and the projective degree ---------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_a_scale_and_sign_per_text_are_found_and_undone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    owner, _ = two_models(seed)
    basis = null_space_basis(owner)
    scales = text_scales(rng)
    mapped = well_conditioned(rng, DIM) @ owner

    found, gap = alignment(mapped * scales, basis)

    # B̂·diag(d) lies in the owner's row space: d undoes sign and length of every column.
    undone = found * np.sign(scales) / np.linalg.norm(mapped, axis=0)
    assert found.shape == (TEXTS,)
    assert np.linalg.norm(found) == pytest.approx(1.0)
    assert found[np.argmax(np.abs(found))] > 0
    assert np.ptp(np.abs(undone)) < 1e-6 * np.abs(undone).max()
    assert len(set(np.sign(undone))) == 1
    assert gap < 1e-6
    assert projective_matching_degree(mapped * scales, basis) < 1e-3


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_projective_degree_and_gap_of_a_stranger_ignore_scales_and_signs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    owner, stranger = two_models(seed)
    basis = null_space_basis(owner)
    scaled = stranger * text_scales(rng)

    assert alignment(scaled, basis)[1] == pytest.approx(alignment(stranger, basis)[1], rel=1e-6)
    assert projective_matching_degree(scaled, basis) == pytest.approx(
        projective_matching_degree(stranger, basis), rel=1e-5
    )


def test_strangers_have_a_gap_near_one_and_thieves_near_zero() -> None:
    gaps = []
    for seed in range(20):
        owner, stranger = two_models(seed)
        basis = null_space_basis(owner)
        gaps.append(alignment(stranger, basis)[1])
        assert alignment(owner, basis)[1] < 1e-6

    assert min(gaps) > 0.5
    assert max(gaps) <= 1.0


def test_scales_hide_a_theft_from_the_plain_degree_but_not_from_the_projective_one() -> None:
    rng = np.random.default_rng(0)
    owner, _ = two_models(0)
    basis = null_space_basis(owner)
    scaled = owner * text_scales(rng)

    assert matching_degree(scaled, basis) > 1.0
    assert projective_matching_degree(scaled, basis) < 1e-3


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(2, 6))
def test_outputs_along_one_direction_leave_the_scales_undetermined_and_prove_nothing(
    seed: int, dim: int
) -> None:
    # One vector times any number per text fits every owner: eigenvalue 0 has multiplicity `dim`,
    # so both eigenvalues are rounding noise, and their ratio may be anything.
    rng = np.random.default_rng(seed)
    owner = rng.standard_normal((dim, 30))
    one_direction = rng.standard_normal((dim, 1)) * rng.uniform(0.5, 2.0, 30)

    assert alignment(one_direction, null_space_basis(owner))[1] == 1.0


def test_a_text_answered_by_zero_cannot_be_aligned() -> None:
    owner, stranger = two_models(0)
    stranger[:, [3, 7]] = 0.0

    for call in (
        lambda: unit_columns(stranger),
        lambda: alignment(stranger, null_space_basis(owner)),
        lambda: projective_matching_degree(stranger, null_space_basis(owner)),
    ):
        with pytest.raises(EvidenceError, match="2 texts"):
            call()


def test_unit_columns_have_length_one_and_keep_their_direction() -> None:
    owner, _ = two_models(0)
    units = unit_columns(7 * owner)

    assert np.allclose(np.linalg.norm(units, axis=0), 1.0)
    assert np.allclose(units * np.linalg.norm(owner, axis=0), owner)


# Subspace overlap ---------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_overlap_is_one_for_the_same_model_under_any_invertible_map(seed: int) -> None:
    rng = np.random.default_rng(seed)
    owner, _ = two_models(seed)

    assert subspace_overlap(owner, owner) == pytest.approx(1.0, abs=1e-9)
    mapped = rng.standard_normal((DIM, DIM)) @ owner + 10 * rng.standard_normal((DIM, 1))
    if np.linalg.cond(mapped - mapped.mean(axis=1, keepdims=True)) < 1e5:
        assert subspace_overlap(owner, mapped) == pytest.approx(1.0, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(1, DIM - 1))
def test_overlap_survives_a_cut_and_a_widening_of_the_dimensions(seed: int, kept: int) -> None:
    rng = np.random.default_rng(seed)
    owner, _ = two_models(seed)

    assert subspace_overlap(owner, owner[:kept]) == pytest.approx(1.0, abs=1e-9)
    assert subspace_overlap(owner[:kept], owner) == pytest.approx(1.0, abs=1e-9)
    wide = np.vstack([owner, rng.standard_normal((kept, DIM)) @ owner])
    assert subspace_overlap(owner, wide) == pytest.approx(1.0, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_overlap_is_symmetric_and_invariant_for_strangers_too(seed: int) -> None:
    rng = np.random.default_rng(seed)
    owner, stranger = two_models(seed)
    overlap = subspace_overlap(owner, stranger)

    assert subspace_overlap(stranger, owner) == pytest.approx(overlap, abs=1e-9)
    mapped = well_conditioned(rng, DIM) @ stranger + rng.standard_normal((DIM, 1))
    assert subspace_overlap(owner, mapped) == pytest.approx(overlap, abs=1e-9)


@pytest.mark.parametrize(("dim", "other_dim"), [(12, 12), (12, 30), (20, 3)])
def test_chance_is_taken_out_of_the_overlap_of_strangers(dim: int, other_dim: int) -> None:
    rng = np.random.default_rng(0)
    overlaps = [
        subspace_overlap(rng.standard_normal((dim, TEXTS)), rng.standard_normal((other_dim, TEXTS)))
        for _ in range(200)
    ]
    error = float(np.std(overlaps)) / math.sqrt(len(overlaps))

    assert abs(np.mean(overlaps)) < 4 * error
    assert max(overlaps) < 0.6


def test_overlap_by_hand() -> None:
    # Three centred, orthogonal directions over eight texts (columns of a Hadamard matrix).
    hadamard = np.array([[1, 1], [1, -1]])
    rows = np.kron(hadamard, np.kron(hadamard, hadamard))[1:4].astype(float)
    raw, chance = 1 / 2, 2 / 7  # two shared of three: one direction of two

    assert subspace_overlap(rows[:2], rows[1:]) == pytest.approx((raw - chance) / (1 - chance))
    assert subspace_overlap(rows[:1], rows[1:]) == pytest.approx((0 - chance) / (1 - chance))


@pytest.mark.parametrize(("dim", "measurable"), [(7, True), (8, False), (9, False), (20, False)])
def test_overlap_without_room_for_chance_is_none(dim: int, measurable: bool) -> None:
    owner, stranger = two_models(0, dim=dim, texts=9)

    for pair in ((owner, stranger), (owner, stranger[:2]), (stranger[:2], owner)):
        assert (subspace_overlap(*pair) is not None) == measurable


# Predictability -----------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_predictability_is_near_one_for_the_same_model_under_a_map(seed: int) -> None:
    rng = np.random.default_rng(seed)
    owner, _ = two_models(seed)
    mapped = well_conditioned(rng, DIM) @ owner + 3.0

    assert predictability(owner, owner) > 0.999
    assert predictability(owner, mapped) > 0.999
    assert predictability(owner, 1e6 * mapped) == pytest.approx(
        predictability(owner, mapped), abs=1e-9
    )


def test_predictability_of_strangers_is_not_above_zero_by_more_than_chance() -> None:
    values = [predictability(*two_models(seed)) for seed in range(20)]

    assert max(values) < 0.1
    assert min(values) > -1.0


@pytest.mark.parametrize(("noise", "exponents"), [(0.0, {-6}), (0.7, {-2, -1}), (1e6, {1})])
def test_predictability_agrees_with_ridge_regression_written_down_directly(
    noise: float, exponents: set[int]
) -> None:
    rng = np.random.default_rng(0)
    owner = rng.standard_normal((5, 40))
    suspect = rng.standard_normal((7, 5)) @ owner + noise * rng.standard_normal((7, 40))
    inputs, targets, split = suspect.T, owner.T, 28

    def residual(train: np.ndarray, test: np.ndarray, penalty: float) -> tuple[float, float]:
        x, y = inputs[train], targets[train]
        xm, ym = x.mean(axis=0), y.mean(axis=0)
        weights = np.linalg.solve(
            (x - xm).T @ (x - xm) + penalty * np.eye(7), (x - xm).T @ (y - ym)
        )
        truth = targets[test] - ym
        return float(np.sum((truth - (inputs[test] - xm) @ weights) ** 2)), float(np.sum(truth**2))

    first = np.arange(split)
    largest = np.linalg.norm(inputs[:split] - inputs[:split].mean(axis=0), 2) ** 2
    penalties = [largest * 10.0**exponent for exponent in range(-6, 2)]
    errors = [
        sum(residual(np.setdiff1d(first, fold), fold, p)[0] for fold in np.array_split(first, 5))
        for p in penalties
    ]
    best = penalties[int(np.argmin(errors))]
    assert int(np.argmin(errors)) - 6 in exponents  # so that both ends of the range are tested
    left, total = residual(first, np.arange(split, 40), best)

    assert predictability(owner, suspect) == pytest.approx(1 - left / total, rel=1e-9)


def test_the_last_texts_are_only_scored_never_fitted() -> None:
    owner, suspect = two_models(0)
    stolen = owner.copy()
    stolen[:, 42:] = suspect[:, 42:]  # the same on the first 70 %, unrelated on the rest

    assert predictability(owner, stolen) < 0.0


def test_few_texts_and_constant_owners_are_errors_and_a_constant_suspect_predicts_nothing() -> None:
    owner, stranger = two_models(0)

    with pytest.raises(EvidenceError, match="14 texts"):
        predictability(owner[:, :14], stranger[:, :14])
    assert math.isfinite(predictability(owner[:, :15], stranger[:, :15]))
    with pytest.raises(EvidenceError, match="constant"):
        predictability(np.ones((3, TEXTS)), stranger)
    assert predictability(owner, np.ones((3, TEXTS))) == 0.0


# All of them --------------------------------------------------------------------------------


@pytest.mark.parametrize("compare", [centred_matching_degree, subspace_overlap, predictability])
def test_matrices_over_other_texts_are_refused_with_both_numbers(compare) -> None:
    with pytest.raises(EvidenceError, match="answer 60 texts, suspect outputs 59"):
        compare(np.ones((3, 60)), np.ones((3, 59)))


def test_a_basis_of_other_texts_is_refused() -> None:
    owner, stranger = two_models(0)
    for compare in (alignment, projective_matching_degree):
        with pytest.raises(EvidenceError, match="answer 59 texts, the null basis belongs to 60"):
            compare(stranger[:, :59], null_space_basis(owner))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_are_refused_on_either_side(value: float) -> None:
    owner, stranger = two_models(0)
    spoilt = stranger.copy()
    spoilt[0, 0] = value

    for compare in (centred_matching_degree, subspace_overlap, predictability):
        for pair in ((owner, spoilt), (spoilt, owner)):
            with pytest.raises(EvidenceError, match="NaN or infinite"):
                compare(*pair)
    for compare in (alignment, projective_matching_degree):
        with pytest.raises(EvidenceError, match="NaN or infinite"):
            compare(spoilt, null_space_basis(owner))


def test_no_statistic_changes_its_inputs() -> None:
    owner, stranger = two_models(0)
    basis = null_space_basis(owner)
    copies = [array.copy() for array in (owner, stranger, basis)]

    for compare in (centred_matching_degree, subspace_overlap, predictability):
        compare(check_matrix(owner), check_matrix(stranger))
    projective_matching_degree(stranger, basis)

    assert all((a == b).all() for a, b in zip(copies, (owner, stranger, basis), strict=True))
