"""The page: complete, well-formed, the same every time, and without a secret."""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from handmade_keys import innocent_outputs, mapped_outputs, owner_outputs
from html_pages import HOSTILE, ids_of, parse
from nsmark.report import Report, library_versions
from nsmark.report.html import render_html
from nsmark.report.html.document import POLICY
from nsmark.report.pictures import Pictures
from nsmark.suspects import RecordedOutputs
from nsmark.verification import STATISTIC_NAMES, Decision, Verdict
from nsmark.verification.controls import Control
from nsmark.verification.statistics import Statistics
from nsmark.verification.thresholds import Calibration, Threshold

CASES = (
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


@pytest.mark.parametrize("case", CASES)
def test_page_is_well_formed_and_does_nothing(pages, case):
    tags = parse(pages[case])

    assert set(tags.tags).isdisjoint({"script", "link", "img", "iframe", "object", "a", "form"})
    assert not [name for name, _ in tags.attributes if name.startswith("on") or "href" in name]
    assert len(ids_of(tags)) == len(set(ids_of(tags)))
    assert ("content", POLICY) in tags.attributes
    assert "url(" not in pages[case]
    assert "@import" not in pages[case]
    assert not re.search(r'(src|href|style)="', pages[case])


@pytest.mark.parametrize("case", CASES)
def test_every_picture_has_words(pages, case):
    tags = parse(pages[case])
    named = [value.split() for name, value in tags.attributes if name == "aria-labelledby"]

    assert {one for names in named for one in names} <= set(ids_of(tags))
    pictures = tags.tags.count("svg") - 1  # the sign beside the verdict is described by its word
    assert tags.tags.count("desc") == pictures


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("calibrated", "carry the watermark of Example Lab"),
        ("innocent", "do not show the watermark of Example Lab"),
        ("constant", "could not be measured"),
    ],
)
def test_verdict_is_one_plain_sentence(pages, case, sentence):
    assert sentence in parse(pages[case]).text


@pytest.mark.parametrize("case", CASES)
def test_sections_come_in_order_and_say_what_is_not_shown(pages, reports, case):
    text = parse(pages[case]).text

    assert re.findall(r"</span>([^<]+)</h2>", pages[case]) == [
        "Who claims what, since when",
        "What was asked of whom, and when",
        "Why",
        "Every number",
        "How sure that is",
        "With the trigger and without it",
        "Pictures of the answers",
        "What this page does not show",
        "How to repeat it",
    ]
    assert "does not show who trained the mark in first" in text
    assert "the owner's own word" in text
    assert reports[case].key_id in text
    for reason in reports[case].decision.reasons:
        assert reason in text


def test_calibrated_page_states_rate_confidence_and_bound(pages, reports):
    text, calibration = parse(pages["calibrated"]).text, reports["calibrated"].calibration

    assert "1 in 1,000 (0.1 %)" in text
    assert "95 % confidence" in text
    assert f"{100 * calibration.bound:.3g} %" in text
    assert "of the verifier's choice" in text
    assert pages["calibrated"].count('class="chart"') == len(calibration.thresholds) + 2 + 2
    for line in calibration.thresholds:
        assert f"strip-calibrated-{line.name.replace('_', '-')}-title" in pages["calibrated"]


def test_few_controls_state_no_rate(pages):
    text = parse(pages["few controls"]).text

    assert "No rate of false accusations is stated: 3 innocent models are too few" in text
    assert "1 in 1,000" not in text


def test_paper_rule_shows_its_two_lines_and_that_it_has_no_rate(pages):
    assert pages["paper"].count('id="strip-paper-') == 2 * 2
    assert "It states no rate of false accusations" in parse(pages["paper"]).text


def test_statistics_are_all_there(pages):
    for case in ("calibrated", "paper"):
        # Three are of a pair code, which these keys do not have; one is read at the owner's size.
        assert pages[case].count('role="rowheader"') == len(STATISTIC_NAMES) - 3 + 1
    assert pages["pairs"].count('role="rowheader"') == len(STATISTIC_NAMES) + 1
    assert parse(pages["constant"]).tags.count("table") == 0


def test_the_plot_of_what_is_read_goes_by_the_owners_size_as_the_rule_does(reports):
    report = reports["calibrated"]
    assert report.evidence.triggered.extraction_rate == 1.0
    at_size = ", at the size of the owner's outputs, does not reach beyond the line"
    for sized in (0.0, 1.0):
        evidence = replace(report.evidence, sized_extraction_rate=sized)
        text = parse(render_html(replace(report, evidence=evidence))).text
        assert (at_size in text) == (sized == 0.0)


@pytest.mark.parametrize("case", CASES)
def test_same_report_same_bytes(pages, reports, drawn, case):
    assert pages[case] == render_html(reports[case], drawn.get(case))


def test_no_secret_is_on_any_page(pages, page_key):
    signature = page_key.signature
    for page in pages.values():
        text = parse(page).text
        assert not re.search(rf"\b{page_key.trigger}\b", page)
        assert signature.hex() not in page.lower()
        assert signature.hex()[:16] not in page.lower()
        for secret in page_key.verification_texts:
            assert secret not in text


