"""Chances in words: true, and readable."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsmark.core.pair_code import PairReading
from nsmark.report.odds import how_often, once_in, pair_code_in_words, power_of_ten, written_out

DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


@pytest.mark.parametrize(
    ("p_value", "words"),
    [
        (1.0, "by chance alone"),
        (0.995, "by chance alone"),
        (0.4, "in up to 40 of 100 tries"),
        (0.401, "in up to 41 of 100 tries"),
        (0.01, "in up to 1 of 100 tries"),
        (0.0099, "at most once in 100 tries"),
        (8.1e-4, "at most once in 1,200 tries"),
        (1e-6, "at most once in 10⁶ tries"),
        (3e-12, "at most once in 3×10¹¹ tries"),
        (1e-12, "at most once in 10¹² tries"),
        (1e-38, "at most once in 10³⁸ tries"),
        (4.2e-22, "at most once in 2×10²¹ tries"),
        (5e-324, "at most once in 10³⁰⁰ tries"),
        (0.0, "at most once in 10³⁰⁰ tries"),
        (float("nan"), "nobody knows how often"),
    ],
)
def test_how_often(p_value, words):
    assert how_often(p_value) == words


@given(st.floats(1e-299, 0.5))
def test_nothing_is_called_more_seldom_than_it_is(chance):
    said = once_in(chance).replace(",", "")
    digit, power = re.fullmatch(r"(?:(\d+)×)?10([⁰¹²³⁴⁵⁶⁷⁸⁹]+)|\d+", said).groups()
    tries = float(said) if power is None else int(digit or 1) * 10.0 ** int(power.translate(DIGITS))

    # Rounded down to one digit, or to two: at worst from just below 2 to 1.
    assert 0.5 - 1e-9 <= tries * chance <= 1 + 1e-9


@pytest.mark.parametrize(
    ("chance", "words"),
    [
        (1e-38, "a 1 followed by 38 zeros"),
        (4.2e-22, "a 2 followed by 21 zeros"),
        (0.0, "a 1 followed by 300 zeros"),
        (8.1e-4, ""),
        (0.1, ""),
        (0.01, ""),
        (1e-3, ""),
    ],
)
def test_large_numbers_are_told_by_their_zeros(chance, words):
    assert written_out(chance) == words


def test_power_of_ten():
    assert power_of_ten(-38) == "10⁻³⁸"


def test_pair_code_in_words():
    reading = PairReading(0.75, 0.02, (1.0,) * 16, (7, 5), (8, 8))

    assert pair_code_in_words(reading) == (
        "12 of 16 signs read; a model not trained with this signature would do as well in up to 2 "
        "of 100 tries"
    )
