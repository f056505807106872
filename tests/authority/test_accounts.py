"""Challenges, tokens and the audit trail."""

from __future__ import annotations

import datetime
import hashlib
from pathlib import Path

import pytest
from sqlalchemy import select

from authority_world import KeyOwner, StoppedClock, make_authority
from nsmark.errors import ConfigError
from nsmark_authority.accounts import MAX_LIVE_TOKENS, Accounts
from nsmark_authority.errors import AccessDeniedError, AuthorityError, ConflictError, NotFoundError
from nsmark_authority.jobs import utc_now
from nsmark_authority.service import Authority
from nsmark_authority.storage.tables import TOKENS


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


OWNER, OTHER = "ab" * 32, "cd" * 32


def test_an_owner_has_so_many_tokens_and_no_more(accounts: Accounts, clock: StoppedClock) -> None:
    first = accounts.issue(["file"], fingerprint=OWNER, seconds=60)
    made = [accounts.issue(["file"], fingerprint=OWNER) for _ in range(MAX_LIVE_TOKENS - 1)]
    with pytest.raises(ConflictError, match=f"{MAX_LIVE_TOKENS} tokens") as caught:
        accounts.issue(["file"], fingerprint=OWNER)
    assert "revoke" in caught.value.hint
    accounts.authenticate(first.token)  # none was revoked for it
    accounts.issue(["file"], fingerprint=OTHER)

    accounts.revoke(made[0].account.token_id)
    accounts.issue(["file"], fingerprint=OWNER)
    clock.pass_seconds(61)  # what is too old does not count
    accounts.issue(["file"], fingerprint=OWNER)
    with pytest.raises(ConflictError):
        accounts.issue(["file"], fingerprint=OWNER)


def test_the_authoritys_own_tokens_are_not_counted(accounts: Accounts) -> None:
    for _ in range(MAX_LIVE_TOKENS + 1):
        accounts.issue(["admin"])


def test_whoever_signs_anew_gets_a_token_in_any_case(any_authority: Authority) -> None:
    """A thief who made all the tokens there may be does not lock the owner out."""
    owner, accounts = KeyOwner(1), any_authority.accounts
    first = owner.register(any_authority).token
    later = Accounts(
        any_authority.database,
        any_authority.settings,
        lambda: utc_now() + datetime.timedelta(seconds=10),
    )
    for _ in range(MAX_LIVE_TOKENS - 1):
        later.issue(["file"], fingerprint=owner.fingerprint)

    again = owner.register(any_authority).token

    assert accounts.authenticate(again.token).fingerprint == owner.fingerprint
    with pytest.raises(AccessDeniedError, match="revoked"):
        accounts.authenticate(first.token)
    live = [each for each in accounts.tokens(owner.fingerprint) if each.revoked is None]
    assert len(live) == MAX_LIVE_TOKENS


def test_a_token_is_revoked_by_its_owner_or_an_admin(accounts: Accounts) -> None:
    mine, second, third = (accounts.issue(["file"], fingerprint=OWNER) for _ in range(3))
    stranger = accounts.issue(["file", "dispute"], fingerprint=OTHER).account
    nobodys = accounts.issue(["file"]).account
    admin = accounts.issue(["admin"]).account
    for by in (stranger, nobodys):
        with pytest.raises(NotFoundError, match="of yours"):
            accounts.revoke(mine.account.token_id, by=by)
        assert mine.account.token_id not in {each.token_id for each in accounts.tokens(by=by)}
    accounts.authenticate(mine.token)

    assert accounts.revoke(second.account.token_id, by=mine.account).revoked
    assert accounts.revoke(third.account.token_id, by=admin).revoked
    assert accounts.revoke(nobodys.token_id, by=nobodys).revoked


def test_an_owner_revokes_all_that_were_made_in_his_name(accounts: Accounts) -> None:
    mine, second, third = (accounts.issue(["file"], fingerprint=OWNER) for _ in range(3))
    accounts.revoke(third.account.token_id)
    other = accounts.issue(["file"], fingerprint=OTHER)
    admin = accounts.issue(["admin"])

    revoked = accounts.revoke_all(OWNER)

    assert {each.token_id for each in revoked} == {each.account.token_id for each in (mine, second)}
    assert all(each.revoked for each in revoked)
    for each in (mine, second):
        with pytest.raises(AccessDeniedError):
            accounts.authenticate(each.token)
    for each in (other, admin):
        accounts.authenticate(each.token)


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
