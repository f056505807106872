"""Envelopes: the published encoding, and no payload comes out that the key did not sign."""

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.errors import ConfigError
from nsmark.identity import Identity
from nsmark_authority.errors import TransparencyError
from nsmark_authority.transparency import (
    MAX_ENVELOPE_BYTES,
    MAX_PAYLOAD_BYTES,
    Envelope,
    EnvelopeSignature,
    open_envelope,
    pre_authentication_encoding,
    sign_envelope,
)
from nsmark_authority.transparency.strict_base64 import decode_base64, encode_base64

TYPE = "application/vnd.nsmark.test+json"
PAYLOAD = b'{"subject":"\xc3\xbf\xc3\xbe>>>???"}'
ALICE = Identity(Ed25519PrivateKey.from_private_bytes(b"a" * 32))
BOB = Identity(Ed25519PrivateKey.from_private_bytes(b"b" * 32))
KEYS = [ALICE.public_key]
SIGNED = sign_envelope(TYPE, PAYLOAD, ALICE)
DOCUMENT = json.loads(SIGNED.to_json())
SIGNATURE = DOCUMENT["signatures"][0]


def opened(document: Any) -> bytes:
    return open_envelope(json.dumps(document).encode(), TYPE, KEYS)


def test_golden_encoding() -> None:
    encoded = pre_authentication_encoding("http://example.com/HelloWorld", b"hello world")

    assert encoded == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert pre_authentication_encoding("", b"") == b"DSSEv1 0  0 "
    assert pre_authentication_encoding("\u00e9", b"\x00 1 ") == b"DSSEv1 2 \xc3\xa9 4 \x00 1 "


@settings(max_examples=200, deadline=None)
@given(st.text("1 2a", max_size=6), st.text("1 2a", max_size=6), st.data())
def test_no_two_statements_have_one_encoding(kind: str, body: str, data: st.DataObject) -> None:
    text = f"{kind} {len(body)} {body}"
    cut = data.draw(st.integers(0, len(text)))
    other = (text[:cut], text[cut:].encode())

    assert pre_authentication_encoding(*other) != pre_authentication_encoding(kind, body.encode())


def test_golden_envelope_of_the_specification_is_read() -> None:
    document = b"""{"payload": "aGVsbG8gd29ybGQ=",
 "payloadType": "http://example.com/HelloWorld",
 "signatures": [{"sig": "A3JqsQGtVsJ2O2xqrI5IcnXip5GToJ3F+FnZ+O88SjtR6rDAajabZKciJTfUiHqJPcIAriEGAHTVeCUjW2JIZA=="}]}"""  # noqa: E501
    envelope = Envelope.parse(document)

    assert envelope.payload == b"hello world"
    assert envelope.payload_type == "http://example.com/HelloWorld"
    assert [(s.key_id, len(s.signature)) for s in envelope.signatures] == [("", 64)]
    with pytest.raises(TransparencyError, match="0 of the known keys"):  # it is of ECDSA
        open_envelope(document, "http://example.com/HelloWorld", KEYS)


def test_the_form_is_canonical_and_the_signature_is_over_the_encoding() -> None:
    signature = ALICE.sign_bytes(pre_authentication_encoding(TYPE, PAYLOAD))

    assert SIGNED.to_json() == (
        b'{"payload":"%b","payloadType":"%b","signatures":[{"keyid":"%b","sig":"%b"}]}'
        % (
            base64.b64encode(PAYLOAD),
            TYPE.encode(),
            ALICE.public_key.fingerprint.encode(),
            base64.b64encode(signature),
        )
    )


@settings(max_examples=100, deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30),
    st.binary(max_size=200),
)
def test_what_is_signed_is_read_back(payload_type: str, payload: bytes) -> None:
    signed = sign_envelope(payload_type, payload, ALICE)

    assert Envelope.parse(signed.to_json()) == signed
    assert open_envelope(signed.to_json(), payload_type, KEYS) == payload


# Who signed ---------------------------------------------------------------------------------


def test_a_threshold_counts_keys_and_not_signatures() -> None:
    both = [ALICE.public_key, BOB.public_key]
    twice = SIGNED.add_signature(ALICE)
    shared = SIGNED.add_signature(BOB)

    assert open_envelope(shared.to_json(), TYPE, both, threshold=2) == PAYLOAD
    assert shared.signers(both) == frozenset(both)
    assert twice.signers(both) == frozenset(KEYS)
    with pytest.raises(TransparencyError, match="by 1 of the known keys, 2 must"):
        open_envelope(twice.to_json(), TYPE, both, threshold=2)
    with pytest.raises(TransparencyError, match="by 1 of the known keys, 2 must"):
        open_envelope(twice.to_json(), TYPE, [*both, *both], threshold=2)


