"""Statements: one spelling, strict members, and a signature of the one who says it."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from authority_world import ENDPOINT, NAME, KeyOwner
from handmade_keys import make_identity
from nsmark_authority.errors import TransparencyError
from nsmark_authority.fields import printable_prose
from nsmark_authority.statements import (
    STATEMENTS,
    Admission,
    AuthorityStatement,
    Defence,
    Deposit,
    Dispute,
    Filing,
    OtherClaim,
    OwnerStatement,
    Publication,
    Registration,
    Ruling,
    Statement,
    Suspect,
    Withdrawal,
    entry_id_of,
    open_statement,
    parse_statement,
    sign_statement,
)
from nsmark_authority.transparency import Envelope, sign_envelope

AUTHORITY = make_identity(9)
OWNER = KeyOwner(1)
PEM = OWNER.pem
D1, D2, D3 = "11" * 32, "22" * 32, "ab" * 32
TIME = "2026-01-31T12:00:00Z"
CLAIM = {"format": "nsmark/claim/1", "owner": "Lab", "message": "m is ours", "created": TIME}

EXAMPLES: list[Statement] = [
    Registration(authority=NAME, public_key=PEM, owner="Lab", nonce=D1),
    Filing(
        authority=NAME,
        public_key=PEM,
        claim=CLAIM,
        signature_sha256=D1,
        key_id=D2,
        content_sha256=D3,
        content_bytes=9000,
        succeeds=D1,
    ),
    Deposit(
        authority=NAME,
        public_key=PEM,
        what="model",
        content_sha256=D1,
        content_bytes=1,
        model_digest=D2,
        note="before\nall others",
    ),
    Dispute(
        authority=NAME,
        public_key=PEM,
        key_id=D1,
        suspect=ENDPOINT,
        released=TIME,
        statement="it is mine",
    ),
    Defence(authority=NAME, public_key=PEM, dispute=D1, evidence=None, statement="no"),
    Withdrawal(authority=NAME, public_key=PEM, subject=D1, reason=""),
    Publication(
        authority=NAME, what="pool", name="a pool", digest=D1, content_sha256=D2, content_bytes=7
    ),
    Admission(
        authority=NAME,
        filing=D1,
        key_id=D2,
        admitted=False,
        reasons=("it accepts a control",),
        control_set=D3,
        versions={"nsmark": "0.1.0"},
    ),
    Ruling(
        authority=NAME,
        dispute=D1,
        key_id=D2,
        outcome="preceded",
        verdict="owned",
        reasons=("an earlier claim",),
        evidence={"rate": 0.5, "texts": 100, "fresh": True, "none": None, "suspect": "x"},
        report_sha256=D3,
        randomness=D1,
        defence=None,
        other_claims=(OtherClaim(filing=D1, key_id=D3, owner="Other", time=TIME),),
        opened=TIME,
        measured=TIME,
        versions={},
    ),
]
by_kind = pytest.mark.parametrize("statement", EXAMPLES, ids=lambda one: one.kind)


def signed(statement: Statement) -> bytes:
    is_owners = isinstance(statement, OwnerStatement)
    return sign_statement(statement, OWNER.identity if is_owners else AUTHORITY).to_json()


def opened(document: bytes, authority: str | None = NAME) -> Statement:
    return open_statement(
        document, authority=authority, authority_key=AUTHORITY.public_key
    ).statement


def test_golden_registration() -> None:
    entry = signed(EXAMPLES[0])

    assert EXAMPLES[0].to_payload() == (
        b'{"authority":"authority.example","nonce":"' + b"11" * 32 + b'","owner":"Lab",'
        b'"public_key":"-----BEGIN PUBLIC KEY-----\\n'
        b"MCowBQYDK2VwAyEAiojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w=\\n"
        b'-----END PUBLIC KEY-----\\n"}'
    )
    assert entry_id_of(entry) == GOLDEN["registration"]


GOLDEN = {
    "registration": "c5ddfbb0cce7e78db54edbdd6465da8b47ed150dbea48ff6f1560e3b174054ff",
    "filing": "058c56ab3e7f27c7276a837a964fea856f931144b2fecb179273b16946326f1c",
    "deposit": "5cfa37e76e1e76fc4e17cc7c2b181222bea0549ceb8f09763330a4340caff8ef",
    "dispute": "27b3db6eeb849cf35bce6831019d501f3140947c1c5abf1a136921a92a923d9b",
    "defence": "e483c77e327fb72eeaae569a71919027e91e83aca89d8f30f300db01452709e8",
    "withdrawal": "c9a047838867ad6dc67d77439e853438b599dee40d0262575d30051722b352f7",
    "publication": "4170d25a957f7722dba61cb2fe4bf2ba9d54a85d9b2b4212d7fe2e03e91914a5",
    "admission": "af34a1954070dbb55ed11d263a1630817976b679fb215ab0566d87a88452aa6e",
    "ruling": "6a61cba9be25ecf80469c5b90c7feadf571fc0057cef01ab80e119e81b32c939",
}


@by_kind
def test_golden_entries(statement: Statement) -> None:
    """Entries are forever: their bytes must not change with the program."""
    assert statement.payload_type() == f"application/vnd.nsmark.{statement.kind}.v1+json"
    assert entry_id_of(signed(statement)) == GOLDEN[statement.kind]


def test_every_kind_has_an_example() -> None:
    assert {type(one) for one in EXAMPLES} == set(STATEMENTS.values())


@by_kind
def test_what_was_signed_comes_back(statement: Statement) -> None:
    assert opened(signed(statement)) == statement
    assert opened(signed(statement), None) == statement


@by_kind
def test_members_are_exact(statement: Statement) -> None:
    members = json.loads(statement.to_payload())
    for name in members:
        without = {key: value for key, value in members.items() if key != name}
        with pytest.raises(TransparencyError, match=f"no member {name}"):
            parse_statement(statement.payload_type(), rfc8785.dumps(without))
        for wrong in (17.5, [], {"a": 1}, "\x00", "é" * 5000):
            if members[name] == wrong or (name == "evidence" and isinstance(wrong, dict)):
                continue
            if name in ("reasons", "other_claims", "versions") and wrong in ([], {"a": 1}):
                continue
            with pytest.raises(TransparencyError):
                parse_statement(statement.payload_type(), rfc8785.dumps(members | {name: wrong}))
    with pytest.raises(TransparencyError, match="extra"):
        parse_statement(statement.payload_type(), rfc8785.dumps(members | {"extra": None}))


@by_kind
def test_there_is_one_spelling(statement: Statement) -> None:
    payload = statement.to_payload()
    spaced = json.dumps(json.loads(payload)).encode()

    for other in (
        spaced,
        payload + b"\n",
        b"\xef\xbb\xbf" + payload,
        payload.decode().encode("utf-16"),
    ):
        with pytest.raises(TransparencyError):
            parse_statement(statement.payload_type(), other)


@by_kind
def test_only_its_maker_can_say_it(statement: Statement) -> None:
    stranger = make_identity(5)
    forged = sign_envelope(statement.payload_type(), statement.to_payload(), stranger).to_json()
    both = Envelope.parse(signed(statement)).add_signature(stranger).to_json()

    for document in (forged, both):
        with pytest.raises(TransparencyError):
            opened(document)
    if isinstance(statement, OwnerStatement):
        with pytest.raises(TransparencyError, match="another key"):
            sign_statement(statement, stranger)
    else:
        assert isinstance(statement, AuthorityStatement)


@by_kind
def test_it_cannot_be_taken_to_another_authority(statement: Statement) -> None:
    with pytest.raises(TransparencyError, match=r"not to 'other\.example'"):
        opened(signed(statement), "other.example")


@by_kind
def test_a_payload_of_one_kind_is_none_of_another(statement: Statement) -> None:
    for other in STATEMENTS:
        if other != statement.payload_type():
            with pytest.raises(TransparencyError):
                parse_statement(other, statement.to_payload())
    with pytest.raises(TransparencyError, match="no statements of type"):
        parse_statement("application/json", statement.to_payload())


def test_an_envelope_has_one_spelling_too() -> None:
    document = signed(EXAMPLES[0])
    members = json.loads(document)
    members["signatures"][0]["keyid"] = ""
    no_hint = rfc8785.dumps(members)
    members["note"] = "DSSE ignores it"

    for other in (document + b" ", no_hint, rfc8785.dumps(members)):
        with pytest.raises(TransparencyError):
            opened(other)


@pytest.mark.parametrize(
    "members",
    [
        {"kind": "endpoint", "url": "https://x.example", "model": "m"},
        {"kind": "endpoint", "content_sha256": D1, "content_bytes": 1},
        {"kind": "model", "content_sha256": D1},
        {"kind": "recorded", "content_sha256": D1, "content_bytes": 1, "url": "https://x.example"},
        {"kind": "recorded", "content_sha256": D3.upper(), "content_bytes": 1},
        {"kind": "other"},
    ],
)
def test_suspects_are_whole(members: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Suspect(**members)


@pytest.mark.parametrize(
    "time",
    ["2026-02-30T00:00:00Z", "2026-01-31", "2026-01-31T12:00:00", "2026-01-31T12:00:00Z\n", ""],
)
def test_times_are_times(time: str) -> None:
    with pytest.raises(ValidationError):
        EXAMPLES[3].__class__(**(EXAMPLES[3].model_dump() | {"released": time}))


@pytest.mark.parametrize("name", ["a b", "a+b", "", "a\nb", "x" * 257])
def test_names_of_authorities(name: str) -> None:
    with pytest.raises(ValidationError):
        Withdrawal(authority=name, public_key=PEM, subject=D1, reason="")


def test_a_key_cannot_succeed_itself() -> None:
    with pytest.raises(ValidationError, match="itself"):
        Filing(**(EXAMPLES[1].model_dump() | {"succeeds": D2}))


TEXT = st.text(max_size=60).map(printable_prose)
LINES = TEXT.map(lambda text: " ".join(unicodedata.normalize("NFC", text).split())).filter(bool)
NUMBERS = st.one_of(
    st.floats(-1e15, 1e15),
    st.integers(-(10**15), 2**53 - 1),
    st.booleans(),
    st.none(),
    st.just("word"),
)


@settings(max_examples=150, deadline=None)
@given(TEXT, st.dictionaries(LINES, NUMBERS, max_size=6))
def test_rulings_round_trip(reason: str, evidence: dict[str, Any]) -> None:
    ruling = Ruling(**(EXAMPLES[-1].model_dump() | {"reasons": (reason,), "evidence": evidence}))

    again = opened(signed(ruling))

    assert again.to_payload() == ruling.to_payload()
    assert isinstance(again, Ruling)
    assert again.evidence == evidence


@settings(max_examples=100, deadline=None)
@given(LINES, TEXT.filter(bool), st.integers(1, 2**53 - 1))
def test_filings_round_trip(owner: str, message: str, size: int) -> None:
    claim = CLAIM | {"owner": owner, "message": message}
    filing = Filing(**(EXAMPLES[1].model_dump() | {"claim": claim, "content_bytes": size}))

    assert opened(signed(filing)) == filing


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 8))
def test_any_bytes_are_refused_as_ours(octets: bytes, which: int) -> None:
    with pytest.raises(TransparencyError):
        parse_statement(list(STATEMENTS)[which], octets)
    with pytest.raises(TransparencyError):
        opened(octets)
