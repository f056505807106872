from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from nsmark.errors import FileAccessError
from nsmark.models.model_card import (
    SECTION_BEGIN,
    SECTION_END,
    ModelProvenance,
    insert_section,
    plain_text,
    provenance_section,
    write_model_card,
)

PEM = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAiojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w=
-----END PUBLIC KEY-----
"""
PROVENANCE = ModelProvenance(
    owner="Example Lab",
    message="tiny-encoder is ours",
    created="2026-01-31T12:00:00Z",
    public_key=PEM,
    signature_sha256="5e" * 32,
    model_sha256="0d" * 32,
    library_version="0.1.0",
)
SECTION = provenance_section(PROVENANCE)
INERT = "<!-- nsmark-removed -->"
LIMIT = 1024 * 1024

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])

# Pieces from which hostile cards are made: markers whole and in halves, and whatever opens
# something that the section would then be inside of.
FRAGMENTS = [
    SECTION_BEGIN,
    SECTION_END,
    "<!-- nsmark:prov",
    "enance begin -->",
    "enance end -->",
    "<!--",
    "-->",
    "---\n",
    "\n",
    "\r\n",
    "```\n",
    "# heading\n",
    "| a | b |\n",
    "license: mit\n",
]
fragments = st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=8))
cards = st.lists(fragments, max_size=12).map("".join)
plain_cards = cards.filter(lambda card: SECTION_BEGIN not in card and SECTION_END not in card)
claim_texts = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from([*FRAGMENTS, *"`|<>[]()*_~&;:/.!$\\ab \t"])).map("".join),
)


def parts_of(card: str) -> tuple[str, str, str]:
    """What is before the section, the section, and what is after it; there must be just one."""
    assert card.count(SECTION_BEGIN) == card.count(SECTION_END) == 1
    before, rest = card.split(SECTION_BEGIN)
    content, after = rest.split(SECTION_END)
    return before, SECTION_BEGIN + content + SECTION_END, after


def outside_of_sections(body: str) -> str:
    """The text between markers, without what stands between a begin and the end next to it."""
    pieces = re.split(f"({re.escape(SECTION_BEGIN)}|{re.escape(SECTION_END)})", body)
    markers = ["", *pieces[1::2], ""]
    texts = pieces[::2]
    return "".join(
        text
        for number, text in enumerate(texts)
        if (markers[number], markers[number + 1]) != (SECTION_BEGIN, SECTION_END)
    )


def flat(tokens: list[Token]) -> list[Token]:
    return [t for token in tokens for t in (token, *(token.children or []))]


def shape(section: str) -> list[str]:
    """The kinds of a section's tokens; a character reference is text like any other."""
    kinds = [token.type for token in flat(MARKDOWN.parse(section))]
    merged = [re.sub("text_special", "text", kind) for kind in kinds]
    return [k for i, k in enumerate(merged) if not (k == "text" and i and merged[i - 1] == "text")]


def shown(section: str, label: str) -> str:
    """What a reader sees behind a label of the list."""
    for token in MARKDOWN.parse(section):
        if token.type == "inline":
            text = "".join(child.content for child in token.children or [])
            if text.startswith(label):
                return text.removeprefix(label).strip()
    raise AssertionError(label)


# --- what the section says -----------------------------------------------------------------------


def test_the_section_shows_what_is_public(signed_claim):
    public = signed_claim.public_form()
    provenance = replace(
        PROVENANCE,
        **{name: public["claim"][name] for name in ("owner", "message", "created")},
        public_key=public["public_key"],
        signature_sha256=public["signature_sha256"],
    )
    section = provenance_section(provenance)
    assert shown(section, "Owner:") == "Example Lab"
    assert shown(section, "Claim:") == "tiny-encoder is ours"
    assert shown(section, "Date of the claim:") == "2026-01-31T12:00:00Z"
    assert shown(section, "SHA-256 of the signature:") == signed_claim.signature_digest
    assert shown(section, "SHA-256 of the model:") == "0d" * 32
    assert "nsmark `0.1.0`" in section
    assert "`nsmark verify KEY SUSPECT`" in section
    [key] = [t.content for t in MARKDOWN.parse(section) if t.type == "code_block"]
    assert key == signed_claim.public_key.to_pem()
    assert signed_claim.signature.hex() not in section


def test_the_section_promises_nothing():
    words = set(re.findall(r"[a-z]+", SECTION.lower()))
    assert not words & {"guarantee", "guarantees", "guaranteed", "cannot", "never", "impossible"}


