"""The page of a calibration: complete, well-formed, the same every time, and without a secret."""

import re
from dataclasses import replace

import pytest

from html_pages import HOSTILE, ids_of, parse
from nsmark.report.html import CalibrationFacts, render_calibration
from nsmark.report.html.document import POLICY
from nsmark.report.html.svg.kinship import Kinship, kinship_plot
from nsmark.report.html.svg.margin import Margin, margin_plot
from nsmark.report.html.svg.roc import roc_plot
from nsmark.verification import Decision, Verdict
from nsmark.verification.controls import Control
from nsmark.verification.statistics import STATISTIC_NAMES, STATISTICS, Statistics
from nsmark.verification.thresholds import Calibration, calibrate, thresholds_by_baseline

CASES = (
    "calibration",
    "calibration without thefts",
    "calibration of few",
    "calibration of one",
)


@pytest.mark.parametrize("case", CASES)
def test_page_is_well_formed_and_does_nothing(pages, case):
    tags = parse(pages[case])

    assert set(tags.tags).isdisjoint({"script", "link", "img", "iframe", "object", "a", "form"})
    assert not [name for name, _ in tags.attributes if name.startswith("on") or "href" in name]
    assert len(ids_of(tags)) == len(set(ids_of(tags)))
    assert ("content", POLICY) in tags.attributes
    assert not re.search(r'(src|href|style)="|url\(|@import', pages[case])
    named = [value.split() for name, value in tags.attributes if name == "aria-labelledby"]
    assert {one for names in named for one in names} <= set(ids_of(tags))


@pytest.mark.parametrize("case", CASES)
def test_sections_come_in_order(pages, calibrations, case):
    text = parse(pages[case]).text

    assert re.findall(r"</span>([^<]+)</h2>", pages[case]) == [
        "What can be stated",
        "Why a suspect is compared with its like",
        "How well each witness tells them apart",
        "Which thefts would be missed",
        "Every control",
        "What this page does not show",
        "How to repeat it",
    ]
    assert "No suspect was judged here" in text
    for control in calibrations[case].controls:
        assert control.name in text
    assert calibrations[case].key_id in text
    assert calibrations[case].command in text


def test_page_states_rate_confidence_models_accused_and_bound(pages, calibrations):
    text, facts = parse(pages["calibration"]).text, calibrations["calibration"]
    calibration = facts.calibration

    assert f"calibrated on {calibration.num_models} innocent models" in text
    assert "at most 1 in 1,000 (0.1 %) of models like them" in text
    assert "95 % confidence" in text
    accused = f"{calibration.accused} of {calibration.num_models} controls would be accused"
    assert f"{accused}, which bounds the rate at {100 * calibration.bound:.3g} %" in text
    assert "80 further measurements" in text
    assert facts.not_made[0] in text
    for separation in facts.separations:
        assert f"Area under the curve (AUC): {separation.area:.3f}." in text


def test_what_would_be_missed_is_named(pages, calibrations):
    facts, text = calibrations["calibration"], parse(pages["calibration"]).text

    assert 0 < len(facts.missed) < len(facts.thefts)
    assert f"{len(facts.missed)} of {len(facts.thefts)} would be missed" in text
    assert "marked, pruned 50% 0 of 3 answers as they are ; linear map ; 10 % noise" in text
    assert "lie beyond a line all the same" not in text


def test_a_theft_beyond_a_line_that_goes_free_is_told_apart(calibrations):
    facts = calibrations["calibration"]
    reason = "the key is refused: its extractor reads <too> much"
    decisions = [Decision(Verdict.NOT_SHOWN, (reason,)), *facts.decisions[1:]]
    text = parse(render_calibration(replace(facts, decisions=decisions))).text

    assert "1 of the missed lie beyond a line all the same" in text
    assert f"of the other {len(facts.missed)} no witness speaks" in text
    assert f"{reason} (1)" in text


def test_few_controls_state_no_rate(pages):
    for case, models in (("calibration of few", "3 innocent models"), ("calibration of one", "1")):
        text = parse(pages[case]).text
        assert f"calibrated on {models}" in text
        assert "too few to state how often" in text
        assert "1 in 1,000" not in text
    assert "No theft was simulated" in parse(pages["calibration of one"]).text


