"""The package's own word lists and pool, published so that keys made with them can be admitted."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Literal

from nsmark.core.texts import lines_digest
from nsmark.corpus import pool_texts
from nsmark.payload import ordinary_word_list, published_word_list
from nsmark_authority.errors import ConflictError, NotFoundError
from nsmark_authority.service import Authority

_NOTE = "ships with nsmark"


def publish_packaged_texts(authority: Authority) -> int:
    """Publish what is not published yet; return how many texts that were."""
    things: tuple[tuple[Literal["word_list", "pool"], str, Sequence[str]], ...] = (
        ("word_list", "rare words, version 1", published_word_list().words),
        ("word_list", "ordinary words, version 1", ordinary_word_list().words),
        ("pool", "texts of the package, version 1", pool_texts()),
    )
    return sum(_publish(authority, what, name, lines) for what, name, lines in things)


def _publish(
    authority: Authority, what: Literal["word_list", "pool"], name: str, lines: Sequence[str]
) -> bool:
    try:
        authority.registry.publication(lines_digest(lines))
    except NotFoundError:
        content = "".join(f"{line}\n" for line in lines).encode("utf-8")
        with contextlib.suppress(ConflictError):  # another process was faster
            authority.publish(what, name, content, note=_NOTE)
        return True
    return False
