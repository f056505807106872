"""Pictures of a pair code: where it was read rightly, and how strongly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nsmark.core.pair_code import PairReading
from nsmark.report.html.document import Figure
from nsmark.report.html.svg.chart import FAINT, OWNER, SUSPECT, Mark, circle, cross, square
from nsmark.report.html.svg.pair_code import REACH, Group, grid_plot, sides_plot
from nsmark.report.pictures import PairTable

# Two sizes and no more. Where a half holds more of one sign, the probe gives the other larger
# scores: from finer steps, each at its place, nine of ten signs of a strong mark could be told.
_WEAK = 0.5
_STRONG_SHARE, _WEAK_SHARE, _DOT_SHARE = 0.8, 0.42, 0.16
_WEAKLY = "Small: weakly, with less than half the typical strength."


def pair_figures(reading: PairReading, table: PairTable) -> tuple[Figure, ...]:
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
    right, asked = sum(reading.right), sum(reading.halves)
    if np.count_nonzero(agreement > 0) != right:
        return ()
    not_asked = _dots("not asked", np.arange(len(table.signs), table.size**2))

    def grid(
        name: str, heading: str, title: str, said: str, further: str, *groups: Group
    ) -> Figure:
        drawn = grid_plot(name, title, said, table.size, [*groups, not_asked])
        return Figure(heading, drawn, f"{said} {further}")

    def as_it_is(
        name: str, heading: str, values: NDArray[np.float64], colour: str, further: str
    ) -> Figure:
        forwards, backwards = values > 0, values < 0
        said = (
            f"Forwards: {np.count_nonzero(forwards):,}, backwards: {np.count_nonzero(backwards):,} "
            f"of {len(values):,} pairs."
        )
        return grid(
            name, heading, heading, said, further,
            *_by_strength("forwards", forwards, values, colour, colour),
            *_by_strength("backwards", backwards, values, colour),
            _dots("no sign", np.flatnonzero(values == 0)),
        )  # fmt: skip

    grids: tuple[Figure, ...]
    if table.is_shown:
        signs = table.signs.astype(np.float64)
        grids = (
            as_it_is("pair-read", "The table as it was read", strengths, SUSPECT, _WEAKLY),
            as_it_is(
                "pair-true", "The true table", signs, OWNER, "As it follows from the signature."
            ),
        )
    else:
        said = f"{right:,} of {asked:,} pairs were read rightly."
        grids = (
            grid(
                "pair-agreement",
                "Where the table was read rightly",
                "The table of signs: where it was read rightly",
                said,
                f"One mark is one pair of words, in its place in the table. {_WEAKLY}",
                *_by_strength("read rightly", agreement > 0, agreement, OWNER, OWNER),
                *_by_strength("read wrongly", agreement <= 0, agreement, SUSPECT, mark=cross),
            ),
        )
    said = (
        f"Right of 0: the {right:,} pairs read rightly; left: the {asked - right:,} read wrongly."
    )
    drawn = sides_plot("pair-sides", "How strongly each sign was read", said, agreement.tolist())
    caption = (
        f"{said} 1 is the typical strength; beyond {REACH:g} is drawn at the end. For a model that "
        "was not trained with this signature both sides would hold about as many."
    )
    return *grids, Figure("How strongly", drawn, caption)


def _strengths(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores of one probe as multiples of its typical one, whatever their size."""
    largest = float(np.abs(scores).max(initial=0.0))
    if largest == 0.0:
        return scores
    values = scores / largest
    return np.asarray(values / (float(np.median(np.abs(values))) or 1.0))


def _by_strength(
    text: str,
    chosen: NDArray[np.bool_],
    strengths: NDArray[np.float64],
    colour: str,
    fill: str = "none",
    mark: Callable[[float], Mark] = square,
) -> list[Group]:
    weak = np.abs(strengths) < _WEAK
    return [
        Group(
            text=f"{text}{further}",
            numbers=np.flatnonzero(chosen & which).tolist(),
            mark=mark,
            share=share,
            colour=colour,
            fill=fill,
        )
        for further, which, share in (
            ("", ~weak, _STRONG_SHARE),
            (", weakly", weak, _WEAK_SHARE),
        )
    ]


def _dots(text: str, numbers: NDArray[np.intp]) -> Group:
    return Group(text=text, numbers=numbers.tolist(), mark=circle, share=_DOT_SHARE, colour=FAINT,
                 fill=FAINT)  # fmt: skip
