"""The newest checkpoint of a log that was ever seen: whatever comes later must agree with it.

A log that shows different histories to different people, or to one person at different times, is
noticed by whoever remembers one checkpoint. Both signed notes together are the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from nsmark.errors import InputError
from nsmark.files import read_bounded, write_atomic
from nsmark_authority.errors import NotFoundError, RewrittenLogError, TransparencyError
from nsmark_authority.transparency import (
    MAX_NOTE_BYTES,
    Checkpoint,
    NoteKey,
    check_consistency,
    open_checkpoint,
)

AskForProof = Callable[[int, int], Sequence[bytes]]
"""Old size and new size → the log's consistency proof."""


class SeenCheckpoint:
    """The newest checkpoint of one log, kept in a file or only in memory."""

    def __init__(self, key: NoteKey, path: Path | None = None) -> None:
        """Read what was seen before.

        Raises:
            TransparencyError: The file holds no checkpoint of this log.
            FileAccessError: It cannot be read.
        """
        self._key = key
        self._path = path
        self._note = self._load()

    @property
    def note(self) -> bytes | None:
        """The signed note; None before the first."""
        return self._note

    @property
    def checkpoint(self) -> Checkpoint | None:
        """What it says."""
        return None if self._note is None else open_checkpoint(self._note, self._key)

    def reload(self) -> int:
        """Look what other commands saw in the meantime; return the size of the newest."""
        self._note = self._load() or self._note
        known = self.checkpoint
        return 0 if known is None else known.size

    def take(self, note: bytes, ask: AskForProof, *, at_least: int = 0) -> Checkpoint:
        """Check a note that the log served against the newest one seen, and remember it if newer.

        Args:
            note: A signed checkpoint.
            ask: Fetches the consistency proof between two sizes.
            at_least: How large the log was known to be before it was asked for all of it; receipts
                may be older.

        Raises:
            RewrittenLogError: It contradicts what was seen before.
            TransparencyError: Malformed, or not signed by this log.
        """
        new = open_checkpoint(note, self._key)
        self.reload()
        known = self.checkpoint
        if known is None or self._note is None:
            self._save(note)
            return new
        if new.size < at_least:
            raise RewrittenLogError(
                f"THE LOG WAS ROLLED BACK: it had {at_least} entries, now it shows {new.size}",
                earlier=self._note,
                later=note,
            )
        require_consistent(self._note, known, note, new, ask)
        if new.size > known.size:
            self._save(note)
        return new

    def _load(self) -> bytes | None:
        if self._path is None or not self._path.exists():
            return None
        note = read_bounded(self._path, MAX_NOTE_BYTES, "checkpoint")
        try:
            open_checkpoint(note, self._key)
        except TransparencyError as error:
            raise TransparencyError(
                f"{self._path} holds no checkpoint of this authority: {error}",
                "look who changed it; without it, a rewritten log goes unnoticed",
            ) from error
        return note

    def _save(self, note: bytes) -> None:
        self._note = note
        if self._path is not None:
            write_atomic(self._path, note)


def require_consistent(
    known_note: bytes, known: Checkpoint, note: bytes, new: Checkpoint, ask: AskForProof
) -> None:
    """Check that of two checkpoints of one log the larger begins with the smaller.

    Raises:
        RewrittenLogError: It does not, or the log's proof that it does is none.
    """
    if known.size == new.size:
        if known.root != new.root:
            raise RewrittenLogError(
                f"THE LOG IS FORKED: it signed two different trees of {new.size} entries",
                earlier=known_note,
                later=note,
            )
        return
    old, young = (known, new) if known.size < new.size else (new, known)
    if old.size == 0:
        return  # every tree begins with the empty one
    try:
        check_consistency(
            ask(old.size, young.size),
            old_size=old.size,
            old_root=old.root,
            new_size=young.size,
            new_root=young.root,
        )
    except (InputError, NotFoundError) as error:
        # Also a log that refuses to answer: it signed both, so it owes the proof.
        raise RewrittenLogError(
            f"THE LOG WAS REWRITTEN: it cannot prove that its {young.size} entries begin with the "
            f"{old.size} that it signed",
            earlier=known_note,
            later=note,
        ) from error
