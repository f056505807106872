"""The registry: what is filed, deposited, published and disputed, for anybody to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection, Row, Select, func, select

from nsmark.identity import parse_json_object
from nsmark_authority.errors import NotFoundError
from nsmark_authority.records import (
    DepositedThing,
    DisputeState,
    FiledKey,
    FilingState,
    GivenDefence,
    GivenRuling,
    OpenedDispute,
    Owner,
    PublishedThing,
)
from nsmark_authority.statements import Suspect
from nsmark_authority.storage.database import Database
from nsmark_authority.storage.tables import (
    JOBS,
    VIEW_DEFENCES,
    VIEW_DEPOSITS,
    VIEW_DISPUTES,
    VIEW_FILINGS,
    VIEW_OWNERS,
    VIEW_PUBLICATIONS,
    VIEW_RULINGS,
)
from nsmark_authority.storage.views import fold

_Row = TypeVar("_Row", FiledKey, DepositedThing, OpenedDispute)

MAX_ROWS = 200
"""That are given out at once."""


class Registry:
    """Reads the views of the log; lists come newest first, a page at a time.

    The next page begins before the index of the last row: pass it as ``before``.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def owner(self, fingerprint: str) -> Owner:
        """Return who registered a public key.

        Raises:
            NotFoundError: Nobody did.
        """
        with self._database.read() as connection:
            return find_owner(connection, fingerprint)

    def owners(
        self, name: str | None = None, *, before: int | None = None, limit: int = 50
    ) -> list[Owner]:
        """Return owners, perhaps only those of one name (without regard to case)."""
        query = select(VIEW_OWNERS)
        if name is not None:
            query = query.where(VIEW_OWNERS.c.folded_owner == fold(name))
        return [_to_owner(row) for row in self._page(query, VIEW_OWNERS, before, limit)]

    def filing(self, entry_id: str) -> FiledKey:
        """Return a filing by the id of its entry.

        Raises:
            NotFoundError: There is none.
        """
        with self._database.read() as connection:
            return find_filing(connection, entry_id=entry_id)

    def filing_of_key(self, key_id: str) -> FiledKey:
        """Return the filing of a key.

        Raises:
            NotFoundError: It was not filed.
        """
        with self._database.read() as connection:
            return find_filing(connection, key_id=key_id)

    def search_filings(
        self,
        text: str = "",
        *,
        owner: str | None = None,
        key_id: str | None = None,
        fingerprint: str | None = None,
        model_digest: str | None = None,
        succeeds: str | None = None,
        state: FilingState | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[FiledKey]:
        """Return filings that fit everything given, newest first.

        Args:
            text: Words that stand in the claim, in this order, without regard to case.
            owner: The owner's whole name, without regard to case.
            key_id: Of the key, or the beginning of it.
            fingerprint: Of the owner's public key, or the beginning of it.
            model_digest: Of the marked model.
            succeeds: Id of the key whose place it takes.
            state: What became of the filing.
            before: Only those of a smaller index.
            limit: How many at most; never more than :data:`MAX_ROWS`.
        """
        columns = VIEW_FILINGS.c
        query = select(VIEW_FILINGS)
        if fold(text):
            query = query.where(columns.folded_text.contains(fold(text), autoescape=True))
        if owner is not None:
            query = query.where(columns.folded_owner == fold(owner))
        if key_id is not None:
            query = query.where(columns.key_id.startswith(key_id, autoescape=True))
        if fingerprint is not None:
            query = query.where(columns.fingerprint.startswith(fingerprint, autoescape=True))
        if model_digest is not None:
            query = query.where(columns.model_digest == model_digest)
        if succeeds is not None:
            query = query.where(columns.succeeds == succeeds)
        if state is not None:
            query = query.where(columns.state == state)
        return [_to_filing(row) for row in self._page(query, VIEW_FILINGS, before, limit)]

    def deposit(self, entry_id: str) -> DepositedThing:
        """Return a deposit by the id of its entry.

        Raises:
            NotFoundError: There is none.
        """
        with self._database.read() as connection:
            return find_deposit(connection, entry_id)

    def deposits(
        self,
        *,
        fingerprint: str | None = None,
        model_digest: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[DepositedThing]:
        """Return deposits of one owner, or of one model."""
        query = select(VIEW_DEPOSITS)
        if fingerprint is not None:
            query = query.where(VIEW_DEPOSITS.c.fingerprint == fingerprint)
        if model_digest is not None:
            query = query.where(VIEW_DEPOSITS.c.model_digest == model_digest)
        return [_to_deposit(row) for row in self._page(query, VIEW_DEPOSITS, before, limit)]

    def publications(
        self,
        what: Literal["word_list", "pool", "control_set"] | None = None,
        *,
        before: int | None = None,
        limit: int = 50,
    ) -> list[PublishedThing]:
        """Return what the authority published."""
        query = select(VIEW_PUBLICATIONS)
        if what is not None:
            query = query.where(VIEW_PUBLICATIONS.c.what == what)
        return [_to_publication(row) for row in self._page(query, VIEW_PUBLICATIONS, before, limit)]

    def publication(self, digest: str) -> PublishedThing:
        """Return what was published under the digest by which keys name it.

        Raises:
            NotFoundError: Nothing was.
        """
        table = VIEW_PUBLICATIONS
        query = select(table).where(table.c.digest == digest).order_by(table.c.position)
        with self._database.read() as connection:
            row = connection.execute(query).first()
        if row is None:
            raise _unknown("publication", digest)
        return _to_publication(row)

    def dispute(self, entry_id: str) -> OpenedDispute:
        """Return a dispute by the id of its entry.

        Raises:
            NotFoundError: There is none.
        """
        with self._database.read() as connection:
            return find_dispute(connection, entry_id)

    def disputes(
        self,
        *,
        key_id: str | None = None,
        fingerprint: str | None = None,
        state: DisputeState | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[OpenedDispute]:
        """Return disputes about a key, of a claimant, or in a state."""
        query = _disputes_with_jobs()
        if key_id is not None:
            query = query.where(VIEW_DISPUTES.c.key_id == key_id)
        if fingerprint is not None:
            query = query.where(VIEW_DISPUTES.c.fingerprint == fingerprint)
        if state is not None:
            query = query.where(VIEW_DISPUTES.c.state == state)
        return [_to_dispute(row) for row in self._page(query, VIEW_DISPUTES, before, limit)]

    def defences(self, dispute: str, *, after: int = -1) -> list[GivenDefence]:
        """Return the answers to a dispute, oldest first; ``after`` the index of the last one."""
        table = VIEW_DEFENCES
        query = select(table).where(table.c.dispute == dispute, table.c.position > after)
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(table.c.position).limit(MAX_ROWS)).all()
        return [GivenDefence(index=row.position, **_others(row, GivenDefence)) for row in rows]

    def fallen(self, filing: FiledKey) -> OpenedDispute | None:
        """Return the dispute in which a claim fell, if it did."""
        with self._database.read() as connection:
            return find_fallen_dispute(connection, filing)

    def ruling(self, dispute: str) -> GivenRuling:
        """Return the ruling in a dispute.

        Raises:
            NotFoundError: There is none yet.
        """
        with self._database.read() as connection:
            found = find_ruling(connection, dispute)
        if found is None:
            raise NotFoundError("there is no ruling in this dispute yet", "ask again later")
        return found

    def rulings(
        self, *, key_id: str | None = None, before: int | None = None, limit: int = 50
    ) -> list[GivenRuling]:
        """Return rulings, perhaps only those about one key."""
        query = select(VIEW_RULINGS)
        if key_id is not None:
            query = query.where(VIEW_RULINGS.c.key_id == key_id)
        return [_to_ruling(row) for row in self._page(query, VIEW_RULINGS, before, limit)]

    def count_defences(self, dispute: str) -> int:
        """Return how many answers to a dispute there are in all."""
        query = select(func.count()).where(VIEW_DEFENCES.c.dispute == dispute)
        with self._database.read() as connection:
            return int(connection.execute(query).scalar_one())

    def _page(
        self, query: Select[Any], table: Any, before: int | None, limit: int
    ) -> list[Row[Any]]:
        if before is not None:
            query = query.where(table.c.position < before)
        query = query.order_by(table.c.position.desc()).limit(max(0, min(limit, MAX_ROWS)))
        with self._database.read() as connection:
            return list(connection.execute(query))


def every_row(fetch: Callable[[int | None], list[_Row]]) -> Iterator[_Row]:
    """Yield all rows of a list that is given out a page at a time, newest first.

    Args:
        fetch: Returns the page before an index.
    """
    before = None
    while page := fetch(before):
        yield from page
        before = page[-1].index


def find_owner(connection: Connection, fingerprint: str) -> Owner:
    """Return who registered a public key, or raise NotFoundError."""
    query = select(VIEW_OWNERS).where(VIEW_OWNERS.c.fingerprint == fingerprint)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFoundError(
            f"no owner has registered the public key {fingerprint[:16]}…",
            "register it first: `nsmark client register`",
        )
    return _to_owner(row)


def find_filing(
    connection: Connection, *, entry_id: str | None = None, key_id: str | None = None
) -> FiledKey:
    """Return a filing by entry or key, or raise NotFoundError."""
    columns = VIEW_FILINGS.c
    wanted = columns.entry_id == entry_id if key_id is None else columns.key_id == key_id
    row = connection.execute(select(VIEW_FILINGS).where(wanted)).one_or_none()
    if row is None:
        raise _unknown("filed key", key_id or entry_id or "")
    return _to_filing(row)


def find_deposit(connection: Connection, entry_id: str) -> DepositedThing:
    """Return a deposit, or raise NotFoundError."""
    query = select(VIEW_DEPOSITS).where(VIEW_DEPOSITS.c.entry_id == entry_id)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise _unknown("deposit", entry_id)
    return _to_deposit(row)


def find_publication(connection: Connection, what: str, digest: str) -> PublishedThing | None:
    """Return what was published under a digest, if anything was."""
    columns = VIEW_PUBLICATIONS.c
    query = select(VIEW_PUBLICATIONS).where(columns.what == what, columns.digest == digest)
    row = connection.execute(query).one_or_none()
    return None if row is None else _to_publication(row)


def find_dispute(connection: Connection, entry_id: str) -> OpenedDispute:
    """Return a dispute, or raise NotFoundError."""
    query = _disputes_with_jobs().where(VIEW_DISPUTES.c.entry_id == entry_id)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise _unknown("dispute", entry_id)
    return _to_dispute(row)


def find_open_disputes(
    connection: Connection, *, key_id: str | None = None, claimant: str | None = None
) -> list[OpenedDispute]:
    """Return open disputes about a key or of a claimant, no more than a page."""
    columns = VIEW_DISPUTES.c
    query = _disputes_with_jobs().where(columns.state == "open")
    if key_id is not None:
        query = query.where(columns.key_id == key_id)
    if claimant is not None:
        query = query.where(columns.fingerprint == claimant)
    rows = connection.execute(query.order_by(columns.position).limit(MAX_ROWS))
    return [_to_dispute(row) for row in rows]


def find_decided_dispute(connection: Connection, key_id: str, content: str) -> OpenedDispute | None:
    """Return a dispute in which a key is or was measured on a content, and which settles it."""
    columns = VIEW_DISPUTES.c
    is_settled = columns.outcome.in_(("upheld", "not_shown", "not_covered", "fell"))
    query = (
        _disputes_with_jobs()
        .where(columns.key_id == key_id, columns.content_sha256 == content)
        .where((columns.state == "open") | is_settled)
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else _to_dispute(row)


def find_fallen_dispute(connection: Connection, filing: FiledKey) -> OpenedDispute | None:
    """Return the first dispute in which a claim fell, under any key of the same signature."""
    same = select(VIEW_FILINGS.c.key_id).where(
        VIEW_FILINGS.c.signature_sha256 == filing.signature_sha256
    )
    columns = VIEW_DISPUTES.c
    query = (
        _disputes_with_jobs()
        .where(columns.key_id.in_(same), columns.outcome == "fell")
        .order_by(columns.position)
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else _to_dispute(row)


def find_ruling(connection: Connection, dispute: str) -> GivenRuling | None:
    """Return the ruling in a dispute, if there is one."""
    query = select(VIEW_RULINGS).where(VIEW_RULINGS.c.dispute == dispute)
    row = connection.execute(query).one_or_none()
    return None if row is None else _to_ruling(row)


def _disputes_with_jobs() -> Select[Any]:
    joined = VIEW_DISPUTES.outerjoin(
        JOBS, (JOBS.c.subject == VIEW_DISPUTES.c.entry_id) & (JOBS.c.kind == "dispute")
    )
    columns = (VIEW_DISPUTES, JOBS.c.job_id.label("job"), JOBS.c.not_before.label("answer_until"))
    return select(*columns).select_from(joined)


def _to_owner(row: Row[Any]) -> Owner:
    return Owner(index=row.position, **_others(row, Owner))


def _to_filing(row: Row[Any]) -> FiledKey:
    return FiledKey(index=row.position, **_others(row, FiledKey))


def _to_deposit(row: Row[Any]) -> DepositedThing:
    return DepositedThing(index=row.position, **_others(row, DepositedThing))


def _to_publication(row: Row[Any]) -> PublishedThing:
    return PublishedThing(index=row.position, **_others(row, PublishedThing))


def _to_ruling(row: Row[Any]) -> GivenRuling:
    return GivenRuling(index=row.position, **_others(row, GivenRuling))


def _to_dispute(row: Row[Any]) -> OpenedDispute:
    members = _others(row, OpenedDispute)
    suspect = parse_json_object(members.pop("suspect"), "suspect")
    return OpenedDispute(
        index=row.position, suspect=Suspect.from_members(suspect, "suspect"), **members
    )


def _others(row: Row[Any], record: type[Any]) -> dict[str, Any]:
    """Return the columns that a record has, but for the index."""
    return {name: getattr(row, name) for name in record.__slots__ if name != "index"}


def _unknown(what: str, digest: str) -> NotFoundError:
    return NotFoundError(f"there is no {what} {digest[:16]}…", "search the registry for it")
