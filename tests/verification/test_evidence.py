"""Key and suspect give numbers: known ones for outputs made by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handmade_keys import (
    innocent_outputs,
    make_key,
    mapped_outputs,
    owner_outputs,
    reseal,
)
from nsmark.core import (
    expected_matching_degree,
    extraction_rate,
    matching_degree,
    null_space_basis,
    projective_matching_degree,
)
from nsmark.errors import EvidenceError
from nsmark.suspects import RecordedOutputs
from nsmark.verification import STATISTIC_NAMES, Statistics, Verdict, measure
from nsmark.verification.evidence import OwnerReference
from nsmark.verification.questions import key_questions
from nsmark.verification.verdict import decide_by_paper
from spec_names import OWN_STATISTICS, STATISTICS


@pytest.fixture(scope="module")
def key():
    return make_key()


@pytest.fixture(scope="module")
def own(key):
    return owner_outputs(key)


def altered(outputs, change):
    return RecordedOutputs("altered", change(outputs.triggered), change(outputs.untriggered))


# --- the owner's model ---


def test_owners_outputs_match_their_own_key(key, own):
    evidence = measure(key, own)

    assert evidence.triggered.extraction_rate == 1.0
    assert evidence.triggered.derived_extraction_rate == 1.0
    assert evidence.triggered.derived_p_value == pytest.approx(2.0**-8)
    for name in ("matching_degree", "invariant_matching_degree", "centred_matching_degree"):
        assert getattr(evidence.triggered, name) == pytest.approx(0, abs=1e-3)
    assert evidence.triggered.projective_matching_degree == pytest.approx(0, abs=1e-3)
    assert evidence.triggered.subspace_overlap == pytest.approx(1)
    assert evidence.triggered.predictability == pytest.approx(1, abs=1e-3)
    assert evidence.triggered.alignment_gap == pytest.approx(0, abs=1e-6)
    assert evidence.triggered.aligned_subspace_overlap == pytest.approx(1)
    assert evidence.triggered.aligned_predictability == pytest.approx(1, abs=1e-3)
    assert evidence.untriggered.extraction_rate == 0.0
    assert evidence.untriggered.matching_degree == pytest.approx(0, abs=0.01)


def test_sizes_are_counted(key, own):
    evidence = measure(key, own)

    assert (evidence.num_texts, evidence.output_dim, evidence.null_dim) == (64, 16, 48)
    assert evidence.dead_rows == 0
    assert evidence.suspect == "the owner's model"
    assert evidence.notes == ()


@pytest.mark.parametrize("num_readable", [0, 13, 32, 64])
def test_extraction_is_the_share_made_readable(num_readable):
    key = make_key(num_readable=num_readable)

    evidence = measure(key, owner_outputs(key))

    assert evidence.triggered.extraction_rate == pytest.approx(num_readable / 64)
    assert OwnerReference(key).own()[0].extraction_rate == pytest.approx(num_readable / 64)


def test_owner_statistics_are_those_of_the_stored_outputs(key, own):
    measured = measure(key, own).triggered

    assert OwnerReference(key).own()[0].extraction_rate == measured.extraction_rate
    assert (
        OwnerReference(key).own()[0].invariant_matching_degree == measured.invariant_matching_degree
    )


def test_deep_extractor_reads_the_same():
    key = make_key(hidden_sizes=(5, 3, 4))

    assert measure(key, owner_outputs(key)).triggered.extraction_rate == 1.0


# --- innocents ---


def test_unrelated_outputs_lie_at_chance(key):
    chance = expected_matching_degree(64, 48)
    for seed in range(5):
        evidence = measure(key, innocent_outputs(key, seed))
        assert evidence.triggered.invariant_matching_degree == pytest.approx(chance, rel=0.08)
        assert evidence.triggered.matching_degree == pytest.approx(chance, rel=0.08)
        assert evidence.triggered.extraction_rate < 0.5
        assert abs(evidence.triggered.subspace_overlap) < 0.15
        assert evidence.triggered.predictability < 0.15
        assert evidence.triggered.alignment_gap > 0.5


def test_another_owners_model_is_innocent_under_this_key(key):
    other = make_key(identity_seed=2)

    evidence = measure(key, owner_outputs(other))

    assert evidence.triggered.invariant_matching_degree > 10
    assert decide_by_paper(evidence, key.thresholds).verdict is Verdict.NOT_SHOWN


# --- linear maps ---


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_uniform_linear_map_leaves_the_matching_degree_near_zero(seed, key, own):
    matrix = np.random.default_rng(seed).uniform(0, 1, (16, 16))

    evidence = measure(key, mapped_outputs(own, matrix))

    assert evidence.triggered.invariant_matching_degree < 0.01
    assert evidence.triggered.matching_degree < 0.01
    assert evidence.triggered.subspace_overlap == pytest.approx(1, abs=1e-6)
    assert decide_by_paper(evidence, key.thresholds).verdict is not Verdict.COULD_NOT_MEASURE


def test_uniform_map_hides_the_signature_but_not_the_null_space(key, own):
    matrix = np.random.default_rng(0).uniform(0, 1, (16, 16))

    evidence = measure(key, mapped_outputs(own, matrix))

    assert evidence.triggered.extraction_rate < key.thresholds.min_extraction_rate
    assert decide_by_paper(evidence, key.thresholds).verdict is Verdict.OWNED


def test_answers_rounded_to_single_precision_still_match(key, own):
    matrix = np.random.default_rng(0).uniform(0, 1, (16, 16))
    rounded = altered(mapped_outputs(own, matrix), lambda o: o.astype(np.float32).astype(float))

    assert measure(key, rounded).triggered.invariant_matching_degree < 0.1


def test_shift_of_all_outputs_is_seen_through_by_the_centred_degree():
    # Not all texts alike in the readable direction: else a constant is already in the row space.
    key = make_key(num_readable=40)
    shifted = altered(owner_outputs(key), lambda outputs: outputs + np.linspace(-3, 5, 16))

    evidence = measure(key, shifted)

    assert evidence.triggered.centred_matching_degree == pytest.approx(0, abs=1e-2)
    assert evidence.triggered.matching_degree > 1


def test_scale_per_text_is_seen_through_by_the_projective_degree(key, own):
    rng = np.random.default_rng(1)
    scales = rng.uniform(0.5, 2, (64, 1)) * rng.choice([-1, 1], (64, 1))

    evidence = measure(key, altered(own, lambda outputs: outputs * scales))

    assert evidence.triggered.matching_degree > 5
    assert evidence.triggered.projective_matching_degree == pytest.approx(0, abs=1e-2)
    assert evidence.triggered.alignment_gap < 1e-6
    assert evidence.triggered.aligned_subspace_overlap == pytest.approx(1, abs=1e-6)


def test_projective_degree_is_the_specified_one_for_any_suspect(key):
    suspect = innocent_outputs(key)
    basis = null_space_basis(key.owner_triggered.T.astype(np.float64))

    assert measure(key, suspect).triggered.projective_matching_degree == pytest.approx(
        projective_matching_degree(suspect.triggered.T, basis)
    )


@pytest.mark.parametrize("factor", [1e-250, 1e-30, 1e30, 1e200, 1e300])
def test_size_of_the_outputs_does_not_hide_the_null_space(key, own, factor):
    # Only the extractor cares for the unit in which outputs come; nothing may overflow.
    evidence = measure(key, altered(own, lambda outputs: outputs * factor))

    assert evidence.triggered.invariant_matching_degree < 0.01
    assert evidence.triggered.subspace_overlap == pytest.approx(1)
    assert evidence.triggered.predictability == pytest.approx(1, abs=1e-3)
    assert evidence.triggered.derived_extraction_rate == 1.0
    assert evidence.triggered.extraction_rate == 0.0
    assert evidence.dead_rows == 0
    assert all(
        value is None or np.isfinite(value) for value in evidence.triggered.to_mapping().values()
    )


def test_extractor_that_overflows_reads_nothing(key, own):
    huge = tuple((np.full_like(weight, 3e38), bias) for weight, bias in key.extractor)

    evidence = measure(reseal(key, extractor=huge), own)

    assert evidence.triggered.extraction_rate == 0.0


# --- what is compared with what ---


def test_stored_null_basis_is_never_used(key):
    suspect = innocent_outputs(key)
    plain = measure(key, suspect)
    rng = np.random.default_rng(0)
    honest = null_space_basis(key.owner_triggered.T.astype(np.float64))
    rotated = honest @ np.linalg.qr(rng.standard_normal((48, 48)))[0]
    unrelated = np.linalg.qr(rng.standard_normal((64, 48)))[0]
    for basis in (honest, rotated, unrelated, np.zeros((64, 1)), np.ones((64, 63))):
        stored = reseal(key, null_basis=basis.astype(np.float32))
        assert measure(stored, suspect) == plain
        assert OwnerReference(stored).own() == OwnerReference(key).own()


def test_untriggered_outputs_are_compared_with_the_owners_untriggered_ones(key, own):
    swapped = RecordedOutputs("swapped", own.untriggered, own.triggered)

    straight, crossed = measure(key, own), measure(key, swapped)

    assert straight.untriggered.matching_degree < 0.01
    assert crossed.untriggered.matching_degree > 1
    assert crossed.untriggered.extraction_rate == 1.0
    assert decide_by_paper(crossed, key.thresholds).verdict is Verdict.NOT_SHOWN


def test_order_of_the_texts_matters(key, own):
    reordered = altered(own, lambda outputs: outputs[::-1])

    assert measure(key, reordered).triggered.invariant_matching_degree > 10


class EchoSuspect:
    """Answers from a table and remembers what it was asked."""

    name = "echo"

    def __init__(self, own):
        self.asked = []
        self.answers = np.concatenate([own.triggered, own.untriggered])

    def outputs(self, texts, on_batch=None):
        self.asked += texts
        if on_batch is not None:
            on_batch(len(texts), len(texts))
        return self.answers.astype(np.float32)


def test_suspect_is_asked_the_triggered_texts_and_the_plain_ones(key, own):
    suspect, told = EchoSuspect(own), []

    evidence = measure(key, suspect, lambda done, total: told.append((done, total)))

    triggered, plain = suspect.asked[:64], suspect.asked[64:]
    assert plain == list(key.verification_texts)
    assert triggered == key.payload().triggered_texts()
    for with_trigger, without in zip(triggered, plain, strict=True):
        words = with_trigger.split()
        assert words.count(key.trigger) >= 5
        assert len(words) == len(without.split()) + 5
    assert told == [(128, 128)]
    assert evidence.suspect == "echo"
    assert evidence.triggered == measure(key, own).triggered


# --- dimensions ---


@pytest.mark.parametrize("output_dim", [2, 8, 15, 17, 40, 90])
def test_other_dimension_leaves_the_null_space_statistics(key, output_dim):
    evidence = measure(key, innocent_outputs(key, output_dim=output_dim))

    for statistics in (evidence.triggered, evidence.untriggered):
        assert statistics.extraction_rate is None
        assert statistics.derived_extraction_rate is None
        assert statistics.derived_p_value is None
        for name in (
            "matching_degree",
            "invariant_matching_degree",
            "centred_matching_degree",
            "predictability",
        ):
            assert np.isfinite(getattr(statistics, name))
        # Two dimensions can be scaled to fit any null space: that would tell nothing.
        for name in ("projective_matching_degree", "alignment_gap", "aligned_predictability"):
            assert (getattr(statistics, name) is None) == (output_dim == 2)
    assert evidence.output_dim == output_dim
    assert any("dimensions" in note for note in evidence.notes)
    # 90 dimensions over 64 texts leave no room for chance.
    assert (evidence.triggered.subspace_overlap is None) == (output_dim >= 63)
    if output_dim >= 63:
        assert any("overlap" in note for note in evidence.notes)


def test_stolen_model_behind_a_map_to_another_dimension_is_found(key, own):
    for output_dim in (8, 32):
        matrix = np.random.default_rng(0).standard_normal((output_dim, 16))
        evidence = measure(key, mapped_outputs(own, matrix))
        assert evidence.triggered.extraction_rate is None
        assert evidence.triggered.invariant_matching_degree < 0.01
        assert decide_by_paper(evidence, key.thresholds).verdict is Verdict.OWNED


def test_dead_dimensions_are_counted_and_left_out(key, own):
    wider = altered(own, lambda o: np.hstack([o, np.zeros((64, 3)), np.full((64, 1), 1e-14)]))

    evidence = measure(key, wider)

    assert evidence.output_dim == 20
    assert evidence.dead_rows == 4
    assert evidence.triggered.invariant_matching_degree < 0.01


def test_few_texts_cost_only_the_statistics_that_need_more():
    # 9 texts for 8 dimensions: one null direction, none left after centring, too few to predict.
    key = make_key(num_texts=9, output_dim=8, num_readable=5)

    evidence = measure(key, owner_outputs(key))

    assert evidence.null_dim == 1
    assert evidence.triggered.matching_degree == pytest.approx(0, abs=1e-3)
    assert evidence.triggered.centred_matching_degree is None
    assert evidence.triggered.predictability is None
    assert evidence.triggered.aligned_predictability is None
    assert any("too few" in note for note in evidence.notes)


def test_texts_answered_by_zero_cost_only_the_alignment(key, own):
    def silence(outputs):
        silent = outputs.copy()
        silent[5] = 0
        return silent

    evidence = measure(key, altered(own, silence))

    assert evidence.triggered.alignment_gap is None
    assert evidence.triggered.projective_matching_degree is None
    assert evidence.triggered.matching_degree is not None
    assert any("zero" in note for note in evidence.notes)


# --- what cannot be measured ---


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["triggered", "untriggered"])
def test_answers_that_are_not_finite_are_refused(key, own, value, where):
    broken = getattr(own, where).copy()
    broken[63, 15] = value

    with pytest.raises(EvidenceError, match=f"{where} outputs hold NaN or infinite"):
        measure(key, replace(own, **{where: broken}))


@pytest.mark.parametrize("where", ["triggered", "untriggered"])
@pytest.mark.parametrize("num_rows", [0, 1, 63, 65])
def test_wrong_number_of_rows_is_refused(key, own, where, num_rows):
    rows = np.resize(getattr(own, where), (num_rows, 16))

    with pytest.raises(EvidenceError, match=f"{num_rows} {where} outputs"):
        measure(key, replace(own, **{where: rows}))


@pytest.mark.parametrize("where", ["triggered", "untriggered"])
def test_constant_answers_are_refused(key, own, where):
    rng = np.random.default_rng(0)
    constant = np.tile(rng.standard_normal(16), (64, 1))
    rounded = constant * (1 + 1e-7 * rng.standard_normal((64, 16)))
    for outputs in (constant, rounded, np.zeros((64, 16)), 1e300 * constant):
        with pytest.raises(EvidenceError, match=f"same {where} output"):
            measure(key, replace(own, **{where: outputs}))


def test_answers_of_two_dimensions_are_refused(key, own):
    with pytest.raises(EvidenceError, match="different dimensions"):
        measure(key, replace(own, untriggered=own.untriggered[:, :8]))


@pytest.mark.parametrize("shape", [(64,), (64, 4, 4), (64, 0)])
def test_answers_that_are_no_table_are_refused(key, shape):
    answers = np.ones(shape)

    with pytest.raises(EvidenceError, match="shape"):
        measure(key, RecordedOutputs("odd", answers, answers))


def test_key_without_a_null_space_says_so(key, own):
    full = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    square = make_key(num_texts=17, output_dim=16)
    config = square.configuration.model_copy(update={"num_texts": 16})
    forged = reseal(
        square,
        configuration=config,
        verification_texts=square.verification_texts[:16],
        owner_triggered=full,
        owner_untriggered=full,
    )

    with pytest.raises(EvidenceError, match="linearly independent"):
        measure(forged, innocent_outputs(forged))


# --- records ---


def test_statistics_have_the_names_of_the_specification():
    assert set(STATISTIC_NAMES) == STATISTICS | OWN_STATISTICS


def test_statistics_survive_a_mapping_and_unknown_names(key, own):
    statistics = measure(key, own).triggered

    assert Statistics.from_mapping(statistics.to_mapping()) == statistics
    assert Statistics.from_mapping(statistics.to_mapping() | {"later": 1.0}) == statistics
    assert Statistics.from_mapping({}) == Statistics()


def test_measured_numbers_are_those_of_the_core(key, own):
    suspect = mapped_outputs(own, np.random.default_rng(3).standard_normal((16, 16)))
    weights, biases = zip(*key.extractor, strict=True)
    hidden = np.maximum(suspect.triggered.astype(np.float32) @ weights[0].T + biases[0], 0)
    basis = null_space_basis(key.owner_triggered.T.astype(np.float64))

    statistics = measure(key, suspect).triggered

    assert statistics.extraction_rate == extraction_rate(
        hidden @ weights[1].T + biases[1], key.signature, 16, 3
    )
    assert statistics.matching_degree == pytest.approx(
        matching_degree(suspect.triggered.T, basis), rel=1e-9
    )


# --- a trained model ---


def test_marked_model_is_found_in_its_folder_and_in_its_recorded_answers(tiny_marked):
    from nsmark.suspects import open_suspect
    from nsmark.verification.evidence import ask

    key = tiny_marked.key
    recorded = ask(key_questions(key), open_suspect(tiny_marked.model_folder, device="cpu"))

    # The key holds what the saved folder answers.
    np.testing.assert_allclose(recorded.triggered, key.owner_triggered, atol=1e-5)
    np.testing.assert_allclose(recorded.untriggered, key.owner_untriggered, atol=1e-5)
    evidence = measure(key, recorded)
    assert evidence.triggered.extraction_rate > 0.9
    assert evidence.triggered.invariant_matching_degree < 1
    assert evidence.untriggered.extraction_rate < key.thresholds.min_extraction_rate
    assert decide_by_paper(evidence, key.thresholds).verdict is Verdict.OWNED


def test_reference_model_is_innocent_under_the_key_of_its_marked_copy(tiny_marked, tiny_st):
    from nsmark.suspects import open_suspect

    evidence = measure(tiny_marked.key, open_suspect(tiny_st, device="cpu"))

    assert decide_by_paper(evidence, tiny_marked.key.thresholds).verdict is Verdict.NOT_SHOWN


# --- innocents that once were accused ---


def test_nearly_constant_answers_are_not_scaled_into_the_owners_row_space(key, own):
    # What all answers share fits any model once every text has a scale of its own, and beside it
    # nothing is left to compare.
    rng = np.random.default_rng(3)
    vector = rng.standard_normal(16)
    change = rng.uniform(0.0, 1.0, (16, 16)) @ rng.uniform(0.0, 1.0, (16, 16))
    triggered, untriggered = (
        (vector * (1 + 1e-5 * rng.standard_normal((64, 16)))) @ change for _ in range(2)
    )

    evidence = measure(key, RecordedOutputs("constant", triggered, untriggered))

    assert evidence.triggered.aligned_subspace_overlap is None
    assert evidence.triggered.alignment_gap is None
    assert any("no alignment of scales" in note for note in evidence.notes)


def test_what_is_read_is_read_at_the_size_of_the_owners_outputs_too(key, own):
    # Far from all it was trained with, an extractor may say what it has learned by heart.
    size = np.linalg.norm(own.triggered, axis=1).mean()
    rng = np.random.default_rng(4)
    noise = rng.standard_normal((64, 16))
    reader = key.extractor[0][0][0].astype(np.float64)  # the one direction that is read
    reader /= np.linalg.norm(reader)
    noise -= np.outer(noise @ reader, reader)
    away = 30 * size * noise / np.linalg.norm(noise, axis=1, keepdims=True)
    large = own.triggered + away

    evidence = measure(key, RecordedOutputs("large", large, own.untriggered))

    assert evidence.triggered.extraction_rate > 0.9
    assert evidence.sized_extraction_rate < 0.1
    assert evidence.counted.extraction_rate == evidence.sized_extraction_rate
    assert replace(evidence.counted, extraction_rate=None) == replace(
        evidence.triggered, extraction_rate=None
    )


def test_the_owners_outputs_are_read_at_their_size(key, own):
    evidence = measure(key, own)

    assert evidence.sized_extraction_rate == evidence.triggered.extraction_rate == 1.0
    assert evidence.counted == evidence.triggered
    # Read at that size, but not as they are: that does not count.
    small = measure(key, altered(own, lambda outputs: 0.01 * outputs))
    assert small.sized_extraction_rate == 1.0
    assert small.sized_untriggered_rate == 0.0
    assert small.counted.extraction_rate == small.triggered.extraction_rate < 0.1


def test_outputs_of_other_dimensions_or_without_any_size_are_not_read(key, own):
    wide = altered(own, lambda outputs: np.hstack([outputs, outputs[:, :1]]))
    assert measure(key, wide).sized_extraction_rate is None
    assert measure(key, wide).counted == measure(key, wide).triggered
    silent = own.triggered.copy()
    silent[0] = 0.0
    evidence = measure(key, RecordedOutputs("silent", silent, own.untriggered))
    assert evidence.sized_extraction_rate == pytest.approx(63 / 64)
