"""Keys of every released format are still read, and still decide as they did."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsmark.api import verify
from nsmark.errors import KeyFileError
from nsmark.keyfile import read_key
from nsmark.suspects import load_recorded

V1 = Path(__file__).parent.parent / "data" / "keys" / "v1"
V1_KEY_ID = "7549551083cb46ee51cb8dd8e3de9d5bc0720f66ff59d08cc9d7f97531c1eea2"


@pytest.fixture(scope="module")
def key():
    return read_key(V1 / "tiny.nsmark")


def test_the_first_key_ever_kept_is_read_and_has_its_name(key):
    assert key.key_id == V1_KEY_ID
    assert key.signed_claim.claim.owner == "Example Lab"
    assert key.configuration.num_texts == 96
    assert key.owner_triggered.shape == (96, 32)


def test_its_encrypted_form_is_the_same_key(key):
    opened = read_key(V1 / "tiny-encrypted.nsmark", b"correct horse battery staple")
    assert opened.key_id == key.key_id
    with pytest.raises(KeyFileError, match="passphrase is wrong"):
        read_key(V1 / "tiny-encrypted.nsmark", b"incorrect horse")


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [("marked", "owned"), ("mapped", "owned"), ("untouched", "not_shown")],
)
def test_it_still_decides_as_it_did(key, answers, verdict):
    report = verify(key, load_recorded(V1 / f"{answers}.safetensors"))
    assert report.verdict == verdict
    assert report.unchecked == ()  # trigger and texts still follow from its signature
    extraction = report.evidence.triggered.extraction_rate
    degree = report.evidence.triggered.invariant_matching_degree
    assert (extraction == 1.0) == (answers == "marked")
    assert (degree < 0.1) == (answers != "untouched")
