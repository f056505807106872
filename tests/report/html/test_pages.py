"""What holds for every page: complete, well-formed, the same every time, and without a secret."""

import re

import pytest

from html_pages import ids_of, parse
from nsmark.report.html import render_calibration, render_html
from nsmark.verification import STATISTIC_NAMES

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
VERIFICATIONS = (
    "calibrated",
    "few controls",
    "innocent",
    "paper",
    "independent",
    "other dimension",
    "constant",
    "pairs",
    "pairs innocent",
    "pairs shown",
)
CALIBRATIONS = (
    "calibration",
    "calibration without thefts",
    "calibration of few",
    "calibration of one",
)
SECTIONS = {
    VERIFICATIONS: [
        "Who claims what, since when",
        "What was asked of whom, and when",
        "Why",
        "Every number",
        "How sure that is",
        "With the trigger and without it",
        "Pictures of the answers",
        "What this page does not show",
        "How to repeat it",
    ],
    CALIBRATIONS: [
        "What can be stated",
        "Why a suspect is compared with its like",
        "How well each witness tells them apart",
        "Which thefts would be missed",
        "Every control",
        "What this page does not show",
        "How to repeat it",
    ],
}


@pytest.mark.parametrize("case", VERIFICATIONS + CALIBRATIONS)
def test_page_is_well_formed_does_nothing_and_has_words_for_every_picture(pages, case):
    page, tags = pages[case], parse(pages[case])

    assert set(tags.tags).isdisjoint({"script", "link", "img", "iframe", "object", "a", "form"})
    assert not [name for name, _ in tags.attributes if name.startswith("on") or "href" in name]
    assert len(ids_of(tags)) == len(set(ids_of(tags)))
    assert ("content", POLICY) in tags.attributes
    assert not re.search(r'(src|href|style)="|url\(|@import', page)
    named = [value.split() for name, value in tags.attributes if name == "aria-labelledby"]
    assert {one for names in named for one in names} <= set(ids_of(tags))
    # The sign beside the verdict is described by its word.
    assert tags.tags.count("desc") == tags.tags.count("svg") - 1


@pytest.mark.parametrize(
    ("case", "sections"), [(case, said) for cases, said in SECTIONS.items() for case in cases]
)
def test_sections_come_in_order(pages, case, sections):
    assert re.findall(r"</span>([^<]+)</h2>", pages[case]) == sections


@pytest.mark.parametrize("case", VERIFICATIONS)
def test_verification_says_whose_word_dates_are_its_reasons_and_its_key(pages, reports, case):
    text = parse(pages[case]).text

    assert "does not show who trained the mark in first" in text
    assert "the owner's own word: no timestamp of anybody else is attached" in text
    assert reports[case].key_id in text
    for reason in reports[case].decision.reasons:
        assert reason in text


@pytest.mark.parametrize("case", CALIBRATIONS)
def test_calibration_names_its_controls_its_key_and_its_command(pages, calibrations, case):
    facts, text = calibrations[case], parse(pages[case]).text

    assert "No suspect was judged here" in text
    for said in (facts.key_id, facts.command, *(control.name for control in facts.controls)):
        assert said in text


@pytest.mark.parametrize("case", VERIFICATIONS + CALIBRATIONS)
def test_same_report_same_bytes(pages, reports, drawn, calibrations, case):
    again = (
        render_calibration(calibrations[case])
        if case in calibrations
        else render_html(reports[case], drawn.get(case))
    )

    assert pages[case] == again


def test_no_secret_is_on_any_page(pages, page_key):
    signature = page_key.signature
    for page in pages.values():
        text = parse(page).text
        assert not re.search(rf"\b{page_key.trigger}\b", page)
        assert signature.hex()[:16] not in page.lower()
        for secret in page_key.verification_texts:
            assert secret not in text


