"""The pair code, which leads the witnesses: how seldom others would do as well, and pictures."""

from __future__ import annotations

from nsmark.core.pair_code import PairReading
from nsmark.core.pair_wager import PairWager
from nsmark.report.html.blocks import bullets, paragraph
from nsmark.report.html.facts import Facts
from nsmark.report.html.markup import Markup, element, joined
from nsmark.report.html.sections.pair_pictures import pair_figures
from nsmark.report.html.words import TEXT_LIMIT, clean, count, percent
from nsmark.report.odds import how_often, once_in, power_of_ten, written_out
from nsmark.report.pictures import PairTable, Pictures
from nsmark.verification.verdict import MAX_PAIR_P_VALUE, MAX_WAGER_P_VALUE

_HEADING = "The pair code, a witness that needs no controls"
# Claims that an owner may have tried on the suspect before he took this one: each costs him a
# measurement.
_TRIES = 10**6


def pair_code_block(facts: Facts, pictures: Pictures | None) -> Markup:
    """Return what the pair code says; nothing where the key has none."""
    reading = facts.pairs
    if reading is not None:
        return _block(*_words(facts, reading), *_drawn(reading, pictures))
    if not facts.has_pair_code or facts.report.evidence is None:
        return Markup("")
    return _block(
        paragraph(
            "The key holds a pair code. Its texts were not asked, or not answered, so that it says "
            "nothing here, for the owner or against him."
        )
    )


def _block(*content: str) -> Markup:
    return element("div", element("h3", _HEADING), *content, class_="leading")


def _words(facts: Facts, reading: PairReading) -> tuple[Markup, Markup]:
    doubt = facts.report.pair_doubt
    by_counting = reading.p_value <= MAX_PAIR_P_VALUE or not _won_enough(facts.wager)
    p_value = reading.p_value if by_counting or facts.wager is None else facts.wager.p_value
    odds = (
        "a model that was not trained with this signature would "
        f"{'do as well as' if by_counting else 'let bets on its signs win as much as'} this "
        f"{how_often(p_value)}"
    )
    if p_value < 0.01 and (digits := written_out(p_value)):
        odds += f" ({digits})"
    if doubt is None and _would_suffice(facts, reading) and not facts.pair_code_counts:
        # A rule that gave its verdict for another reason does not say whether there are doubts.
        leading = joined(f"If nobody made the pair code's texts fit its table, {odds}.")
    elif doubt is None:
        leading = element("strong", f"{odds[0].upper()}{odds[1:]}.")
    else:
        leading = joined(
            element("strong", "It does not count here: "),
            element("bdi", clean(doubt, TEXT_LIMIT)),
            f". Were it not for that, {odds}.",
        )
    return paragraph(leading), bullets(
        (
            _amount(facts, reading),
            _halves(reading),
            *([_bets(facts.wager)] if facts.wager is not None else []),
            "Chance lies in the signature, not in the model: the signs follow from it as if coins "
            "were tossed. Whatever a model answers, it cannot know the signs of a signature that "
            "it was not trained with. So no innocent model has to be measured, and the statement "
            "holds for every one of them.",
            _standing(facts, reading),
        )
    )


def _amount(facts: Facts, reading: PairReading) -> str:
    asked, table = sum(reading.halves), facts.pairs_in_table
    said = (
        f"{sum(reading.right):,} of {count(asked, 'sign')} were read rightly "
        f"({percent(reading.rate)}). Tossed coins would get about half of them right."
    )
    if table is not None and asked < table:
        said += (
            f" The table has {table:,}: {asked:,} bits of it were asked, chosen "
            "before there was an answer. The others say nothing."
        )
    return said


def _halves(reading: PairReading) -> str:
    (first, second), (of_first, of_second) = reading.right, reading.halves
    return (
        "Every sign was foretold from the answers to other pairs of words: a rule fitted to one "
        f"half of the pairs read {first:,} of {of_first:,} in the other half, and the other way "
        f"round {second:,} of {of_second:,}. The better half counts; its chance is doubled, since "
        "there were two to choose from."
    )


def _bets(wager: PairWager) -> str:
    said = (
        "The same answers were read in a second way, in which pairs that were silenced on their "
        "way to the model cannot drown the others: the signs were bet on one after the other, "
        "every stake chosen by the answers and the signs before. With signs that fall as coins do "
        "no way of betting wins on average. "
    )
    if not wager.decades:
        return f"{said}A stake of 1 did not become 10: nothing was won."
    return (
        f"{said}A stake of 1 became {power_of_ten(wager.decades)}, as it would "
        f"{how_often(wager.p_value)} without the signature."
    )


def _won_enough(wager: PairWager | None) -> bool:
    return wager is not None and wager.p_value <= MAX_WAGER_P_VALUE


def _would_suffice(facts: Facts, reading: PairReading) -> bool:
    return reading.p_value <= MAX_PAIR_P_VALUE or _won_enough(facts.wager)


def _standing(facts: Facts, reading: PairReading) -> str:
    asked = (
        f"the rule asks for at most once in {once_in(MAX_PAIR_P_VALUE)} tries, of bets in "
        f"{once_in(MAX_WAGER_P_VALUE)}"
    )
    if not _would_suffice(facts, reading):
        return f"This witness does not accuse: {asked}."
    if not facts.pair_code_counts:
        return (
            f"It lies within what is asked ({asked}). The verdict does not rest on it: section 3."
        )
    # Two ways of reading, so twice the better one.
    p_values = [reading.p_value, *([facts.wager.p_value] if facts.wager is not None else [])]
    searched = min(len(p_values) * _TRIES * min(p_values), 1.0)
    return (
        f"This witness accuses, and is enough by itself: {asked}. An owner who had tried a million "
        "claims on this suspect before this one would come upon as much by chance "
        f"{how_often(searched)}."
    )


def _drawn(reading: PairReading, pictures: Pictures | None) -> tuple[Markup, ...]:
    table = pictures.pair_table if pictures is not None else None
    figures = () if table is None else pair_figures(reading, table)
    return (
        *([element("div", *figures, class_="side-by-side")] if figures else []),
        paragraph(_left_out(table if figures else None), class_="note"),
    )


def _left_out(table: PairTable | None) -> Markup | str:
    if table is not None and table.is_shown:
        return joined(
            element("strong", "The table is drawn on this page: keep it to yourself."),
            " The words are left out: whoever knows words and table can look for the mark.",
        )
    return (
        "The words and the table of signs are left out of this page: whoever knows them can look "
        "for the mark. Whoever has the key can derive both from the signature."
    )
