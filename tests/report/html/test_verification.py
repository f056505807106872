"""The page of a verification, when its report says something unusual."""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from handmade_keys import innocent_outputs, mapped_outputs, owner_outputs
from html_pages import HOSTILE, parse, require_harmless
from nsmark.report import Report, library_versions
from nsmark.report.html import render_html
from nsmark.report.pictures import Pictures
from nsmark.suspects import RecordedOutputs
from nsmark.verification import STATISTIC_NAMES, Decision, Verdict
from nsmark.verification.controls import Control
from nsmark.verification.statistics import Statistics
from nsmark.verification.thresholds import Calibration, Threshold


def text_of(report, pictures=None):
    return parse(render_html(report, pictures)).text


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(reports, text):
    report = replace(
        reports["calibrated"],
        decision=Decision(Verdict.OWNED, (text,)),
        controls=(Control(text, Statistics(extraction_rate=0.1, predictability=0.2), 3),),
        unchecked=(text,),
        suspect=text,
        rule=text,
        key_id=text,
        fresh=text,
        claim={"owner": text, "message": text, "created": text},
        versions={"nsmark": text},
        key_summary={
            "fingerprint": text,
            "configuration": {"pooling": text, "marks": [text]},
            "model_sha256": text,
            "library_version": text,
        },
    )

    require_harmless(render_html(report))


def test_dictionaries_are_never_printed_whole(reports):
    summary = reports["paper"].key_summary
    configuration = summary["configuration"] | {"seed": "STRAY"}
    leaky = summary | {"trigger": "STRAY", "signature": "STRAY", "configuration": configuration}

    assert "STRAY" not in render_html(replace(reports["paper"], key_summary=leaky))


def test_page_of_a_report_with_nothing_in_it():
    text = text_of(
        Report(
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
    )

    assert "Whether a suspect not named carries the watermark of an owner not named" in text
    assert "Nothing was measured" in text


@pytest.mark.parametrize("rule", ["calibrated", "paper"])
def test_values_that_are_not_finite_do_not_break_the_page(reports, rule):
    evidence = replace(
        reports[rule].evidence,
        triggered=Statistics(**dict.fromkeys(STATISTIC_NAMES, float("nan"))),
        untriggered=Statistics(**dict.fromkeys(STATISTIC_NAMES, float("inf"))),
    )

    assert "not finite" in text_of(replace(reports[rule], evidence=evidence))


def test_a_line_that_nobody_can_pass_says_so(reports):
    lines = (Threshold("predictability", 1.0, 0.9999, 12),)
    calibration = Calibration(lines, 12, 12, 1e-3, 0.95, 0, 0.22)
    text = text_of(replace(reports["calibrated"], calibration=calibration))

    assert "Not even the owner's own model could pass this line" in text


@pytest.mark.parametrize("sized", [0.0, 1.0])
def test_the_plot_of_what_is_read_goes_by_the_owners_size_as_the_rule_does(reports, sized):
    report = reports["calibrated"]
    assert report.evidence.triggered.extraction_rate == 1.0
    text = text_of(replace(report, evidence=replace(report.evidence, sized_extraction_rate=sized)))

    at_size = ", at the size of the owner's outputs, does not reach beyond the line"
    assert (at_size in text) == (sized == 0.0)


def test_command_repeats_without_secrets(reports):
    text = text_of(replace(reports["calibrated"], suspect="openai:https://u:pw@h/v1#m'; rm -rf /"))
    (command,) = re.findall(r"nsmark verify KEY.*?page\.html", text)

    assert "--controls CONTROL" in command
    assert "pw" not in command


def test_page_counts_what_it_leaves_out(reports):
    report = reports["calibrated"]
    text = text_of(
        replace(
            report,
            evidence=replace(report.evidence, dead_rows=2, notes=("a note",)),
            controls=report.controls * 10,
            calibrated_by="owner",
            fresh="ab12",
            asked=None,
        )
    )

    for said in (
        "null space of 128 dimensions; 2 outputs always zero, left out",
        "a note",
        "and 40 more",
        "14 innocent models (140 measurements) of the owner's own choice",
        "160 texts of the verifier's choice, each with the secret trigger and without it",
        "When not recorded",
        "--owner-model DIR --fresh ab12",
    ):
        assert said in text


def test_pictures_of_a_key_follow_its_dimensions(page_key):
    same = Pictures.of(page_key, owner_outputs(page_key))
    other = Pictures.of(page_key, innocent_outputs(page_key, output_dim=50))

    assert same.extracted_suspect_triggered.shape == (160, 16 * 3)
    assert other.extracted_owner_triggered is None


def test_pictures_say_how_they_were_drawn(reports, page_key, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    other = Pictures.of(page_key, innocent_outputs(page_key, output_dim=50))
    text = text_of(reports["other dimension"], other)

    assert "The two principal components" in text
    assert "another number of dimensions" in text
    assert "other dimensions than the key's" in text


@pytest.mark.parametrize("scale", [1e250, 1e-250, np.nan, 0.0])
def test_answers_of_any_size_make_a_page(reports, page_key, scale, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    answers = mapped_outputs(owner_outputs(page_key), scale * np.eye(32))

    assert "For the eye only" in text_of(reports["paper"], Pictures.of(page_key, answers))


def test_few_answers_are_drawn_as_few_points(page_key, reports):
    few = RecordedOutputs("few", np.ones((2, 32)), -np.ones((2, 32)))
    text = text_of(reports["paper"], Pictures.of(page_key, few))

    assert "2 texts of each kind" in text
    assert "The two principal components" in text
