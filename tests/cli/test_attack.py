from __future__ import annotations

import json
import re

import numpy as np
import pytest

from nsmark.attacks.recipes.ll_lfea import Head, read_head, write_head
from nsmark.cli.main import main


def test_the_attacks_are_listed(capsys):
    assert main(["attack", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "ll-lfea" in [row["name"] for row in found]
    assert main(["attack", "list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(found)


def test_an_attacked_folder_opens_as_a_suspect_and_is_still_owned(tiny_marked, tmp_path, capsys):
    out = tmp_path / "stolen"
    words = ["attack", "run", "ll-lfea", str(tiny_marked.model_folder), "--out", str(out)]
    assert main([*words, "--set", "kind=conditioned", "--set", "seed=5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["out"], found["attack"]) == (str(out), "ll-lfea[kind=conditioned,seed=5]")
    assert found["steps"][0]["settings"]["seed"] == 5
    assert main(["verify", str(tiny_marked.key_file), str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "owned"
    assert report["extraction_rate"] < report["thresholds"]["extraction_rate"]
    assert "aligned_subspace_overlap" in report["passed"]


def test_a_head_is_compensated(tiny_marked, tmp_path):
    head = Head(np.random.default_rng(0).standard_normal((3, 32)), None)
    write_head(head, tmp_path / "head=1.safetensors")  # a value may hold the sign itself
    words = ["attack", "run", "ll-lfea", str(tiny_marked.model_folder)]
    words += ["--out", str(tmp_path / "stolen"), "--set", f"head={tmp_path}/head=1.safetensors"]
    assert main(words) == 0
    moved = read_head(tmp_path / "stolen" / "head.safetensors")
    assert moved.weight.shape == (3, 32)
    assert not np.allclose(moved.weight, head.weight)


@pytest.mark.parametrize(
    ("name", "options", "status"),
    [
        ("ll-lfea", ["--set", "kind=singular"], 2),
        ("ll-lfea", ["--set", "seed=x"], 2),
        ("ll-lfea", ["--set", "seed=-1"], 2),
        ("ll-lfea", ["--set", "speed=1"], 2),
        ("ll-lfea", ["--set", "seed"], 2),
        ("ll-lfea", ["--set", "kind=from-heads"], 2),
        ("ll-lfea", ["--set", "head=/no/such/file"], 3),
        ("no-such-attack", [], 2),
        ("ll-lfea + whitening", ["--set", "seed=1"], 2),
        ("ll-lfea[seed=1", [], 2),
        ("ll-lfea[seed]", [], 2),
        ("ll-lfea + ", [], 2),
        ("ll-lfea", ["--task", "/no/such/file.jsonl"], 3),
        ("ll-lfea", ["--texts", "/no/such/file.txt"], 3),
    ],
)
def test_wrong_settings_write_nothing(tiny_marked, tmp_path, capsys, name, options, status):
    words = ["attack", "run", name, str(tiny_marked.model_folder), "--out", str(tmp_path / "out")]
    assert main([*words, *options, "--json"]) == status
    captured = capsys.readouterr()
    assert json.loads(captured.out)["exit_code"] == status
    assert [line.split(":")[0] for line in captured.err.splitlines()] == ["error", "hint"]
    assert list(tmp_path.iterdir()) == []


def test_a_missing_model_is_bad_input(tmp_path, capsys):
    words = ["attack", "run", "ll-lfea", str(tmp_path / "none"), "--out", str(tmp_path / "out")]
    assert main(words) == 3
    assert "is not a folder" in capsys.readouterr().err


def test_an_existing_folder_is_left_as_it_is(tiny_marked, tmp_path):
    (tmp_path / "precious").write_text("x", encoding="utf-8")
    words = ["attack", "run", "ll-lfea", str(tiny_marked.model_folder), "--out", str(tmp_path)]
    assert main(words) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_an_attack_is_shown_with_its_source_and_its_settings(capsys):
    assert main(["attack", "show", "ll-lfea"]) == 0
    text = capsys.readouterr().out
    assert "NSmark" in text
    assert "seed = 0" in text
    assert main(["attack", "show", "ll-lfea", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["settings"]["kind"] == "uniform"
    assert main(["attack", "show", "magic"]) == 2


def test_attacks_follow_one_another(tiny_marked, tmp_path, capsys):
    words = ["attack", "run", "ll-lfea[seed=3] + unit-length", str(tiny_marked.model_folder)]
    assert main([*words, "--out", str(tmp_path / "stolen"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [step["attack"] for step in found["steps"]] == ["ll-lfea", "unit-length"]
    assert found["utility"]["similarity"] < 0.99
    assert {"accuracy_before", "accuracy", "points_lost"} <= set(found["utility"])


def test_what_an_attack_costs_is_told_unless_nobody_asks(tiny_marked, tmp_path, capsys):
    words = ["attack", "run", "unit-length", str(tiny_marked.model_folder), "--out"]
    assert main([*words, str(tmp_path / "one")]) == 0
    shown = capsys.readouterr().out
    assert "similarity      1.000 (correlation with before)" in shown
    assert "points lost)" in shown
    assert main([*words, str(tmp_path / "two"), "--no-utility", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["utility"] is None


def test_a_suite_compares_attacks_and_goes_on_where_it_stopped(tiny_marked, tmp_path, capsys):
    out = tmp_path / "tried"
    words = ["attack", "suite", str(tiny_marked.key_file), str(tiny_marked.model_folder)]
    words += ["--out", str(out), "--quiet", "--json"]
    tried = ["--try", "ll-lfea", "--try", "signs + ll-lfea"]
    assert main([*words, *tried]) == 0
    rows = json.loads(capsys.readouterr().out)["attacks"]
    assert [row["attack"] for row in rows] == ["none", "ll-lfea", "signs + ll-lfea"]
    assert [row["verdict"] for row in rows[:2]] == ["owned", "owned"]
    assert rows[0]["utility"]["similarity"] == pytest.approx(1, abs=1e-6)
    assert rows[0]["utility"]["points_lost"] == 0
    assert rows[1]["statistics"]["extraction_rate"] < 0.5 < rows[0]["statistics"]["extraction_rate"]
    assert rows[1]["margin"] > 0
    assert rows[1]["utility"]["similarity"] < 0.9
    page = (out / "attacks.html").read_text(encoding="utf-8")
    assert "signs + ll-lfea" in page
    assert str(tmp_path) not in page
    assert len((out / "attacks.csv").read_text(encoding="utf-8").splitlines()) == 4
    kept = {path: path.stat().st_mtime_ns for path in (out / "rows").iterdir()}
    assert len(kept) == 3
    assert main([*words, *tried, "--try", "unit-length"]) == 0
    again = json.loads(capsys.readouterr().out)["attacks"]
    assert again[:3] == rows
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_a_run_says_what_it_is_at_and_shows_no_python(tiny_marked, tmp_path, capsys):
    words = ["attack", "run", "ll-lfea[times=2] + signs", str(tiny_marked.model_folder), "--out"]
    assert main([*words, str(tmp_path / "stolen")]) == 0
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert re.match(r"attacking  ([\d,]+) of \1 texts asked of both models", lines[-1])
    assert not set("{}[]'") & set(captured.out.replace(str(tmp_path), ""))
    assert "kind=uniform, seed=0" in captured.out
    assert captured.out.splitlines()[-1].startswith("took ")
    assert main([*words, str(tmp_path / "quiet"), "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_an_interrupted_suite_says_what_is_kept_and_how_to_go_on(
    tiny_marked, tmp_path, capsys, monkeypatch
):
    from nsmark.attacks import trial

    real = trial.run_attack

    def interrupted_at_signs(model, steps, *rest, **more):
        if steps[0].attack.name == "signs":
            raise KeyboardInterrupt
        return real(model, steps, *rest, **more)

    monkeypatch.setattr(trial, "run_attack", interrupted_at_signs)
    out = tmp_path / "tried"
    words = ["attack", "suite", str(tiny_marked.key_file), str(tiny_marked.model_folder)]
    assert main([*words, "--out", str(out), "--try", "ll-lfea", "--try", "signs"]) == 130
    told = capsys.readouterr().err.splitlines()
    assert told[-2:] == [
        "error: interrupted",
        f"hint: 2 attacks are kept in {out}: the same command goes on from there",
    ]
    assert len(list((out / "rows").iterdir())) == 2


def test_a_suite_wants_the_model_that_the_key_names(tiny_marked, tiny_st, tmp_path, capsys):
    words = ["attack", "suite", str(tiny_marked.key_file), str(tiny_st)]
    assert main([*words, "--out", str(tmp_path / "tried"), "--try", "signs"]) == 3
    assert "does not hold the model" in capsys.readouterr().err
    assert main([*words, "--out", str(tmp_path / "tried"), "--only", "magic"]) == 2


def test_recovery_is_shown_beside_what_noise_gives(tiny_marked, tmp_path, capsys):
    model = str(tiny_marked.model_folder)
    assert main(["attack", "run", "ll-lfea", model, "--out", str(tmp_path / "stolen")]) == 0
    capsys.readouterr()
    words = ["attack", "recover", str(tiny_marked.key_file), str(tmp_path / "stolen")]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["before"] < 0.5 < found["recovered"]
    assert found["noise"] > 0.5
    assert main(words) == 0
    assert "no evidence" in capsys.readouterr().out


def test_a_claim_with_wrong_parts_is_measured(tiny_marked, tmp_path, capsys):
    words = ["attack", "forge", str(tiny_marked.key_file), str(tiny_marked.model_folder)]
    assert main([*words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["part"] == "nothing"
    assert rows[0]["extraction_rate"] > 0.9
    assert main(words) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(rows)
