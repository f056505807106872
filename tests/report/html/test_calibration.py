"""The page of a calibration, when its facts are unusual."""

from dataclasses import replace

import pytest

from html_pages import HOSTILE, parse, require_harmless
from nsmark.report.html import CalibrationFacts, render_calibration
from nsmark.verification import Decision, Verdict
from nsmark.verification.controls import Control
from nsmark.verification.statistics import STATISTIC_NAMES, STATISTICS, Statistics
from nsmark.verification.thresholds import Calibration, calibrate, thresholds_by_baseline


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(calibrations, text):
    facts = calibrations["calibration of few"]
    page = render_calibration(
        replace(
            facts,
            owner=text,
            controls=[replace(control, name=text) for control in facts.controls],
            thefts=[replace(theft, name=f"{text} | {text}") for theft in facts.thefts],
            decisions=[Decision(Verdict.NOT_SHOWN, (text,)) for _ in facts.thefts],
            not_made=[text],
            key_id=text,
            former_key_id=text,
            key={"model_sha256": text, "configuration": {"pooling": text, "marks": [text]}},
            versions={"nsmark": text},
            command=text,
        )
    )

    require_harmless(page)


def test_a_stray_secret_in_the_keys_summary_is_not_printed(calibrations):
    facts = calibrations["calibration of one"]
    configuration = facts.key["configuration"] | {"seed": "STRAY"}
    leaky = {**facts.key, "trigger": "STRAY", "signature": "STRAY", "configuration": configuration}

    assert "STRAY" not in render_calibration(replace(facts, key=leaky))


def test_a_theft_beyond_a_line_that_goes_free_is_told_apart(calibrations):
    facts = calibrations["calibration"]
    reason = "the key is refused: its extractor reads <too> much"
    decisions = [Decision(Verdict.NOT_SHOWN, (reason,)), *facts.decisions[1:]]
    text = parse(render_calibration(replace(facts, decisions=decisions))).text

    assert "1 of the missed lie beyond a line all the same" in text
    assert f"of the other {len(facts.missed)} no witness speaks" in text
    assert f"{reason} (1)" in text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e300, None])
def test_values_that_cannot_be_drawn_do_not_break_the_page(calibrations, value):
    statistics = Statistics(**dict.fromkeys(STATISTIC_NAMES, value))
    odd = Control("odd", statistics, 32, statistics)
    facts = calibrations["calibration without thefts"]

    assert "odd" in parse(render_calibration(replace(facts, controls=[*facts.controls, odd]))).text


def test_page_of_almost_nothing():
    empty = Calibration((), 1, 1, None, 0.95, 0, 0.95)
    facts = CalibrationFacts(owner="", calibration=empty, controls=[Control("only", Statistics())])

    assert "Nothing was measured that could be drawn" in parse(render_calibration(facts)).text


def test_many_models_make_no_megabytes(calibrations):
    facts = calibrations["calibration"]
    many = [replace(c, name=f"{c.name} {i}") for i in range(20) for c in facts.controls]
    page = render_calibration(replace(facts, controls=many, calibration=calibrate(many[:40])))

    assert len(page) < 400_000
    assert f"and {len(many) - 200} more" in parse(page).text


def test_line_falls_where_kin_are_far_from_accused(calibrations):
    facts = calibrations["calibration"]
    lines = thresholds_by_baseline(facts.controls, facts.calibration)

    assert set(lines) == {witness.name for witness in STATISTICS[1:]}
    for name, line in lines.items():
        assert [kin for kin, _ in line] == sorted(kin for kin, _ in line)
        closest = facts.calibration.threshold(name).closest_control
        assert all(threshold > closest for _, threshold in line)
        assert line[-1][1] < line[0][1]  # innocents scatter less among kin than among strangers
