from __future__ import annotations

import io
import json
import stat
from pathlib import Path

import numpy as np
import pytest

from conftest import TINY_NUM_TEXTS
from nsmark.cli.main import main
from nsmark.keyfile import read_key, write_key
from nsmark.models.loading import open_encoder


@pytest.fixture
def key_file(tiny_marked) -> str:
    return str(tiny_marked.key_file)


@pytest.fixture
def secrets(tiny_marked) -> list[str]:
    key = tiny_marked.key
    return [key.signature.hex(), key.trigger, *key.verification_texts]


def test_inspect_shows_what_is_public(tiny_marked, key_file, capsys):
    key = tiny_marked.key
    assert main(["inspect", key_file, "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert captured.err == ""
    assert found["key_id"] == key.key_id
    assert found["claim"] == key.signed_claim.claim.to_mapping()
    assert found["signature_sha256"] == key.signed_claim.signature_digest
    assert found["model_sha256"] == key.model_digest
    assert found["configuration"]["num_texts"] == TINY_NUM_TEXTS
    assert [control["name"] for control in found["controls"]] == ["reference"]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_inspect_shows_no_secret(key_file, secrets, capsys, options):
    assert main(["inspect", key_file, *options]) == 0
    shown = "".join(capsys.readouterr())
    assert not any(secret in shown for secret in secrets)


def test_the_redacted_form_holds_no_secret_and_no_tensor(key_file, secrets, tmp_path, capsys):
    public = tmp_path / "public.json"
    assert main(["inspect", key_file, "--public", str(public), "--json"]) == 0
    text = public.read_text(encoding="utf-8")
    assert json.loads(text) == json.loads(capsys.readouterr().out)
    assert not any(secret in text for secret in secrets)
    assert len(text) < 20_000


def test_queries_are_the_keys_texts_for_their_owner_only(tiny_marked, key_file, tmp_path):
    queries = tmp_path / "queries.jsonl"
    assert main(["inspect", key_file, "--queries", str(queries)]) == 0
    assert stat.S_IMODE(queries.stat().st_mode) == 0o600
    rows = [json.loads(line) for line in queries.read_text(encoding="utf-8").splitlines()]
    payload = tiny_marked.key.payload()
    assert [row["index"] for row in rows] == list(range(TINY_NUM_TEXTS))
    assert [row["triggered"] for row in rows] == payload.triggered_texts()
    assert [row["untriggered"] for row in rows] == list(payload.verification_texts)


def record(queries: Path, model: Path, answers: Path) -> None:
    """What anyone would do who has only the queries and a model."""
    rows = [json.loads(line) for line in queries.read_text(encoding="utf-8").splitlines()]
    encoder = open_encoder(model, device="cpu")
    np.savez(
        answers,
        triggered=encoder.encode([row["triggered"] for row in rows]),
        untriggered=encoder.encode([row["untriggered"] for row in rows]),
    )


def test_answers_recorded_from_the_queries_verify(tiny_marked, tiny_st, key_file, tmp_path, capsys):
    queries = tmp_path / "queries.jsonl"
    assert main(["inspect", key_file, "--queries", str(queries)]) == 0
    for model, status in ((tiny_marked.model_folder, 0), (tiny_st, 1)):
        answers = tmp_path / f"answers-{status}.npz"
        record(queries, model, answers)
        capsys.readouterr()
        assert main(["verify", key_file, f"recorded:{answers}", "--json"]) == status
        recorded = json.loads(capsys.readouterr().out)
        assert main(["verify", key_file, str(model), "--json"]) == status
        direct = json.loads(capsys.readouterr().out)
        for name in ("extraction_rate", "derived_extraction_rate", "matching_degree"):
            assert recorded[name] == pytest.approx(direct[name], abs=2e-2)


@pytest.mark.parametrize("option", ["--queries", "--public"])
def test_inspect_replaces_no_file_least_of_all_the_key(tiny_marked, tmp_path, capsys, option):
    key_file = tmp_path / "owner.nsmark"
    write_key(tiny_marked.key, key_file)
    content = key_file.read_bytes()
    assert main(["inspect", str(key_file), option, str(key_file)]) == 3
    assert "exists already" in capsys.readouterr().err
    assert key_file.read_bytes() == content


def test_an_encrypted_key_opens_with_its_passphrase_only(
    tiny_marked, tmp_path, capsys, monkeypatch
):
    monkeypatch.delenv("NSMARK_KEY_PASSPHRASE", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    key_file, secret = tmp_path / "owner.nsmark", tmp_path / "secret"
    write_key(tiny_marked.key, key_file, b"open sesame")
    secret.write_bytes(b"open sesame\n")
    inspect = ["inspect", str(key_file), "--json"]
    assert main(inspect) == 2  # no terminal to ask at
    capsys.readouterr()
    assert main([*inspect, "--key-passphrase-file", str(secret)]) == 0
    assert json.loads(capsys.readouterr().out)["key_id"] == tiny_marked.key.key_id
    monkeypatch.setenv("NSMARK_KEY_PASSPHRASE", "open sesame")
    assert main(inspect) == 0
    monkeypatch.setenv("NSMARK_KEY_PASSPHRASE", "wrong")
    capsys.readouterr()
    assert main(inspect) == 3
    assert "passphrase is wrong" in capsys.readouterr().err


def test_a_key_that_was_altered_is_refused(tiny_marked, tmp_path, capsys):
    content = bytearray(tiny_marked.key_file.read_bytes())
    content[-1] ^= 1
    (tmp_path / "owner.nsmark").write_bytes(content)
    assert main(["inspect", str(tmp_path / "owner.nsmark"), "--json"]) == 3
    captured = capsys.readouterr()
    assert "key_id" not in json.loads(captured.out)
    assert captured.err.startswith("error: ")
    assert read_key(tiny_marked.key_file).has_valid_seal()  # the original still is fine
