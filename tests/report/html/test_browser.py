"""The page as a reader sees it: in a browser without a network, on a phone, on paper."""

import re

import pytest

from nsmark.verification import STATISTIC_NAMES
from offline_browser import PHONE, WIDE, chromium, offline_pages, require_chromium, sizes

require_chromium()


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def opened(browser, pages, tmp_path):
    """Open the page of a report."""
    with offline_pages(browser) as open_file:

        def open_page(case, width=WIDE, **options):
            path = tmp_path / "page.html"
            path.write_text(pages[case], encoding="utf-8")
            return open_file(path, width, **options)

        yield open_page


@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_reader_sees_verdict_plots_and_table(opened, reports, width):
    page = opened("calibrated", width)

    verdict = page.locator("#verdict")
    assert verdict.is_visible()
    assert verdict.inner_text().endswith("carry the watermark of Example Lab.")
    charts = page.locator("svg.chart")
    assert charts.count() == len(reports["calibrated"].calibration.thresholds) + 4
    assert all(charts.nth(i).bounding_box()["height"] > 80 for i in range(charts.count()))
    rows = page.locator("tbody tr")
    # This key has no pair code; beside the statistics, what is read at the owner's size.
    assert rows.count() == len(STATISTIC_NAMES) - 3 + 1
    assert all(rows.nth(i).is_visible() for i in range(rows.count()))
    assert sizes(page)[0] == width  # nothing sticks out
    shot = page.screenshot(full_page=True)
    assert shot.startswith(b"\x89PNG")
    assert len(shot) > 50_000


DRAWN = ("calibrated", "paper", "pairs shown", "pairs subset", "calibration",
         "calibration of few", "calibration of one")  # fmt: skip
OTHERS = ("innocent", "constant", "independent", "other dimension", "pairs", "pairs innocent",
          "calibration without thefts")  # fmt: skip


@pytest.mark.parametrize(
    ("case", "width"),
    [*((case, WIDE) for case in DRAWN), *((case, PHONE) for case in (*DRAWN, *OTHERS))],
)
def test_page_fits_and_labels_in_plots_do_not_touch_and_stay_inside(opened, case, width):
    page = opened(case, width)
    assert page.locator("#verdict").is_visible()
    assert sizes(page)[0] == width
    trouble = page.evaluate(
        """() => [...document.querySelectorAll('svg.chart')].flatMap(chart => {
          const frame = chart.getBoundingClientRect();
          const texts = [...chart.querySelectorAll('text')].map(text =>
            [text.textContent, text.getBoundingClientRect()]);
          const out = texts.filter(([_, box]) =>
            box.left < frame.left - 2 || box.right > frame.right + 2).map(([text]) => [text]);
          // Line boxes are taller than letters: two pixels of them may overlap.
          texts.forEach(([one, a], i) => texts.slice(i + 1).forEach(([two, b]) => {
            const beside = a.right <= b.left || b.right <= a.left;
            const below = a.bottom <= b.top + 2 || b.bottom <= a.top + 2;
            if (!beside && !below) out.push([one, two]);
          }));
          return out;
        })"""
    )

    assert trouble == []


def test_reader_sees_the_pair_code_before_all_other_witnesses(opened):
    page = opened("pairs")
    block = page.locator(".leading")

    assert block.inner_text().count("at most once in 2×10²¹ tries") == 1
    grid, sides = (block.locator("svg.chart").nth(i).bounding_box() for i in range(2))
    assert min(grid["height"], sides["height"]) > 80
    assert grid["x"] + grid["width"] <= sides["x"]  # side by side
    others = page.get_by_text("No line was drawn: there were").bounding_box()
    assert block.bounding_box()["y"] + block.bounding_box()["height"] <= others["y"]


@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_reader_sees_what_was_calibrated(opened, calibrations, width):
    page = opened("calibration", width)
    facts = calibrations["calibration"]

    assert page.locator("#verdict").inner_text().endswith("with 95 % confidence.")
    charts = page.locator("svg.chart")
    assert charts.count() == 3 + 4 + 4  # kinship, margins, ROC
    assert all(charts.nth(i).bounding_box()["height"] > 80 for i in range(charts.count()))
    rows = page.locator("tbody tr")
    assert rows.count() == len(facts.calibration.thresholds) + 6 + len(facts.controls)
    assert all(rows.nth(i).is_visible() for i in range(rows.count()))
    assert sizes(page)[0] == width
    assert len(page.screenshot(full_page=True)) > 50_000


def test_dark_mode_changes_nothing(opened):
    light = opened("constant", color_scheme="light").screenshot(full_page=True)
    dark = opened("constant", color_scheme="dark").screenshot(full_page=True)

    assert light == dark


@pytest.mark.parametrize("case", ["calibrated", "pairs shown", "calibration"])
def test_small_print_has_enough_contrast(opened, case):
    page = opened(case)
    colours = page.evaluate(
        """() => [...new Set([...document.querySelectorAll('main *')]
          .filter(one => one.closest('svg') === null && one.innerText)
          .map(one => getComputedStyle(one).color))]"""
    )

    for colour in colours:
        channels = [int(n) / 255 for n in re.findall(r"\d+", colour)[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        assert 0.87 / (luminance + 0.05) > 4.5, colour  # on the darkest ground of the page


@pytest.mark.parametrize("case", ["calibrated", "pairs", "calibration"])
def test_print_is_a_document(opened, case):
    printed = opened(case).pdf(prefer_css_page_size=True)

    assert printed.startswith(b"%PDF")
    assert len(printed) > 30_000
    counts = [int(n) for n in re.findall(rb"/Type\s*/Pages\b[^>]*?/Count\s+(\d+)", printed)]
    assert 2 <= max(counts) <= 12
    width, height = map(
        float, re.search(rb"/MediaBox\s*\[0 0 ([\d.]+) ([\d.]+)\]", printed).groups()
    )
    assert (round(width), round(height)) == (595, 842)  # A4