@pytest.mark.parametrize("threshold", [-1, 0, 2])
def test_a_threshold_that_asks_for_nothing_or_too_much_is_refused(threshold: int) -> None:
    with pytest.raises(ConfigError, match="threshold"):
        open_envelope(SIGNED.to_json(), TYPE, [ALICE.public_key] * 3, threshold=threshold)
    with pytest.raises(ConfigError, match="threshold"):
        open_envelope(SIGNED.to_json(), TYPE, [])


def test_anothers_signature_is_refused() -> None:
    with pytest.raises(TransparencyError, match="0 of the known keys"):
        open_envelope(SIGNED.to_json(), TYPE, [BOB.public_key])
    with pytest.raises(TransparencyError, match="0 of the known keys"):
        open_envelope(
            Envelope(payload_type=TYPE, payload=PAYLOAD, signatures=()).to_json(), TYPE, KEYS
        )


@pytest.mark.parametrize("key_id", ["", "unknown", BOB.public_key.fingerprint])
def test_the_hint_decides_nothing(key_id: str) -> None:
    assert opened({**DOCUMENT, "signatures": [{**SIGNATURE, "keyid": key_id}]}) == PAYLOAD
    forged = {"keyid": ALICE.public_key.fingerprint, "sig": encode_base64(bytes(64))}
    with pytest.raises(TransparencyError, match="0 of the known keys"):
        opened({**DOCUMENT, "signatures": [forged]})


def test_signatures_of_other_kinds_are_skipped() -> None:
    others = [{"sig": ""}, {"sig": encode_base64(bytes(64))}, {"sig": encode_base64(bytes(4900))}]

    assert opened({**DOCUMENT, "signatures": [*others, SIGNATURE, *others]}) == PAYLOAD


def test_a_payload_is_not_taken_for_one_of_another_type() -> None:
    with pytest.raises(TransparencyError, match="holds 'application"):
        open_envelope(SIGNED.to_json(), "application/vnd.nsmark.other+json", KEYS)
    with pytest.raises(TransparencyError, match="0 of the known keys"):
        opened({**DOCUMENT, "payloadType": "application/vnd.nsmark.other+json"})


