"""What anybody can read from an authority, and what of it is checked.

Receipts are checked against the key and roots that were trusted before, and every checkpoint
against the newest one seen. What the registry lists (states, names, progress) is the authority's
word; whatever counts has a receipt.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from nsmark.core.texts import decode_lines, lines_digest
from nsmark.errors import UsageError
from nsmark_authority.client.answers import member, objects, texts
from nsmark_authority.client.http import AuthorityConnection, path_part
from nsmark_authority.client.log_reader import LogReader
from nsmark_authority.client.trust import (
    TrustedAuthority,
    require_same,
    require_same_time,
    require_trusted_receipt,
    require_trusted_time,
)
from nsmark_authority.errors import AuthorityError, NotFoundError, TransparencyError
from nsmark_authority.receipt import MAX_RECEIPT_BYTES, CheckedReceipt, Receipt, check_receipt
from nsmark_authority.statements import Filing, Registration, Ruling, Statement

PAGE_ROWS = 100
MAX_PUBLICATION_BYTES = 1 << 30
MAX_REPORT_BYTES = 256 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MAX_DEFENCES = 10_000
_MAX_OWN_FILINGS = 10_000
_Said = TypeVar("_Said", bound=Statement)
_Subject = Literal["filing", "dispute", "deposit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenReceipt:
    """A receipt that was checked against trusted key and roots."""

    receipt: Receipt
    checked: CheckedReceipt

    @property
    def entry_id(self) -> str:
        """SHA-256 (hex) of the entry."""
        return self.checked.entry_id

    def statement(self, kind: type[_Said]) -> _Said:
        """Return what was said, which must be of a kind.

        Raises:
            TransparencyError: It is of another.
        """
        found = self.checked.statement
        if not isinstance(found, kind):
            raise TransparencyError(
                f"the receipt is for a {found.kind}, not for a {kind.kind}", "check the id"
            )
        return found


class AuthorityReader:
    """One authority, for those who only read."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        trust: TrustedAuthority | None = None,
        *,
        seen: Path | None = None,
        timeout_seconds: float = 60.0,
        allow_plain_http: bool = False,
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            url: Where the authority listens.
            token: For everything but reading.
            trust: The authority's key and roots, from elsewhere; without, it can only be described.
            seen: File that keeps the newest checkpoint seen.
            timeout_seconds: For one answer.
            allow_plain_http: Send tokens and content over http to other machines, too.

        Raises:
            UsageError: The URL, the token or a limit makes no sense.
        """
        self._connection = AuthorityConnection(
            url, token, timeout_seconds=timeout_seconds, allow_plain_http=allow_plain_http
        )
        self.url = self._connection.url
        self._trust = trust
        self._log = None if trust is None else LogReader(self._connection, trust, seen)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._connection.close()

    @property
    def trust(self) -> TrustedAuthority:
        """What is known of the authority from elsewhere.

        Raises:
            UsageError: Nothing is.
        """
        if self._trust is None:
            raise UsageError(
                "the authority's key is not known", f"run `nsmark client trust {self.url}` first"
            )
        return self._trust

    @property
    def log(self) -> LogReader:
        """The public log.

        Raises:
            UsageError: The authority's key is not known.
        """
        if self._log is None:
            raise UsageError(
                "the authority's key is not known", f"run `nsmark client trust {self.url}` first"
            )
        return self._log

    # --- Who the authority is. ---

    def describe(self) -> TrustedAuthority:
        """Return how the authority describes itself: to be compared with what others say of it.

        Raises:
            TransparencyError: Malformed.
        """
        return _description(self.url, self._get("/v1/authority", "description"))

    def authority(self) -> dict[str, Any]:
        """Return all that the authority says about itself: key, roots and checkpoint checked.

        Raises:
            TransparencyError: Its key, its roots or its kind of time are not the trusted ones.
            RewrittenLogError: Its log contradicts what was seen before.
        """
        document = self._get("/v1/authority", "description")
        self._require_unchanged(_description(self.url, document))
        self.log.agree(member(document, "checkpoint", str, "description").encode("utf-8"))
        return document

    def require_unchanged(self) -> None:
        """Ask who the authority is, and refuse it if it is no longer the one that was trusted.

        Raises:
            TransparencyError: Its key, its roots or its kind of time are others.
        """
        self._require_unchanged(self.describe())

    # --- What anybody can read: the authority's word, unless it is a receipt. ---

    def search(
        self,
        text: str = "",
        *,
        owner: str | None = None,
        key: str | None = None,
        fingerprint: str | None = None,
        state: str | None = None,
        limit: int = PAGE_ROWS,
    ) -> list[dict[str, Any]]:
        """Return filings, the newest first."""
        query = {
            "text": text or None,
            "owner": owner,
            "key": key,
            "fingerprint": fingerprint,
            "state": state,
        }
        return self._list("/v1/filings", "filings", query, limit)

    def owners(self, name: str | None = None, limit: int = PAGE_ROWS) -> list[dict[str, Any]]:
        """Return who registered, perhaps only under one name."""
        return self._list("/v1/owners", "owners", {"name": name}, limit)

    def owner(self, fingerprint: str) -> dict[str, Any]:
        """Return who registered a public key.

        Raises:
            NotFoundError: Nobody did.
        """
        return self._get(f"/v1/owners/{path_part(require_digest(fingerprint))}", "owner")

    def registered_name(self, fingerprint: str) -> str:
        """Return the name under which a public key is registered, from the log.

        Raises:
            NotFoundError: It is not registered.
            TransparencyError: The registry says something else than the log.
        """
        given = self.receipt(member(self.owner(fingerprint), "entry_id", str, "owner"))
        registration = given.statement(Registration)
        if registration.signer().fingerprint != fingerprint:
            raise another_entry()
        return registration.owner

    def successors(self, key_id: str, fingerprint: str) -> list[dict[str, Any]]:
        """Return the filings of an owner that are to take a key's place, the newest first.

        Args:
            key_id: Of the key that they succeed.
            fingerprint: Of the owner's public key.
        """
        rows = self.search(fingerprint=fingerprint, limit=_MAX_OWN_FILINGS)
        return [row for row in rows if row.get("succeeds") == key_id]

    def disputes(self, state: str | None = None, limit: int = PAGE_ROWS) -> list[dict[str, Any]]:
        """Return disputes, the newest first."""
        return self._list("/v1/disputes", "disputes", {"state": state}, limit)

    def publications(self, limit: int = PAGE_ROWS) -> list[dict[str, Any]]:
        """Return what the authority published."""
        return self._list("/v1/publications", "publications", {}, limit)

    def filing(self, entry_id: str) -> dict[str, Any]:
        """Return a filing by the id of its entry."""
        return self._get(f"/v1/filings/{path_part(entry_id)}", "filing")

    def filing_of_key(self, key_id: str) -> dict[str, Any]:
        """Return the filing of a key."""
        return self._get(f"/v1/keys/{path_part(key_id)}", "filing")

    def dispute_state(self, entry_id: str) -> dict[str, Any]:
        """Return a dispute with its ``job``, its ``ruling`` and the first of its ``defences``.

        ``num_defences`` counts all answers; :meth:`defences` returns them.
        """
        document = self._get(f"/v1/disputes/{path_part(entry_id)}", "dispute")
        return member(document, "dispute", dict, "dispute") | {
            "job": document.get("job"),
            "num_defences": member(document, "num_defences", int, "dispute"),
            "defences": objects(document, "defences", "dispute", _MAX_DEFENCES),
            "ruling": document.get("ruling"),
        }

    def defences(self, dispute: str, limit: int = PAGE_ROWS) -> list[dict[str, Any]]:
        """Return the answers to a dispute, the oldest first."""
        return self._list(f"/v1/disputes/{path_part(dispute)}/defences", "answers", {}, limit)

    def deposited(self, entry_id: str) -> dict[str, Any]:
        """Return a deposit, and whether its content was handed over."""
        return self._get(f"/v1/deposits/{path_part(entry_id)}", "deposit")

    def subject(self, identifier: str) -> tuple[_Subject, dict[str, Any]]:
        """Return what an id names: a filing (also by its key's id), a dispute or a deposit.

        Raises:
            UsageError: It is no id.
            NotFoundError: It names nothing here.
        """
        require_digest(identifier)
        finders: tuple[tuple[_Subject, Callable[[str], dict[str, Any]]], ...] = (
            ("filing", self.filing),
            ("dispute", self.dispute_state),
            ("deposit", self.deposited),
            ("filing", self.filing_of_key),
        )
        for kind, find in finders:
            with contextlib.suppress(NotFoundError):
                return kind, find(identifier)
        raise NotFoundError(
            f"the authority has no filing, dispute or deposit {identifier[:16]}…",
            "check the id; `nsmark client search` lists filings",
        )

    def wait(
        self,
        identifier: str,
        *,
        timeout_seconds: float,
        every_seconds: float = 2.0,
        on_progress: Callable[[float, str], None] | None = None,
    ) -> tuple[_Subject, dict[str, Any]]:
        """Wait until a filing is admitted or refused, or a dispute is over.

        Args:
            identifier: Entry id, or a key's id.
            timeout_seconds: After which to give up.
            every_seconds: How often to ask.
            on_progress: Called with the share done and what is done now.

        Raises:
            AuthorityError: It is still not over.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            kind, found = self.subject(identifier)
            state = str(found.get("state", ""))
            if kind == "deposit" or state not in ("waiting", "open"):
                return kind, found
            share, message = progress_of(found)
            if is_failed(found):
                raise AuthorityError(
                    f"the authority gave up on the {kind}: {message or 'it does not say why'}",
                    "ask the authority",
                )
            if on_progress is not None:
                on_progress(share, message or state)
            if time.monotonic() + every_seconds > deadline:
                raise AuthorityError(
                    f"the {kind} is still {state!r} after {timeout_seconds:g} s"
                    + (f": {message}" if message else ""),
                    "ask again later with `nsmark client status`",
                )
            time.sleep(every_seconds)

    # --- Receipts, rulings, material: checked. ---

    def receipt(self, entry_id: str) -> GivenReceipt:
        """Return a fresh receipt of any entry, up to the newest checkpoint.

        Raises:
            TransparencyError: It does not hold, or is for another entry.
        """
        require_digest(entry_id)
        answer = self._connection.get(
            f"/v1/receipts/{path_part(entry_id)}", max_bytes=MAX_RECEIPT_BYTES
        )
        given = self._take(answer.content)
        if given.entry_id != entry_id:
            raise another_entry()
        return given

    def claim(self, identifier: str) -> tuple[GivenReceipt, dict[str, Any]]:
        """Return a filing as it stands in the log, checked, and what the registry says of it.

        Args:
            identifier: Entry id of the filing, or the key's id.

        Raises:
            TransparencyError: The registry says something else than the log.
        """
        require_digest(identifier)
        try:
            row = self.filing(identifier)
        except NotFoundError:
            row = self.filing_of_key(identifier)
        given = self.receipt(member(row, "entry_id", str, "filing"))
        filing = given.statement(Filing)
        if identifier not in (given.entry_id, filing.key_id):
            raise another_entry()
        stated = {
            "key_id": filing.key_id,
            "owner": filing.ownership_claim().owner,
            "message": filing.ownership_claim().message,
            "fingerprint": filing.signer().fingerprint,
        }
        for name, value in stated.items():
            if row.get(name) != value:
                raise TransparencyError(
                    f"the registry says something else than the log about {name!r} of this filing",
                    "the log counts; tell the authority",
                )
        return given, row

    def ruling(self, dispute: str) -> GivenReceipt:
        """Return the ruling in a dispute, with its receipt.

        Raises:
            NotFoundError: There is none yet.
            TransparencyError: It does not hold, or is for another dispute.
        """
        require_digest(dispute)
        answer = self._connection.get(
            f"/v1/disputes/{path_part(dispute)}/ruling", max_bytes=MAX_RECEIPT_BYTES
        )
        given = self._take(answer.content)
        if given.statement(Ruling).dispute != dispute:
            raise another_entry()
        return given

    def report(self, dispute: str) -> bytes:
        """Return the report of a ruling, which must be the one that the ruling names.

        Raises:
            NotFoundError: There is none.
            TransparencyError: It is another one.
        """
        ruling = self.ruling(dispute).statement(Ruling)
        if ruling.report_sha256 is None:
            raise NotFoundError("the ruling has no report", "its reasons say why")
        answer = self._connection.get(
            f"/v1/disputes/{path_part(dispute)}/report", max_bytes=MAX_REPORT_BYTES
        )
        if hashlib.sha256(answer.content).hexdigest() != ruling.report_sha256:
            raise TransparencyError(
                "the report is not the one that the ruling names", "tell the authority"
            )
        return answer.content

    def publication(self, digest: str) -> tuple[dict[str, Any], bytes]:
        """Return published material, which must have the digest by which keys name it.

        Raises:
            NotFoundError: Nothing of this digest was published.
            TransparencyError: The content has another digest.
        """
        require_digest(digest)
        place = f"/v1/publications/{path_part(digest)}"
        row = self._get(place, "publication")
        size = member(row, "content_bytes", int, "publication")
        if not 0 < size <= MAX_PUBLICATION_BYTES:
            raise AuthorityError("the publication has no sensible size", "tell the authority")
        content = self._connection.get(f"{place}/content", max_bytes=size).content
        if digest not in _digests(content):
            raise TransparencyError(
                "the material that was sent has another digest than the one asked for",
                "try again; if it stays so, tell the authority",
            )
        return row, content

    # --- How it is done. ---

    def _require_unchanged(self, found: TrustedAuthority) -> None:
        require_same(self.trust, name=found.name, public_key=found.public_key)
        require_same_time(self.trust, roots=found.roots, local_time=found.local_time)

    def _get(self, path: str, what: str) -> dict[str, Any]:
        return self._connection.get(path).to_json(what)

    def _list(
        self, path: str, what: str, query: dict[str, str | None], limit: int
    ) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for page in self._pages(path, what, query, limit):
            rows += page
        return rows[:limit]

    def _pages(
        self, path: str, what: str, query: dict[str, str | None], limit: int
    ) -> Iterator[list[dict[str, Any]]]:
        cursor: str | None = None
        left = limit
        while left > 0:
            asked = query | {"limit": str(min(left, PAGE_ROWS)), "cursor": cursor}
            document = self._connection.get(path, asked).to_json(what)
            items = objects(document, "items", what, PAGE_ROWS)
            yield items
            left -= len(items)
            cursor = document.get("next")
            # A page of nothing that points to another one could go on for ever.
            if not items or not isinstance(cursor, str):
                return

    def _take(self, content: bytes) -> GivenReceipt:
        receipt = Receipt.parse(content)
        trust = self.trust
        require_trusted_receipt(trust, receipt)
        checked = check_receipt(receipt, trust.public_key, trust.roots)
        require_trusted_time(trust, checked)
        self.log.agree(receipt.checkpoint)
        return GivenReceipt(receipt=receipt, checked=checked)


def is_digest(text: str) -> bool:
    """Return whether a text is a SHA-256 value in plain hex."""
    return _DIGEST.fullmatch(text) is not None


def require_digest(identifier: str) -> str:
    """Return an id if it is one.

    Raises:
        UsageError: It is not.
    """
    if not is_digest(identifier):
        raise UsageError(
            f"{identifier[:80]!r} is no id", "ids have 64 hex digits; a receipt or key file works"
        )
    return identifier


def progress_of(row: dict[str, Any]) -> tuple[float, str]:
    """Return how far a filing's or dispute's job is, as the authority says."""
    job = row.get("job")
    if not isinstance(job, dict):
        return 0.0, ""
    share, message = job.get("progress"), job.get("message")
    return (
        float(share) if isinstance(share, int | float) and 0 <= share <= 1 else 0.0,
        message[:200] if isinstance(message, str) else "",
    )


def is_failed(row: dict[str, Any]) -> bool:
    """Return whether a filing's or dispute's job has failed for good."""
    job = row.get("job")
    return isinstance(job, dict) and job.get("state") == "failed"


def _description(url: str, document: dict[str, Any]) -> TrustedAuthority:
    what = "description"
    return TrustedAuthority.of(
        url,
        name=member(document, "name", str, what),
        public_key=member(document, "public_key", str, what),
        roots=texts(document, "roots", what, 16),
        local_time=member(document, "is_local_time", bool, what),
    )


def _digests(content: bytes) -> set[str]:
    """Return the names that published material can have."""
    found = {hashlib.sha256(content).hexdigest()}
    with contextlib.suppress(UnicodeDecodeError):
        found.add(lines_digest(decode_lines(content)))
    return found


def another_entry() -> TransparencyError:
    """Return the error for a receipt that belongs to something else."""
    return TransparencyError(
        "the authority answered with the receipt of another entry",
        "try again; if it stays so, do not rely on this authority",
    )
