"""Words, times and sizes as people read them; text from outside made visible and harmless."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator

from markupsafe import Markup, escape

from nsmark_authority.fields import parse_time

TITLE_CHARACTERS = 80
LINE_CHARACTERS = 300
PROSE_CHARACTERS = 17_000
"""Longer than anything that an owner can say."""

# No script stacks more marks on a letter; a hostile name does, over the lines above it.
_MAX_MARKS = 4
_MANY_LINES = re.compile(r"\n{3,}")
_UNITS = ("", "kB", "MB", "GB", "TB")


def said(text: str, limit: int = LINE_CHARACTERS) -> Markup:
    """Return one line of outside text, set apart so that it cannot turn what stands around it.

    Characters that do not print are shown by their numbers, in an element of their own: nobody can
    write such an element himself.
    """
    return _marked(" ".join(text.split("\n")), limit)


def prose(text: str, limit: int = PROSE_CHARACTERS) -> Markup:
    """Return outside text of several lines."""
    return _marked(_MANY_LINES.sub("\n\n", text), limit)


def plain(text: str, limit: int = TITLE_CHARACTERS) -> str:
    """Return outside text where there can be no elements, such as in a window's title."""
    shown = "".join(
        f"[{character}]" if is_odd else character for character, is_odd in _visible(text[:limit])
    )
    return f"{shown}…" if len(text) > limit else shown


def _marked(text: str, limit: int) -> Markup:
    inside = Markup().join(
        Markup('<span class="odd">{}</span>').format(" ".join(part))
        if is_odd
        else escape("".join(part))
        for is_odd, part in _runs(text[:limit])
    )
    more = f"… ({len(text):,} characters)" if len(text) > limit else ""
    return Markup('<bdi class="said">{}</bdi>{}').format(inside, more)


def _runs(text: str) -> Iterator[tuple[bool, list[str]]]:
    for is_odd, run in itertools.groupby(_visible(text), key=lambda each: each[1]):
        yield is_odd, [shown for shown, _ in run]


def _visible(text: str) -> Iterator[tuple[str, bool]]:
    """Yield what is shown for each character, and whether it is the number of an odd one."""
    marks = 0
    for character in text:
        category = unicodedata.category(character)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        if marks > _MAX_MARKS:
            continue
        if character == "\n" or character.isprintable():
            yield character, False
        elif category == "Zs":
            yield " ", False
        else:
            yield f"U+{ord(character):04X}", True


def first_line(text: str) -> str:
    """Return what stands before the first line break."""
    return text.strip().partition("\n")[0]


def sentence(text: str) -> str:
    """Return a message of ours as a sentence."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "…", "?")) else f"{text}."


def when(time: str | None) -> Markup:
    """Return a time of the log for people and machines."""
    if time is None:
        return Markup("–")
    try:
        shown = f"{parse_time(time):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return escape(time)
    return Markup('<time datetime="{}">{}</time>').format(time, shown)


def size(num_bytes: int) -> str:
    """Return a number of bytes: ``9.3 kB``."""
    amount, unit = float(num_bytes), 0
    while amount >= 999.5 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    shown = count(num_bytes, "byte") if unit == 0 else f"{amount:.3g} {_UNITS[unit]}"
    return shown.replace(" ", "\N{NO-BREAK SPACE}")


def duration(seconds: int) -> str:
    """Return a span of time: ``14 days``."""
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= length and seconds % length == 0:
            return count(seconds // length, unit)
    return count(seconds, "second")


def count(amount: int, one: str, many: str | None = None) -> str:
    """Return ``1 claim``, ``1,500 claims``."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"


def short(digest: str) -> Markup:
    """Return the beginning of a digest; the whole is in its title."""
    return Markup('<code title="{}">{}…</code>').format(digest, digest[:12])


def figure(value: object) -> str:
    """Return a figure of a ruling."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def label(name: str) -> str:
    """Return the name of a member as words."""
    return name.replace("_", " ").strip().capitalize()


FILING_STATES = {
    "waiting": ("waiting", "Filed and dated; whether it is admitted is not decided yet."),
    "admitted": ("admitted", "Checked and found sound: it can be used in a dispute."),
    "refused": ("refused", "It failed a check: it cannot be used in a dispute."),
    "revealed": (
        "revealed",
        "Admitted; a dispute has revealed its trigger to a suspect, who may now avoid it.",
    ),
    "succeeded": ("succeeded", "Revealed in a dispute; the owner’s next key has taken its place."),
    "withdrawn": ("withdrawn", "Its owner withdrew it; what was logged stays."),
}
DISPUTE_STATES = {
    "open": ("open", "Not ruled yet."),
    "ruled": ("ruled", "The authority has ruled."),
    "withdrawn": ("withdrawn", "The claimant withdrew it; there will be no ruling."),
}
OUTCOMES = {
    "upheld": ("upheld", "owned", "Upheld"),
    "not_shown": ("not shown", "not-shown", "Not shown"),
    "fell": ("fell", "not-shown", "The claim falls"),
    "not_covered": ("not covered", "not-shown", "Not covered"),
    "preceded": ("preceded", "not-shown", "Preceded"),
    "could_not_measure": ("could not measure", "could-not-measure", "Could not measure"),
}
"""In a list; the band's class; the band's word."""

SENTENCES = {
    "upheld": "The suspect carries the watermark of {owner}, whose key was filed before the "
    "suspect was released.",
    "not_shown": "It was not shown that the suspect carries the watermark of {owner}.",
    "fell": "The claim of {owner} falls: the key also accepts something that the respondent had, "
    "with a proven date, before the key was filed.",
    "not_covered": "The claim of {owner} does not cover the suspect, which was public before the "
    "key was filed.",
    "preceded": "The suspect carries the watermark of {owner}, but an earlier claim to the same "
    "suspect prevails.",
    "could_not_measure": "Not everything could be measured: nothing was ruled for or against "
    "{owner}.",
}
KINDS = {
    "registration": "Registration of an owner's public key",
    "filing": "Filing of a sealed watermark key",
    "deposit": "Deposit of a model or of recorded outputs",
    "dispute": "Dispute about a suspect",
    "defence": "Answer to a dispute",
    "withdrawal": "Withdrawal",
    "publication": "Publication of the authority",
    "admission": "Decision on the admission of a key",
    "ruling": "Ruling in a dispute",
}
PUBLISHED = {"word_list": "word list", "pool": "candidate pool", "control_set": "control set"}
DEPOSITED = {"model": "model", "recorded": "recorded outputs"}
