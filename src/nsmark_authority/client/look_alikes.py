"""Names that people take for each other: what a monitor compares.

A name is brought into forms in which case, spaces, punctuation and accents are gone and letters
that look alike are one letter. It is a short table of the Latin, Cyrillic and Greek letters that
names are forged with, not all of Unicode's confusables (UTS 39): it finds the common tricks, and
alerts on some names that are only similar. A false alert costs a look.
"""

from __future__ import annotations

import unicodedata

# Small letters, as case is gone before: the first of each pair looks like the second, either as a
# capital letter (В like B) or as a small one (а like a).
_BOTH = (
    "аa еe оo рp сc хx ѕs іl јj кk ԛq ԝw "  # Cyrillic
    "αa εe ιl κk οo ρp τt χx "  # Greek
    "il 1l |l ıl ɩl 0o øo đd ħh łl ŧt ɑa ɡg"  # Latin, and digits
)
_CAPITALS = "вb мm нh тt уy βb ζz ηh μm νn υy"
_SMALLS = "вb мm нh тt уy һh ԁd пn гr ηn μu νv υu γy ωw"
_GROUPS = (("rn", "m"), ("vv", "w"))


def _table(words: str) -> dict[int, str]:
    return {ord(pair[0]): pair[1] for pair in words.split()}


_TABLES = (_table(f"{_BOTH} {_CAPITALS}"), _table(f"{_BOTH} {_SMALLS}"))


def looks_of(name: str) -> frozenset[str]:
    """Return the forms of a name; names that share one may be taken for each other."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    plain = "".join(
        letter for letter in unicodedata.normalize("NFKD", folded) if not _is_mark(letter)
    )
    forms = set()
    for table in _TABLES:
        form = "".join(letter for letter in plain.translate(table) if _counts(letter))
        for group, looks_like in _GROUPS:
            form = form.replace(group, looks_like)
        # A name of nothing but signs is compared as it is.
        forms.add(form or "".join(folded.split()))
    return frozenset(forms - {""})


def look_alike(one: str, other: str) -> bool:
    """Return whether a hasty reader may take one name for the other."""
    return not looks_of(one).isdisjoint(looks_of(other))


def _is_mark(letter: str) -> bool:
    # Accents have a combining class; the vowel signs of Indian scripts, which count, have none.
    return unicodedata.combining(letter) != 0


def _counts(letter: str) -> bool:
    """Return whether it is a letter, digit or sign; spaces, punctuation and the unseen are not."""
    return unicodedata.category(letter)[0] in "LNM"