# Altered and malformed envelopes ------------------------------------------------------------


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 8 * len(SIGNED.to_json()) - 1))
def test_a_flipped_bit_never_changes_what_comes_out(bit: int) -> None:
    altered = bytearray(SIGNED.to_json())
    altered[bit // 8] ^= 1 << bit % 8

    try:
        payload = open_envelope(bytes(altered), TYPE, KEYS)
    except TransparencyError:
        return
    # Only the hint is not signed.
    assert payload == PAYLOAD
    assert Envelope.parse(bytes(altered)).signatures[0].signature == SIGNED.signatures[0].signature


def test_any_other_payload_is_refused() -> None:
    for position in range(len(PAYLOAD)):
        altered = bytearray(PAYLOAD)
        altered[position] ^= 1
        for payload in (bytes(altered), PAYLOAD[:position], PAYLOAD + PAYLOAD[: position + 1]):
            with pytest.raises(TransparencyError, match="0 of the known keys"):
                opened({**DOCUMENT, "payload": encode_base64(payload)})


def test_unknown_fields_are_ignored_and_not_kept() -> None:
    document = {**DOCUMENT, "new": [1], "signatures": [{**SIGNATURE, "cert": {"x": None}}]}

    assert opened(document) == PAYLOAD
    assert Envelope.parse(json.dumps(document).encode()) == SIGNED


def test_both_alphabets_are_read_but_not_mixed() -> None:
    payload = base64.urlsafe_b64encode(PAYLOAD).decode()
    signature = SIGNATURE["sig"].replace("+", "-").replace("/", "_")

    assert "_" in payload
    assert "-" in payload
    assert opened({**DOCUMENT, "payload": payload}) == PAYLOAD
    assert opened({**DOCUMENT, "signatures": [{**SIGNATURE, "sig": signature}]}) == PAYLOAD
    with pytest.raises(TransparencyError, match="plain base64"):
        opened({**DOCUMENT, "payload": payload.replace("_", "/")})


@pytest.mark.parametrize(
    "text", ["A", "AA", "AA=", "AB==", "AA==\n", " AA==", "AA ==", "AA===", "AA==AA==", "é", "\0"]
)
def test_base64_has_one_spelling(text: str) -> None:
    assert decode_base64("AA==", "text") == b"\x00"
    for allow_url_safe in (False, True):
        with pytest.raises(TransparencyError, match="plain base64"):
            decode_base64(text, "text", allow_url_safe=allow_url_safe)


def test_the_url_safe_alphabet_is_read_only_where_it_is_allowed() -> None:
    assert decode_base64("-_-_", "text", allow_url_safe=True) == decode_base64("+/+/", "text")
    with pytest.raises(TransparencyError):
        decode_base64("-_-_", "text")
    with pytest.raises(TransparencyError):
        decode_base64("-_+/", "text", allow_url_safe=True)


@pytest.mark.parametrize(
    "change",
    [
        {"payload": None},
        {"payload": 5},
        {"payload": DOCUMENT["payload"].rstrip("=") + "\n"},
        {"payload": "\ud800"},
        {"payloadType": None},
        {"payloadType": ""},
        {"payloadType": "\ud800"},
        {"payloadType": "x" * 257},
        {"signatures": None},
        {"signatures": {}},
        {"signatures": SIGNATURE},
        {"signatures": [None]},
        {"signatures": [[]]},
        {"signatures": [{}]},
        {"signatures": [{"keyid": "only"}]},
        {"signatures": [{**SIGNATURE, "keyid": None}]},
        {"signatures": [{**SIGNATURE, "keyid": 7}]},
        {"signatures": [{**SIGNATURE, "keyid": "\ud800"}]},
        {"signatures": [{**SIGNATURE, "keyid": "x" * 1025}]},
        {"signatures": [{**SIGNATURE, "sig": None}]},
        {"signatures": [{**SIGNATURE, "sig": SIGNATURE["sig"].rstrip("=")}]},
        {"signatures": [{**SIGNATURE, "sig": SIGNATURE["sig"] + " "}]},
        {"signatures": [{**SIGNATURE, "sig": encode_base64(bytes(8193))}]},
        {"signatures": [SIGNATURE] * 17},
    ],
)
def test_a_malformed_envelope_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(TransparencyError, match=r"no valid envelope|plain base64") as refused:
        opened({**DOCUMENT, **change})

    assert refused.value.hint


@pytest.mark.parametrize("name", ["payload", "payloadType", "signatures"])
def test_a_missing_field_is_refused(name: str) -> None:
    document = {key: value for key, value in DOCUMENT.items() if key != name}

    with pytest.raises(TransparencyError, match=name):
        opened(document)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"null",
        b'"text"',
        b"\xff",
        b"[" * 100_000,
        b'{"x":' + b"9" * 5000 + b"}",
        SIGNED.to_json().decode().encode("utf-16"),
        b"\xef\xbb\xbf" + SIGNED.to_json(),
        SIGNED.to_json() + b"x",
        SIGNED.to_json()[:-1],
        SIGNED.to_json()[:-1] + b',"payload":""}',
        SIGNED.to_json()[:-1] + b',"x":NaN}',
    ],
)
def test_what_is_no_single_json_object_in_utf8_is_refused(document: bytes) -> None:
    with pytest.raises(TransparencyError, match="not a JSON object in UTF-8"):
        Envelope.parse(document)


def test_the_largest_payload_fits_and_a_larger_one_is_refused() -> None:
    largest = sign_envelope(TYPE, bytes(MAX_PAYLOAD_BYTES), ALICE)

    assert Envelope.parse(largest.to_json()) == largest
    with pytest.raises(TransparencyError, match="payload is larger"):
        sign_envelope(TYPE, bytes(MAX_PAYLOAD_BYTES + 1), ALICE)
    with pytest.raises(TransparencyError, match="it is larger"):
        Envelope.parse(b" " * (MAX_ENVELOPE_BYTES + 1))


def test_what_could_not_be_read_back_is_not_signed() -> None:
    for payload_type in ("", "\ud800", "x" * 257):
        with pytest.raises(TransparencyError, match="payloadType"):
            sign_envelope(payload_type, PAYLOAD, ALICE)
    full = Envelope(
        payload_type=TYPE, payload=PAYLOAD, signatures=(EnvelopeSignature(bytes(64)),) * 16
    )
    with pytest.raises(TransparencyError, match="more than 16"):
        full.add_signature(ALICE)
