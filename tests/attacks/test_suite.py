"""All attacks on one marked model."""

from __future__ import annotations

import json

import pytest

from attack_runs import small_material
from nsmark.attacks.plan import COMBINATIONS, UNTOUCHED, names_in, suite_plan
from nsmark.attacks.registry import ATTACKS
from nsmark.attacks.suite import run_suite
from nsmark.errors import UsageError


def without_times(row: dict) -> dict:
    steps = [{k: v for k, v in step.items() if k != "seconds"} for step in row.get("steps", [])]
    kept = {k: v for k, v in row.items() if not k.startswith("seconds")}
    return kept | {"steps": steps}


def test_the_plan_tries_every_attack_and_combination():
    plan = suite_plan()
    assert plan[0] == UNTOUCHED
    assert len(plan) == len(set(plan))
    assert {name for each in plan[1:] for name in names_in(each)} == {a.name for a in ATTACKS}
    assert sum(len(names_in(each)) > 1 for each in plan) == len(COMBINATIONS)


def test_a_part_of_the_plan_can_be_asked_for():
    plan = suite_plan(["whitening"])
    assert plan[0] == UNTOUCHED
    assert len(plan) > 2
    assert all("whitening" in names_in(each) for each in plan[1:])
    with pytest.raises(UsageError):
        suite_plan(["magic"])


def test_several_at_a_time_find_the_same(tiny_marked, tmp_path):
    plan = [UNTOUCHED, "ll-lfea", "signs", "output-noise"]
    material = small_material()
    key, model = tiny_marked.key, tiny_marked.model_folder
    one = run_suite(key, model, tmp_path / "one", material, plan)
    told = []
    two = run_suite(
        key, model, tmp_path / "two", material, plan, jobs=2, on_trial=lambda *a: told.append(a)
    )
    assert [row["attack"] for row in two] == plan
    for first, second in zip(one, two, strict=True):
        found, expected = without_times(second), without_times(first)
        assert found["statistics"] == pytest.approx(expected["statistics"], abs=1e-4)
        assert found["verdict"] == expected["verdict"]
    assert [done for done, _, _ in told] == [1, 2, 3, 4]
    assert {name for _, _, name in told} == set(plan)


def test_what_is_damaged_or_failed_is_tried_again_and_nothing_else(tiny_marked, tmp_path):
    plan = [UNTOUCHED, "signs", "ll-lfea[kind=from-heads,head=no,other_head=none]"]
    material, told = small_material(), []
    arguments = (tiny_marked.key, tiny_marked.model_folder, tmp_path, material, plan)
    rows = run_suite(*arguments)
    assert [row["error"] is None for row in rows] == [True, True, False]
    assert rows[2]["hint"]
    damaged = tmp_path / "rows" / f"{rows[1]['digest']}.json"
    damaged.write_text('{"attack": "signs", "verd', encoding="utf-8")
    again = run_suite(*arguments, on_trial=lambda done, total, name: told.append(name))
    assert told == plan[1:]
    assert again[0] == rows[0]
    assert without_times(again[1]) == without_times(rows[1])
    assert json.loads(damaged.read_text(encoding="utf-8")) == again[1]


def test_another_key_or_task_is_another_trial(tiny_marked, tmp_path):
    arguments = (tiny_marked.key, tiny_marked.model_folder, tmp_path)
    material = small_material()
    first = run_suite(*arguments, material, [UNTOUCHED])
    other = small_material(texts=material.texts[:200])
    second = run_suite(*arguments, other, [UNTOUCHED])
    assert first[0]["digest"] != second[0]["digest"]
    assert len(list((tmp_path / "rows").iterdir())) == 2


@pytest.mark.slow
def test_every_attack_of_the_plan_runs_on_a_tiny_model(tiny_marked, tmp_path):
    rows = run_suite(
        tiny_marked.key, tiny_marked.model_folder, tmp_path, small_material(), suite_plan()
    )
    failed = {row["attack"]: row["error"] for row in rows if row["error"] is not None}
    # The tiny model has two layers, and learns a mark only with settings of its own.
    expected = {each for each in suite_plan() if "overwriting" in names_in(each)}
    assert set(failed) <= expected | {"layer-dropping[layers=2]"}
    verdicts = {row["attack"]: row.get("verdict") for row in rows}
    for name in (UNTOUCHED, "ll-lfea", "ll-lfea[times=3]", "affine", "whitening", "unit-length"):
        assert verdicts[name] == "owned", name
