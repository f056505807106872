"""Claims: exactly four fields, one canonical form."""

import datetime
import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.errors import ClaimError, InputError
from nsmark.identity import OwnershipClaim, parse_json_object
from nsmark.identity.claim import utc_now

FIELDS = {
    "format": "nsmark/claim/1",
    "owner": "Example Lab",
    "message": "encoder-small is ours",
    "created": "2026-01-31T12:00:00Z",
}
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


def test_golden_canonical_bytes() -> None:
    assert OwnershipClaim.from_mapping(FIELDS).canonical_bytes() == (
        b'{"created":"2026-01-31T12:00:00Z","format":"nsmark/claim/1",'
        b'"message":"encoder-small is ours","owner":"Example Lab"}'
    )


def test_strings_are_escaped_as_rfc_8785_says() -> None:
    # The example of RFC 8785 §3.2.2: control characters short where JSON has a short form, hex in
    # lower case, everything else as UTF-8.
    claim = OwnershipClaim.make('\u20ac$\u000f\nA\'B"\\\\"/', "\u007f\u2028", FIELDS["created"])

    assert claim.canonical_bytes() == (
        b'{"created":"2026-01-31T12:00:00Z","format":"nsmark/claim/1",'
        b'"message":"\x7f\xe2\x80\xa8","owner":"\xe2\x82\xac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


@pytest.mark.parametrize("order", list(itertools.permutations(FIELDS)))
def test_canonical_bytes_do_not_depend_on_the_order_of_fields(order: tuple[str, ...]) -> None:
    text = json.dumps({name: FIELDS[name] for name in order}, indent=3)

    claim = OwnershipClaim.from_mapping(parse_json_object(text, "claim"))

    assert claim.canonical_bytes() == OwnershipClaim.from_mapping(FIELDS).canonical_bytes()


@settings(max_examples=100, deadline=None)
@given(texts, texts, st.randoms(use_true_random=False), st.booleans())
def test_any_spelling_of_a_claim_in_json_gives_the_same_bytes(
    owner: str, message: str, random, ascii_only: bool
) -> None:
    claim = OwnershipClaim.make(owner, message, FIELDS["created"])
    members = list(claim.to_mapping().items())
    random.shuffle(members)
    spelled = json.dumps(dict(members), ensure_ascii=ascii_only, indent=random.choice([None, 2]))

    again = OwnershipClaim.from_mapping(parse_json_object(spelled.encode(), "claim"))

    assert again == claim
    assert again.canonical_bytes() == claim.canonical_bytes()
    assert json.loads(claim.canonical_bytes()) == claim.to_mapping()


@settings(max_examples=100, deadline=None)
@given(texts, texts, texts, texts)
def test_different_claims_have_different_bytes(o1: str, m1: str, o2: str, m2: str) -> None:
    one = OwnershipClaim.make(o1, m1, FIELDS["created"])
    two = OwnershipClaim.make(o2, m2, FIELDS["created"])

    assert (one.canonical_bytes() == two.canonical_bytes()) == ((o1, m1) == (o2, m2))


def test_text_is_signed_as_it_is_written_without_normalisation() -> None:
    composed = OwnershipClaim.make("caf\u00e9", "m", FIELDS["created"])
    decomposed = OwnershipClaim.make("cafe\u0301", "m", FIELDS["created"])

    assert composed.canonical_bytes() != decomposed.canonical_bytes()


@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_field_is_refused(name: str) -> None:
    with pytest.raises(ClaimError, match="exactly the fields"):
        OwnershipClaim.from_mapping({k: v for k, v in FIELDS.items() if k != name})


@pytest.mark.parametrize("document", [{**FIELDS, "extra": "x"}, [], "claim", None, 3])
def test_anything_but_the_four_fields_is_refused(document: object) -> None:
    with pytest.raises(ClaimError, match="exactly the fields"):
        OwnershipClaim.from_mapping(document)


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", [1, None, True, ["x"], {"a": "b"}])
def test_a_field_that_is_no_string_is_refused(name: str, value: object) -> None:
    with pytest.raises(ClaimError, match=name):
        OwnershipClaim.from_mapping({**FIELDS, name: value})


@pytest.mark.parametrize("name", ["owner", "message"])
def test_a_lone_surrogate_is_refused(name: str) -> None:
    document = parse_json_object(json.dumps({**FIELDS, name: "\ud800"}), "claim")

    with pytest.raises(ClaimError, match=f"{name} is not valid Unicode"):
        OwnershipClaim.from_mapping(document)


@pytest.mark.parametrize("name", ["nsmark/claim/2", "nsmark/claim/1 ", "NSMARK/CLAIM/1", ""])
def test_another_format_is_refused(name: str) -> None:
    with pytest.raises(ClaimError, match="format"):
        OwnershipClaim.from_mapping({**FIELDS, "format": name})


@pytest.mark.parametrize(("name", "most"), [("owner", 256), ("message", 16_384)])
def test_lengths_are_bounded_on_both_sides(name: str, most: int) -> None:
    assert OwnershipClaim.from_mapping({**FIELDS, name: "x" * most})
    for value in ("", "x" * (most + 1)):
        with pytest.raises(ClaimError, match=name):
            OwnershipClaim.from_mapping({**FIELDS, name: value})


@pytest.mark.parametrize("created", ["2024-02-29T00:00:00Z", "0001-01-01T23:59:59Z"])
def test_real_times_are_accepted(created: str) -> None:
    assert OwnershipClaim.make("o", "m", created).created == created


@pytest.mark.parametrize(
    "created",
    [
        "",
        "2026-01-31",
        "2026-01-31T12:00:00",
        "2026-01-31T12:00:00+00:00",
        "2026-01-31t12:00:00z",
        "2026-01-31 12:00:00Z",
        "2026-01-31T12:00:00.0Z",
        "2026-01-31T12:00:00Z\n",
        " 2026-01-31T12:00:00Z",
        "2026-1-31T12:00:00Z",
        "٢٠٢٦-01-31T12:00:00Z",  # digits, but not ASCII
        "2026-02-30T12:00:00Z",
        "2025-02-29T12:00:00Z",
        "2026-13-01T12:00:00Z",
        "2026-01-31T24:00:00Z",
        "2026-01-31T12:60:00Z",
        "2026-01-31T12:00:60Z",
        "0000-01-01T00:00:00Z",
    ],
)
def test_other_spellings_and_impossible_times_are_refused(created: str) -> None:
    with pytest.raises(ClaimError, match="time"):
        OwnershipClaim.make("o", "m", created)


def test_a_claim_made_without_a_time_is_made_now() -> None:
    made = datetime.datetime.strptime(OwnershipClaim.make("o", "m").created, "%Y-%m-%dT%H:%M:%SZ")
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)

    assert abs((now - made).total_seconds()) < 60
    assert len(utc_now()) == len("2026-01-31T12:00:00Z")


