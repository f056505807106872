"""The comparison of attacks as a reader sees it."""

from __future__ import annotations

import pytest

from nsmark.attacks.comparison import comparison_page
from nsmark.attacks.trial import Row
from nsmark.attacks.utility import Utility
from offline_browser import PHONE, WIDE, chromium, offline_pages, require_chromium, sizes

require_chromium()

NAMES = ("none", "ll-lfea", "whitening", "fine-tuning + <b>whitening</b>", "pruning[share=0.5]")


def row(number: int, attack: str) -> Row:
    shown = number != 3
    return Row(
        attack=attack,
        verdict="owned" if shown else "not_shown",
        margin=3.0 - number if shown else -1.0,
        utility=Utility(1 - number / 10, accuracy_before=0.9, accuracy=0.9 - number / 50),
        passed=["aligned_subspace_overlap", "pair_code"] if shown else [],
        statistics={
            "extraction_rate": 0.25,
            "predictability": None,
            "pair_code_rate": 0.9,
            "pair_code_p_value": 10.0 ** (-30 + 5 * number),
        },
        seconds=1.5,
    )


@pytest.fixture
def opened(tmp_path):
    path = tmp_path / "attacks.html"
    rows = [row(number, name) for number, name in enumerate(NAMES)]
    rows.append(Row(attack="distillation", error="no texts", hint="give some"))
    path.write_text(comparison_page(rows, ["A model of the tests."]), encoding="utf-8")
    with chromium() as browser, offline_pages(browser) as open_file:
        yield lambda width, **options: open_file(path, width, **options)


@pytest.mark.parametrize("width", [WIDE, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_plots_and_rows_are_seen_and_nothing_sticks_out(opened, width, scheme):
    page = opened(width, color_scheme=scheme)
    assert "Ownership is shown after 3 of 4 attacks" in page.locator(".sentence").inner_text()
    charts = page.locator("svg")
    assert charts.count() == 4  # similarity and accuracy, for each of two kinds of evidence
    assert all(charts.nth(i).bounding_box()["height"] > 80 for i in range(charts.count()))
    told = page.locator("table").all_inner_texts()
    for name in NAMES:
        assert any(name in text for text in told), name
    assert "distillation" in page.locator("main").inner_text()  # what could not be run is said
    heads = page.locator("tbody th")
    # Not squeezed to a letter a line by what stands beside them.
    assert all(heads.nth(i).bounding_box()["height"] < 90 for i in range(heads.count()))
    assert page.locator("table b").count() == 0  # a name is text, whatever it looks like
    assert sizes(page)[0] == width


def test_it_prints(opened):
    page = opened(WIDE)
    assert page.pdf().startswith(b"%PDF")
