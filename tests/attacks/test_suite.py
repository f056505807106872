"""All attacks on one marked model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from attack_runs import small_material
from nsmark.attacks.catalogue import ATTACKS
from nsmark.attacks.plan import COMBINATIONS, UNTOUCHED, effort, names_in, suite_plan
from nsmark.attacks.suite import run_suite, run_suites
from nsmark.attacks.trial import Row
from nsmark.errors import KeyFileError, UsageError


def without_times(row: Row) -> dict:
    steps = [{k: v for k, v in step.items() if k != "seconds"} for step in row.steps]
    kept = {k: v for k, v in row.to_mapping().items() if not k.startswith("seconds")}
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


def test_several_at_a_time_find_the_same_for_each_of_several_tasks(tiny_marked, tmp_path):
    material = small_material()
    task = replace(material.task, name="half", train_texts=material.task.train_texts[:90])
    task = replace(task, train_labels=task.train_labels[:90])
    parts = {
        "whole": (material, [UNTOUCHED, "signs", "output-noise"]),
        "half": (replace(material, task=task), [UNTOUCHED]),
    }
    told = []
    key, model = tiny_marked.key, tiny_marked.model_folder
    one, two = (
        run_suites(
            key, model, tmp_path / str(jobs), parts, jobs=jobs, on_trial=lambda *a: told.append(a)
        )
        for jobs in (1, 2)
    )
    for name, (_, plan) in parts.items():
        assert [row.attack for row in two[name]] == plan
        for first, second in zip(one[name], two[name], strict=True):
            assert second.statistics == pytest.approx(first.statistics, abs=1e-4)
            assert second.verdict == first.verdict
            assert second.digest == first.digest
    assert two["whole"][0].digest != two["half"][0].digest
    assert [done for done, _, _ in told] == 2 * [1, 2, 3, 4]
    assert {name for _, _, name in told} == {UNTOUCHED, "signs", "output-noise"}


def test_what_is_damaged_or_failed_is_tried_again_and_nothing_else(tiny_marked, tmp_path):
    plan = [UNTOUCHED, "signs", "ll-lfea[kind=from-heads,head=no,other_head=none]"]
    material, told = small_material(), []
    arguments = (tiny_marked.key, tiny_marked.model_folder, tmp_path, material, plan)
    rows = run_suite(*arguments)
    assert [row.error is None for row in rows] == [True, True, False]
    assert rows[2].hint
    damaged = tmp_path / "rows" / f"{rows[1].digest}.json"
    damaged.write_text('{"attack": "signs", "verd', encoding="utf-8")
    again = run_suite(*arguments, on_trial=lambda done, total, name: told.append(name))
    assert told == plan[1:]
    assert again[0] == rows[0]
    assert without_times(again[1]) == without_times(rows[1])
    assert json.loads(damaged.read_text(encoding="utf-8")) == again[1].to_mapping()


def test_another_key_or_task_is_another_trial(tiny_marked, tmp_path):
    arguments = (tiny_marked.key, tiny_marked.model_folder, tmp_path)
    material = small_material()
    first = run_suite(*arguments, material, [UNTOUCHED])
    other = small_material(texts=material.texts[:200])
    second = run_suite(*arguments, other, [UNTOUCHED])
    assert first[0].digest != second[0].digest
    assert len(list((tmp_path / "rows").iterdir())) == 2


def test_settings_labels_and_meaning_of_a_trial_are_in_its_name(tiny_marked, monkeypatch):
    from nsmark.attacks import trial

    def digest(material) -> str:
        shop = trial.Workshop(tiny_marked.key, tiny_marked.model_folder, material, "00")
        return shop.digest("output-noise")

    material = small_material()
    task = material.task
    labels = [1 - label if label < 2 else label for label in task.train_labels]
    other = replace(material, task=replace(task, train_labels=labels))
    first = digest(material)
    assert first == digest(material)
    assert first != digest(other)
    monkeypatch.setattr(trial, "_ROW_FORMAT", 99)
    assert first != digest(material)


def test_an_attack_that_crashes_is_a_row_and_the_others_go_on(tiny_marked, tmp_path, monkeypatch):
    from nsmark.attacks import trial

    real = trial.run_attack

    def run_attack(model, steps, *rest, **more):
        if steps[0].attack.name == "signs":
            raise ZeroDivisionError("no bits\nleft")
        return real(model, steps, *rest, **more)

    monkeypatch.setattr(trial, "run_attack", run_attack)
    plan = ["signs", "ll-lfea"]
    rows = run_suite(tiny_marked.key, tiny_marked.model_folder, tmp_path, small_material(), plan)
    assert rows[0].error == "ZeroDivisionError: no bits left"
    assert rows[1].error is None


def test_a_killed_process_costs_its_own_trial_only(tiny_marked, tmp_path):
    """A recipe that kills its process: what is left is tried again, then told as a row."""
    script = tmp_path / "killing.py"
    script.write_text(KILLING, encoding="utf-8")
    words = [sys.executable, str(script), str(tiny_marked.key_file), str(tiny_marked.model_folder)]
    done = subprocess.run(
        [*words, str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": f"{Path(__file__).parents[1]}"},
    )
    rows = json.loads(done.stdout)
    assert rows["signs"] == "a process was killed while it ran"
    assert rows["ll-lfea"] is None


KILLING = """
import json, os, sys
from pathlib import Path
from attack_runs import small_material
from nsmark.attacks import suite, trial
from nsmark.keyfile import read_key

