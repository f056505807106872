"""The pair code on the page: what it says, what it draws, and what it never gives away."""

import re
from dataclasses import replace

import numpy as np
import pytest

from handmade_keys import innocent_outputs, owner_outputs, reseal
from html_pages import HOSTILE, parse, require_harmless
from nsmark.api import verify
from nsmark.core.pair_wager import PairWager
from nsmark.report.html import render_html
from nsmark.report.html.pair_code import pair_figures
from nsmark.report.pictures import Pictures
from nsmark.verification import Decision, Verdict


def with_reading(report, **changes):
    """Return a report in which something else was read of the pair code, and nothing was bet."""
    evidence = report.evidence
    reading = replace(evidence.pairs, **changes)
    triggered = replace(
        evidence.triggered,
        pair_code_rate=reading.rate,
        pair_code_p_value=reading.p_value,
        pair_wager_p_value=None,
    )
    evidence = replace(evidence, pairs=reading, wager=None, triggered=triggered)
    return replace(report, evidence=evidence)


def text_of(report, pictures=None):
    return parse(render_html(report, pictures)).text


def section_five(page):
    return re.search(r'<section aria-labelledby="section-5">.*?</section>', page, re.DOTALL)[0]


def marks_in(svg):
    """Count the marks of a grid, without its legend."""
    grid = svg.partition("<g ")[0]
    return sum(path.count("M") for path in re.findall(r'<path d="([^"]*)"', grid))


def test_pair_code_leads_the_witnesses(pages):
    section = section_five(pages["pairs"])

    assert parse(section).text.startswith(
        "5 How sure that is The pair code, a witness that needs no controls A model that was not "
        "trained with this signature would do as well as this at most once in 2×10²¹ tries (a 2 "
        "followed by 21 zeros)."
    )
    assert section.index('class="leading"') < section.index("No line was drawn")


@pytest.mark.parametrize(
    ("p_value", "words"),
    [
        (0.4, "would do as well as this in up to 40 of 100 tries."),
        (1e-5, "at most once in 100,000 tries."),
        (1e-38, "at most once in 10³⁸ tries (a 1 followed by 38 zeros)."),
        (0.0, "at most once in 10³⁰⁰ tries (a 1 followed by 300 zeros)."),
        (float("nan"), "nobody knows how often"),
    ],
)
def test_p_value_in_words(reports, p_value, words):
    assert words in text_of(with_reading(reports["pairs"], p_value=p_value))


def test_bets_lead_where_counting_is_not_enough(reports):
    counted = with_reading(reports["pairs"], p_value=1e-5)
    for decades, leads in ((20, True), (14, False)):
        wager = PairWager(decades, float(f"1e-{decades}"))
        evidence = replace(counted.evidence, wager=wager)
        text = text_of(replace(counted, evidence=evidence))

        bets = "would let bets on its signs win as much as this at most once in 10²⁰ tries"
        assert (bets in text) == leads
        assert ("would do as well as this at most once in 100,000 tries" in text) != leads
        assert ("This witness accuses, and is enough by itself" in text) == leads
        assert "of bets in 10¹⁵" in text
    evidence = replace(counted.evidence, wager=PairWager(0, 1.0))
    text = text_of(replace(counted, evidence=evidence))
    assert "A stake of 1 did not become 10: nothing was won." in text


def test_texts_that_were_not_asked_say_nothing(pair_key):
    report = verify(pair_key, replace(owner_outputs(pair_key), pair_texts=None))
    text = text_of(report)

    assert "not asked, or not answered, so that it says nothing here" in text
    assert "The pair code says nothing: its texts were not asked, or not answered." in text
    assert "would do as well as this" not in text
    assert "--pair-texts 0" in text


def test_suspect_that_could_not_be_measured_has_no_pair_code_to_speak_of(pair_key):
    constant = np.ones((64, 16))
    answers = replace(owner_outputs(pair_key), triggered=constant, untriggered=constant)
    report = verify(pair_key, answers)

    assert report.verdict is Verdict.COULD_NOT_MEASURE
    page = render_html(report, Pictures.of(pair_key, answers))
    assert "pair-" not in page
    assert "not asked, or not answered" not in page


def test_doubt_comes_before_the_chance(pair_key):
    key = reseal(pair_key, pool_digest="00" * 32)
    report = verify(key, owner_outputs(key), independent=True)
    text = text_of(report)

    assert report.verdict is Verdict.NOT_SHOWN
    assert (
        "It does not count here: the pair code's texts were not checked: the key names a pool not "
        "at hand (--pool)"
    ) in text
    assert "Were it not for that, a model that was not trained with this signature would" in text
    assert "The verdict does not rest on it: section 3." in text
    assert "cannot be made up afterwards" not in text
    assert "enough by itself" not in text


def test_another_rule_does_not_rest_on_it(pair_key):
    text = text_of(verify(pair_key, owner_outputs(pair_key), rule="paper"))

    assert "The verdict does not rest on it: section 3." in text
    assert "If nobody made the pair code's texts fit its table, a model that was not" in text
    assert "at most once in 2×10²¹ tries" in text


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_names_and_doubts_stay_text(reports, pair_pictures, hostile):
    report = replace(
        reports["pairs"],
        suspect=hostile,
        decision=Decision(Verdict.NOT_SHOWN, (hostile,)),
        pair_doubt=hostile,
        key_summary={"pairs": {"size": 12, "repeats": 3, "word_list_sha256": hostile}},
    )

    require_harmless(render_html(report, pair_pictures["pairs"]))