SAID = {
    "calibrated": """
        carry the watermark of Example Lab
        1 in 1,000 (0.1 %)
        95 % confidence
        of the verifier's choice
        2026-03-01 09:00:00 to 2026-03-01 09:04:30 (UTC)
        t-SNE (scikit-learn)
    """,
    "innocent": "do not show the watermark of Example Lab",
    "constant": "could not be measured",
    "few controls": "No rate of false accusations is stated: 3 innocent models are too few",
    "paper": "It states no rate of false accusations",
    "independent": "No line was drawn: there were no controls",
    "calibration of few": "calibrated on 3 innocent models: too few to state how often",
    "calibration of one": """
        calibrated on 1 innocent model: too few to state how often
        No theft was simulated
    """,
    "calibration": """
        at most 1 in 1,000 (0.1 %) of models like them
        95 % confidence
        scatters normally. Without that assumption: by the lines
        80 further measurements
        marked, pruned 50% 0 of 3 answers as they are ; linear map ; 10 % noise
    """,
    "pairs": """
        the words of the pair code
        It does not show who trained the signature in, nor when: dates do.
        cannot be made up afterwards
        accused by any other witness than the pair code is not stated
        144 of 144 signs were read rightly (100 %)
        read 72 of 72 in the other half, and the other way round 72 of 72
        This witness accuses, and is enough by itself
        tried a million claims on this suspect before this one
        A stake of 1 became 10⁴¹, as it would at most once in 10⁴¹ tries
        would come upon as much by chance at most once in 5×10³⁴ tries
        whoever knows them can look for the mark
        Only the pair code is read from texts of its own, without the trigger
        4.2×10⁻²²
        table of 12 × 12 signs, 3 texts for each
    """,
    "pairs innocent": """
        would do as well as this by chance alone.
        This witness does not accuse: the rule asks for at most once in 10¹² tries
        It does not show who trained the signature in, nor when: dates do.
        the words of the pair code
    """,
    "pairs shown": "The table is drawn on this page: keep it to yourself.",
    "pairs subset": """
        The table has 144: 100 bits of it were asked, chosen before
        --pair-texts 100
    """,
}
NOT_SAID = {
    "few controls": ["1 in 1,000"],
    "calibration of few": ["1 in 1,000"],
    "calibration of one": ["1 in 1,000"],
    "calibration": ["lie beyond a line all the same"],
    "pairs": ["keep it to yourself", "forwards", "--pair-texts"],
    "pairs innocent": ["accuses, and is enough", "cannot be made up afterwards"],
}


@pytest.mark.parametrize("case", SAID)
def test_page_says(pages, case):
    text = parse(pages[case]).text

    for said in SAID[case].strip().splitlines():
        assert said.strip() in text
    for said in NOT_SAID.get(case, ()):
        assert said not in text


@pytest.mark.parametrize("case", ["calibrated", "innocent", "paper", "independent", "constant"])
def test_key_without_a_pair_code_never_mentions_one(pages, case):
    assert "pair code" not in parse(pages[case]).text.lower()
    assert "pair-" not in pages[case]
    assert 'class="leading"' not in pages[case]


def test_numbers_and_pictures_are_all_there(pages, reports, calibrations):
    # Three are of a pair code, which these keys do not have; one is read at the owner's size.
    rows = {"calibrated": len(STATISTIC_NAMES) - 3 + 1, "paper": len(STATISTIC_NAMES) - 3 + 1}
    for case, count in (rows | {"pairs": len(STATISTIC_NAMES) + 1, "constant": 0}).items():
        assert pages[case].count('role="rowheader"') == count
    lines = reports["calibrated"].calibration.thresholds
    assert pages["calibrated"].count('class="chart"') == len(lines) + 2 + 2
    for line in lines:
        assert f"strip-calibrated-{line.name.replace('_', '-')}-title" in pages["calibrated"]
    assert pages["paper"].count('id="strip-paper-') == 2 * 2
    assert 100 * reports["calibrated"].calibration.bound == pytest.approx(19.3, abs=0.05)
    facts, text = calibrations["calibration"], parse(pages["calibration"]).text
    calibration = facts.calibration
    assert "at most 19.3 % of models like them" in parse(pages["calibrated"]).text
    assert f"calibrated on {calibration.num_models} innocent models" in text
    accused = f"{calibration.accused} of {calibration.num_models} controls would be accused"
    assert f"{accused}, which bounds the rate at {100 * calibration.bound:.3g} %" in text
    assert facts.not_made[0] in text
    for separation in facts.separations:
        assert f"Area under the curve (AUC): {separation.area:.3f}." in text
    assert 0 < len(facts.missed) < len(facts.thefts)
    assert f"{len(facts.missed)} of {len(facts.thefts)} would be missed" in text
