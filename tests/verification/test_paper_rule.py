"""Evidence and thresholds give a verdict, and the verdict has reasons."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.errors import EvidenceError
from nsmark.keyfile import Thresholds
from nsmark.verification import Evidence, Statistics, Verdict, paper_thresholds
from nsmark.verification.controls import Control
from nsmark.verification.verdict import decide_by_paper

LINES = Thresholds(min_extraction_rate=0.5, max_matching_degree=50.0)

rates = st.floats(0, 1)
degrees = st.floats(0, 200)


def statistics(rate, degree):
    return Statistics(extraction_rate=rate, invariant_matching_degree=degree)


def evidence(rate, degree, *, untriggered_rate=0.0, notes=()):
    return Evidence(
        suspect="suspect",
        triggered=statistics(rate, degree),
        untriggered=statistics(untriggered_rate, 100.0),
        num_texts=64,
        output_dim=16,
        null_dim=48,
        dead_rows=0,
        rank=8,
        notes=tuple(notes),
    )


# --- thresholds ---


def test_thresholds_are_six_tenths_of_the_gap_to_the_mean_control():
    thresholds = paper_thresholds(
        statistics(0.95, 0.5), [statistics(0.1, 90.0), statistics(0.3, 100.0)]
    )

    assert thresholds.min_extraction_rate == pytest.approx(0.6 * (0.95 - 0.2))
    assert thresholds.max_matching_degree == pytest.approx(0.6 * (95.0 - 0.5))


@settings(max_examples=100, deadline=None)
@given(
    owner=st.tuples(rates, degrees),
    controls=st.lists(st.tuples(rates, degrees), min_size=1, max_size=5),
)
def test_thresholds_do_not_depend_on_the_order_of_controls(owner, controls):
    forwards = paper_thresholds(statistics(*owner), [statistics(*c) for c in controls])
    backwards = paper_thresholds(statistics(*owner), [statistics(*c) for c in controls[::-1]])

    assert forwards.min_extraction_rate == pytest.approx(backwards.min_extraction_rate)
    assert forwards.max_matching_degree == pytest.approx(backwards.max_matching_degree)


def test_the_degree_of_thresholds_is_the_invariant_one():
    owner = Statistics(extraction_rate=1.0, invariant_matching_degree=0.0, matching_degree=40.0)
    control = Statistics(extraction_rate=0.0, invariant_matching_degree=100.0, matching_degree=50.0)

    assert paper_thresholds(owner, [control]).max_matching_degree == pytest.approx(60.0)


def test_controls_of_another_dimension_count_for_the_degree_only():
    thresholds = paper_thresholds(
        statistics(1.0, 0.0), [statistics(None, 100.0), statistics(0.2, 50.0)]
    )

    assert thresholds.min_extraction_rate == pytest.approx(0.6 * 0.8)
    assert thresholds.max_matching_degree == pytest.approx(0.6 * 75.0)


@pytest.mark.parametrize(
    ("owner", "controls"),
    [
        (statistics(1.0, 0.0), []),
        (statistics(1.0, 0.0), [statistics(None, 90.0)]),
        (statistics(1.0, 0.0), [statistics(0.2, None)]),
        (statistics(None, 0.0), [statistics(0.2, 90.0)]),
        (statistics(1.0, None), [statistics(0.2, 90.0)]),
    ],
)
def test_thresholds_without_a_full_control_are_an_error(owner, controls):
    with pytest.raises(EvidenceError, match="control"):
        paper_thresholds(owner, controls)


# --- the rule ---


@pytest.mark.parametrize(
    ("rate", "degree", "verdict"),
    [
        (0.9, 90.0, Verdict.OWNED),  # extraction alone
        (0.1, 10.0, Verdict.OWNED),  # null space alone
        (0.9, 10.0, Verdict.OWNED),
        (0.1, 90.0, Verdict.NOT_SHOWN),
        (0.5, 90.0, Verdict.NOT_SHOWN),  # on the line is not beyond it
        (0.1, 50.0, Verdict.NOT_SHOWN),
        (None, 10.0, Verdict.OWNED),  # another output dimension
        (None, 90.0, Verdict.NOT_SHOWN),
        (0.9, None, Verdict.OWNED),
        (0.1, None, Verdict.NOT_SHOWN),
        (None, None, Verdict.NOT_SHOWN),
    ],
)
def test_either_metric_suffices(rate, degree, verdict):
    decision = decide_by_paper(evidence(rate, degree), LINES)

    assert decision.verdict is verdict
    assert decision.reasons
    assert all(reason.strip() for reason in decision.reasons)


@settings(max_examples=300, deadline=None)
@given(
    rate_pair=st.tuples(rates, rates).map(sorted),
    degree_pair=st.tuples(degrees, degrees).map(sorted),
    lines=st.tuples(st.floats(-0.6, 1), st.floats(-100, 200)),
    untriggered=rates,
)
def test_verdict_is_monotone_in_both_metrics(rate_pair, degree_pair, lines, untriggered):
    (rate, better_rate), (better_degree, degree) = rate_pair, degree_pair
    thresholds = Thresholds(min_extraction_rate=lines[0], max_matching_degree=lines[1])

    def verdict(rate, degree):
        measured = evidence(rate, degree, untriggered_rate=untriggered)
        return decide_by_paper(measured, thresholds).verdict

    if verdict(rate, degree) is Verdict.OWNED:
        assert verdict(better_rate, better_degree) is Verdict.OWNED
        assert verdict(better_rate, degree) is Verdict.OWNED
        assert verdict(rate, better_degree) is Verdict.OWNED


@settings(max_examples=100, deadline=None)
@given(rate=rates, degree=degrees, untriggered=st.floats(0.501, 1))
def test_key_that_reads_untriggered_texts_is_refused_whatever_else_was_seen(
    rate, degree, untriggered
):
    decision = decide_by_paper(evidence(rate, degree, untriggered_rate=untriggered), LINES)

    assert decision.verdict is Verdict.NOT_SHOWN
    assert "untriggered" in decision.reasons[0]
    assert "refused" in decision.reasons[0]


def test_matching_degree_of_untriggered_texts_does_not_refuse_a_key():
    # A stolen model matches on untriggered texts too: only the extraction must fail there.
    measured = evidence(0.9, 10.0)
    stolen = Evidence(
        **{
            name: getattr(measured, name)
            for name in measured.__dataclass_fields__
            if name != "untriggered"
        },
        untriggered=statistics(0.1, 0.0),
    )

    assert decide_by_paper(stolen, LINES).verdict is Verdict.OWNED


@settings(max_examples=100, deadline=None)
@given(rate=rates, degree=degrees, control=st.tuples(rates, degrees))
def test_key_that_accepts_a_control_is_refused(rate, degree, control):
    decision = decide_by_paper(
        evidence(rate, degree),
        LINES,
        [Control("fine", statistics(0.0, 100.0)), Control("accused", statistics(*control))],
    )

    if control[0] > 0.5 or control[1] < 50.0:
        assert decision.verdict is Verdict.NOT_SHOWN
        assert "refused" in decision.reasons[0]
        assert "accused" in decision.reasons[0]
    else:
        assert decision == decide_by_paper(evidence(rate, degree), LINES)


def test_key_with_an_inverted_gap_accuses_nobody():
    # An owner whose controls read better than his own model gets lines that all models pass:
    # the controls pass them too, and that refuses the key.
    controls = [Control("reads all", statistics(0.9, 90.0))]
    thresholds = paper_thresholds(statistics(0.2, 0.0), [c.triggered for c in controls])
    assert thresholds.min_extraction_rate < 0

    assert decide_by_paper(evidence(0.0, 100.0), thresholds, controls).verdict is Verdict.NOT_SHOWN


def test_reasons_name_both_numbers_and_both_lines():
    reasons = " ".join(decide_by_paper(evidence(0.123, 87.65), LINES).reasons)

    for number in ("0.123", "0.500", "87.65", "50.00"):
        assert number in reasons


def test_notes_of_the_measurement_are_among_the_reasons():
    assert "a note" in decide_by_paper(evidence(0.9, 1.0, notes=["a note"]), LINES).reasons


def test_same_input_gives_the_same_words():
    assert decide_by_paper(evidence(0.3, 42.0), LINES) == decide_by_paper(
        evidence(0.3, 42.0), LINES
    )


def test_verdicts_are_spelled_as_in_the_specification():
    assert {str(verdict) for verdict in Verdict} == {"owned", "not_shown", "could_not_measure"}
