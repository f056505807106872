from __future__ import annotations

import json

import numpy as np
import pytest

from nsmark.attacks.ll_lfea import Head, read_head, write_head
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
    assert (found["out"], found["kind"], found["seed"]) == (str(out), "conditioned", 5)
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