def test_secrets_are_not_on_any_page(pages, pair_key):
    texts = pair_key.pairs.pair_texts(pair_key.signature)
    for case in ("pairs", "pairs innocent", "pairs subset", "pairs shown"):
        page = pages[case]
        prose = set(re.findall(r"\w+", parse(page).text))
        assert pair_key.signature.hex()[:16] not in page.lower()
        assert not [text for text in (*pair_key.pairs.texts, *texts) if text in page]
        # One may be a word that the page has to use; all of them may not.
        assert len(prose & set(pair_key.pairs.words)) < 3


def test_page_to_hand_on_is_the_same_whatever_the_table(reports, pair_pictures):
    # Turning entries of the table round, and what was read of them with it, changes nothing.
    # One number of what bets have won is all that depends on the table: here there is none.
    report, pictures = with_reading(reports["pairs noisy"]), pair_pictures["pairs noisy"]
    turned = np.random.default_rng(5).choice([-1, 1], size=144)
    scores = tuple((np.array(report.evidence.pairs.scores) * turned).tolist())
    table = replace(pictures.pair_table, signs=pictures.pair_table.signs * turned)
    other = with_reading(report, scores=scores)

    assert sum(report.evidence.pairs.right) < 144
    page = render_html(report, pictures)
    assert page == render_html(other, replace(pictures, pair_table=table))
    shown = [
        render_html(r, replace(pictures, pair_table=replace(t, is_shown=True)))
        for r, t in ((report, pictures.pair_table), (other, table))
    ]
    assert shown[0] != shown[1]


def test_signs_of_unequal_strength_are_drawn_alike(reports, pair_pictures):
    # A probe gives the sign that is rarer in its half the larger scores.
    reading, table = reports["pairs"].evidence.pairs, pair_pictures["pairs"].pair_table
    unequal = tuple(np.where(table.signs > 0, 0.8, -1.2))
    grid, _ = pair_figures(replace(reading, scores=unequal), table)

    assert grid == pair_figures(replace(reading, scores=tuple(map(float, table.signs))), table)[0]


def test_agreement_alone_is_drawn_unless_the_table_is_asked_for(pages):
    handed, own = pages["pairs"], pages["pairs shown"]

    assert re.findall(r'<title id="(pair-[a-z]+)-title"', handed) == [
        "pair-agreement",
        "pair-sides",
    ]
    assert re.findall(r'<title id="(pair-[a-z]+)-title"', own) == [
        "pair-read",
        "pair-true",
        "pair-sides",
    ]


def test_true_table_is_drawn_as_it_is(pages, pair_key):
    svg = re.search(r'<svg[^>]*aria-labelledby="pair-true.*?</svg>', pages["pairs shown"])[0]
    signs = pair_key.pairs.signs(pair_key.signature)
    forwards, backwards = (
        path.count("M") for path in re.findall(r'<path d="([^"]*)"', svg.partition("<g ")[0])
    )

    assert (forwards, backwards) == ((signs > 0).sum(), (signs < 0).sum())


def test_pairs_that_were_not_asked_are_drawn_as_such(pages):
    page = pages["pairs subset"]
    svg = re.search(r'<svg[^>]*aria-labelledby="pair-agreement.*?</svg>', page)[0]

    assert "not asked" in svg
    assert marks_in(svg) == 144


def test_page_without_pictures_has_words_alone(reports):
    page = render_html(reports["pairs"])

    assert 'id="pair-' not in page
    assert "at most once in 2×10²¹ tries" in parse(page).text


@pytest.mark.parametrize("size", [1e300, 1e-300, 0.0, 5e-324])
def test_scores_of_any_size_can_be_drawn(reports, pair_pictures, size):
    scores = np.array(reports["pairs"].evidence.pairs.scores)
    right = (72, 72) if size else (0, 0)
    tiny = size * np.sign(scores) if size == 5e-324 else size * scores
    report = with_reading(reports["pairs"], scores=tuple(tiny.tolist()), right=right)
    page = render_html(report, pair_pictures["pairs"])

    parse(page)
    assert 'id="pair-sides-title"' in page
    assert not re.search(r"\b(nan|inf)\b", section_five(page))


def test_scores_that_are_not_finite_count_as_nothing(reports, pair_pictures):
    reading, table = reports["pairs"].evidence.pairs, pair_pictures["pairs"].pair_table
    broken = (float("nan"), float("inf"), *reading.scores[2:])
    figures = pair_figures(replace(reading, scores=broken, right=(70, 72)), table)
    grid, sides = (figure.picture for figure in figures)

    assert "nan" not in grid + sides
    assert "wrongly: 2" in sides


def test_table_of_another_verification_is_not_drawn(reports, pair_pictures):
    reading, table = reports["pairs"].evidence.pairs, pair_pictures["pairs"].pair_table

    assert pair_figures(reading, replace(table, signs=-table.signs)) == ()
    assert pair_figures(reading, pair_pictures["pairs subset"].pair_table) == ()


def test_halves_are_drawn_by_their_own_measure(reports, pair_pictures):
    # Each half is read by a probe of its own, whose scores may be a hundred times as large.
    reading, table = reports["pairs"].evidence.pairs, pair_pictures["pairs"].pair_table
    larger = np.where(table.in_first_half, 100.0, 1.0) * np.array(reading.scores)

    assert pair_figures(replace(reading, scores=tuple(larger)), table) == pair_figures(
        reading, table
    )
    assert table.in_first_half.sum() == 72


def test_pictures_have_no_table_where_no_pair_was_asked(page_key, pair_key):
    asked = Pictures.of(pair_key, innocent_outputs(pair_key)).pair_table

    assert Pictures.of(page_key, innocent_outputs(page_key)).pair_table is None
    assert (asked.size, len(asked.signs), asked.is_shown) == (12, 144, False)