@pytest.mark.parametrize("case", CASES)
def test_same_facts_same_bytes(pages, calibrations, case):
    assert pages[case] == render_calibration(calibrations[case])


def test_a_stray_secret_in_the_keys_summary_is_not_printed(calibrations):
    facts = calibrations["calibration of one"]
    configuration = facts.key["configuration"] | {"seed": "STRAY"}
    leaky = {**facts.key, "trigger": "STRAY", "signature": "STRAY", "configuration": configuration}

    assert "STRAY" not in render_calibration(replace(facts, key=leaky))


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
            key={"marks": [text], "model_sha256": text, "configuration": {"pooling": text}},
            versions={"nsmark": text},
            command=text,
        )
    )

    assert set(parse(page).tags).isdisjoint({"script", "img", "b"})
    assert not {"\x00", "\x07", "\x1b", "\u202e", "\u2066", "\ufffe"} & set(page)
    assert "secret-" not in page
    assert len(page) < 200_000


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e300, None])
def test_values_that_cannot_be_drawn_do_not_break_the_page(calibrations, value):
    statistics = Statistics(**dict.fromkeys(STATISTIC_NAMES, value))
    odd = Control("odd", statistics, 32, statistics)
    facts = calibrations["calibration without thefts"]

    parse(render_calibration(replace(facts, controls=[*facts.controls, odd])))


def test_page_of_almost_nothing():
    empty = Calibration((), 1, 1, None, 0.95, 0, 0.95)
    control = Control("only", Statistics())
    text = parse(
        render_calibration(CalibrationFacts(owner="", calibration=empty, controls=[control]))
    ).text

    assert "Nothing was measured that could be drawn" in text


def test_many_models_make_no_megabytes(calibrations):
    facts = calibrations["calibration"]
    many = [replace(c, name=f"{c.name} {i}") for i in range(20) for c in facts.controls]
    page = render_calibration(replace(facts, controls=many, calibration=calibrate(many[:40])))

    assert len(page) < 400_000
    assert "more" in parse(page).text


def test_line_falls_where_kin_are_far_from_accused(calibrations):
    facts = calibrations["calibration"]
    lines = thresholds_by_baseline(facts.controls, facts.calibration)

    assert set(lines) == {witness.name for witness in STATISTICS[1:]}
    for name, line in lines.items():
        assert [kin for kin, _ in line] == sorted(kin for kin, _ in line)
        closest = facts.calibration.threshold(name).closest_control
        assert all(threshold > closest for _, threshold in line)
        assert line[-1][1] < line[0][1]  # innocents scatter less among kin than among strangers


def test_marks_stand_where_their_values_belong():
    plot = kinship_plot(
        Kinship(
            name="k",
            title="t",
            description="d",
            closeness=STATISTICS[1].closeness,
            innocents=[("low", 0.9, 0.3)],
            found=[("high", 0.9, 0.95)],
            missed=[],
            line=[(0.02, 0.8), (0.99, 0.8)],
        )
    )
    low, high = re.findall(r"without</title><path d=\"M([\d.]+) ([\d.]+)", plot)

    assert abs(float(low[0]) - float(high[0])) < 1  # the same kinship, marks of another size
    assert float(high[1]) < float(low[1])


def test_roc_goes_from_corner_to_corner():
    plot = roc_plot("r", "t", "d", ((0.0, 0.0), (0.0, 1.0), (1.0, 1.0)))

    assert 'd="M40 200L40 28L362 28"' in plot


@pytest.mark.parametrize("line", [None, 0.5])
def test_margin_of_any_values(line):
    plot = margin_plot(
        Margin(
            name="m",
            title="t",
            description="d",
            closeness=STATISTICS[1].closeness,
            ticks=(0.0, 0.5),
            bounds=None,
            innocents=[("one", -50.0)],
            thefts=[("two", 1.0)],
            line=line,
        )
    )

    assert plot.count("<title>") == 2
    assert ("line 0.500" in plot) == (line is not None)
