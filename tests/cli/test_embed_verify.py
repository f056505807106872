"""From an identity to a verdict, by the commands a user would type."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import make_identity
from nsmark.cli.main import main
from nsmark.demo.stranger import steal_key
from nsmark.identity import OwnershipClaim
from nsmark.keyfile import is_encrypted, read_key, write_key
from nsmark.models.folder import model_digest
from nsmark.suspects import save_recorded
from processes import running
from spec_names import OWN_STATISTICS, REPORT, STATISTICS
from tiny_models import build_sentence_transformer

TINY = ["--num-texts", "96", "--num-bits", "16", "--hidden-sizes", "48,32", "--device", "cpu"]


def verify(capsys, *words: str | Path) -> tuple[int, dict]:
    """Run ``nsmark verify … --json`` and return its status and its one document."""
    status = main(["verify", *map(str, words), "--json"])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return status, json.loads(captured.out)


# --- embed ---------------------------------------------------------------------------------------


def test_embed_prints_one_document_and_its_progress_elsewhere(embedded):
    assert embedded.status == 0, embedded.stderr
    found = json.loads(embedded.stdout)
    assert found["model"] == str(embedded.out / "model")
    assert found["watermarked"]["triggered"]["extraction_rate"] > 0.99
    assert found["watermarked"]["untriggered"]["extraction_rate"] < 0.2
    assert found["reference"]["triggered"]["extraction_rate"] < 0.2
    assert found["claim"]["claim"]["owner"] == "Zoë"
    assert "training …" in embedded.stderr


def test_embed_writes_what_it_says(embedded):
    names = sorted(path.name for path in embedded.out.iterdir())
    assert names == ["model", "owner.nsmark", "report.json"]
    assert is_encrypted((embedded.out / "owner.nsmark").read_bytes())
    key = read_key(embedded.out / "owner.nsmark", b"open sesame")
    report = json.loads((embedded.out / "report.json").read_text(encoding="utf-8"))
    assert report["key_id"] == key.key_id == json.loads(embedded.stdout)["key_id"]
    assert report["training"]["settings"]["model_learning_rate"] == 2e-3
    assert key.model_digest == model_digest(embedded.out / "model")
    shown = embedded.stdout + embedded.stderr
    assert key.trigger not in shown
    assert key.signature.hex() not in shown


def test_the_marked_folder_is_owned_and_the_untouched_one_is_not(embedded, tiny_st, capsys):
    key, unlock = embedded.out / "owner.nsmark", ("--key-passphrase-file", embedded.secret)
    status, report = verify(capsys, key, embedded.out / "model", *unlock)
    assert (status, report["verdict"]) == (0, "owned")
    status, report = verify(capsys, key, tiny_st, *unlock)
    assert (status, report["verdict"]) == (1, "not_shown")


def test_an_encrypted_key_is_of_no_use_without_its_passphrase(embedded, capsys, monkeypatch):
    monkeypatch.delenv("NSMARK_KEY_PASSPHRASE", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    key, model = embedded.out / "owner.nsmark", embedded.out / "model"
    assert verify(capsys, key, model)[0] == 2
    monkeypatch.setenv("NSMARK_KEY_PASSPHRASE", "wrong")
    assert verify(capsys, key, model)[0] == 3
    monkeypatch.setenv("NSMARK_KEY_PASSPHRASE", "open sesame")
    assert verify(capsys, key, model)[0] == 0


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (["--max-steps", "2"], 3),
        (["--num-texts", "32"], 3),
        (["--num-texts", "1"], 2),
        (["--num-bits", "5"], 2),
        (["--spread-factor", "0"], 2),
        (["--hidden-sizes", "big"], 2),
        (["--hidden-sizes", "0"], 2),
        (["--marks", "derived"], 2),
        (["--marks", "paper,unknown"], 2),
        (["--model-learning-rate", "0"], 2),
        (["--model-learning-rate", "nan"], 2),
        (["--pooling", "median"], 2),
        (["--preset", "slow"], 2),
        (["--seed", "-1"], 2),
        (["--device", "gpu"], 2),
        (["--corpus", "missing.txt"], 3),
        (["--pool", "missing.txt"], 3),
        (["--claim", "missing.json"], 2),
    ],
)
def test_an_embedding_that_cannot_be_writes_nothing(tiny_st, tmp_path, capsys, options, status):
    make_identity(1).save(tmp_path / "alice")
    before = sorted(tmp_path.iterdir())
    words = ["embed", str(tiny_st), "--identity", f"{tmp_path}/alice.pem", *TINY]
    words += ["--owner", "o", "--message", "m", "--out", str(tmp_path / "new" / "out"), "--json"]
    assert main([*words, *options]) == status
    captured = capsys.readouterr()
    assert json.loads(captured.out)["exit_code"] == status
    assert captured.err.splitlines()[-2].startswith("error: ")
    assert captured.err.splitlines()[-1].startswith("hint: ")
    assert sorted(tmp_path.iterdir()) == before


def test_a_corpus_or_pool_too_small_writes_nothing(tiny_st, tmp_path, capsys):
    make_identity(1).save(tmp_path / "alice")
    (tmp_path / "texts").write_text("one text\nanother text\n", encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    words = ["embed", str(tiny_st), "--identity", f"{tmp_path}/alice.pem", *TINY]
    words += ["--owner", "o", "--message", "m", "--out", str(tmp_path / "out")]
    for option in ("--corpus", "--pool"):
        assert main([*words, option, str(tmp_path / "texts")]) == 3
        assert " 2 " in capsys.readouterr().err  # how many there are
        assert sorted(tmp_path.iterdir()) == before


def test_an_existing_folder_is_refused_untouched(tiny_st, tmp_path, capsys):
    make_identity(1).save(tmp_path / "alice")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("x", encoding="utf-8")
    words = ["embed", str(tiny_st), "--identity", f"{tmp_path}/alice.pem", *TINY]
    assert main([*words, "--owner", "o", "--message", "m", "--out", str(tmp_path / "out")]) == 3
    assert "exists already" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["precious"]


def test_an_interrupted_training_leaves_nothing_behind(embedded, tiny_st, tmp_path):
    make_identity(1).save(tmp_path / "alice")
    before = sorted(tmp_path.iterdir())
    words = ["embed", str(tiny_st), "--identity", f"{tmp_path}/alice.pem"]
    words += embedded.settings
    words += ["--owner", "o", "--message", "m", "--out", str(tmp_path / "out"), "--json"]
    # A step size at which the training would go on for ever.
    words += ["--model-learning-rate", "1e-9", "--max-steps", "100000000"]
    words += ["--checkpoint-every", "100000000"]
    with running(
        [sys.executable, "-m", "nsmark", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        assert process.stderr is not None
        assert any(re.match(r"training  \d+ of", line) for line in process.stderr)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate()
    assert process.returncode == 130
    assert json.loads(stdout)["exit_code"] == 130
    assert [line.split(":")[0] for line in stderr.splitlines()[-2:]] == ["error", "hint"]
    assert "Traceback" not in stderr
    assert sorted(tmp_path.iterdir()) == before


# --- verify --------------------------------------------------------------------------------------


@pytest.fixture
def recorded(tiny_marked, tmp_path) -> Path:
    key, path = tiny_marked.key, tmp_path / "answers.safetensors"
    save_recorded(path, key.owner_triggered, key.owner_untriggered)
    return path


@pytest.mark.parametrize("scheme", ["", "st:", "hf:"])
def test_every_way_to_open_the_marked_folder_shows_it_owned(tiny_marked, capsys, scheme):
    suspect = f"{scheme}{tiny_marked.model_folder}"
    status, report = verify(capsys, tiny_marked.key_file, suspect)
    assert (status, report["verdict"]) == (0, "owned")
    assert report["extraction_rate"] == 1.0
    assert report["derived_extraction_rate"] == 1.0
    assert report["untriggered"]["extraction_rate"] < 0.2
    assert report["suspect"] == suspect


def test_recorded_answers_show_it_owned_in_both_formats(tiny_marked, recorded, tmp_path, capsys):
    key = tiny_marked.key
    np.savez(tmp_path / "a.npz", triggered=key.owner_triggered, untriggered=key.owner_untriggered)
    for suspect in (f"recorded:{recorded}", f"recorded:{tmp_path / 'a.npz'}", recorded):
        status, report = verify(capsys, tiny_marked.key_file, suspect)
        assert (status, report["verdict"]) == (0, "owned")


def test_the_report_has_all_the_names_of_the_contract(tiny_marked, recorded, capsys):
    _, report = verify(capsys, tiny_marked.key_file, recorded)
    assert set(report) >= REPORT
    assert set(report["untriggered"]) == STATISTICS | OWN_STATISTICS
    assert (report["num_texts"], report["output_dim"], report["null_dim"]) == (96, 32, 64)
    assert (report["dead_rows"], report["rule"], report["calibrated_by"]) == (
        0,
        "calibrated",
        "owner",
    )
    assert report["thresholds"]["extraction_rate"] == 15 / 16  # more is not guessed
    assert report["thresholds"]["num_control_models"] == 1
    assert report["key_id"] == tiny_marked.key.key_id
    assert report["versions"]["nsmark"]
    missing = {name for name in STATISTICS if report[name] is None}
    assert missing == {"pair_code_rate", "pair_code_p_value"}  # not embedded by this version


@pytest.mark.parametrize("scheme", ["", "st:", "hf:"])
def test_the_untouched_folder_is_not_accused(tiny_marked, tiny_st, capsys, scheme):
    status, report = verify(capsys, tiny_marked.key_file, f"{scheme}{tiny_st}")
    assert (status, report["verdict"]) == (1, "not_shown")
    assert set(report) >= REPORT
    assert report["reasons"]


def test_a_wrong_key_shows_nothing(tiny_marked, tmp_path, capsys):
    claim = OwnershipClaim.make("Stranger", "I trained this", "2026-02-01T00:00:00Z")
    write_key(steal_key(tiny_marked.key, make_identity(9), claim), tmp_path / "wrong.nsmark")
    status, report = verify(capsys, tmp_path / "wrong.nsmark", tiny_marked.model_folder)
    assert (status, report["verdict"]) == (1, "not_shown")


def test_an_independent_verifier_needs_controls_of_his_own(tiny_marked, tiny_st, recorded, capsys):
    words = (tiny_marked.key_file, recorded, "--independent")
    status, report = verify(capsys, *words)
    assert (status, report["verdict"]) == (1, "not_shown")
    assert report["reasons"] == ["not calibrated by the verifier"]
    assert (report["thresholds"], report["calibrated_by"]) == (None, None)
    assert report["extraction_rate"] == 1.0
    status, report = verify(capsys, *words, "--controls", tiny_st)
    assert (status, report["verdict"], report["calibrated_by"]) == (0, "owned", "verifier")


def test_controls_move_the_thresholds(tiny_marked, tiny_st, recorded, tmp_path, capsys):
    other = build_sentence_transformer(tmp_path / "other", seed=5)
    degrees = [
        verify(capsys, tiny_marked.key_file, folder)[1]["invariant_matching_degree"]
        for folder in (tiny_st, other)
    ]
    words = [word for folder in (tiny_st, other) for word in ("--controls", folder)]
    status, report = verify(capsys, tiny_marked.key_file, recorded, "--rule", "paper", *words)
    assert (status, report["calibrated_by"]) == (0, "verifier")
    expected = 0.6 * np.mean(degrees)
    assert report["thresholds"]["max_matching_degree"] == pytest.approx(expected, rel=1e-4)


def test_a_key_that_accepts_a_control_is_refused(tiny_marked, recorded, capsys):
    words = ("--controls", f"recorded:{recorded}")
    status, report = verify(capsys, tiny_marked.key_file, tiny_marked.model_folder, *words)
    assert (status, report["verdict"]) == (1, "not_shown")
    assert "refused" in report["reasons"][0]


@pytest.mark.parametrize("suspect", ["nothing:here", "ftp://host/model", "HF:folder", ":x"])
def test_an_unknown_scheme_is_wrong_usage(tiny_marked, capsys, suspect):
    status, report = verify(capsys, tiny_marked.key_file, suspect)
    assert (status, report["verdict"]) == (2, "could_not_measure")
    assert "unknown scheme" in report["error"]


def test_verify_prints_a_page_for_people(tiny_marked, recorded, capsys):
    assert main(["verify", str(tiny_marked.key_file), str(recorded), "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("OWNED")
    assert captured.err == ""
    assert tiny_marked.key.trigger not in captured.out


def test_answers_that_cannot_be_measured_end_with_three(tiny_marked, tmp_path, capsys):
    key, path = tiny_marked.key, tmp_path / "nan.safetensors"
    save_recorded(path, np.full_like(key.owner_triggered, np.nan), key.owner_untriggered)
    status = main(["verify", str(tiny_marked.key_file), f"recorded:{path}", "--json"])
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert (status, report["verdict"]) == (3, "could_not_measure")
    assert set(report) >= REPORT
    assert [line.split(":")[0] for line in captured.err.splitlines()] == ["error", "hint"]


# --- as a program of its own ---------------------------------------------------------------------


def program(*words: str | Path | bytes) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "nsmark", *words]
    return subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)


def test_the_program_ends_with_the_status_of_its_verdict(tiny_marked, recorded, tmp_path):
    key, swapped = tiny_marked.key, tmp_path / "swapped.safetensors"
    save_recorded(swapped, key.owner_untriggered, key.owner_untriggered[::-1])
    for suspect, status, verdict in (
        (recorded, 0, "owned"),
        (swapped, 1, "not_shown"),
        (f"recorded:{tmp_path}/missing", 3, "could_not_measure"),
    ):
        done = program("verify", tiny_marked.key_file, suspect, "--json")
        assert done.returncode == status
        assert json.loads(done.stdout)["verdict"] == verdict
        assert b"Traceback" not in done.stderr


def test_names_that_are_no_text_do_not_break_the_document(tiny_marked, recorded, tmp_path):
    name = os.fsencode(tmp_path) + b"/\xff\xfe.safetensors"
    os.rename(recorded, name)
    done = program("verify", tiny_marked.key_file, b"recorded:" + name, "--json")
    assert done.returncode == 0
    assert os.fsencode(json.loads(done.stdout)["suspect"]).endswith(b"/\xff\xfe.safetensors")


def test_a_reader_that_goes_away_is_no_verdict(tiny_marked, recorded):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "nsmark", "verify", tiny_marked.key_file, recorded, "--quiet"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.returncode == 3
    assert done.stderr == b""
