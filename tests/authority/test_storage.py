"""The database: its migrations, its one writer at a time, and views that follow from the log."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, select, text

from authority_world import NAME, KeyOwner, admit, make_authority
from nsmark.errors import ConfigError
from nsmark_authority.errors import AuthorityError, TransparencyError
from nsmark_authority.receipt import check_receipt
from nsmark_authority.service import Authority
from nsmark_authority.statements import Defence, Deposit, Ruling, Withdrawal
from nsmark_authority.storage.database import Database, migration_config, parse_url
from nsmark_authority.storage.tables import METADATA, VIEWS
from nsmark_authority.transparency import check_consistency, open_checkpoint
from nsmark_authority.transparency.checkpoint import NoteKey
from postgres_server import PostgresServer
from processes import PATIENCE


def test_migrations_and_tables_agree(any_authority: Authority) -> None:
    with any_authority.database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})

        assert compare_metadata(context, METADATA) == []


def test_migrations_can_be_undone_and_done_again(any_authority: Authority) -> None:
    database = any_authority.database
    with database.write() as connection:
        command.downgrade(migration_config(connection), "base")
        assert set(inspect(connection).get_table_names()) == {"alembic_version"}
        command.upgrade(migration_config(connection), "head")
        assert set(METADATA.tables) <= set(inspect(connection).get_table_names())


def test_what_was_handed_over_before_there_were_rows_for_it(any_authority: Authority) -> None:
    claimant = KeyOwner(1)
    claimant.register(any_authority)
    filing = claimant.file(any_authority).entry_id
    before = any_authority.contents.handed_over(filing)
    with any_authority.database.write() as connection:
        config = migration_config(connection)
        command.downgrade(config, "0001")
        command.upgrade(config, "head")

    assert any_authority.contents.handed_over(filing) == before is not None
    with any_authority.database.read() as connection:
        assert any_authority.contents.bytes_of(connection, claimant.fingerprint) > 0


def test_a_database_of_a_newer_nsmark_is_left_alone(any_authority: Authority) -> None:
    with any_authority.database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    with pytest.raises(AuthorityError, match="another version"):
        Database(any_authority.settings.database)


def test_what_fails_in_a_transaction_leaves_nothing(any_authority: Authority) -> None:
    before = any_authority.accounts.events()

    def fail_in_the_middle() -> None:
        with any_authority.database.write() as connection:
            any_authority.accounts.note_in(connection, "who", "what", "subject", "outcome")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail_in_the_middle()

    assert any_authority.accounts.events() == before


def test_writers_of_two_connections_do_not_overlap(
    tmp_path: Path, any_authority: Authority
) -> None:
    other = Database(any_authority.settings.database)  # as another process would open it
    order: list[str] = []
    entered = threading.Event()

    def write_later() -> None:
        entered.wait(PATIENCE)
        with other.write():
            order.append("second")

    thread = threading.Thread(target=write_later)
    thread.start()
    with any_authority.database.write():
        entered.set()
        thread.join(0.3)
        order.append("first")
    thread.join(PATIENCE)
    other.close()

    assert order == ["first", "second"]


def test_sqlite_waits_for_the_disk_and_keeps_foreign_keys(authority: Authority) -> None:
    with authority.database.read() as connection:
        pragmas = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }

    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "busy_timeout": 60000,
    }


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("postgresql://u:secret@host/name", "postgresql+pg8000"),
        ("postgres://u@host/name", "postgresql+pg8000"),
        ("postgresql+psycopg://u@host/name", "postgresql+pg8000"),
        ("sqlite:////tmp/x.db", "sqlite"),
    ],
)
def test_urls_get_our_driver(url: str, driver: str) -> None:
    assert parse_url(url).drivername == driver


@pytest.mark.parametrize(
    "url", ["mysql://u:secret@host/name", "sqlite://", "no url", "sqlite:///:memory:"]
)
def test_other_databases_are_refused_without_showing_the_url(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_url(url)

    assert "secret" not in str(caught.value)


def test_a_server_that_is_not_there_is_an_error_without_password() -> None:
    with pytest.raises(AuthorityError) as caught:
        Database("postgresql://nsmark:secret@127.0.0.1:1/nothing")

    assert "secret" not in str(caught.value) + caught.value.hint


def fill(authority: Authority) -> None:
    """At least one entry of every kind, and a filing in every state."""
    claimant, respondent = KeyOwner(1), KeyOwner(2)
    for somebody in (claimant, respondent):
        somebody.register(authority)
    authority.publish("pool", "a pool", b"one text\nanother text\n")
    authority.publish("word_list", "words", "wörter\n".encode())
    filings = [claimant.file(authority, number).entry_id for number in range(6)]
    successor = claimant.file(authority, 9, authority.registry.filing(filings[0]).key_id).entry_id
    for filing in (*filings[:3], filings[4], successor):
        admit(authority, filing)
    admit(authority, filings[3], admitted=False)
    disputes = [authority.open_dispute(claimant.dispute(number)).entry_id for number in (0, 1, 1)]
    other = authority.open_dispute(claimant.dispute(2, words="again")).entry_id
    deposit = authority.deposit(
        respondent.sign(
            Deposit(
                authority=NAME,
                public_key=respondent.pem,
                what="recorded",
                content_sha256="ab" * 32,
                content_bytes=17,
            )
        )
    )
    authority.answer_dispute(
        respondent.sign(
            Defence(
                authority=NAME,
                public_key=respondent.pem,
                dispute=disputes[0],
                evidence=deposit.entry_id,
                statement="I had it before",
            )
        )
    )
    for subject in (other, filings[4]):
        authority.withdraw(
            claimant.sign(
                Withdrawal(authority=NAME, public_key=claimant.pem, subject=subject, reason="")
            )
        )
    found = authority.registry.dispute(disputes[0])
    authority.record_ruling(
        Ruling(
            authority=NAME,
            dispute=disputes[0],
            key_id=found.key_id,
            outcome="fell",
            verdict="owned",
            reasons=("the respondent had it before",),
            evidence={"extraction_rate": 1.0},
            report_sha256=None,
            randomness="00" * 32,
            defence=None,
            other_claims=(),
            opened=found.time,
            measured=found.time,
            versions={},
        )
    )


def test_views_can_be_rebuilt_from_the_log(any_authority: Authority) -> None:
    fill(any_authority)

    def views() -> dict[str, list[tuple[object, ...]]]:
        with any_authority.database.read() as connection:
            return {
                table.name: [
                    tuple(row)
                    for row in connection.execute(select(table).order_by(table.c.position))
                ]
                for table in VIEWS
            }

    before = views()
    assert all(before.values())
    states = {filing.state for filing in any_authority.registry.search_filings()}
    assert states == {"waiting", "admitted", "refused", "revealed", "succeeded", "withdrawn"}

    assert any_authority.rebuild_views() == any_authority.log.size()
    assert views() == before


def test_every_entry_has_a_receipt_at_every_size(any_authority: Authority) -> None:
    fill(any_authority)
    size = any_authority.log.size()

    for entry in any_authority.log.entries(0, 1000):
        for wanted in {entry.index + 1, (entry.index + 1 + size) // 2, size}:
            receipt = any_authority.log.receipt(entry.entry_id, wanted)
            checked = check_receipt(receipt, any_authority.public_key, any_authority.roots)
            assert (checked.index, checked.tree_size) == (entry.index, wanted)
            assert checked.opened.entry == entry.entry


def test_a_database_restored_to_an_older_state_is_noticed(
    tmp_path: Path, database_url: str | None
) -> None:
    authority = make_authority(tmp_path, database_url)
    owner = KeyOwner(1)
    owner.register(authority)
    for number in range(5):
        owner.file(authority, number)
    key = NoteKey(authority.name, authority.public_key)
    seen = open_checkpoint(authority.log.checkpoint(), key)

    # The operator goes back to three entries, and goes on from there.
    with authority.database.write() as connection:
        connection.execute(text("DELETE FROM log_entries WHERE position >= 3"))
        connection.execute(text("DELETE FROM log_nodes WHERE start + (1 << level) > 3"))
        connection.execute(text("DELETE FROM log_checkpoints WHERE size > 3"))
    authority.rebuild_views()
    with pytest.raises(TransparencyError):
        authority.log.consistency(seen.size, authority.log.size())
    for number in range(10, 15):
        owner.file(authority, number)

    now = open_checkpoint(authority.log.checkpoint(), key)
    assert now.size > seen.size
    with pytest.raises(TransparencyError, match="other roots"):
        check_consistency(
            authority.log.consistency(seen.size, now.size),
            old_size=seen.size,
            old_root=seen.root,
            new_size=now.size,
            new_root=now.root,
        )
    authority.close()


def test_an_authority_does_not_go_on_from_an_older_database(
    tmp_path: Path, database_url: str | None, postgres: PostgresServer
) -> None:
    authority = make_authority(tmp_path, database_url)
    owner = KeyOwner(1)
    owner.register(authority)
    content = owner.file(authority).entry_id
    authority.close()
    make_authority(tmp_path, database_url).close()  # what it starts with, it remembers

    # An empty database, such as after a wrong URL.
    with pytest.raises(AuthorityError, match="older than the log"):
        make_authority(tmp_path, postgres.new_database())

    again = make_authority(tmp_path, database_url)
    filing = again.registry.filing(content)
    assert again.read_filed_key(filing).key_id == filing.key_id  # nothing was taken for loose
    again.close()


def test_consistency_of_a_log_that_only_grew(any_authority: Authority) -> None:
    fill(any_authority)
    key = NoteKey(any_authority.name, any_authority.public_key)
    notes = [
        open_checkpoint(any_authority.log.checkpoint(size), key)
        for size in range(1, any_authority.log.size() + 1)
    ]

    for old in notes:
        check_consistency(
            any_authority.log.consistency(old.size, notes[-1].size),
            old_size=old.size,
            old_root=old.root,
            new_size=notes[-1].size,
            new_root=notes[-1].root,
        )


def test_unknown_bytes_are_no_statement_of_anybody(authority: Authority) -> None:
    with pytest.raises(TransparencyError):
        authority.file_key(b"{}", io.BytesIO(b""))
    assert authority.log.size() == 0
