"""The rows of a suite, compared."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

from html_pages import parse
from nsmark.attacks.comparison import comparison_page, counted, csv_table, markdown_table
from nsmark.attacks.trial import Row
from nsmark.attacks.utility import Utility
from nsmark.report.html.svg.pareto import Point, best_for_the_thief, pareto_plot
from nsmark.verification.statistics import STATISTIC_NAMES


def row(attack: str, verdict: str, margin: float | None, similarity: float) -> Row:
    return Row(
        attack=attack,
        verdict=verdict,
        margin=margin,
        utility=Utility(similarity, accuracy_before=0.9, accuracy=0.8),
        statistics={"extraction_rate": 0.25, "predictability": None},
        seconds=1.5,
    )


ROWS = [
    row("none", "owned", 9.0, 1.0),
    row("ll-lfea", "owned", 8.0, 0.2),
    row("ll-lfea + <b>&", "not_shown", -0.5, 0.9),
    row("ll-lfea[times=2]", "could_not_measure", None, 0.9),
    Row(attack="ll-lfea[seed=4]", error="no weights", hint="give some"),
]


def test_a_table_for_spreadsheets_has_a_line_for_every_attack():
    lines = list(csv.DictReader(io.StringIO(csv_table(ROWS))))
    assert [line["attack"] for line in lines] == [each.attack for each in ROWS]
    assert lines[0]["extraction_rate"] == "0.25"
    assert lines[0]["predictability"] == ""
    assert lines[4]["error"] == "no weights"
    assert set(STATISTIC_NAMES) | {f"untriggered_{n}" for n in STATISTIC_NAMES} <= set(lines[0])
    shown = replace(
        row("signs", "owned", -1.0, 0.9),
        passed=["pair_code", "derived"],
        untriggered={"matching_degree": 7.5},
    )
    (line,) = csv.DictReader(io.StringIO(csv_table([shown])))
    assert line["shown_by"] == "pair_code derived"
    assert line["untriggered_matching_degree"] == "7.5"


def test_a_table_in_markdown_says_what_could_not_be_run():
    lines = markdown_table(ROWS).splitlines()
    assert len(lines) == 2 + len(ROWS)
    assert len({line.count("|") for line in lines}) == 1
    assert "not run: no weights" in lines[-1]
    assert "| not shown | – | -0.50 | 0.900 | 0.800 | 10.0 |" in lines[4]


def test_the_page_is_well_formed_and_escapes_what_it_is_given():
    page = comparison_page(ROWS, ["Attacked as <script>alert(1)</script>."])
    assert "<script>" not in page
    parse(page)
    assert "Ownership is shown after 1 of 3 attacks. 1 could not be run." in page
    assert "no weights" in page


def test_attacks_are_counted_by_what_they_cost_and_idle_ones_are_not():
    def costing(name: str, verdict: str, points: float, rate: float = 0.25) -> Row:
        return replace(
            row(name, verdict, 1.0, 1.0),
            utility=Utility(1.0, accuracy_before=0.5, accuracy=0.5 - points / 100),
            statistics={"extraction_rate": rate, "predictability": None},
        )

    rows = [
        costing("none", "owned", 0.0),
        costing("unit-length", "owned", 0.0),  # says what it said before
        costing("ll-lfea", "owned", 0.5, 0.0),
        costing("signs", "not_shown", 3.0, 0.0),
        costing("whitening", "owned", 30.0, 0.0),
        costing("affine", "owned", -2.0, 0.0),
    ]
    assert counted(rows) == (
        "Ownership is shown after 3 of 4 attacks: 2 of 2 that cost at most one point of accuracy, "
        "0 of 1 that cost one to five points of accuracy, 1 of 1 that cost more than five points "
        "of accuracy. Not counted, since they change nothing here: unit-length."
    )
    assert counted(rows[:1]) == "Ownership is shown after 0 of 0 attacks."


def test_tables_name_the_first_witness_and_count_the_rest():
    first, second = (row("signs", "owned", 1.0, 0.9) for _ in range(2))
    table = markdown_table(
        [
            replace(first, passed=["pair_code", "derived", "predictability"]),
            replace(second, passed=["x_y"]),
        ]
    )
    assert "| owned | pair code +2 | 1.00 |" in table
    assert "| owned | x y | 1.00 |" in table


def test_what_the_pair_code_shows_is_drawn_by_itself():
    rows = [
        replace(row("none", "owned", 9.0, 1.0), statistics={"pair_code_p_value": 1e-38}),
        replace(row("signs", "owned", -2.0, 0.9), statistics={"pair_code_p_value": 1e-20}),
    ]
    page = comparison_page(rows, [])
    parse(page)
    assert page.count("<figure") == 4
    assert "decades of p beyond its line" in page
    assert "decades of p" not in comparison_page(ROWS, [])


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


def test_a_row_is_stored_and_read_again_and_one_that_was_not_run_says_why_alone():
    for each in (*ROWS[:4], replace(ROWS[0], reasons=["because"], steps=[{"attack": "signs"}])):
        stored = json.dumps(each.to_mapping())
        assert json.dumps(Row.from_mapping(json.loads(stored)).to_mapping()) == stored
    assert ROWS[4].to_mapping() == {
        "attack": "ll-lfea[seed=4]",
        "digest": None,
        "error": "no weights",
        "hint": "give some",
    }
    # What earlier versions wrote has fewer names; what later ones add is left out.
    assert Row.from_mapping({"attack": "signs", "verdict": "owned", "new": 1}).passed == ()
