"""The public log as a client reads it: checkpoints that agree with those seen, entries, proofs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nsmark_authority.client.answers import member, objects, proof_of
from nsmark_authority.client.http import AuthorityConnection
from nsmark_authority.client.seen import SeenCheckpoint
from nsmark_authority.client.trust import TrustedAuthority
from nsmark_authority.errors import AuthorityError
from nsmark_authority.transparency import (
    MAX_ENVELOPE_BYTES,
    MAX_NOTE_BYTES,
    Checkpoint,
    check_inclusion,
    hash_leaf,
)
from nsmark_authority.transparency.strict_base64 import decode_base64

PAGE_ENTRIES = 100
_MAX_PAGE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEntry:
    """An entry as the log serves it; nothing of it has been checked."""

    index: int
    entry: bytes = field(repr=False)
    """The envelope's exact JSON."""

    kind: str
    time: str


class LogReader:
    """One authority's log."""

    def __init__(
        self, connection: AuthorityConnection, trust: TrustedAuthority, seen: Path | None = None
    ) -> None:
        """Read which checkpoint was seen last.

        Args:
            connection: Where to ask.
            trust: Whose signature checkpoints must bear.
            seen: File that keeps the newest checkpoint.
        """
        self._connection = connection
        self._seen = SeenCheckpoint(trust.note_key, seen)

    def checkpoint_note(self) -> bytes:
        """Return the newest signed note as it is served, unchecked."""
        answer = self._connection.get("/v1/log/checkpoint", max_bytes=MAX_NOTE_BYTES)
        return answer.content

    def checkpoint(self) -> Checkpoint:
        """Return how large the log is now, checked against every checkpoint seen before.

        Raises:
            RewrittenLogError: It contradicts one.
        """
        at_least = self._seen.reload()
        return self._seen.take(self.checkpoint_note(), self.consistency, at_least=at_least)

    def agree(self, note: bytes) -> Checkpoint:
        """Check a checkpoint, such as a receipt's, against the newest one seen.

        Raises:
            RewrittenLogError: It contradicts it.
        """
        return self._seen.take(note, self.consistency)

    def consistency(self, old: int, new: int) -> tuple[bytes, ...]:
        """Return the proof that the log only grew between two sizes, unchecked."""
        answer = self._connection.get("/v1/log/consistency", {"old": old, "new": new})
        return proof_of(answer.to_json("consistency proof"), "consistency proof")

    def check_inclusion(self, entry: bytes, entry_id: str) -> tuple[int, Checkpoint]:
        """Prove that an entry is in the log now; return its index and the checkpoint.

        Raises:
            TransparencyError: The proof does not hold.
        """
        checkpoint = self.checkpoint()
        query: dict[str, str | int | None] = {"entry_id": entry_id, "size": checkpoint.size}
        document = self._connection.get("/v1/log/inclusion", query).to_json("inclusion proof")
        index = member(document, "index", int, "inclusion proof")
        check_inclusion(
            proof_of(document, "inclusion proof"),
            leaf=hash_leaf(entry),
            index=index,
            size=checkpoint.size,
            root=checkpoint.root,
        )
        return index, checkpoint

    def entry(self, index: int) -> LoggedEntry:
        """Return one entry, unchecked."""
        answer = self._connection.get(f"/v1/log/entries/{index}")
        return _read_entry(answer.to_json("entry"), index)

    def entries(self, start: int, end: int) -> Iterator[list[LoggedEntry]]:
        """Yield the entries from ``start`` up to ``end`` in pages, every index there; unchecked.

        Raises:
            AuthorityError: The log does not give them all.
        """
        while start < end:
            query = {"start": start, "count": min(PAGE_ENTRIES, end - start)}
            answer = self._connection.get("/v1/log/entries", query, max_bytes=_MAX_PAGE_BYTES)
            items = objects(answer.to_json("entries"), "items", "entries", PAGE_ENTRIES)
            if not items or len(items) > end - start:
                raise AuthorityError(
                    f"the log does not give out its entries from {start} on",
                    "try again; a log that keeps entries back is not to be relied on",
                )
            yield [_read_entry(item, start + offset) for offset, item in enumerate(items)]
            start += len(items)


def _read_entry(document: dict[str, Any], index: int) -> LoggedEntry:
    found = member(document, "index", int, "entry")
    if found != index:
        raise AuthorityError(
            f"the log gave entry {found} for entry {index}", "try again, or ask the authority"
        )
    encoded = member(document, "entry", str, "entry")
    if len(encoded) > 2 * MAX_ENVELOPE_BYTES:
        raise AuthorityError(f"entry {index} of the log is too long", "ask the authority")
    return LoggedEntry(
        index=index,
        entry=decode_base64(encoded, "entry of the log"),
        kind=member(document, "kind", str, "entry"),
        time=member(document, "time", str, "entry"),
    )