@given(owner=claim_texts, message=claim_texts)
@example(owner="\ud800", message="\udfff\x00\x1b[2J\u202e")
@example(owner=SECTION_END, message=SECTION_BEGIN + "\n\n# Owned by me")
@example(owner="[x](javascript:alert(1))", message="<script>alert(1)</script>")
@example(owner="www.example.org a@example.org https://example.org", message="`` ` ``` \\")
@example(owner="a | b\n|---|---|\n| c | d |", message="![x](https://example.org/x.png)")
@example(owner="", message=" \n ")
@settings(max_examples=300, deadline=None)
def test_owner_and_message_are_text_and_nothing_else(owner, message):
    section = provenance_section(replace(PROVENANCE, owner=owner, message=message))
    assert parts_of(section) == ("", section, "")
    assert shape(section) == shape(SECTION)
    assert len(section.splitlines()) == len(SECTION.splitlines())
    for line in section.splitlines():
        if line.startswith(("- Owner:", "- Claim:")):
            assert not re.search(r"[<>`|*_\[\]\\@!:]", line.removeprefix(line[:8]))
            assert "www." not in line
            assert "://" not in line
    section.encode("utf-8")


@given(text=st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs"]), max_size=60))
def test_readers_see_the_text_as_it_was_but_for_white_space(text):
    section = provenance_section(replace(PROVENANCE, owner=text))
    assert shown(section, "Owner:") == " ".join(text.split())


def test_ordinary_names_stay_legible_in_the_source():
    for text in ("This model is ours. All of it.", "Müller, O'Neil (heirs) of Aix-la-Chapelle"):
        assert plain_text(text) == text
    assert plain_text("Smith & Co.") == "Smith &#38; Co."


def test_characters_that_govern_the_display_are_replaced():
    assert plain_text("a\u202eb\x00c\x1bd\ud800e\ufefff") == "a�b�c�d�e�f"
    assert (
        plain_text("\u0646\u0645\u06cc\u200c\u062e\u0648") == "\u0646\u0645\u06cc\u200c\u062e\u0648"
    )


@given(text=st.text(max_size=30))
@example(text="")
@example(text="`")
def test_other_fields_cannot_leave_their_place(text):
    names = ("created", "signature_sha256", "model_sha256", "library_version")
    section = provenance_section(replace(PROVENANCE, **dict.fromkeys(names, text)))
    assert shape(section) == shape(SECTION)
    assert parts_of(section) == ("", section, "")
    keyed = provenance_section(replace(PROVENANCE, public_key=text))
    assert parts_of(keyed) == ("", keyed, "")
    assert shape(keyed) in (shape(SECTION), [k for k in shape(SECTION) if k != "code_block"])


# --- where it stands -----------------------------------------------------------------------------


@given(card=plain_cards)
@example(card="")
@example(card="---\nlicense: mit\n---\n# A model\n")
@example(card="---\r\nlicense: mit\r\n---\r\n# A model")
def test_the_section_follows_a_card_that_had_none(card):
    before, section, after = parts_of(insert_section(card, SECTION))
    assert (section, after) == (SECTION, "\n")
    assert before.startswith(card)
    assert before[len(card) :].strip("\n") == ""
    assert before == "" or before.endswith("\n\n")


@given(before=plain_cards, content=plain_cards, after=plain_cards)
@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_a_section_is_replaced_where_it_stands(before, content, after):
    card = f"{before}{SECTION_BEGIN}{content}{SECTION_END}{after}"
    assume(card.count("<!-- nsmark:provenance") == 2)
    assume(not card.lstrip("\ufeff \t\r\n").startswith("---"))
    assert insert_section(card, SECTION) == before + SECTION + after


@given(card=cards)
@example(card=SECTION_BEGIN * 3 + SECTION_END * 2)
@example(card=SECTION_END + "text" + SECTION_BEGIN)
@example(card=f"<!-- nsmark:prov{SECTION_BEGIN}x{SECTION_END}enance begin -->")
@example(card=f"{SECTION}{SECTION}<!-- nsmark:prov{SECTION}enance end -->")
@example(card=f"---\nkey: {SECTION_BEGIN}\n---\nx{SECTION_END}")
@example(card=f"---\n{SECTION}\n---\n{SECTION_BEGIN}")
@settings(max_examples=500, deadline=None)
def test_there_is_one_section_whatever_the_card_holds(card):
    once = insert_section(card, SECTION)
    assert parts_of(once)[1] == SECTION
    assert insert_section(once, SECTION) == once
    other = provenance_section(replace(PROVENANCE, owner="Somebody Else"))
    again = insert_section(once, other)
    assert parts_of(again)[1] == other
    assert again.replace(other, SECTION) == once


@given(card=cards)
@settings(max_examples=500, deadline=None)
def test_text_outside_of_sections_is_kept(card):
    card = f"# card\n{card}"  # no front matter, in which there are no sections
    before, _, after = parts_of(insert_section(card, SECTION))
    kept = (before + after).replace(INERT, "")
    assert kept.rstrip("\n") == outside_of_sections(card).rstrip("\n")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("lead", ["", "\ufeff", "\n"])
@pytest.mark.parametrize("fields", ["", "license: mit\ntags:\n- text\n"])
def test_front_matter_stays_at_the_top_as_it_was(newline, lead, fields):
    front = lead + f"---\n{fields}---\n".replace("\n", newline)
    assert insert_section(front, SECTION).startswith(front)
    body = f"# Title\n{SECTION_BEGIN}old{SECTION_END}\n---\nend\n"
    assert insert_section(front + body, SECTION) == f"{front}# Title\n{SECTION}\n---\nend\n"


def test_a_section_in_front_matter_is_none():
    fake = f"---\nlicense: mit # {SECTION_BEGIN}x{SECTION_END}\ntags: {SECTION_END}\n---\n# Title\n"
    before, _, _ = parts_of(insert_section(fake, SECTION))
    assert before == f"---\nlicense: mit # {INERT}\ntags: {INERT}\n---\n# Title\n\n"


@pytest.mark.parametrize(
    "end", ["<!-- note", "a\n<!--\nb", "* list", "> quote", "text", "a | b\n-|-"]
)
def test_the_section_is_shown_even_where_the_card_breaks_off(end):
    tokens = MARKDOWN.parse(insert_section(f"# Title\n\n{end}", SECTION))
    assert "Provenance" in [token.content for token in tokens if token.type == "inline"]


@pytest.mark.parametrize(
    "piece",
    ["\n", " ", "---\n", "\n---", SECTION_BEGIN, SECTION_END, "<!-- nsmark:provenance ", "<", "\r"],
)
def test_hostile_cards_take_no_long_time(piece):
    for card in (piece * (LIMIT // len(piece)), "---\n" + piece * (LIMIT // len(piece))):
        assert parts_of(insert_section(card, SECTION))[1] == SECTION


# --- files ---------------------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("source", "target"):
        (tmp_path / name).mkdir()
    return tmp_path / "source", tmp_path / "target"


def written(source: Path, target: Path) -> str:
    write_model_card(target, source, PROVENANCE)
    assert [file.name for file in target.iterdir()] == ["README.md"]
    return (target / "README.md").read_bytes().decode("utf-8")


def test_a_model_without_a_card_gets_one(folders):
    assert written(*folders) == f"# Watermarked model\n\n{SECTION}\n"


def test_the_card_of_the_source_is_kept_and_the_source_untouched(folders):
    source, target = folders
    card = "---\r\nlicense: mit\r\n---\r\n# Größe ☃\r\n"
    (source / "README.md").write_bytes(card.encode("utf-8"))
    assert written(source, target) == f"{card}\n{SECTION}\n"
    assert (source / "README.md").read_bytes() == card.encode("utf-8")


@given(card=cards, owner=claim_texts, message=claim_texts)
@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_marking_a_marked_model_replaces_the_section(folders, card, owner, message):
    source, target = folders
    (source / "README.md").write_bytes(card.encode("utf-8"))
    first = written(source, target)
    provenance = replace(PROVENANCE, owner=owner, message=message)
    write_model_card(target, target, provenance)
    second = (target / "README.md").read_bytes().decode("utf-8")
    assert parts_of(second)[1] == provenance_section(provenance)
    assert parts_of(second)[::2] == parts_of(first)[::2]


def test_bytes_that_are_no_text_are_replaced(folders):
    (folders[0] / "README.md").write_bytes(b"# A\xff\xfe model\n")
    assert written(*folders) == f"# A�� model\n\n{SECTION}\n"


def test_the_largest_card_is_kept_and_a_larger_one_left_out(folders):
    source, target = folders
    (source / "README.md").write_bytes(b"x" * LIMIT)
    assert written(source, target).startswith("x" * LIMIT + "\n\n" + SECTION_BEGIN)
    (source / "README.md").write_bytes(b"x" * (LIMIT + 1))
    assert_left_out(written(source, target))


def assert_left_out(card: str) -> None:
    assert card.startswith("# Watermarked model\n")
    assert "could not be carried over" in parts_of(card)[0]
    assert len(card) < 10_000


@pytest.mark.parametrize("kind", ["link", "link to nothing", "circle", "folder", "pipe"])
def test_what_is_no_file_of_the_folder_is_left_out(folders, kind):
    source, target = folders
    private, card = source.parent / "private.txt", source / "README.md"
    private.write_text("a secret", encoding="utf-8")
    if kind == "folder":
        card.mkdir()
    elif kind == "pipe":
        os.mkfifo(card)
    else:
        names = {"link": private, "link to nothing": source / "missing", "circle": card}
        card.symlink_to(names[kind])
    found = written(source, target)
    assert_left_out(found)
    assert "a secret" not in found


def test_links_within_the_folder_and_of_the_hubs_cache_are_followed(folders):
    source, target = folders
    (source / "card.md").write_text("# Linked\n", encoding="utf-8")
    (source / "README.md").symlink_to("card.md")
    assert written(source, target).startswith("# Linked\n")
    snapshot, blobs = source / "snapshots" / "a1b2", source / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "c3d4").write_text("# Cached\n", encoding="utf-8")
    (snapshot / "README.md").symlink_to("../../blobs/c3d4")
    assert written(snapshot, target).startswith("# Cached\n")


def test_a_card_that_cannot_be_written_is_an_error_of_ours(folders):
    source, _ = folders
    (source / "file").write_text("x", encoding="utf-8")
    with pytest.raises(FileAccessError):
        write_model_card(source / "file", source, PROVENANCE)


def test_torch_is_not_needed():
    check = "import sys, nsmark.models.model_card; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)
