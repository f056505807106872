"""Challenges, tokens and the audit trail."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from sqlalchemy import select

from authority_world import KeyOwner, StoppedClock, make_authority
from nsmark.authority.accounts import Accounts
from nsmark.authority.service import Authority
from nsmark.authority.storage.tables import TOKENS
from nsmark.errors import AccessDeniedError, AuthorityError, ConfigError, NotFoundError


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def accounts(any_authority: Authority, clock: StoppedClock) -> Accounts:
    return Accounts(any_authority.database, any_authority.settings, clock)


def test_a_token_is_good_for_its_scopes_until_it_is_revoked(accounts: Accounts) -> None:
    issued = accounts.issue(["dispute", "file"], fingerprint="ab" * 32, label="laptop")

    account = accounts.authenticate(issued.token, "file")

    assert account == issued.account == accounts.authenticate(issued.token, "dispute")
    assert (account.scopes, account.label) == (("file", "dispute"), "laptop")
    with pytest.raises(AccessDeniedError, match="not good for 'admin'"):
        accounts.authenticate(issued.token, "admin")
    assert accounts.tokens("ab" * 32) == [account]
    assert accounts.tokens("cd" * 32) == []
    revoked = accounts.revoke(account.token_id)
    assert revoked.revoked == "2026-01-31T12:00:00Z"
    with pytest.raises(AccessDeniedError, match="revoked"):
        accounts.authenticate(issued.token, "file")
    with pytest.raises(NotFoundError):
        accounts.revoke("0" * 16)


def test_tokens_grow_old(accounts: Accounts, clock: StoppedClock) -> None:
    issued = accounts.issue(["file"], seconds=60)

    clock.pass_seconds(60)
    accounts.authenticate(issued.token, "file")
    clock.pass_seconds(1)
    with pytest.raises(AccessDeniedError, match="too old"):
        accounts.authenticate(issued.token, "file")


@pytest.mark.parametrize("token", ["", "nsm_", "nsm_" + "0" * 64, "nsm_" + "é" * 64, "x" * 10_000])
def test_what_is_no_token_does_not_admit(accounts: Accounts, token: str) -> None:
    with pytest.raises(AccessDeniedError) as caught:
        accounts.authenticate(token, "file")
    assert token[4:] == "" or token not in str(caught.value)


@pytest.mark.parametrize("scopes", [[], ["root"], ["file", "root"]])
def test_scopes_are_known_ones(accounts: Accounts, scopes: list[str]) -> None:
    with pytest.raises(ConfigError, match="scopes"):
        accounts.issue(scopes)  # type: ignore[arg-type]


def test_the_database_knows_no_token(any_authority: Authority, accounts: Accounts) -> None:
    issued = accounts.issue(["admin"])

    with any_authority.database.read() as connection:
        rows = [tuple(row) for row in connection.execute(select(TOKENS))]
    assert rows[0][0] == hashlib.sha256(issued.token.encode()).hexdigest()
    assert issued.token not in repr(rows) + repr(issued)
    assert issued.token[4:] not in repr(rows) + repr(issued)


def test_challenges_are_used_once_and_soon(
    any_authority: Authority, accounts: Accounts, clock: StoppedClock
) -> None:
    def use(nonce: str) -> None:
        with any_authority.database.write() as connection:
            accounts.use_challenge(connection, nonce)

    first, second = accounts.challenge(), accounts.challenge()
    assert first.nonce != second.nonce
    use(first.nonce)
    with pytest.raises(AccessDeniedError):
        use(first.nonce)
    clock.pass_seconds(any_authority.settings.nonce_seconds + 1)
    with pytest.raises(AccessDeniedError):
        use(second.nonce)


def test_challenges_do_not_fill_the_disk(tmp_path: Path, clock: StoppedClock) -> None:
    authority = make_authority(tmp_path, max_open_nonces=3)
    accounts = Accounts(authority.database, authority.settings, clock)
    for _ in range(3):
        accounts.challenge()
    with pytest.raises(AuthorityError, match="too many"):
        accounts.challenge()
    clock.pass_seconds(authority.settings.nonce_seconds + 1)

    accounts.challenge()
    authority.close()


def test_the_trail_says_who_did_what(any_authority: Authority) -> None:
    owner = KeyOwner(1)
    token = owner.register(any_authority).token
    filed = owner.file(any_authority)
    any_authority.accounts.note("staff", "token.revoke", token.account.token_id, "x" * 5000)

    events = any_authority.accounts.events()

    assert [(event.who, event.what, event.subject) for event in events] == [
        ("staff", "token.revoke", token.account.token_id),
        (owner.fingerprint, "filing", filed.entry_id),
        (owner.fingerprint, "registration", any_authority.log.entry(0).entry_id),
    ]
    assert len(events[0].outcome) == 512
    assert any_authority.accounts.events(before=events[1].number) == events[2:]
    assert token.token not in repr(events)