real = trial.run_attack

def run_attack(model, steps, *rest, **more):
    if steps[0].attack.name == "signs":
        os._exit(9)
    return real(model, steps, *rest, **more)

suite._POOLS = 2
trial.run_attack = run_attack  # also in the processes, which import this file

if __name__ == "__main__":
    key, model, out = map(Path, sys.argv[1:])
    plan = ["ll-lfea", "signs"]
    rows = suite.run_suite(read_key(key), model, out, small_material(), plan, jobs=2)
    print(json.dumps({row.attack: row.error for row in rows}))
"""


def test_an_innocent_model_is_attacked_only_where_one_is_meant(tiny_marked, tiny_st, tmp_path):
    key, parts = tiny_marked.key, {"": (small_material(), [UNTOUCHED])}
    with pytest.raises(KeyFileError, match="does not hold"):
        run_suites(key, tiny_st, tmp_path, parts)
    with pytest.raises(KeyFileError, match="marked model"):
        run_suites(key, tiny_marked.model_folder, tmp_path, parts, is_innocent=True)
    (row,) = run_suites(key, tiny_st, tmp_path, parts, is_innocent=True)[""]
    assert row.verdict != "owned"


def test_trials_with_the_unmarked_model_are_there_where_it_is_at_hand(tiny_marked, tiny_st):
    with_it = set(suite_plan(with_reference=True)) - set(suite_plan())
    assert {names_in(each)[0] for each in with_it} == {
        "distillation",
        "paraphrasing",
        "cluster-elimination",
    }
    material = small_material()
    with pytest.raises(UsageError, match="no unmarked model"):
        material.folder("reference")
    assert replace(material, reference=tiny_st).folder("reference") == tiny_st
    assert material.folder("some/where") == Path("some/where")


def test_what_takes_long_is_known():
    assert [effort(each) for each in (UNTOUCHED, "signs", "fine-tuning + signs")] == [0, 0, 1]


def test_every_attack_of_the_plan_runs_on_a_tiny_model(tiny_marked, tmp_path):
    key, model = tiny_marked.key, tiny_marked.model_folder
    rows = run_suite(key, model, tmp_path, small_material(), suite_plan(), jobs=2)
    failed = {row.attack: row.error for row in rows if row.error is not None}
    # The tiny model has two layers, and learns a mark only with settings of its own.
    expected = {each for each in suite_plan() if "overwriting" in names_in(each)}
    # Packages that are nobody's duty to install.
    absent = [name for name in ("torchao", "bitsandbytes") if find_spec(name) is None]
    expected |= {each for each in suite_plan() if any(name in each for name in absent)}
    assert set(failed) <= expected | {"layer-dropping[layers=2]"}
    verdicts = {row.attack: row.verdict for row in rows}
    for name in (UNTOUCHED, "ll-lfea", "ll-lfea[times=3]", "affine", "whitening", "unit-length"):
        assert verdicts[name] == "owned", name
