"""The rule 'calibrated': who is accused, which keys are refused, and in which words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handmade_keys import innocent_outputs, make_key, owner_outputs
from nsmark.api import verify
from nsmark.suspects import RecordedOutputs
from nsmark.verification import Evidence, Statistics, Verdict
from nsmark.verification.controls import Control
from nsmark.verification.evidence import OwnerReference, key_flaw
from nsmark.verification.questions import key_questions
from nsmark.verification.thresholds import calibrate
from nsmark.verification.verdict import MAX_DERIVED_P_VALUE, decide_calibrated

INNOCENT = Statistics(
    extraction_rate=0.05,
    derived_extraction_rate=0.5,
    derived_p_value=0.5,
    subspace_overlap=0.2,
    predictability=0.5,
    aligned_subspace_overlap=0.2,
    aligned_predictability=0.5,
    alignment_gap=0.6,
)
CONTROLS = [Control("reference", INNOCENT, 10), Control("other", INNOCENT, 10)]
LINES = calibrate(CONTROLS)


def evidence(untriggered: Statistics = INNOCENT, **changes: float | None) -> Evidence:
    return Evidence(
        suspect="suspect",
        triggered=replace(INNOCENT, **changes),
        untriggered=untriggered,
        num_texts=64,
        output_dim=16,
        null_dim=48,
        dead_rows=0,
        rank=10,
        notes=(),
    )


@pytest.mark.parametrize(
    ("changes", "passed"),
    [
        ({}, ()),
        ({"extraction_rate": 0.9}, ("extraction_rate",)),
        ({"aligned_subspace_overlap": 0.74}, ("aligned_subspace_overlap",)),
        ({"aligned_subspace_overlap": 0.73}, ()),
        ({"subspace_overlap": 1.0, "alignment_gap": 0.0}, ()),
        ({"predictability": 0.84}, ("predictability",)),
        ({"aligned_predictability": 0.9}, ("aligned_predictability",)),
        ({"derived_p_value": 1e-20}, ("derived_extraction_rate",)),
        ({"derived_p_value": 1e-14}, ()),
        ({"extraction_rate": None, "predictability": 0.9}, ("predictability",)),
    ],
)
def test_any_witness_beyond_its_line_accuses_and_is_named(changes, passed):
    decision = decide_calibrated(evidence(**changes), LINES, CONTROLS)
    assert decision.passed == passed
    assert decision.verdict is (Verdict.OWNED if passed else Verdict.NOT_SHOWN)
    assert len(decision.reasons) >= 4


def test_what_only_outputs_of_another_size_show_does_not_count():
    large = replace(evidence(extraction_rate=0.9), sized_extraction_rate=0.1)
    decision = decide_calibrated(large, LINES, CONTROLS)
    assert decision.verdict is Verdict.NOT_SHOWN
    assert any(
        "at the size of the owner's outputs 0.100 does not lie" in reason
        for reason in decision.reasons
    )

    same = replace(evidence(extraction_rate=0.9), sized_extraction_rate=0.9)
    assert decide_calibrated(same, LINES, CONTROLS).passed == ("extraction_rate",)


def test_matching_degrees_accuse_nobody():
    close = evidence(matching_degree=0.0, invariant_matching_degree=0.0)
    close = replace(close, triggered=replace(close.triggered, projective_matching_degree=0.0))
    assert decide_calibrated(close, LINES, CONTROLS).verdict is Verdict.NOT_SHOWN


THEFT = {"predictability": 1.0, "extraction_rate": 1.0, "derived_p_value": 1e-50}


@pytest.mark.parametrize(
    ("untriggered", "controls", "flaw", "words"),
    [
        (replace(INNOCENT, extraction_rate=0.95), CONTROLS, None, "untriggered texts"),
        (replace(INNOCENT, derived_p_value=1e-30), CONTROLS, None, "untriggered texts"),
        (
            INNOCENT,
            [*CONTROLS, Control("public", replace(INNOCENT, extraction_rate=0.99))],
            None,
            "'public'",
        ),
        (
            INNOCENT,
            [*CONTROLS, Control("public", replace(INNOCENT, derived_p_value=1e-30))],
            None,
            "'public'",
        ),
        (INNOCENT, CONTROLS, "it lies", "it lies"),
    ],
)
def test_a_key_that_lies_is_refused_whatever_the_suspect(untriggered, controls, flaw, words):
    decision = decide_calibrated(evidence(untriggered, **THEFT), LINES, controls, flaw)
    assert decision.verdict is Verdict.NOT_SHOWN
    assert decision.reasons[0].startswith("the key is refused")
    assert words in decision.reasons[0]


def test_without_controls_of_the_suspects_rank_only_exact_witnesses_count():
    low = replace(evidence(predictability=1.0), rank=2)
    decision = decide_calibrated(low, None, CONTROLS)
    assert decision.verdict is Verdict.NOT_SHOWN
    assert "rank 2" in decision.reasons[0]
    exact = replace(evidence(derived_p_value=MAX_DERIVED_P_VALUE), rank=2)
    assert decide_calibrated(exact, None, CONTROLS).verdict is Verdict.OWNED


def test_a_line_out_of_reach_says_so():
    crowded = calibrate([Control("twin", replace(INNOCENT, predictability=1.0))])
    decision = decide_calibrated(evidence(predictability=1.0), crowded, CONTROLS)
    assert "predictability" not in decision.passed
    assert any("innocent models lie too close" in reason for reason in decision.reasons)


# --- keys that contradict themselves ---


def flaw_of(key) -> str | None:
    return key_flaw(key, key_questions(key))


def test_an_honest_key_has_no_flaw():
    assert flaw_of(make_key()) is None


def test_an_extractor_that_reads_everything_or_nothing_is_a_flaw():
    key = make_key()
    weight, bias = key.extractor[-1]
    constant = (np.zeros_like(weight), key.payload().watermark_vector.astype(np.float32))
    deaf = (np.zeros_like(weight), np.zeros_like(bias))
    assert "untriggered" in flaw_of(replace(key, extractor=(*key.extractor[:-1], constant)))
    assert "does not read" in flaw_of(replace(key, extractor=(*key.extractor[:-1], deaf)))


@given(seed=st.integers(0, 2**32 - 1), dimension=st.sampled_from([1, 2, 5, 15, 16, 17, 40]))
@settings(max_examples=40, deadline=None)
def test_unrelated_outputs_are_not_accused(seed, dimension):
    key = make_key()
    rng = np.random.default_rng(seed)
    outputs = RecordedOutputs("x", *(rng.standard_normal((64, dimension)) for _ in range(2)))
    assert verify(key, outputs).verdict is Verdict.NOT_SHOWN
    # Nor if the verifier brings controls of his own, which are cut to the suspect's rank.
    assert verify(key, outputs, controls=[innocent_outputs(key)]).verdict is Verdict.NOT_SHOWN


def test_a_verifiers_controls_are_cut_to_the_suspects_rank():
    key, own = make_key(), owner_outputs(make_key())
    cut = RecordedOutputs("cut", own.triggered[:, :10], own.untriggered[:, :10])
    decision = verify(key, cut, controls=[innocent_outputs(key)]).decision
    assert any("subspace overlap up to a scale per text" in each for each in decision.reasons)
    assert not any("row space is not compared" in each for each in decision.reasons)


def test_the_owners_outputs_are_accused_under_any_map():
    key = make_key()
    owner, own = OwnerReference(key), owner_outputs(key)
    matrix = np.random.default_rng(0).uniform(0, 1, (16, 16))
    mapped = RecordedOutputs("mapped", own.triggered @ matrix, own.untriggered @ matrix)
    innocent = owner.compare(innocent_outputs(key))
    controls = [Control("reference", innocent.triggered, innocent.rank)]
    decision = decide_calibrated(owner.compare(mapped), calibrate(controls), controls)
    assert decision.verdict is Verdict.OWNED
    assert "aligned_subspace_overlap" in decision.passed
