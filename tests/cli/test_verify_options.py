"""`nsmark verify`: the page, kept answers, fresh texts and rules, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nsmark.cli.main import main

RANDOM = "00112233445566778899aabbccddeeff"


def verify(capsys, *words: str | Path | float) -> tuple[int, dict, str]:
    status = main(["verify", *map(str, words), "--device", "cpu", "--json"])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return status, json.loads(captured.out), captured.err


def test_the_page_tells_the_verdict_and_no_secret(tiny_marked, tmp_path, capsys):
    page = tmp_path / "report.html"
    status, report, _ = verify(
        capsys, tiny_marked.key_file, tiny_marked.model_folder, "--report", page
    )
    assert (status, report["verdict"]) == (0, "owned")
    text = page.read_text(encoding="utf-8")
    assert "carry the watermark of" in text
    assert report["key_id"] in text
    key = tiny_marked.key
    for secret in (key.trigger, key.signature.hex(), key.verification_texts[0]):
        assert secret not in text


def test_a_page_is_also_written_when_nothing_could_be_measured(tiny_marked, tmp_path, capsys):
    import numpy as np

    np.savez(tmp_path / "few.npz", triggered=np.ones((3, 4)), untriggered=np.ones((3, 4)))
    page = tmp_path / "report.html"
    status, report, err = verify(
        capsys, tiny_marked.key_file, tmp_path / "few.npz", "--report", page
    )
    assert (status, report["verdict"]) == (3, "could_not_measure")
    assert "error:" in err
    assert "could not be measured" in page.read_text(encoding="utf-8").lower()


@pytest.mark.parametrize("option", ["--report", "--record"])
def test_nothing_is_overwritten(tiny_marked, tmp_path, capsys, option):
    precious = tmp_path / "precious"
    precious.write_text("mine", encoding="utf-8")
    status = main(
        ["verify", str(tiny_marked.key_file), str(tiny_marked.model_folder), option, str(precious)]
    )
    assert status == 3
    assert "exists" in capsys.readouterr().err
    assert precious.read_text(encoding="utf-8") == "mine"


def test_kept_answers_verify_to_the_same(tiny_marked, tmp_path, capsys):
    kept = tmp_path / "answers.safetensors"
    _, direct, _ = verify(capsys, tiny_marked.key_file, tiny_marked.model_folder, "--record", kept)
    _, again, _ = verify(capsys, tiny_marked.key_file, f"recorded:{kept}")
    for name in ("verdict", "extraction_rate", "invariant_matching_degree", "predictability"):
        assert again[name] == direct[name]


def test_fresh_texts_need_the_owners_model(tiny_marked, tiny_st, capsys):
    words = (tiny_marked.key_file, tiny_marked.model_folder)
    status, report, _ = verify(
        capsys, *words, "--owner-model", tiny_marked.model_folder, "--fresh", RANDOM
    )
    assert (status, report["verdict"], report["fresh"]) == (0, "owned", RANDOM)
    for wrong, code in (
        (["--fresh", RANDOM], 2),
        (["--owner-model", tiny_marked.model_folder], 2),
        (["--owner-model", tiny_marked.model_folder, "--fresh", "xyz"], 2),
        (["--owner-model", tiny_marked.model_folder, "--fresh", "00"], 2),
        (["--owner-model", tiny_st, "--fresh", RANDOM], 3),
    ):
        assert main(["verify", *map(str, (*words, *wrong)), "--device", "cpu"]) == code
        err = capsys.readouterr().err
        assert "hint:" in err
        assert "Traceback" not in err


def test_both_rules_are_there_and_the_rate_is_asked_for(tiny_marked, capsys):
    words = (tiny_marked.key_file, tiny_marked.model_folder)
    for rule, names in (
        ("paper", {"min_extraction_rate", "max_matching_degree"}),
        ("calibrated", {"extraction_rate", "predictability", "false_accusation_bound"}),
    ):
        status, report, _ = verify(capsys, *words, "--rule", rule)
        assert (status, report["rule"]) == (0, rule)
        assert names <= set(report["thresholds"])
        assert report["passed"]
    assert main(["verify", *map(str, words), "--rate", "0.9"]) == 2