def test_dictionaries_are_never_printed_whole(reports, page_key):
    summary = reports["paper"].key_summary
    leaky = replace(
        reports["paper"],
        asked={"endpoint": "https://h/", "api_key": "STRAY", "texts": ["STRAY"]},
        key_summary=summary
        | {"trigger": "STRAY", "configuration": summary["configuration"] | {"seed": "STRAY"}},
    )

    assert "STRAY" not in render_html(leaky)


def test_pictures_of_a_key_follow_its_dimensions(page_key):
    same = Pictures.of(page_key, owner_outputs(page_key))
    other = Pictures.of(page_key, innocent_outputs(page_key, output_dim=50))

    assert same.extracted_suspect_triggered.shape == (160, 16 * 3)
    assert other.extracted_owner_triggered is None


def test_pictures_say_how_they_were_drawn(pages, reports, page_key, monkeypatch):
    assert "t-SNE (scikit-learn)" in parse(pages["calibrated"]).text
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    other = Pictures.of(page_key, innocent_outputs(page_key, output_dim=50))
    text = parse(render_html(reports["other dimension"], other)).text

    assert "The two principal components" in text
    assert "another number of dimensions" in text
    assert "other dimensions than the key's" in text


@pytest.mark.parametrize("scale", [1e250, 1e-250, np.nan, 0.0])
def test_answers_of_any_size_make_a_page(reports, page_key, scale):
    answers = mapped_outputs(owner_outputs(page_key), scale * np.eye(32))

    parse(render_html(reports["paper"], Pictures.of(page_key, answers)))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(reports, text):
    control = Control(text, Statistics(extraction_rate=0.1, predictability=0.2), 3)
    report = replace(
        reports["calibrated"],
        decision=Decision(Verdict.OWNED, (text,)),
        controls=(control,),
        unchecked=(text,),
        suspect=text,
        rule=text,
        key_id=text,
        claim={"owner": text, "message": text, "created": text},
        versions={"nsmark": text},
        asked={"started": text, "finished": text, "endpoint": text, "decoys": text},
        key_summary={
            "fingerprint": text,
            "timestamp": text,
            "marks": [text],
            "configuration": {"pooling": text},
            "model_sha256": text,
            "library_version": text,
        },
        command=text,
    )

    page = render_html(report)
    tags = parse(page)

    assert set(tags.tags).isdisjoint({"script", "img", "b"})
    assert not {"\x00", "\x07", "\x1b", "\u202e", "\u2066", "\ufffe"} & set(page)
    assert "secret-" not in page
    assert len(page) < 200_000


def test_page_of_a_report_with_nothing_in_it():
    report = Report(
        decision=Decision(Verdict.COULD_NOT_MEASURE, ()),
        rule="",
        evidence=None,
        thresholds=None,
        calibrated_by=None,
        unchecked=(),
        suspect="",
        key_id="",
        claim={},
        versions={name: None for name in library_versions()},
        seconds=0.0,
    )

    text = parse(render_html(report)).text

    assert "Whether a suspect not named carries the watermark of an owner not named" in text
    assert "Nothing was measured" in text


def test_values_that_are_not_finite_do_not_break_the_page(reports):
    evidence = reports["calibrated"].evidence
    broken = Statistics(**dict.fromkeys(STATISTIC_NAMES, float("nan")))
    infinite = Statistics(**dict.fromkeys(STATISTIC_NAMES, float("inf")))
    for rule in ("calibrated", "paper"):
        report = replace(
            reports[rule], evidence=replace(evidence, triggered=broken, untriggered=infinite)
        )
        assert "not finite" in parse(render_html(report)).text


def test_a_line_that_nobody_can_pass_says_so(reports):
    lines = (Threshold("predictability", 1.0, 0.9999, 12),)
    calibration = Calibration(lines, 12, 12, 1e-3, 0.95, 0, 0.22)
    text = parse(render_html(replace(reports["calibrated"], calibration=calibration))).text

    assert "Not even the owner's own model could pass this line" in text


def test_timestamp_is_told_apart_from_the_owners_word(reports):
    summary = reports["paper"].key_summary | {"timestamp": "2026-02-01T08:00:00Z by Example TSA"}
    text = parse(render_html(replace(reports["paper"], key_summary=summary))).text

    assert "A timestamp is attached to the key: 2026-02-01T08:00:00Z by Example TSA" in text
    assert "no timestamp" not in text


def test_command_repeats_without_secrets(reports):
    report = replace(reports["calibrated"], suspect="openai:https://u:pw@h/v1#m'; rm -rf /")
    text = parse(render_html(report)).text

    assert "nsmark verify KEY" in text
    assert "--controls CONTROL" in text
    assert "pw" not in re.findall(r"nsmark verify KEY.*?page\.html", text)[0]


def test_few_answers_are_drawn_as_few_points(page_key, reports):
    few = RecordedOutputs("few", np.ones((2, 32)), -np.ones((2, 32)))
    text = parse(render_html(reports["paper"], Pictures.of(page_key, few))).text

    assert "2 texts of each kind" in text
    assert "The two principal components" in text
