"""The script and the page about attacks."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_the_whole_runs_on_a_tiny_model(tiny_marked, tiny_st, tmp_path):
    out = tmp_path / "out.json"
    words = ["--key", tiny_marked.key_file, "--marked", tiny_marked.model_folder]
    words += ["--reference", tiny_st, "--texts", "300", "--task-texts", "200"]
    words += ["--only", "ll-lfea", "--device", "cpu", "--json", out, "--work", tmp_path / "work"]
    script = [sys.executable, str(FOLDER / "attacks.py"), *map(str, words)]
    subprocess.run(script, check=True, timeout=900)
    document = json.loads(out.read_text(encoding="utf-8"))
    rows = document["suites"]["topics"]
    assert rows[0]["verdict"] == "owned"
    assert {row["how"] for row in document["recovery"]} == {"as it is", "after ll-lfea"}
    page = runpy.run_path(str(FOLDER / "attacks_table" / "page.py"))["markdown"](document)
    assert "Ownership is shown after" in page
    assert "| none | owned |" in page
    assert "| marked | nothing | 1 |" in page
    assert "Measured elsewhere" not in page
    # What could not be run there is tried here, and nothing else.
    measured = rows[1]
    rows[1] = {"attack": measured["attack"], "digest": measured["digest"], "error": "no package"}
    rows[2] = {**rows[2], "seconds": 12345.0}
    out.write_text(json.dumps(document), encoding="utf-8")
    subprocess.run([*script, "--mend", "--markdown", str(tmp_path / "page.md")], check=True)
    mended = json.loads(out.read_text(encoding="utf-8"))
    assert mended["suites"]["topics"][1]["verdict"] == measured["verdict"]
    assert mended["suites"]["topics"][2]["seconds"] == 12345.0
    assert [each["attacks"] for each in mended["elsewhere"]] == [[measured["attack"]]]
    told = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "Measured elsewhere, with python" in told


def row(attack: str, verdict: str = "owned", **changes) -> dict:
    utility = {"similarity": 0.9, "accuracy_before": 0.8, "accuracy": 0.78, "points_lost": 2.0}
    statistics = {"extraction_rate": 0.5, "pair_code_rate": 0.99, "pair_code_p_value": 1e-30}
    usual = {"margin": -1.0, "passed": ["pair_code"], "utility": utility, "error": None}
    return {"attack": attack, "verdict": verdict, "statistics": statistics, **usual, **changes}


@pytest.fixture(scope="module")
def page():
    return runpy.run_path(str(FOLDER / "attacks_table" / "page.py"))


def test_pruning_is_told_by_where_and_how_much(page):
    rows = [row("pruning[share=0.9,scope=global]", "not_shown"), row("pruning"), row("signs")]
    rows += [row("pruning[share=0.2]"), row("pruning + signs"), row("pruning", error="no")]
    body = page["pruning_table"](rows).splitlines()[2:]
    assert [line.split("|")[1:4] for line in body] == [
        [" global ", " 0.9 ", " not shown "],
        [" layer ", " 0.2 ", " owned "],
        [" layer ", " 0.3 ", " owned "],
    ]


def scored(attack: str, accuracy: float, verdict: str = "owned") -> dict:
    utility = {"similarity": 0.5, "accuracy": accuracy, "points_lost": 80 - 100 * accuracy}
    return row(attack, verdict, utility=utility)


def test_pruning_is_held_against_what_it_costs_a_thief_who_trains(page):
    def suite(*tuned: float) -> list[dict]:
        rows = [scored("fine-tuning[epochs=3.0]", 0.9)]
        for share, accuracy in zip((0.5, 0.8, 0.9), tuned, strict=True):
            verdict = "not_shown" if share == 0.9 else "owned"
            rows.append(scored(f"pruning[share={share}] + fine-tuning[epochs=3.0]", accuracy))
            rows.append(scored(f"pruning[share={share}]", 0.79, verdict))
        return rows

    suites = {"a": suite(0.9, 0.84, 0.88), "b": suite(0.89, 0.88, 0.87), "c": suite(0.5, 0.9, 0.9)}
    told = "\n".join(page["pruning_by_task"](suites))
    assert "| 0.8 | 3 of 3 | 1 | 1 | 1 |" in told  # pruned alone
    assert "| 0.8 | 3 of 3 | 6 | 2 | 0 |" in told  # against the whole model, tuned
    assert "- a: at most 5 points lost up to 50%, shown\n" in told
    assert "- b: at most 5 points lost up to 90%, shown, but not after 90%\n" in told
    assert told.endswith("- c: more than 5 points lost at once")
    assert page["pruning_by_task"]({"a": [scored("pruning", 0.7)]}) == []
    without = [each for each in suites["a"] if not each["attack"].startswith("fine-tuning")]
    told = "\n".join(page["pruning_by_task"]({"a": without}))
    assert "| 0.8 | 1 of 1 | – |" in told
    assert told.endswith("- a: the whole model was not tuned so")
    # Asked for what is tuned alone, or where a trial failed, the page is made all the same.
    tuned = [each for each in suites["b"] if "fine-tuning" in each["attack"]]
    told = "\n".join(page["pruning_by_task"]({"b": tuned}))
    assert told.endswith("- b: at most 5 points lost up to 90%, shown")


def test_a_picture_stands_beside_the_page(page, tmp_path):
    suite = [row("none"), row("pruning[share=0.9]", "not_shown"), row("signs", error="no")]
    document = {"main_task": "t", "suites": {"t": suite}, "environment": {}, "command": "python"}
    document |= {"recovery": [], "wrong_keys": []}
    page["write_page"](document, tmp_path / "attacks.md")
    drawn = ElementTree.parse(tmp_path / "attacks.svg").getroot()  # noqa: S314 - our own
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    assert "2 attacks; ownership is shown after 1" in "".join(drawn.itertext())
    assert "](attacks.svg)" in (tmp_path / "attacks.md").read_text(encoding="utf-8")


def test_without_a_pair_code_there_is_no_picture(page, tmp_path):
    suite = [row("none", statistics={"extraction_rate": 1.0, "pair_code_p_value": None})]
    document = {"main_task": "t", "suites": {"t": suite}, "environment": {}, "command": "python"}
    page["write_page"](document | {"recovery": [], "wrong_keys": []}, tmp_path / "attacks.md")
    assert [path.name for path in tmp_path.iterdir()] == ["attacks.md"]


def test_both_owners_are_told_of_and_who_is_accused_wrongly(page):
    other = {
        "attack": "overwriting",
        "verdict": "owned",
        "statistics": {"extraction_rate": 1.0},
        "verdict_on_the_stolen_model": "not_shown",
    }
    suites = {"sst2": [row("overwriting", other_owners=[other]), row("signs")]}
    assert "| sst2 | overwriting | owned | owned | 1 | not shown |" in page["owners_table"](suites)
    told = page["innocent_section"]([row("none", "not_shown"), row("signs", "owned")])
    assert told[0].startswith("1 of 2 are accused")
    assert "`signs`" in told[1]
    assert page["innocent_section"]([]) == ["Not measured yet."]


def test_what_is_tried_on_every_task_is_tried_on_the_first_too():
    code = "import attacks; print(*map(len, attacks.plans(['a', 'b'], []).values()))"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=FOLDER, capture_output=True, text=True, check=True)
    first, second = map(int, done.stdout.split())
    assert first > 100
    assert second == 18
