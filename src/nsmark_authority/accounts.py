"""Challenges, API tokens and the audit trail.

A token is 32 random bytes; the database knows its SHA-256 only. What is random and long needs no
slow hash: there is nothing to guess.
"""

from __future__ import annotations

import datetime
import hashlib
import re
import secrets
from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    delete,
    func,
    insert,
    select,
    true,
    update,
)

from nsmark.errors import ConfigError
from nsmark_authority.errors import AccessDeniedError, AuthorityError, ConflictError, NotFoundError
from nsmark_authority.fields import format_time
from nsmark_authority.jobs import utc_now
from nsmark_authority.records import SCOPES, Account, Challenge, Event, IssuedToken, Scope
from nsmark_authority.settings import AuthoritySettings
from nsmark_authority.storage.database import Database
from nsmark_authority.storage.tables import EVENTS, NONCES, TOKENS

MAX_LIVE_TOKENS = 32
"""Of one owner, that are neither revoked nor too old."""

TOKEN_PREFIX = "nsm_"  # noqa: S105 - by which leaked ones can be found
_TOKEN = re.compile(r"nsm_[0-9a-f]{64}")
_MAX_LABEL_CHARACTERS = 128
_MAX_ROWS = 1000


class Accounts:
    """Who may write."""

    def __init__(
        self,
        database: Database,
        settings: AuthoritySettings,
        clock: Callable[[], datetime.datetime] = utc_now,
    ) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock

    def challenge(self) -> Challenge:
        """Give out a number that a registration must hold; it can be used once, and soon.

        Raises:
            AuthorityError: Too many are out.
        """
        nonce, expires = secrets.token_hex(32), self._in(self._settings.nonce_seconds)
        with self._database.write() as connection:
            connection.execute(delete(NONCES).where(NONCES.c.expires < self._now()))
            open_now = connection.execute(select(func.count()).select_from(NONCES)).scalar_one()
            if open_now >= self._settings.max_open_nonces:
                raise AuthorityError("too many challenges are open", "try again in some minutes")
            connection.execute(insert(NONCES), {"nonce": nonce, "expires": expires})
        return Challenge(nonce=nonce, expires=expires)

    def use_challenge(self, connection: Connection, nonce: str) -> None:
        """Take a challenge back, in the caller's transaction.

        Raises:
            AccessDeniedError: It was never given out, was used before, or is too old.
        """
        taken = connection.execute(
            delete(NONCES).where(NONCES.c.nonce == nonce, NONCES.c.expires >= self._now())
        )
        if taken.rowcount != 1:
            raise AccessDeniedError(
                "the challenge in the registration is not open", "ask for a new one, and sign it"
            )

    def issue(
        self,
        scopes: Iterable[Scope],
        *,
        fingerprint: str | None = None,
        label: str = "",
        seconds: int | None = None,
    ) -> IssuedToken:
        """Make a token.

        Args:
            scopes: What it is good for.
            fingerprint: Whose it is; None for the authority's own people.
            label: A name for people.
            seconds: How long it lives; by default as the settings say.

        Raises:
            ConflictError: The owner has too many; none is revoked behind his back.
        """
        with self._database.write() as connection:
            return self.issue_in(
                connection,
                scopes,
                fingerprint=fingerprint,
                label=label,
                seconds=seconds,
                makes_room=False,
            )

    def issue_in(
        self,
        connection: Connection,
        scopes: Iterable[Scope],
        *,
        fingerprint: str | None = None,
        label: str = "",
        seconds: int | None = None,
        makes_room: bool = True,
    ) -> IssuedToken:
        """Do as :meth:`issue`, in the caller's transaction.

        With ``makes_room`` the oldest token of an owner who has too many is revoked instead. That
        is for registrations: whoever has just signed a challenge is the owner himself, and must get
        in even if he lost all his tokens, or a thief made as many as there may be.
        """
        wanted = tuple(scope for scope in SCOPES if scope in set(scopes := tuple(scopes)))
        if not wanted or len(wanted) != len(set(scopes)):
            raise ConfigError("scopes", scopes, f"must be some of {', '.join(SCOPES)}")
        if fingerprint is not None:
            self._limit(connection, fingerprint, makes_room)
        token = TOKEN_PREFIX + secrets.token_hex(32)
        sha256 = _hash(token)
        life = self._settings.token_seconds if seconds is None else seconds
        row = {
            "sha256": sha256,
            "token_id": sha256[:16],
            "fingerprint": fingerprint,
            "scopes": " ".join(wanted),
            "label": label[:_MAX_LABEL_CHARACTERS],
            "created": self._now(),
            "expires": self._in(life),
        }
        connection.execute(insert(TOKENS), row)
        query = select(TOKENS).where(TOKENS.c.sha256 == sha256)
        return IssuedToken(token=token, account=_to_account(connection.execute(query).one()))

    def _limit(self, connection: Connection, fingerprint: str, makes_room: bool) -> None:
        live = self._live(connection, fingerprint)
        too_many = len(live) + 1 - MAX_LIVE_TOKENS
        if too_many <= 0:
            return
        if not makes_room:
            raise ConflictError(
                f"this owner has {len(live)} tokens, of {MAX_LIVE_TOKENS} that he may have",
                "revoke those that are not needed any more",
            )
        for token_id in live[:too_many]:
            self._revoke(connection, TOKENS.c.token_id == token_id)
            self.note_in(connection, fingerprint, "token", token_id, "revoked: there were too many")

    def authenticate(self, token: str, scope: Scope | None = None) -> Account:
        """Return whose token this is, and whether it is good for a scope, if one is named.

        Raises:
            AccessDeniedError: Unknown, revoked, too old, or not good for this.
        """
        if not _TOKEN.fullmatch(token):
            raise _denied("this is no token")
        query = select(TOKENS).where(TOKENS.c.sha256 == _hash(token))
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        if row is None or row.revoked is not None:
            raise _denied("the token is unknown, or was revoked")
        if row.expires < self._now():
            raise _denied("the token is too old")
        account = _to_account(row)
        if scope is not None and scope not in account.scopes:
            raise _denied(f"the token is not good for {scope!r}")
        return account

    def revoke(self, token_id: str, *, by: Account | None = None) -> Account:
        """Make a token worthless from now on.

        Args:
            token_id: Which one.
            by: Who wants it: an admin any, others their own; None for the authority itself.

        Raises:
            NotFoundError: There is none of this id, or it is somebody else's.
        """
        is_meant = (TOKENS.c.token_id == token_id) & _belongs_to(by)
        with self._database.write() as connection:
            self._revoke(connection, is_meant)
            row = connection.execute(select(TOKENS).where(is_meant)).one_or_none()
        if row is None:
            whose = "" if by is None else " of yours"
            raise NotFoundError(f"there is no token {token_id[:16]!r}{whose}", "list the tokens")
        return _to_account(row)

    def revoke_all(self, fingerprint: str) -> list[Account]:
        """Make all tokens of an owner worthless from now on; return them.

        It is not on record which token was made with which: whoever lost one, or fears so, revokes
        all, registers again, and makes those anew that he needs.
        """
        with self._database.write() as connection:
            live = self._live(connection, fingerprint)
            self._revoke(connection, TOKENS.c.fingerprint == fingerprint)
            query = select(TOKENS).where(TOKENS.c.token_id.in_(live)).order_by(TOKENS.c.token_id)
            return [_to_account(row) for row in connection.execute(query)]

    def tokens(self, fingerprint: str | None = None, *, by: Account | None = None) -> list[Account]:
        """Return all tokens, or those of one owner; the newest first.

        Args:
            fingerprint: Of the owner.
            by: Who wants to see them, as for :meth:`revoke`.
        """
        query = select(TOKENS).where(_belongs_to(by))
        query = query.order_by(TOKENS.c.created.desc(), TOKENS.c.token_id)
        if fingerprint is not None:
            query = query.where(TOKENS.c.fingerprint == fingerprint)
        with self._database.read() as connection:
            return [_to_account(row) for row in connection.execute(query.limit(_MAX_ROWS))]

    def note(self, who: str, what: str, subject: str, outcome: str) -> None:
        """Write a line of the audit trail; none of it may be a secret."""
        with self._database.write() as connection:
            self.note_in(connection, who, what, subject, outcome)

    def note_in(
        self, connection: Connection, who: str, what: str, subject: str, outcome: str
    ) -> None:
        """Do as :meth:`note`, in the caller's transaction."""
        row = {
            "time": self._now(),
            "who": who[:128],
            "what": what[:64],
            "subject": subject[:128],
            "outcome": outcome[:512],
        }
        connection.execute(insert(EVENTS), row)

    def events(self, *, before: int | None = None, limit: int = 100) -> list[Event]:
        """Return the audit trail, the newest first."""
        query = select(EVENTS).order_by(EVENTS.c.number.desc())
        if before is not None:
            query = query.where(EVENTS.c.number < before)
        with self._database.read() as connection:
            rows = connection.execute(query.limit(max(0, min(limit, _MAX_ROWS)))).all()
        return [Event(**{name: getattr(row, name) for name in Event.__slots__}) for row in rows]

    def _live(self, connection: Connection, fingerprint: str) -> list[str]:
        """Return the ids of an owner's tokens that are good, the oldest first."""
        query = select(TOKENS.c.token_id).where(
            TOKENS.c.fingerprint == fingerprint,
            TOKENS.c.revoked.is_(None),
            TOKENS.c.expires >= self._now(),
        )
        rows = connection.execute(query.order_by(TOKENS.c.created, TOKENS.c.token_id))
        return [row.token_id for row in rows]

    def _revoke(self, connection: Connection, which: ColumnElement[bool]) -> None:
        change = update(TOKENS).where(which, TOKENS.c.revoked.is_(None))
        connection.execute(change.values(revoked=self._now()))

    def _now(self) -> str:
        return format_time(self._clock())

    def _in(self, seconds: int) -> str:
        return format_time(self._clock() + datetime.timedelta(seconds=seconds))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("ascii")).hexdigest()


def _belongs_to(account: Account | None) -> ColumnElement[bool]:
    """Return the condition under which a token is somebody's to see and to revoke."""
    if account is None or "admin" in account.scopes:
        return true()
    if account.fingerprint is None:  # nobody's: that others are nobody's, too, makes them not his
        return TOKENS.c.token_id == account.token_id
    return TOKENS.c.fingerprint == account.fingerprint


def _to_account(row: Row[Any]) -> Account:
    known = {scope for scope in SCOPES if scope in row.scopes.split()}
    return Account(
        token_id=row.token_id,
        fingerprint=row.fingerprint,
        scopes=tuple(scope for scope in SCOPES if scope in known),
        label=row.label,
        created=row.created,
        expires=row.expires,
        revoked=row.revoked,
    )


def _denied(reason: str) -> AccessDeniedError:
    return AccessDeniedError(reason, "get one: `nsmark client register`, or ask the authority")
