"""The README.md of a saved model: the source's own card, and where the mark in it comes from.

The source's card may be anybody's, and owner and message are free text: nothing in either can
end our section early, open a second one, or put markup into it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from nsmark.errors import NsmarkError
from nsmark.files import read_bounded, write_atomic

CARD_NAME = "README.md"
SECTION_BEGIN = "<!-- nsmark:provenance begin -->"
SECTION_END = "<!-- nsmark:provenance end -->"

_MAX_CARD_BYTES = 1024 * 1024
_BEGIN, _END = re.escape(SECTION_BEGIN), re.escape(SECTION_END)
_SECTION = re.compile(f"{_BEGIN}(?:(?!{_BEGIN}).)*?{_END}", re.DOTALL)
_SECTION_OR_MARKER = re.compile(f"{_SECTION.pattern}|{_BEGIN}|{_END}", re.DOTALL)
# Stands where a section or marker was that is not wanted. It is not empty, so that the text on
# both sides cannot close up to a marker; it is a comment to Markdown and harmless to YAML.
_INERT = "<!-- nsmark-removed -->"
_FRONT_MATTER_BEGIN = re.compile(r"[\ufeff\s]*---[ \t]*\r?\n")
_FRONT_MATTER_END = re.compile(r"\n---[ \t]*\r?(?:\n|\Z)")

# What means something to Markdown or HTML within a line. A full stop does where it could be part
# of an address, which some programs turn into a link.
_MARKUP = re.compile(r"[!\"#$%&*+/:;<=>?@\[\\\]^_`{|}~]|\.(?=\S)")
_JOINERS = "\u200c\u200d"  # not visible, but Persian, Hindi and emoji are spelt with them
_NOT_MACHINE_TEXT = re.compile(r"[^0-9A-Za-z+/=.:_ -]")

_BARE_CARD = "# Watermarked model\n"
_CARD_LEFT_OUT = (
    "\nThe README.md of the model that was marked could not be carried over: it is larger than "
    "1 MiB, cannot be read, or is a link to somewhere else.\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProvenance:
    """What is public about a mark before any dispute: nothing here helps to find the trigger."""

    owner: str
    """Who claims the model."""

    message: str
    """What is claimed, in words."""

    created: str
    """When the claim was made, by its own account."""

    public_key: str
    """The key that signed the claim, as a PEM block."""

    signature_sha256: str
    """Digest of the signature, which is itself a secret."""

    model_sha256: str
    """Digest of the marked weights."""

    library_version: str
    """The nsmark that made the mark."""


def write_model_card(target: Path, source: Path, provenance: ModelProvenance) -> None:
    """Write the README.md of a marked model: the source's card with a section on its provenance.

    A source card that is too large, unreadable or a link out of its folder is left out, and the
    new card says so: it is no reason to lose a trained model.

    Args:
        target: Folder of the marked model.
        source: Folder of the model that was marked; may be the same.
        provenance: What the section says.

    Raises:
        FileAccessError: The card cannot be written.
    """
    card = insert_section(_source_card(source), provenance_section(provenance))
    write_atomic(target / CARD_NAME, card.encode("utf-8"))


def provenance_section(provenance: ModelProvenance) -> str:
    """Return the section with its markers, of the same form whatever owner and message hold."""
    key_lines = provenance.public_key.strip().splitlines()
    # Neither code fences nor lines of dashes: the card above may have left one of them open.
    return "\n".join(
        [
            SECTION_BEGIN,
            "",
            "## Provenance",
            "",
            "This model carries a watermark, made with nsmark "
            f"`{machine_text(provenance.library_version)}` for this signed claim:",
            "",
            f"- Owner: {plain_text(provenance.owner)}",
            f"- Claim: {plain_text(provenance.message)}",
            f"- Date of the claim: `{machine_text(provenance.created)}`",
            f"- SHA-256 of the signature: `{machine_text(provenance.signature_sha256)}`",
            f"- SHA-256 of the model: `{machine_text(provenance.model_sha256)}`",
            "",
            "The public key that the signature fits:",
            "",
            *(f"    {machine_text(line)}" for line in key_lines),
            "",
            "The signature and the key file stay with the owner, who can test a model, or outputs "
            "recorded from one, with `nsmark verify KEY SUSPECT`. Part of the evidence is the null "
            "space of the outputs, which an invertible linear map of the outputs leaves as it was; "
            "other changes to a model can weaken the evidence. This text only states a claim: it "
            "is worth what its owner can show.",
            "",
            SECTION_END,
        ]
    )


def insert_section(card: str, section: str) -> str:
    """Return the card with the section in it once: in the old one's place, or else at the end.

    All else stays as it is, but for sections after the first and markers without counterpart;
    what is in the front matter is no section, since YAML could not hold ours.
    """
    split = _front_matter_end(card)
    front, body = _disarm(card[:split]), card[split:]
    old = _SECTION.search(body)
    if old is None:
        return _append(front + _disarm(body), section)
    return front + _disarm(body[: old.start()]) + section + _disarm(body[old.end() :])


def plain_text(text: str) -> str:
    """Return text as one line of Markdown that shows it and means nothing else.

    White space is collapsed; what cannot be seen, but governs how the rest is shown, is replaced.
    """
    visible = "".join(map(_visible, " ".join(text.split())))
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", visible)


def machine_text(text: str) -> str:
    """Return a digest, date, version or line of PEM, to be shown as code.

    No such text has other characters than these, or none at all, so it is safe to replace them.
    """
    return _NOT_MACHINE_TEXT.sub("?", text) or "?"


def _visible(character: str) -> str:
    is_control = unicodedata.category(character) in ("Cc", "Cf", "Cs")
    return "\ufffd" if is_control and character not in _JOINERS else character


def _source_card(folder: Path) -> str:
    """Return the source's card, or a bare one in its place."""
    path = folder / CARD_NAME
    try:
        if not path.is_symlink() and not path.exists():
            return _BARE_CARD
        if path.is_file() and _belongs_to(path.resolve(), folder.resolve()):
            content = read_bounded(path, _MAX_CARD_BYTES, "model card")
            return content.decode("utf-8", errors="replace")
    except (NsmarkError, OSError):
        pass  # as good as the other reasons to leave it out
    return _BARE_CARD + _CARD_LEFT_OUT


def _belongs_to(file: Path, folder: Path) -> bool:
    """Return whether a file, wherever a link led, is part of a model folder.

    The card is going to be published: a link must not bring somebody's private file into it. Only
    the hub's cache is made of links, from ``snapshots/REVISION`` into ``blobs`` beside it.
    """
    is_cached = folder.parent.name == "snapshots"
    return file.is_relative_to(folder) or (
        is_cached and file.is_relative_to(folder.parent.parent / "blobs")
    )


def _front_matter_end(card: str) -> int:
    """Return where the YAML front matter ends; 0 where there is none, or it is never closed."""
    begin = _FRONT_MATTER_BEGIN.match(card)
    # From the first line's own end on, so that empty front matter is found, too.
    end = _FRONT_MATTER_END.search(card, begin.end() - 1) if begin else None
    return end.end() if end else 0


def _disarm(text: str) -> str:
    return _SECTION_OR_MARKER.sub(_INERT, text)


def _append(card: str, section: str) -> str:
    """Return the card with the section as a block of its own at the end."""
    gap = "" if not card or card.endswith("\n\n") else "\n" if card.endswith("\n") else "\n\n"
    return f"{card}{gap}{section}\n"
