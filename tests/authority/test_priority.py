"""The ruling's rule, on every combination that its parts can have."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsmark.verification import Verdict
from nsmark_authority.priority import Claim, Exhibit, Moment, Outcome, rule

START = datetime(2026, 1, 1, tzinfo=UTC)
DISPUTED = START + timedelta(days=100)


def day(number):
    return START + timedelta(days=number)


def claim(filed=10, index=10, owner="claimant", verdict=Verdict.OWNED, exhibits=()):
    return Claim(
        key_id=f"{owner:0<64}",
        owner=owner,
        filed=Moment(day(filed), index),
        verdict=verdict,
        exhibits=tuple(exhibits),
    )


def exhibit(filed=5, index=5, by="respondent", verdict=Verdict.OWNED):
    return Exhibit(name="the model", filed=Moment(day(filed), index), by=by, verdict=verdict)


def ruled(one, released=20, others=(), disputed=DISPUTED):
    when = None if released is None else day(released)
    found = rule(one, released=when, disputed=disputed, others=others)
    assert found.reasons
    assert all(reason and reason[-1] != "." for reason in found.reasons)
    return found


verdicts = st.sampled_from(Verdict)
heard = st.sampled_from([*Verdict, None])
days = st.integers(0, 12)
exhibits = st.lists(
    st.builds(
        exhibit,
        filed=days,
        index=st.integers(1000, 1050),
        by=st.sampled_from(["respondent", "claimant", "a third"]),
        verdict=heard,
    ),
    max_size=3,
)


@st.composite
def claims(draw, owners=("claimant", "another", "a third")):
    """Claims of different owners; every entry has a place of its own in the log."""
    count = draw(st.integers(1, 5))
    places = draw(st.permutations(range(count)))
    return [
        claim(
            filed=draw(days),
            index=places[number],
            owner=draw(st.sampled_from(owners)),
            verdict=draw(verdicts),
            exhibits=draw(exhibits),
        )
        for number in range(count)
    ]


def outcomes(several, released):
    return [
        ruled(one, released, [other for other in several if other is not one]).outcome
        for one in several
    ]


def is_older_and_accepted(each, one):
    return each.verdict is Verdict.OWNED and each.filed < one.filed and each.by != one.owner


@given(claims(), st.none() | days)
def test_an_older_exhibit_with_the_mark_makes_the_claim_fall_and_nothing_else_does(found, released):
    for one, outcome in zip(found, outcomes(found, released), strict=True):
        falls = any(is_older_and_accepted(each, one) for each in one.exhibits)
        assert (outcome is Outcome.FELL) == falls


@given(claims(), st.none() | days)
def test_nothing_released_before_the_filing_is_upheld(found, released):
    for one, outcome in zip(found, outcomes(found, released), strict=True):
        if released is None or day(released) <= one.filed.time:
            assert outcome in (Outcome.NOT_COVERED, Outcome.FELL)
        else:
            assert outcome is not Outcome.NOT_COVERED


@given(claims(), st.none() | days)
def test_owners_of_upheld_claims_are_one_and_he_was_first(found, released):
    ended = outcomes(found, released)
    upheld = [one for one, outcome in zip(found, ended, strict=True) if outcome is Outcome.UPHELD]
    preceded = [
        one for one, outcome in zip(found, ended, strict=True) if outcome is Outcome.PRECEDED
    ]
    assert len({one.owner for one in upheld}) <= 1
    for one in preceded:
        assert any(
            other.owner != one.owner and other.verdict is Verdict.OWNED and other.filed < one.filed
            for other in found
        ), "somebody is preceded by nobody"
    for one in upheld:
        assert not any(one.filed < other.filed for other in upheld if other.owner != one.owner)


@given(claims(), st.none() | days)
def test_only_what_was_measured_and_found_is_upheld_or_preceded(found, released):
    for one, outcome in zip(found, outcomes(found, released), strict=True):
        if outcome in (Outcome.UPHELD, Outcome.PRECEDED):
            assert one.verdict is Verdict.OWNED
        if outcome is Outcome.NOT_SHOWN:
            assert one.verdict is Verdict.NOT_SHOWN
        if outcome is Outcome.COULD_NOT_MEASURE and one.verdict is not Verdict.COULD_NOT_MEASURE:
            assert one.verdict is Verdict.OWNED
            everything = [each for other in found for each in other.exhibits]
            assert any(each.verdict is None for each in everything)


@given(claims(), st.none() | days, st.randoms())
def test_the_order_in_which_things_are_given_says_nothing(found, released, random):
    one, *others = found
    mixed = random.sample(others, len(others))
    shuffled = replace(one, exhibits=tuple(random.sample(list(one.exhibits), len(one.exhibits))))
    assert ruled(one, released, others).outcome is ruled(shuffled, released, mixed).outcome


@given(claims(), days, verdicts)
def test_what_does_not_count_changes_nothing(found, released, verdict):
    one, *others = found
    idle = [
        exhibit(filed=0, by=one.owner, verdict=verdict),
        exhibit(filed=99, verdict=verdict),
        exhibit(filed=0, verdict=Verdict.NOT_SHOWN),
        exhibit(filed=0, verdict=Verdict.COULD_NOT_MEASURE),
    ]
    more = replace(one, exhibits=(*one.exhibits, *idle))
    assert ruled(one, released, others).outcome is ruled(more, released, others).outcome


def test_every_combination_of_a_single_claim():
    """Written down once more, as a table."""
    seen = set()
    for verdict, shown, filed, by, released in itertools.product(
        Verdict, (*Verdict, None), (5, 10, 15), ("respondent", "claimant"), (None, 5, 10, 11, 101)
    ):
        one = claim(verdict=verdict, exhibits=[exhibit(filed, 11, by, shown)])
        found = ruled(one, released).outcome
        if shown is Verdict.OWNED and filed == 5 and by == "respondent":
            expected = Outcome.FELL
        elif released != 11:
            expected = Outcome.NOT_COVERED
        elif verdict is Verdict.OWNED and shown is None and filed == 5 and by == "respondent":
            expected = Outcome.COULD_NOT_MEASURE
        elif verdict is Verdict.OWNED:
            expected = Outcome.UPHELD
        else:
            expected = Outcome(verdict.value)
        assert found is expected
        seen.add(found)
    assert seen == set(Outcome) - {Outcome.PRECEDED}


def test_nothing_is_upheld_while_something_older_is_unheard():
    unheard = exhibit(verdict=None)
    found = ruled(claim(exhibits=[unheard, exhibit(verdict=Verdict.NOT_SHOWN)]))
    assert found.outcome is Outcome.COULD_NOT_MEASURE
    assert "unheard" in found.reasons[0]
    assert len(found.reasons) == 3
    # What is heard decides first.
    assert ruled(claim(exhibits=[unheard, exhibit()])).outcome is Outcome.FELL
    silent = claim(verdict=Verdict.NOT_SHOWN, exhibits=[unheard])
    assert ruled(silent).outcome is Outcome.NOT_SHOWN


@pytest.mark.parametrize(
    "other",
    [
        claim(1, 1, "other", None),
        claim(2, 2, "other", Verdict.OWNED, [exhibit(1, 1, "a third", None)]),
    ],
)
def test_nothing_is_upheld_while_an_older_claim_is_unheard(other):
    found = ruled(claim(), others=[other])
    assert found.outcome is Outcome.COULD_NOT_MEASURE
    assert "unheard" in found.reasons[0]
    assert ruled(claim(owner="other"), others=[other]).outcome is Outcome.UPHELD
    assert ruled(claim(0, 0), others=[other]).outcome is Outcome.UPHELD
    # One that is heard and older decides first.
    both = [other, claim(3, 3, "heard")]
    assert ruled(claim(), others=both).outcome is Outcome.PRECEDED


def test_a_ruling_names_what_decided():
    deciding = exhibit(filed=2, index=2)
    fell = ruled(claim(exhibits=[exhibit(), deciding]))
    assert fell.exhibit is deciding
    first, second = claim(1, 1, "first"), claim(2, 2, "second")
    assert ruled(claim(), others=[second, first]).other is first
    assert ruled(claim()).other is ruled(claim()).exhibit is None


def test_of_equal_times_the_smaller_index_is_the_earlier():
    first, second = claim(index=3, owner="a"), claim(index=4, owner="b")
    assert ruled(first, others=[second]).outcome is Outcome.UPHELD
    assert ruled(second, others=[first]).outcome is Outcome.PRECEDED
    same = claim(index=5, exhibits=[exhibit(filed=10, index=4)])
    assert ruled(same).outcome is Outcome.FELL
    same = claim(index=5, exhibits=[exhibit(filed=10, index=6)])
    assert ruled(same).outcome is Outcome.UPHELD


@pytest.mark.parametrize(
    "other",
    [
        claim(1, 1, "other", Verdict.NOT_SHOWN),
        claim(1, 1, "other", Verdict.COULD_NOT_MEASURE),
        claim(2, 2, "other", exhibits=[exhibit(1, 1)]),
        claim(1, 1, "claimant"),
        claim(11, 11, "other"),
    ],
)
def test_claims_that_do_not_stand_precede_nobody(other):
    assert ruled(claim(), others=[other]).outcome is Outcome.UPHELD


def test_both_claims_are_shown():
    earlier, later = claim(1, 1, "early"), claim(10, 10, "late")
    assert "early" in ruled(later, others=[earlier]).reasons[0]
    assert "2026-01-02 00:00:00 UTC (entry 1)" in ruled(later, others=[earlier]).reasons[0]
    assert any("late" in reason for reason in ruled(earlier, others=[later]).reasons)


def test_times_of_other_zones_are_the_same_times():
    east = timezone(timedelta(hours=9))
    one = replace(claim(), filed=Moment(day(10).astimezone(east), 10))
    assert ruled(one, 10).outcome is Outcome.NOT_COVERED
    assert ruled(one, 11).outcome is Outcome.UPHELD
    assert "2026-01-11 00:00:00 UTC" in ruled(one, 11).reasons[0]


def test_reasons_say_what_became_of_every_exhibit():
    held = [
        exhibit(by="claimant"),
        exhibit(verdict=Verdict.NOT_SHOWN),
        exhibit(verdict=Verdict.COULD_NOT_MEASURE),
        exhibit(filed=50, index=50),
    ]
    said = ruled(claim(exhibits=held)).reasons
    assert len(said) == 5
    for words in ("claimant's own", "was not found in", "could not be measured", "after the key"):
        assert any(words in reason for reason in said)