def test_a_claim_cannot_be_changed() -> None:
    claim = OwnershipClaim.from_mapping(FIELDS)

    with pytest.raises(AttributeError):
        claim.owner = "Mallory"


# Parsing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"owner": "a", "owner": "a"}',
        '{"owner": "a", "\\u006fwner": "b"}',  # the same key, spelled otherwise
        '{"claim": {"owner": "a", "owner": "b"}}',
        '{"list": [{"x": 1, "x": 1}]}',
    ],
)
def test_duplicate_keys_are_refused_at_every_depth(text: str) -> None:
    with pytest.raises(InputError, match="twice"):
        parse_json_object(text, "claim")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}{}",
        "{} trailing",
        "{'a': 1}",
        '{"a": 1,}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": [-1e400]}',
        '{"a": ' + "9" * 5000 + "}",
        '{"a":' * 100_000,
        b'{"a": "\xff"}',
    ],
)
def test_what_is_not_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(InputError, match="not valid JSON"):
        parse_json_object(text, "claim")


@pytest.mark.parametrize("text", ["[]", "null", '"claim"', "3", "true"])
def test_json_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a JSON object"):
        parse_json_object(text, "claim")


def test_ordinary_json_is_read() -> None:
    assert parse_json_object(b'{"a": [1, -2.5e3, "\\u00e9", null, true]}', "report") == {
        "a": [1, -2500.0, "\u00e9", None, True]
    }
