from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from authority_world import NAME, KeyOwner, small_key
from nsmark.identity import OwnershipClaim
from nsmark_authority.characters import UNICODE_VERSION, find_unfit
from nsmark_authority.errors import TransparencyError
from nsmark_authority.fields import ClaimMembers, Line, Prose, printable_prose
from nsmark_authority.statements import Filing, Registration, parse_statement

LINE = TypeAdapter[str](Line)
PROSE = TypeAdapter[str](Prose)
CLAIM = TypeAdapter[dict[str, str]](ClaimMembers)

INVISIBLE = {
    "zero-width space": "\u200b",
    "zero-width non-joiner": "\u200c",
    "zero-width joiner": "\u200d",
    "right-to-left mark": "\u200f",
    "override": "\u202e",
    "isolate": "\u2066",
    "soft hyphen": "\u00ad",
    "word joiner": "\u2060",
    "byte order mark": "\ufeff",
    "tag letter": "\U000e0041",
    "grapheme joiner": "\u034f",
    "Hangul fillers": "\u115f",
    "Hangul filler": "\u3164",
    "half-width filler": "\uffa0",
    "Khmer vowel": "\u17b4",
    "Mongolian selector": "\u180b",
    "Mongolian vowel separator": "\u180e",
    "variation selector": "\ufe0f",
    "further variation selector": "\U000e0100",
    "empty Braille pattern": "\u2800",
    "private use": "\ue000",
    "private plane": "\U0010fffd",
    "unassigned": "\u0378",
    "no character": "\uffff",
    "assigned later": "\U0001fae8",
    "control": "\x07",
    "next line": "\x85",
    "line separator": "\u2028",
    "paragraph separator": "\u2029",
    "surrogate": "\ud800",
}


@pytest.mark.parametrize("character", INVISIBLE.values(), ids=INVISIBLE.keys())
@pytest.mark.parametrize("kind", [LINE, PROSE], ids=["line", "prose"])
def test_what_cannot_be_seen_is_refused(kind: TypeAdapter[str], character: str) -> None:
    assert kind.validate_python("Acme") == "Acme"
    for text in (f"Ac{character}me", f"{character}Acme", f"Acme{character}", character):
        with pytest.raises(ValidationError):
            kind.validate_python(text)


@pytest.mark.parametrize(
    "name",
    [
        *(" Acme", "Acme ", "Acme  Lab", " ", ""),
        *("Acme\u00a0Lab", "Acme\u3000Lab", "Acme\u2009Lab", "Acme\nLab", "Acme\tLab"),
        *("Cafe\u0301", "\u212b", "\u1112\u1161\u11ab"),  # not in composed form
    ],
)
def test_names_are_written_in_one_way(name: str) -> None:
    with pytest.raises(ValidationError):
        LINE.validate_python(name)


@pytest.mark.parametrize(
    "name",
    [
        *("Acme Lab", "Café", "Ångström & Söhne", "研究所", "株式会社サンプル", "한국 연구소"),
        *("Лаборатория", "Εργαστήριο", "מעבדה", "مختبر", "प्रयोगशाला", "ห้องทดลอง", "Lab 😀"),
    ],
)
def test_names_of_the_world_are_taken(name: str) -> None:
    assert LINE.validate_python(name) == name


def test_prose_has_lines_and_need_not_be_composed() -> None:
    for text in ("", "one\ntwo\n", "  so,  it is\u00a0ours", "Cafe\u0301"):
        assert PROSE.validate_python(text) == text
    with pytest.raises(ValidationError):
        PROSE.validate_python("one\rtwo")


@settings(max_examples=400, deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=60), st.integers(1, 200))
def test_what_the_authority_writes_it_accepts(text: str, times: int) -> None:
    written = printable_prose(text * times)
    assert PROSE.validate_python(written) == written
    assert len(written) == min(len(text) * times, 4096)


def test_every_character_is_either_taken_or_replaced() -> None:
    for point in range(0x110000):
        written = printable_prose(chr(point))
        assert written == (" " if find_unfit(chr(point)) else chr(point))
        assert find_unfit(written) is None


@pytest.mark.skipif(
    unicodedata.unidata_version != UNICODE_VERSION,
    reason=f"this Python knows Unicode {unicodedata.unidata_version}, not {UNICODE_VERSION}",
)
def test_the_table_is_that_of_unicode() -> None:
    besides = {
        *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180F, 0x3164, 0xFFA0),
        *range(0x180B, 0x180E),
        *range(0xFE00, 0xFE10),
        *range(0xE0100, 0xE01F0),
        *(0x2800, 0xFFFC, 0x16FE4, 0x1D159),
    }
    hidden = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    for point in range(0x110000):
        is_unfit = unicodedata.category(chr(point)) in hidden or point in besides
        assert (find_unfit(chr(point)) is not None) is is_unfit, hex(point)


@pytest.mark.parametrize(
    ("owner", "message"), [("Ac\u200dme", "ours"), ("Acme", "ou\u202ers"), ("Acme ", "ours")]
)
def test_a_claim_may_hold_what_the_log_does_not_take(owner: str, message: str) -> None:
    claim = OwnershipClaim.make(owner, message)
    assert claim.canonical_bytes()
    with pytest.raises(ValidationError):
        CLAIM.validate_python(claim.to_mapping())


def test_a_refusal_names_the_character_and_says_what_to_do() -> None:
    members = {
        "authority": NAME,
        "public_key": KeyOwner(1).pem,
        "owner": "Ac\u200dme",
        "nonce": "0" * 64,
    }
    with pytest.raises(TransparencyError, match=r"U\+200D ZERO WIDTH JOINER") as refused:
        Registration.from_members(members, "registration")
    assert "without" in refused.value.hint

    filing = Filing.of(
        small_key(0, 1).signed_claim, authority=NAME, key_id="0" * 64, content=b"key"
    )
    claim = OwnershipClaim.make("Acme\u00ad", "ours")
    payload = filing.model_copy(update={"claim": claim.to_mapping()}).to_payload()
    with pytest.raises(TransparencyError, match="SOFT HYPHEN") as refused:
        parse_statement(Filing.payload_type(), payload)
    assert "without" in refused.value.hint
