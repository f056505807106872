"""How seldom something happens, in words: never more seldom than it is."""

from __future__ import annotations

import math
from decimal import Decimal

from nsmark.core.pair_code import PairReading
from nsmark.core.pair_wager import PairWager
from nsmark.verification.verdict import MAX_PAIR_P_VALUE

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Near the end of what a float can hold, tails are rounded down to 0.
_LEAST = 1e-300
_LARGEST_WRITTEN_OUT = 10**6


def power_of_ten(exponent: int) -> str:
    """Return ``10⁻³⁸``."""
    return f"10{str(exponent).translate(_SUPERSCRIPTS)}"


def once_in(chance: float) -> str:
    """Return N of "at most once in N", rounded down, so that the sentence stays true.

    Args:
        chance: A probability; where it is smaller than 1e-300, that is what is said.
    """
    # As it is written, not as it is stored: 1e-38 is stored as a little more.
    tries = 1 / Decimal(repr(max(chance, _LEAST)))
    exponent = tries.adjusted()
    if tries < _LARGEST_WRITTEN_OUT:
        step = 10 ** max(exponent - 1, 0)
        return f"{int(tries) // step * step:,}"
    digit = int(tries.scaleb(-exponent))
    return power_of_ten(exponent) if digit == 1 else f"{digit}×{power_of_ten(exponent)}"


def written_out(chance: float) -> str:
    """Return how the N of :func:`once_in` looks in digits; nothing where it is in digits."""
    digit, _, power = once_in(chance).rpartition("×")
    if not power.startswith("10") or power.isdecimal() or "," in power:
        return ""
    zeros = (1 / Decimal(repr(max(chance, _LEAST)))).adjusted()
    return f"a {digit or 1} followed by {zeros} zeros"


def how_often(p_value: float) -> str:
    """Return how often something happens at most: ``at most once in 10³⁸ tries``."""
    if not math.isfinite(p_value):
        return "nobody knows how often"
    hundredths = math.ceil(100 * Decimal(repr(p_value)))
    if hundredths >= 100:
        return "by chance alone"
    if p_value >= 0.01:
        return f"in up to {hundredths} of 100 tries"
    return f"at most once in {once_in(p_value)} tries"


def pair_code_in_words(reading: PairReading, wager: PairWager | None = None) -> str:
    """Return how much of a pair code was read, and how often others would read as much.

    What was won by betting on the signs is told where counting them is not enough.
    """
    said = (
        f"{sum(reading.right):,} of {sum(reading.halves):,} signs read; a model not trained with "
        f"this signature would do as well {how_often(reading.p_value)}"
    )
    if wager is None or reading.p_value <= max(MAX_PAIR_P_VALUE, wager.p_value):
        return said
    return f"{said}, and let betting on them win as much {how_often(wager.p_value)}"
