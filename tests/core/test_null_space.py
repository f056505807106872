"""Null basis, matching degrees and their chance levels: the theorems are the tests."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.linalg import null_space
from scipy.stats import beta, ortho_group

from nsmark.core import (
    expected_matching_degree,
    invariant_matching_degree,
    matching_degree,
    null_space_basis,
)
from nsmark.core.null_space import RANK_TOLERANCE, check_matrix, live_rows, row_space_basis
from nsmark.errors import EmptyNullSpaceError, EvidenceError

seeds = st.integers(0, 2**32 - 1)


def well_conditioned(rng: np.random.Generator, size: int) -> np.ndarray:
    rotation, _ = np.linalg.qr(rng.standard_normal((size, size)))
    other, _ = np.linalg.qr(rng.standard_normal((size, size)))
    return (rotation * rng.uniform(0.5, 2.0, size)) @ other


def low_rank(rng: np.random.Generator, rows: int, columns: int, rank: int) -> np.ndarray:
    return rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, columns))


def assert_is_null_basis(
    basis: np.ndarray, matrix: np.ndarray, null_dim: int, tolerance: float = 1e-9
) -> None:
    assert basis.shape == (matrix.shape[1], null_dim)
    assert np.abs(basis.T @ basis - np.eye(null_dim)).max() < 1e-12
    assert np.abs(matrix @ basis).max() < tolerance * np.linalg.norm(matrix)


# The basis ----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 16), st.integers(1, 16))
def test_the_basis_spans_the_subspace_of_the_singular_value_decomposition(
    seed: int, output_dim: int, null_dim: int
) -> None:
    matrix = np.random.default_rng(seed).standard_normal((output_dim, output_dim + null_dim))
    reference = null_space(matrix)

    basis = null_space_basis(matrix)

    assert_is_null_basis(basis, matrix, null_dim)
    assert np.abs(basis @ basis.T - reference @ reference.T).max() < 1e-8


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 12), st.integers(1, 12), st.data())
def test_the_rank_is_counted_for_deficient_and_for_wide_matrices(
    seed: int, output_dim: int, num_texts: int, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(1, max(1, min(output_dim, num_texts - 1))))
    if rank >= num_texts:
        num_texts = rank + 1
    matrix = low_rank(np.random.default_rng(seed), output_dim, num_texts, rank)
    # Random factors can be ill conditioned by bad luck: the count follows the singular values.
    values = np.linalg.svd(matrix, compute_uv=False)
    rank = int(np.count_nonzero(values > RANK_TOLERANCE * values[0]))

    basis = null_space_basis(matrix)
    rows = row_space_basis(matrix)

    assert_is_null_basis(basis, matrix, num_texts - rank, tolerance=2 * RANK_TOLERANCE)
    assert rows.shape == (num_texts, rank)
    # Together they make the whole space.
    assert np.abs(basis @ basis.T + rows @ rows.T - np.eye(num_texts)).max() < 1e-8


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 16), st.integers(1, 16))
def test_any_well_conditioned_map_keeps_the_null_space(
    seed: int, output_dim: int, null_dim: int
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((output_dim, output_dim + null_dim))
    mapped = well_conditioned(rng, output_dim) @ matrix

    basis = null_space_basis(matrix)

    assert matching_degree(mapped, basis) < 1e-4
    assert invariant_matching_degree(mapped, basis) < 1e-4
    other = null_space_basis(mapped)
    assert np.abs(basis @ basis.T - other @ other.T).max() < 1e-6


def test_scales_shifts_of_unit_and_more_dimensions_of_the_same_rows_match_too() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((8, 30))
    basis = null_space_basis(matrix)

    assert matching_degree(1e6 * matrix, basis) < 1e-4
    assert matching_degree(1e-6 * matrix, basis) < 1e-4
    assert matching_degree(rng.standard_normal((50, 8)) @ matrix, basis) < 1e-4  # widened
    assert matching_degree(rng.standard_normal((3, 8)) @ matrix, basis) < 1e-4  # cut


def test_an_input_is_not_changed() -> None:
    matrix = np.asfortranarray(np.random.default_rng(0).standard_normal((5, 12)))
    copy = matrix.copy()

    basis = null_space_basis(matrix)
    before = basis.copy()
    matching_degree(matrix, basis)
    row_space_basis(matrix)

    assert (matrix == copy).all()
    assert (basis == before).all()


def test_single_precision_outputs_are_measured_in_double_precision() -> None:
    matrix = np.random.default_rng(0).standard_normal((8, 30)).astype(np.float32)

    assert null_space_basis(matrix).dtype == np.float64
    assert matching_degree(matrix, null_space_basis(matrix)) < 1e-4


@pytest.mark.parametrize(("smallest", "null_dim"), [(1.1e-6, 6), (0.9e-6, 7), (1e-5, 6), (0.0, 7)])
def test_singular_values_up_to_a_millionth_of_the_largest_do_not_count(
    smallest: float, null_dim: int
) -> None:
    rng = np.random.default_rng(0)
    left, right = ortho_group.rvs(4, random_state=rng), ortho_group.rvs(10, random_state=rng)
    matrix = left @ np.diag([3.0, 2.0, 1.0, 3.0 * smallest]) @ right[:4]

    assert null_space_basis(matrix).shape == (10, null_dim)
    assert row_space_basis(matrix).shape == (10, 10 - null_dim)


def test_the_rank_count_does_not_trust_the_diagonal_of_the_triangle() -> None:
    # Kahan's matrix: every diagonal entry of R looks healthy, yet the matrix is nearly singular.
    size, cosine = 90, 0.6
    sine = math.sqrt(1 - cosine**2)
    kahan = np.diag(sine ** np.arange(size)) @ (
        np.eye(size) - cosine * np.triu(np.ones((size, size)), 1)
    )
    matrix = np.hstack([kahan.T, np.zeros((size, 5))])
    values = np.linalg.svd(matrix, compute_uv=False)
    rank = int(np.count_nonzero(values > RANK_TOLERANCE * values[0]))

    assert rank < size
    assert null_space_basis(matrix).shape == (size + 5, size + 5 - rank)


@pytest.mark.parametrize(("output_dim", "num_texts"), [(5, 5), (9, 5), (1, 1), (30, 29)])
def test_too_few_texts_are_an_error_that_names_how_many_are_needed(
    output_dim: int, num_texts: int
) -> None:
    matrix = np.random.default_rng(0).standard_normal((output_dim, num_texts))

    with pytest.raises(EmptyNullSpaceError) as caught:
        null_space_basis(matrix)

    assert caught.value.needed == output_dim + 1
    assert str(output_dim + 1) in caught.value.hint
    assert str(num_texts) in str(caught.value)
    more = np.random.default_rng(0).standard_normal((output_dim, caught.value.needed))
    assert null_space_basis(more).shape == (output_dim + 1, 1)


def test_dead_dimensions_ask_for_no_texts() -> None:
    matrix = np.random.default_rng(0).standard_normal((9, 5))
    matrix[5:] = 0.0

    with pytest.raises(EmptyNullSpaceError) as caught:
        null_space_basis(matrix)

    assert caught.value.needed == 6


# Dead rows and unusable values --------------------------------------------------------------


def test_dead_rows_are_left_out_everywhere() -> None:
    rng = np.random.default_rng(0)
    owner, suspect = rng.standard_normal((6, 20)), rng.standard_normal((4, 20))
    basis = null_space_basis(owner)
    dead = np.vstack([suspect[:2], np.zeros((1, 20)), suspect[2:], 1e-14 * suspect[:1]])

    assert live_rows(dead).tolist() == [True, True, False, True, True, False]
    assert matching_degree(dead, basis) == pytest.approx(matching_degree(suspect, basis))
    assert invariant_matching_degree(dead, basis) == pytest.approx(
        invariant_matching_degree(suspect, basis)
    )
    padded = null_space_basis(np.vstack([owner, np.zeros((3, 20)), 1e-14 * suspect]))
    assert padded.shape == basis.shape
    assert matching_degree(owner, padded) < 1e-4


@pytest.mark.parametrize(("size", "alive"), [(1e-11, True), (1e-13, False), (0.0, False)])
def test_a_row_is_dead_below_a_trillionth_of_the_largest(size: float, alive: bool) -> None:
    assert live_rows(np.array([[3.0, 4.0], [5 * size, 0.0]])).tolist() == [True, alive]


def test_nothing_but_dead_rows_is_an_error() -> None:
    basis = null_space_basis(np.ones((1, 4)))
    for call in (
        lambda: live_rows(np.zeros((3, 4))),
        lambda: null_space_basis(np.zeros((3, 4))),
        lambda: row_space_basis(np.zeros((3, 4))),
        lambda: matching_degree(np.zeros((3, 4)), basis),
        lambda: invariant_matching_degree(np.zeros((3, 4)), basis),
    ):
        with pytest.raises(EvidenceError, match="zero"):
            call()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused(value: float) -> None:
    matrix = np.random.default_rng(0).standard_normal((3, 8))
    basis = null_space_basis(matrix)
    spoilt, spoilt_basis = matrix.copy(), basis.copy()
    spoilt[1, 2] = spoilt_basis[0, 0] = value

    for call in (
        lambda: null_space_basis(spoilt),
        lambda: row_space_basis(spoilt),
        lambda: matching_degree(spoilt, basis),
        lambda: invariant_matching_degree(spoilt, basis),
        lambda: matching_degree(matrix, spoilt_basis),
        lambda: invariant_matching_degree(matrix, spoilt_basis),
    ):
        with pytest.raises(EvidenceError, match="NaN or infinite"):
            call()


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (5,), (2, 3, 4), ()])
def test_what_is_no_matrix_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(EvidenceError, match="shape"):
        check_matrix(np.ones(shape))


def test_a_basis_of_other_texts_is_refused_with_both_numbers() -> None:
    basis = null_space_basis(np.random.default_rng(0).standard_normal((3, 8)))

    for degree in (matching_degree, invariant_matching_degree):
        with pytest.raises(EvidenceError, match="answer 9 texts, the null basis belongs to 8"):
            degree(np.ones((3, 9)), basis)


def test_an_empty_column_of_a_basis_is_refused() -> None:
    with pytest.raises(EvidenceError, match="column"):
        matching_degree(np.ones((2, 4)), np.zeros((4, 2)))


# Matching degrees ---------------------------------------------------------------------------


def test_the_papers_degree_by_hand() -> None:
    basis = np.eye(4)[:, 2:] * [1.0, 7.0]  # columns are brought to unit length
    matrix = np.array([[0.0, 0.0, 3.0, 4.0], [10.0, 0.0, 0.0, 0.0]])
    first = math.sqrt(0.6) + math.sqrt(0.8)

    assert matching_degree(matrix, basis) == pytest.approx(first / 2)
    assert matching_degree(-5 * matrix[:1], basis) == pytest.approx(first)


def test_the_invariant_degree_by_hand() -> None:
    # One null dimension: c(1) = Γ(3/4) Γ(1/2) / (√π Γ(3/4)) = 1, and no rotation but a sign.
    basis = np.eye(3)[:, 2:]
    matrix = np.array([[0.0, 3.0, 4.0], [1.0, 0.0, 0.0]])

    assert invariant_matching_degree(matrix, basis) == pytest.approx(math.sqrt(0.8) / 2)
    assert matching_degree(matrix, basis) == pytest.approx(math.sqrt(0.8) / 2)


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(2, 12), st.integers(2, 12))
def test_the_invariant_degree_does_not_depend_on_the_basis_written_down(
    seed: int, output_dim: int, null_dim: int
) -> None:
    rng = np.random.default_rng(seed)
    num_texts = output_dim + null_dim
    basis = null_space_basis(rng.standard_normal((output_dim, num_texts)))
    suspect = rng.standard_normal((5, num_texts))
    rotated = basis @ ortho_group.rvs(null_dim, random_state=rng)

    assert invariant_matching_degree(suspect, rotated) == pytest.approx(
        invariant_matching_degree(suspect, basis), rel=1e-9
    )


def test_the_papers_degree_does_depend_on_it() -> None:
    # Why verdicts use the other one: a basis turned towards the suspect lowers its degree.
    rng = np.random.default_rng(0)
    suspect = rng.standard_normal((1, 40))
    basis = null_space_basis(rng.standard_normal((10, 40)))
    towards = (suspect @ basis).T
    turned, _ = np.linalg.qr(np.hstack([towards, rng.standard_normal((30, 29))]))

    assert matching_degree(suspect, basis @ turned) < 0.5 * matching_degree(suspect, basis)


def test_the_invariant_degree_is_the_mean_over_random_rotations() -> None:
    rng = np.random.default_rng(3)
    basis = null_space_basis(rng.standard_normal((12, 30)))
    suspect = rng.standard_normal((8, 30))
    degrees = [
        matching_degree(suspect, basis @ rotation)
        for rotation in ortho_group.rvs(18, size=400, random_state=rng)
    ]
    error = float(np.std(degrees)) / math.sqrt(len(degrees))

    assert abs(np.mean(degrees) - invariant_matching_degree(suspect, basis)) < 4 * error


# Chance levels ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_texts", "null_dim", "level"), [(1500, 732, 96.718), (1500, 1116, 147.456)]
)
def test_golden_chance_levels(num_texts: int, null_dim: int, level: float) -> None:
    assert expected_matching_degree(num_texts, null_dim) == pytest.approx(level, abs=5e-4)


@pytest.mark.parametrize(("num_texts", "null_dim"), [(3, 1), (40, 10), (1500, 732), (50_000, 9)])
def test_chance_is_the_integral_over_the_law_of_a_dot_product(
    num_texts: int, null_dim: int
) -> None:
    # The square of a dot product of random unit vectors in R^q is Beta(½, (q−1)/2).
    law = beta(0.5, (num_texts - 1) / 2)
    # With t⁴ for the square, the root of the dot product is t, and the integrand is smooth.
    mean_root, _ = quad(lambda t: t * law.pdf(t**4) * 4 * t**3, 0, 1, points=[0.05, 0.3], limit=500)

    assert law.mean() == pytest.approx(1 / num_texts)  # the variance of one dot product
    assert expected_matching_degree(num_texts, null_dim) == pytest.approx(
        null_dim * mean_root, rel=1e-6
    )


def test_dot_products_of_unrelated_rows_have_variance_one_over_the_number_of_texts() -> None:
    num_texts, null_dim, num_rows = 200, 50, 400
    rows = np.random.default_rng(0).standard_normal((num_rows, num_texts))
    basis = np.eye(num_texts)[:, :null_dim]
    # √|H|, summed and averaged, is all that is returned: one column at a time gives |H| itself.
    squares = [
        matching_degree(row[None], basis[:, [j]]) ** 4 for row in rows[:40] for j in range(null_dim)
    ]

    deviation = math.sqrt(2 / len(squares)) / num_texts
    assert abs(np.mean(squares) - 1 / num_texts) < 5 * deviation


@pytest.mark.parametrize(
    ("num_texts", "null_dim", "level"), [(1500, 732, 96.718), (1500, 1116, 147.456)]
)
def test_unrelated_rows_reach_the_chance_level_within_simulation_error(
    num_texts: int, null_dim: int, level: float
) -> None:
    # Isotropic rows do not care which orthonormal basis they meet.
    basis = np.eye(num_texts)[:, :null_dim]
    rows = np.random.default_rng(0).standard_normal((300, num_texts))
    for degree in (matching_degree, invariant_matching_degree):
        singles = [degree(row[None], basis) for row in rows[:60]]
        error = float(np.std(singles)) / math.sqrt(len(rows))

        assert abs(degree(rows, basis) - level) < 5 * error


def test_an_unrelated_model_lies_near_chance_and_the_owner_near_zero() -> None:
    rng = np.random.default_rng(0)
    owner, stranger = rng.standard_normal((2, 40, 120))
    basis = null_space_basis(owner)
    chance = expected_matching_degree(120, 80)

    for degree in (matching_degree, invariant_matching_degree):
        assert degree(owner, basis) < 1e-4
        assert degree(stranger, basis) == pytest.approx(chance, rel=0.05)
