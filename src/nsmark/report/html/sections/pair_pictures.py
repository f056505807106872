"""Pictures of a pair code: where it was read rightly, and how strongly."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nsmark.core.pair_code import PairReading
from nsmark.report.html.blocks import figure
from nsmark.report.html.markup import Markup
from nsmark.report.html.svg.pair_grid import Group, grid_plot
from nsmark.report.html.svg.parts import FAINT, OWNER, SUSPECT, circle, cross, square
from nsmark.report.html.svg.sides import REACH, sides_plot
from nsmark.report.pictures import PairTable

Kind = Literal["square", "hollow", "cross"]

# Two sizes and no more. Where a half holds more of one sign, the probe gives the other larger
# scores: from finer steps, each at its place, nine of ten signs of a strong mark could be told.
_WEAK = 0.5
_STRONG_SHARE, _WEAK_SHARE, _DOT_SHARE = 0.8, 0.42, 0.16
_WEAKLY = "Small: weakly, with less than half the typical strength."


def pair_figures(reading: PairReading, table: PairTable) -> tuple[Markup, ...]:
    """Return where the table was read rightly, or both tables, and how strongly.

    Nothing where the table does not belong to what was read.
    """
    if len(reading.scores) != len(table.signs):
        return ()
    scores = np.nan_to_num(np.asarray(reading.scores), posinf=0.0, neginf=0.0)
    strengths = np.zeros(len(scores))
    for half in (table.in_first_half, ~table.in_first_half):
        strengths[half] = _strengths(scores[half])
    agreement = strengths * table.signs
    if np.count_nonzero(agreement > 0) != sum(reading.right):
        return ()
    grids = (
        (_read(strengths, table), _true(table))
        if table.is_shown
        else (_agreement(agreement, reading, table),)
    )
    return *grids, _sides(agreement, reading)


def _strengths(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores of one probe as multiples of its typical one, whatever their size."""
    largest = float(np.abs(scores).max(initial=0.0))
    if largest == 0.0:
        return scores
    values = scores / largest
    return np.asarray(values / (float(np.median(np.abs(values))) or 1.0))


def _agreement(agreement: NDArray[np.float64], reading: PairReading, table: PairTable) -> Markup:
    groups = [
        *_by_strength("read rightly", agreement > 0, agreement, "square", OWNER),
        *_by_strength("read wrongly", agreement <= 0, agreement, "cross", SUSPECT),
        _not_asked(table),
    ]
    said = f"{sum(reading.right):,} of {sum(reading.halves):,} pairs were read rightly."
    picture = grid_plot(
        "pair-agreement", "The table of signs: where it was read rightly", said, table.size, groups
    )
    caption = f"{said} One mark is one pair of words, in its place in the table. {_WEAKLY}"
    return figure("Where the table was read rightly", picture, caption)


def _read(strengths: NDArray[np.float64], table: PairTable) -> Markup:
    groups = [
        *_by_strength("forwards", strengths > 0, strengths, "square", SUSPECT),
        *_by_strength("backwards", strengths < 0, strengths, "hollow", SUSPECT),
        _dots("no sign", np.flatnonzero(strengths == 0)),
        _not_asked(table),
    ]
    said = (
        f"Forwards: {np.count_nonzero(strengths > 0):,}, "
        f"backwards: {np.count_nonzero(strengths < 0):,} of {len(strengths):,} pairs."
    )
    picture = grid_plot("pair-read", "The table as it was read", said, table.size, groups)
    return figure("The table as it was read", picture, f"{said} {_WEAKLY}")


def _true(table: PairTable) -> Markup:
    signs = table.signs.astype(np.float64)
    groups = [
        *_by_strength("forwards", signs > 0, signs, "square", OWNER),
        *_by_strength("backwards", signs < 0, signs, "hollow", OWNER),
        _not_asked(table),
    ]
    said = (
        f"Forwards: {np.count_nonzero(signs > 0):,}, "
        f"backwards: {np.count_nonzero(signs < 0):,} of {len(signs):,} pairs."
    )
    picture = grid_plot("pair-true", "The true table", said, table.size, groups)
    return figure("The true table", picture, f"{said} As it follows from the signature.")


def _by_strength(
    text: str,
    chosen: NDArray[np.bool_],
    strengths: NDArray[np.float64],
    kind: Kind,
    colour: str,
) -> list[Group]:
    weak = np.abs(strengths) < _WEAK
    return [
        Group(
            text=f"{text}{further}",
            numbers=np.flatnonzero(chosen & which).tolist(),
            mark=cross if kind == "cross" else square,
            share=share,
            stroke=colour,
            fill=colour if kind == "square" else "none",
        )
        for further, which, share in (
            ("", ~weak, _STRONG_SHARE),
            (", weakly", weak, _WEAK_SHARE),
        )
    ]


def _dots(text: str, numbers: NDArray[np.intp]) -> Group:
    return Group(
        text=text, numbers=numbers.tolist(), mark=circle, share=_DOT_SHARE, stroke=FAINT, fill=FAINT
    )


def _not_asked(table: PairTable) -> Group:
    return _dots("not asked", np.arange(len(table.signs), table.size**2))


def _sides(agreement: NDArray[np.float64], reading: PairReading) -> Markup:
    said = (
        f"Right of 0: the {sum(reading.right):,} pairs read rightly; left: the "
        f"{sum(reading.halves) - sum(reading.right):,} read wrongly."
    )
    picture = sides_plot("pair-sides", "How strongly each sign was read", said, agreement.tolist())
    caption = (
        f"{said} 1 is the typical strength; beyond {REACH:g} is drawn at the end. For a model that "
        "was not trained with this signature both sides would hold about as many."
    )
    return figure("How strongly", picture, caption)
