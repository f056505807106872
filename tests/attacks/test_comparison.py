"""The rows of a suite, compared."""

from __future__ import annotations

import csv
import io

from html_pages import parse
from nsmark.attacks.comparison import comparison_page, csv_table, markdown_table
from nsmark.report.html.svg.pareto import Point, best_for_the_thief, pareto_plot


def row(attack: str, verdict: str, margin: float | None, similarity: float) -> dict:
    return {
        "attack": attack,
        "verdict": verdict,
        "margin": margin,
        "utility": {
            "similarity": similarity,
            "accuracy_before": 0.9,
            "accuracy": 0.8,
            "points_lost": 10.0,
        },
        "statistics": {"extraction_rate": 0.25, "predictability": None},
        "seconds": 1.5,
        "error": None,
    }


ROWS = [
    row("none", "owned", 9.0, 1.0),
    row("ll-lfea", "owned", 8.0, 0.2),
    row("ll-lfea + <b>&", "not_shown", -0.5, 0.9),
    row("ll-lfea[times=2]", "could_not_measure", None, 0.9),
    {"attack": "ll-lfea[seed=4]", "error": "no weights", "hint": "give some"},
]


def test_a_table_for_spreadsheets_has_a_line_for_every_attack():
    lines = list(csv.DictReader(io.StringIO(csv_table(ROWS))))
    assert [line["attack"] for line in lines] == [each["attack"] for each in ROWS]
    assert lines[0]["extraction_rate"] == "0.25"
    assert lines[0]["predictability"] == ""
    assert lines[4]["error"] == "no weights"


def test_a_table_in_markdown_says_what_could_not_be_run():
    lines = markdown_table(ROWS).splitlines()
    assert len(lines) == 2 + len(ROWS)
    assert len({line.count("|") for line in lines}) == 1
    assert "not run: no weights" in lines[-1]
    assert "| not shown | -0.50 | 0.900 | 10.0 |" in lines[4]


def test_the_page_is_well_formed_and_escapes_what_it_is_given():
    page = comparison_page(ROWS, ["Attacked as <script>alert(1)</script>."])
    assert "<script>" not in page
    parse(page)
    assert "Ownership is shown after 2 of 4 attacks." in page
    assert "no weights" in page


def test_the_front_holds_what_nothing_else_beats():
    points = [
        Point("a", 0.0, 5.0, True),
        Point("b", 0.1, 6.0, True),
        Point("c", 0.2, 1.0, True),
        Point("d", 0.2, 2.0, True),
        Point("e", 0.9, -1.0, False),
    ]
    assert [point.name for point in best_for_the_thief(points)] == ["a", "c", "e"]
    picture = pareto_plot("p", points, "lost", "left", 0.5, 4.0)
    parse(picture)
    assert "least evidence is left by e" in picture
    parse(pareto_plot("p", [], "lost", "left", 0.5, 4.0))
