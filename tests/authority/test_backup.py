"""Back-ups: whole, consistent while others write, restored into either database, or refused."""

from __future__ import annotations

import hashlib
import io
import itertools
import random
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, delete, inspect, select, update

from authority_world import NAME, KeyOwner, admit, make_authority, small_key
from nsmark.errors import FileAccessError, InputError, NsmarkError, UsageError
from nsmark_authority.archive import ArchiveReader, ArchiveWriter
from nsmark_authority.archived_rows import ARCHIVED_TABLES
from nsmark_authority.backup import KEY_FILES, write_backup
from nsmark_authority.checking import check_authority
from nsmark_authority.errors import AccessDeniedError, AuthorityError, ConflictError, NotFoundError
from nsmark_authority.manifest import Manifest, ManifestFile
from nsmark_authority.receipt import Receipt, check_receipt
from nsmark_authority.restoring import restore_backup
from nsmark_authority.service import Authority, open_authority
from nsmark_authority.settings import AuthoritySettings
from nsmark_authority.statements import Deposit, Ruling, Suspect, Withdrawal
from nsmark_authority.storage.database import parse_url
from nsmark_authority.storage.tables import (
    CONTENT_FILES,
    CONTENTS,
    HANDED_OVER,
    JOBS,
    LOG_CHECKPOINTS,
    LOG_ENTRIES,
    LOG_NODES,
    LOG_ROOTS,
    METADATA,
    NONCES,
    VIEW_FILINGS,
    VIEW_OWNERS,
    VIEWS,
)
from nsmark_authority.transparency import check_consistency, open_checkpoint
from nsmark_authority.transparency.checkpoint import NoteKey
from processes import PATIENCE, running

PASSPHRASE = b"correct horse"
MODEL = {"config.json": b"{}", "weights/model.safetensors": bytes(range(256)) * 5000}
REPORT = b'{"verdict":"owned"}'
ANSWERS = b"recorded outputs"
SUSPECT = b"the suspect's answers"


@dataclass
class Busy:
    """An authority in which everything has happened once, and the receipts it gave."""

    authority: Authority
    receipts: list[Receipt]
    token: str
    revoked_token: str

    @property
    def settings(self) -> AuthoritySettings:
        return self.authority.settings


def deposit_of(owner: KeyOwner, what: str, sha256: str, num_bytes: int) -> bytes:
    return owner.sign(
        Deposit(
            authority=NAME,
            public_key=owner.pem,
            what=what,
            content_sha256=sha256,
            content_bytes=num_bytes,
            model_digest="ab" * 32 if what == "model" else None,
            note="früher",
        )
    )


def make_busy(folder: Path, database_url: str | None = None) -> Busy:
    authority = make_authority(folder, database_url, answer_seconds=0)
    owner, other = KeyOwner(1), KeyOwner(2)
    registered = owner.register(authority)
    receipts = [registered.receipt, other.register(authority).receipt]
    receipts.append(authority.publish("word_list", "Wörter", "äpfel\nbirnen\n".encode()))
    filing = owner.file(authority)
    receipts += [filing, admit(authority, filing.entry_id)]
    successor = owner.file(authority, 1, succeeds=small_key().key_id)
    receipts += [successor, admit(authority, successor.entry_id)]
    refused = other.file(authority, 0)
    receipts += [refused, admit(authority, refused.entry_id, admitted=False)]
    left = other.file(authority, 1)
    withdrawal = Withdrawal(authority=NAME, public_key=other.pem, subject=left.entry_id, reason="")
    receipts += [left, authority.withdraw(other.sign(withdrawal))]
    document = deposit_of(other, "recorded", hashlib.sha256(ANSWERS).hexdigest(), len(ANSWERS))
    receipts.append(authority.deposit(document, io.BytesIO(ANSWERS)))
    manifest = Manifest.of_files(
        [
            ManifestFile(name=name, bytes=len(c), sha256=hashlib.sha256(c).hexdigest())
            for name, c in MODEL.items()
        ]
    )
    document = deposit_of(owner, "model", manifest.digest, manifest.total_bytes)
    files = ((name, io.BytesIO(content)) for name, content in MODEL.items())
    receipts.append(authority.deposit(document, files))
    dispute = authority.open_dispute(owner.dispute())
    ruling = Ruling(
        authority=NAME,
        dispute=dispute.entry_id,
        key_id=small_key().key_id,
        outcome="upheld",
        verdict="owned",
        reasons=("it carries the mark",),
        evidence={"extraction_rate": 0.99},
        report_sha256=hashlib.sha256(REPORT).hexdigest(),
        randomness=None,
        defence=None,
        other_claims=(),
        opened="2030-01-01T00:00:00Z",
        measured="2030-01-02T00:00:00Z",
        versions={"nsmark": "0.1.0"},
    )
    receipts += [dispute, authority.record_ruling(ruling, REPORT)]
    suspect = Suspect(
        kind="recorded",
        content_sha256=hashlib.sha256(SUSPECT).hexdigest(),
        content_bytes=len(SUSPECT),
    )
    receipts.append(authority.open_dispute(owner.dispute(1, suspect), io.BytesIO(SUSPECT)))
    receipts.append(owner.file(authority, 2))
    revoked = authority.accounts.issue(["admin"], label="old")
    authority.accounts.revoke(revoked.account.token_id)
    return Busy(authority, receipts, registered.token.token, revoked.token)


def new_settings(folder: Path, database_url: str | None = None) -> AuthoritySettings:
    return AuthoritySettings(folder=folder, database_url=database_url, answer_seconds=0)


def rows_of(authority: Authority, tables: tuple[Any, ...]) -> dict[str, list[tuple[Any, ...]]]:
    with authority.database.read() as connection:
        return {
            table.name: sorted((tuple(row) for row in connection.execute(select(table))), key=repr)
            for table in tables
        }


# --- There and back. ---


@pytest.mark.parametrize(
    ("source", "target"),
    [("sqlite", "sqlite"), ("sqlite", "postgresql"), ("postgresql", "sqlite")],
)
def test_a_restored_authority_is_the_same(
    tmp_path: Path, source: str, target: str, request: pytest.FixtureRequest
) -> None:
    def database(kind: str) -> str | None:
        return None if kind == "sqlite" else request.getfixturevalue("postgres").new_database()

    old = make_busy(tmp_path, database(source))
    nonce = old.authority.challenge().nonce
    old_note = old.authority.log.checkpoint()
    written = write_backup(old.settings, tmp_path / "a.backup", PASSPHRASE)
    later = new_settings(tmp_path / "new", database(target))

    summary = restore_backup(tmp_path / "a.backup", later, PASSPHRASE)

    assert summary == written.holds
    assert summary.checkpoint == old_note
    assert check_authority(later).problems == ()
    new = open_authority(later)
    tables = (*ARCHIVED_TABLES, LOG_NODES, *VIEWS)
    assert rows_of(new, tables) == rows_of(old.authority, tables)
    # Receipts hold, and the same ones are given again.
    assert new.public_key == old.authority.public_key
    for receipt in old.receipts:
        check_receipt(receipt, new.public_key, new.roots)
        assert new.log.receipt(receipt.entry_id, receipt.index + 1) == receipt
    # Sealed things can be read.
    assert new.read_filed_key(new.registry.filing_of_key(small_key().key_id)) == small_key()
    (model,) = (d for d in new.registry.deposits(limit=10) if d.what == "model")
    new.contents.copy_folder(model.content_sha256, tmp_path / "model")
    assert {n: (tmp_path / "model" / n).read_bytes() for n in MODEL} == MODEL
    # Tokens go on, revoked ones do not, and no challenge is open twice.
    assert new.accounts.authenticate(old.token, "file").fingerprint == KeyOwner(1).fingerprint
    with pytest.raises(AccessDeniedError, match="revoked"):
        new.accounts.authenticate(old.revoked_token, "admin")
    with pytest.raises(AccessDeniedError, match="challenge"):
        new.register(KeyOwner(3).registration(nonce))
    # The log goes on where it was, with its numbers of time stamps and events.
    fresh = KeyOwner(1).file(new, 7)
    assert fresh.index == summary.num_entries
    key = NoteKey(new.name, new.public_key)
    before, now = open_checkpoint(old_note, key), open_checkpoint(new.log.checkpoint(), key)
    check_consistency(
        new.log.consistency(before.size, now.size),
        old_size=before.size,
        old_root=before.root,
        new_size=now.size,
        new_root=now.root,
    )
    last = KeyOwner(1).file(old.authority, 8)
    assert check_serial(last) < check_serial(fresh)
    new.close()
    old.authority.close()


def check_serial(receipt: Receipt) -> int:
    return check_receipt(receipt, receipt.public_key, receipt.roots).timestamp.serial


def test_every_table_is_archived_or_follows_from_what_is() -> None:
    made_anew = {LOG_NODES, *VIEWS}
    assert {*ARCHIVED_TABLES, *made_anew, NONCES} == set(METADATA.tables.values())


def test_an_authority_without_entries_can_be_restored(tmp_path: Path) -> None:
    make_authority(tmp_path).close()
    write_backup(new_settings(tmp_path / "authority"), tmp_path / "a.backup", None)

    summary = restore_backup(tmp_path / "a.backup", new_settings(tmp_path / "new"), None)

    assert (summary.num_entries, summary.num_contents) == (0, 0)
    restored = open_authority(new_settings(tmp_path / "new"))
    assert KeyOwner(1).register(restored).receipt.index == 0
    restored.close()


def test_a_backup_while_four_threads_file(tmp_path: Path, any_authority: Authority) -> None:
    KeyOwner(1).register(any_authority)
    for number in range(160):
        KeyOwner(1).filing(number)  # made before, so that the threads meet at the database
    numbers = itertools.count()
    acknowledged: list[Receipt] = []
    stop = threading.Event()

    def file() -> None:
        while not stop.is_set() and (number := next(numbers)) < 160:
            acknowledged.append(KeyOwner(1).file(any_authority, number))

    threads = [threading.Thread(target=file) for _ in range(4)]
    for thread in threads:
        thread.start()
    backups = []
    try:
        for name in ("first", "second"):
            while len(acknowledged) < 10 * (1 + len(backups)):
                assert any(thread.is_alive() for thread in threads)
                time.sleep(0.01)
            before = list(acknowledged)
            written = write_backup(any_authority.settings, tmp_path / name, None)
            backups.append((name, before, written, len(acknowledged) - len(before)))
        assert check_authority(any_authority.settings).problems == ()
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    assert sum(during for *_, during in backups) > 0, "nothing was filed during the back-ups"
    for name, before, written, _ in backups:
        place = new_settings(tmp_path / f"restored-{name}")
        restore_backup(tmp_path / name, place, None)
        assert check_authority(place).problems == ()
        restored = open_authority(place)
        assert restored.log.checkpoint() == written.holds.checkpoint
        for receipt in before:
            assert restored.log.receipt(receipt.entry_id, receipt.index + 1) == receipt
            assert restored.jobs.of_subject(receipt.entry_id)
        size = restored.log.size()
        assert any_authority.log.checkpoint(size) == restored.log.checkpoint()
        restored.close()


# --- The file. ---


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Busy]:
    """For tests that only read it."""
    world = make_busy(tmp_path_factory.mktemp("busy"))
    yield world
    world.authority.close()


@pytest.fixture(scope="module")
def plain(busy: Busy, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("plain") / "a.backup"
    write_backup(busy.settings, path, None)
    return path.read_bytes()


@pytest.fixture(scope="module")
def encrypted(busy: Busy, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("encrypted") / "a.backup"
    write_backup(busy.settings, path, PASSPHRASE)
    return path.read_bytes()


def refused(folder: Path, content: bytes, passphrase: bytes | None = None) -> NsmarkError:
    """Restore what must be refused; nothing is left but the file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.backup").write_bytes(content)
    with pytest.raises(NsmarkError) as caught:
        restore_backup(folder / "a.backup", new_settings(folder / "new"), passphrase)
    assert [path.name for path in folder.iterdir()] == ["a.backup"]
    return caught.value


def test_the_file_is_for_its_owner_and_never_replaces_another(
    tmp_path: Path, busy: Busy, encrypted: bytes
) -> None:
    path = tmp_path / "a.backup"
    written = write_backup(busy.settings, path, PASSPHRASE)

    content = path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (hashlib.sha256(content).hexdigest(), len(content)) == (
        written.sha256,
        written.num_bytes,
    )
    assert len(content) > 1 << 20  # more than one chunk
    secrets = [(busy.settings.folder / name).read_bytes() for name in KEY_FILES[:-1]]
    assert not any(secret in content for secret in [*secrets, NAME.encode(), b"Owner 1"])
    assert content[:17] == encrypted[:17]
    assert content[17:1000] != encrypted[17:1000]
    with pytest.raises(FileAccessError, match="exists already"):
        write_backup(busy.settings, path, PASSPHRASE)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_passphrase_is_needed_and_must_be_right(
    tmp_path: Path, busy: Busy, encrypted: bytes
) -> None:
    assert "passphrase is wrong" in str(refused(tmp_path, encrypted, b"wrong"))
    assert isinstance(refused(tmp_path, encrypted), UsageError)
    with pytest.raises(UsageError, match="empty"):
        write_backup(busy.settings, tmp_path / "b.backup", b"")
    assert not (tmp_path / "b.backup").exists()


def test_only_an_empty_place_is_restored_into(tmp_path: Path, plain: bytes, postgres: Any) -> None:
    path = tmp_path / "a.backup"
    path.write_bytes(plain)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "precious").write_text("mine")
    with pytest.raises(FileAccessError, match="exists already"):
        restore_backup(path, new_settings(tmp_path / "taken"), None)
    assert [p.name for p in (tmp_path / "taken").iterdir()] == ["precious"]

    url = postgres.new_database()
    with_database = make_authority(tmp_path, url)
    KeyOwner(5).register(with_database)
    with pytest.raises(ConflictError, match="holds something"):
        restore_backup(path, new_settings(tmp_path / "new", url), None)
    assert with_database.log.size() == 1
    with_database.close()
    assert not (tmp_path / "new").exists()


def test_nothing_is_backed_up_where_no_authority_is(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no authority"):
        write_backup(new_settings(tmp_path / "none"), tmp_path / "a.backup", None)
    make_authority(tmp_path).close()
    (tmp_path / "authority" / "authority.db").unlink()
    with pytest.raises(NotFoundError, match="no database"):
        write_backup(new_settings(tmp_path / "authority"), tmp_path / "a.backup", None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["authority"]


def test_damaged_content_or_log_is_not_backed_up(tmp_path: Path) -> None:
    world = make_busy(tmp_path)
    path = next((world.settings.folder / "content").rglob("??/*"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-40] + bytes([whole[-40] ^ 1]) + whole[-39:])
    with pytest.raises(AuthorityError, match="damaged"):
        write_backup(world.settings, tmp_path / "a.backup", None)
    path.write_bytes(whole)
    write_backup(world.settings, tmp_path / "a.backup", None)
    with world.authority.database.write() as connection:
        change = update(LOG_ENTRIES).where(LOG_ENTRIES.c.position == 3).values(entry=b"{}")
        connection.execute(change)
    with pytest.raises(AuthorityError, match="not the one that its checkpoint signs"):
        write_backup(world.settings, tmp_path / "b.backup", None)
    assert not (tmp_path / "b.backup").exists()
    world.authority.close()


# --- Altered, truncated, forged. ---


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_plain_backup_with_one_bit_flipped_is_refused(
    data: st.DataObject, plain: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Half of the flips in the first part, where the keys and rows are.
    longest = data.draw(st.sampled_from([80_000, len(plain)]))
    place = data.draw(st.integers(0, min(longest, len(plain)) - 1))
    bit = data.draw(st.integers(0, 7))
    flipped = bytearray(plain)
    flipped[place] ^= 1 << bit
    refused(tmp_path_factory.mktemp("flip"), bytes(flipped))


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_an_encrypted_backup_with_one_bit_flipped_is_refused(
    data: st.DataObject, encrypted: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = data.draw(st.integers(0, len(encrypted) - 1) | st.integers(0, 100))
    flipped = bytearray(encrypted)
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))
    refused(tmp_path_factory.mktemp("flip"), bytes(flipped), PASSPHRASE)


def test_a_truncated_or_longer_backup_is_refused(
    tmp_path: Path, plain: bytes, encrypted: bytes
) -> None:
    generator = random.Random(7)  # noqa: S311 - where to cut is no secret
    chunk = 17 + 35 + (1 << 20) + 16
    cuts = [0, 10, 17, 18, len(plain) - 1, len(plain) - 32, len(plain) - 41]
    for cut in [*cuts, *(generator.randrange(len(plain)) for _ in range(6))]:
        refused(tmp_path, plain[:cut])
    for cut in (20, 52, chunk, len(encrypted) - 1):
        refused(tmp_path, encrypted[:cut], PASSPHRASE)
    assert "follows its end" in str(refused(tmp_path, plain + b"\x00"))
    refused(tmp_path, encrypted + b"\x00", PASSPHRASE)
    # Chunks cannot change places.
    first, second = encrypted[52:chunk], encrypted[chunk:]
    refused(tmp_path, encrypted[:52] + second + first, PASSPHRASE)


def test_a_passphrase_cannot_be_made_to_cost_gigabytes(tmp_path: Path, encrypted: bytes) -> None:
    for log_n, r, p in ((30, 8, 1), (17, 255, 255), (0, 8, 1), (17, 0, 1), (17, 8, 0)):
        content = encrypted[:17] + bytes([log_n, r, p]) + encrypted[20:]
        assert "unreasonable" in str(refused(tmp_path, content, PASSPHRASE))


Records = list[tuple[bytes, bytes]]


def read_records(content: bytes) -> Records:
    reader, records = ArchiveReader(io.BytesIO(content), None), []
    while (kind := reader.read(1)) != b"E":
        records.append((kind, reader.read(int.from_bytes(reader.read(8), "big"))))
    return records


def write_records(records: Records) -> bytes:
    """A back-up by somebody who knows the format, and makes the digest fit."""
    stream = io.BytesIO()
    writer = ArchiveWriter(stream, None)
    for kind, content in records:
        writer.record(kind, content)
    writer.finish()
    return stream.getvalue()


def find(records: Records, kind: bytes, holding: bytes = b"") -> int:
    return next(i for i, (k, c) in enumerate(records) if k == kind and holding in c)


def replaced(records: Records, index: int, old: bytes, new: bytes) -> Records:
    kind, content = records[index]
    assert old in content
    return [*records[:index], (kind, content.replace(old, new, 1)), *records[index + 1 :]]


def without(records: Records, index: int) -> Records:
    return [*records[:index], *records[index + 1 :]]


def rename_file(records: Records, name: bytes) -> Records:
    return replaced(records, find(records, b"F", b"data.key"), b"data.key", name)


def swap_contents(records: Records) -> Records:
    """Two sealed files under each other's names."""
    first = find(records, b"C")
    (kind, one), (_, two) = records[first : first + 2]
    swapped = [(kind, one[:32] + two[32:]), (kind, two[:32] + one[32:])]
    return [*records[:first], *swapped, *records[first + 2 :]]


def cut_content(records: Records) -> Records:
    index = find(records, b"C")
    return [*records[:index], (b"C", records[index][1][:-1]), *records[index + 1 :]]


def swap_entries(records: Records) -> Records:
    """Two log entries in each other's place, everything else of the rows as it was."""
    rows = [i for i, (k, c) in enumerate(records) if k == b"R" and b'"payloadType"' in c]
    first, second = records[rows[0]][1], records[rows[1]][1]
    changed = list(records)
    changed[rows[0]] = (b"R", first[:9] + second[9:])
    changed[rows[1]] = (b"R", second[:9] + first[9:])
    return changed


def find_giver(records: Records, owner: KeyOwner) -> int:
    """A row that says what an owner handed over."""
    width = 3 * (5 + 64) + 9 + (5 + 20)
    holding = owner.fingerprint.encode()
    return next(
        i for i, (k, c) in enumerate(records) if k == b"R" and len(c) == width and holding in c
    )


def regiven(records: Records, start: int, old: bytes, new: bytes) -> Records:
    """A member of such a row, from a place on, altered."""
    index = find_giver(records, KeyOwner(2))
    kind, content = records[index]
    assert content[start:].startswith(old)
    changed = content[:start] + new + content[start + len(new) :]
    return [*records[:index], (kind, changed), *records[index + 1 :]]


FORGERIES: dict[str, Callable[[Records], Records]] = {
    "path upwards": lambda r: rename_file(r, b"../data.key"),
    "absolute path": lambda r: rename_file(r, b"/tmp/data.key"),
    "unknown file": lambda r: rename_file(r, b"sitecustomize.py"),
    "missing file": lambda r: without(r, find(r, b"F", b"data.key")),
    "file twice": lambda r: [*r[:2], r[1], *r[2:]],
    "no header": lambda r: r[1:],
    "header not canonical": lambda r: replaced(r, 0, b'{"', b'{ "'),
    "another name": lambda r: replaced(r, 0, NAME.encode(), b"other.example"),
    "another version's columns": lambda r: replaced(r, 0, b'"is_folder"', b'"folder"'),
    "huge row count": lambda r: replaced(r, 0, b'"rows":', b'"rows":9999'),
    "more contents than files": lambda r: replaced(r, 0, b'"num_contents":', b'"num_contents":1'),
    "a row is missing": lambda r: without(r, find(r, b"R", b"filing")),
    "a row twice": lambda r: [
        *r[: find(r, b"R", b"registration")],
        r[find(r, b"R", b"registration")],
        *without(r, find(r, b"R", b"registration") + 1)[find(r, b"R", b"registration") :],
    ],
    "row is garbage": lambda r: [
        (k, c[:-3] if i == find(r, b"R") else c) for i, (k, c) in enumerate(r)
    ],
    "another kind of value": lambda r: replaced(r, find(r, b"R", b"filing"), b"i\x00", b"f\x00"),
    "zero in a text": lambda r: replaced(r, find(r, b"R", b"admission\x73"), b"admi", b"ad\x00i"),
    "entries in another order": swap_entries,
    "another time": lambda r: replaced(
        r, find(r, b"R", b'"payloadType"'), b"s\x00\x00\x00\x142", b"s\x00\x00\x00\x141"
    ),
    "another kind of entry": lambda r: replaced(
        r, find(r, b"R", b"registration"), b"registration", b"registrashun"
    ),
    "another checkpoint": lambda r: replaced(
        r, find(r, b"R", f"{NAME}\n5\n".encode()), f"{NAME}\n5\n".encode(), f"{NAME}\n6\n".encode()
    ),
    "contents swapped": swap_contents,
    "content cut": cut_content,
    "content under another name": lambda r: [
        (k, bytes(32) + c[32:] if i == find(r, b"C") else c) for i, (k, c) in enumerate(r)
    ],
    "content is missing": lambda r: without(r, find(r, b"C")),
    "content twice": lambda r: [*r, r[-1]],
    "another giver": lambda r: regiven(
        r, 2 * 69 + 5, KeyOwner(2).fingerprint.encode(), KeyOwner(1).fingerprint.encode()
    ),
    "given with an unknown entry": lambda r: regiven(r, 5, b"", b"no entry"),
    "given earlier": lambda r: regiven(r, 3 * 69 + 9, b"s\x00\x00\x00\x142", b"s\x00\x00\x00\x141"),
    "another data key": lambda r: [
        (k, b"data.key\x00" + bytes(32) if i == find(r, b"F", b"data.key") else c)
        for i, (k, c) in enumerate(r)
    ],
    "serial is no number": lambda r: [
        (k, b"timestamps/serial.txt\x00-5\n" if b"serial.txt" in c[:25] else c) for k, c in r
    ],
    "a public key in place of the private": lambda r: [
        (k, b"signing.pem\x00" + r[3][1].partition(b"\x00")[2] if i == 2 else c)
        for i, (k, c) in enumerate(r)
    ],
}


REASONS = {
    "path upwards": "other files",
    "absolute path": "other files",
    "unknown file": "other files",
    "missing file": "other files",
    "file twice": "other files",
    "no header": "not in their order",
    "header not canonical": "canonical",
    "another name": "not those of its authority",
    "another version's columns": "another version of nsmark",
    "huge row count": "no row of log_roots",
    "more contents than files": "more sealed files, or fewer",
    "a row is missing": "no row of log_entries",
    "a row twice": "contradict each other",
    "row is garbage": "no row of log_roots",
    "another kind of value": "no row of log_entries",
    "zero in a text": "no row of",
    "entries in another order": "of another log",
    "another time": "another time than its time stamp",
    "another kind of entry": "another id or kind",
    "another checkpoint": "does not fit the checkpoint",
    "contents swapped": "damaged",
    "content cut": "damaged",
    "content under another name": "not those that its rows name",
    "content is missing": "not those that its rows name",
    "content twice": "not in their order",
    "another giver": "another giver than its signer",
    "given with an unknown entry": "the log has no entry no entry",
    "given earlier": "a time before its entry's",
    "another data key": "the data key is another",
    "serial is no number": "number of the last time stamp",
    "a public key in place of the private": "no identity",
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_backup_is_refused(tmp_path: Path, plain: bytes, name: str) -> None:
    records = read_records(plain)
    assert write_records(records) == plain
    forged = FORGERIES[name](records)
    assert forged != records

    error = refused(tmp_path, write_records(forged))

    assert isinstance(error, InputError)
    assert REASONS[name] in str(error)


def test_parts_of_two_authorities_do_not_mix(tmp_path: Path, plain: bytes) -> None:
    other = make_busy(tmp_path / "other")
    write_backup(other.settings, tmp_path / "b.backup", None)
    other.authority.close()
    ours, theirs = read_records(plain), read_records((tmp_path / "b.backup").read_bytes())
    keys = slice(1, 1 + len(KEY_FILES))

    for mixed in (
        [ours[0], *theirs[keys], *ours[keys.stop :]],  # all keys
        [*ours[:2], *theirs[2:4], *ours[4:]],  # the signing key
        [*ours[:4], theirs[4], *ours[5:]],  # the data key
        [*ours[:7], theirs[7], *ours[8:]],  # the key of time stamps
        [theirs[0], *ours[1:]],  # the header
    ):
        assert isinstance(refused(tmp_path / "mixed", write_records(mixed)), InputError)


def test_a_part_cannot_announce_more_than_it_may_hold(tmp_path: Path, plain: bytes) -> None:
    length = int.from_bytes(plain[18:26], "big")
    for announced in (1 << 62, 1 << 30):
        huge = plain[:18] + announced.to_bytes(8, "big") + plain[26:]
        assert "larger than it can be" in str(refused(tmp_path, huge))
    records = read_records(plain)
    start = 17 + sum(9 + len(c) for k, c in records if k != b"C")
    assert plain[start : start + 1] == b"C"
    endless = plain[: start + 1] + (1 << 43).to_bytes(8, "big") + plain[start + 9 :]
    assert "truncated" in str(refused(tmp_path, endless))
    assert length == len(records[0][1])


def test_a_refused_backup_leaves_no_tables_behind(
    tmp_path: Path, plain: bytes, postgres: Any
) -> None:
    url = postgres.new_database()
    path = tmp_path / "a.backup"
    for content in (plain[:-1], write_records(swap_contents(read_records(plain)))):
        path.write_bytes(content)
        with pytest.raises(InputError):
            restore_backup(path, new_settings(tmp_path / "new", url), None)
        engine = create_engine(parse_url(url))
        assert inspect(engine).get_table_names() == []
        engine.dispose()
        assert [p.name for p in tmp_path.iterdir()] == ["a.backup"]
    path.write_bytes(plain)
    restore_backup(path, new_settings(tmp_path / "new", url), None)
    assert check_authority(new_settings(tmp_path / "new", url)).problems == ()


# --- The plug is pulled. ---

RESTORE = """
import os, signal, sys
from pathlib import Path
from nsmark_authority import restoring
from nsmark_authority.settings import AuthoritySettings

path, folder, database, victim = sys.argv[1:]
if victim != "-":
    number = 0
    original = getattr(restoring, victim)
    def killed(*args, **kwargs):
        result = original(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(restoring, victim, killed)
url = None if database == "-" else database
restoring.restore_backup(Path(path), AuthoritySettings(folder=Path(folder), database_url=url), None)
"""


@pytest.mark.parametrize("victim", ["_restore_rows", "rebuild_views", "_settle"])
def test_a_restore_that_is_killed_leaves_nothing_that_starts(
    tmp_path: Path, plain: bytes, database_url: str | None, victim: str
) -> None:
    path, folder = tmp_path / "a.backup", tmp_path / "new"
    path.write_bytes(plain)
    place = new_settings(folder, database_url)
    arguments = [str(path), str(folder), database_url or "-"]
    process = subprocess.run(
        [sys.executable, "-c", RESTORE, *arguments, victim], timeout=PATIENCE, check=False
    )
    assert process.returncode == -signal.SIGKILL

    if victim == "_settle" and database_url is None:
        assert check_authority(place).problems == ()  # all was done by then
        return
    if victim == "_settle":
        with pytest.raises(AuthorityError, match="older than the log"):
            open_authority(place)
        shutil.rmtree(folder)
    assert not folder.exists()
    restore_backup(path, place, None)
    assert check_authority(place).problems == ()


def test_a_restore_that_is_killed_at_any_moment_can_be_repeated(
    tmp_path: Path, plain: bytes
) -> None:
    path = tmp_path / "a.backup"
    path.write_bytes(plain)
    generator = random.Random()  # noqa: S311 - when the plug is pulled is no secret
    for number in range(3):
        folder = tmp_path / f"new-{number}"
        command = [sys.executable, "-c", RESTORE, str(path), str(folder), "-", "-"]
        with running(command) as process:
            while process.poll() is None and not list(tmp_path.glob(f".new-{number}.partial-*")):
                time.sleep(0.005)
            time.sleep(generator.uniform(0, 0.3))
        if not folder.exists():
            restore_backup(path, new_settings(folder), None)
        assert check_authority(new_settings(folder)).problems == ()


# --- Memory. ---

PEAK = """
import resource, sys
from pathlib import Path
from nsmark_authority.backup import write_backup
from nsmark_authority.restoring import restore_backup
from nsmark_authority.settings import AuthoritySettings

folder = Path(sys.argv[1])
write_backup(AuthoritySettings(folder=folder / "authority"), folder / "a.backup", b"secret")
restore_backup(folder / "a.backup", AuthoritySettings(folder=folder / "new"), b"secret")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


class Endless:
    """So many bytes that look random, without holding them."""

    def __init__(self, num_bytes: int) -> None:
        self._left = num_bytes
        self._block = random.Random(1).randbytes(1 << 16)  # noqa: S311 - no secret

    def read(self, size: int, /) -> bytes:
        piece = self._block[: min(size, self._left)]
        self._left -= len(piece)
        return piece


def digest_of(source: Endless) -> str:
    digest = hashlib.sha256()
    while piece := source.read(1 << 16):
        digest.update(piece)
    return digest.hexdigest()


@pytest.mark.parametrize(
    ("megabytes", "allowed"), [(48, 24), pytest.param(200, 24, marks=pytest.mark.slow)]
)
def test_memory_does_not_grow_with_what_is_sealed(
    tmp_path: Path, megabytes: int, allowed: int
) -> None:
    peaks = []
    for num_bytes in (1 << 20, megabytes << 20):
        folder = tmp_path / str(num_bytes)
        authority = make_authority(folder)
        owner = KeyOwner(1)
        owner.register(authority)
        document = deposit_of(owner, "recorded", digest_of(Endless(num_bytes)), num_bytes)
        authority.deposit(document, Endless(num_bytes))
        authority.close()
        command = [sys.executable, "-c", PEAK, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
        peaks.append(int(done.stdout) * 1024)
        shutil.rmtree(folder)

    assert peaks[1] - peaks[0] < allowed << 20


# --- Checking. ---


def test_a_sound_authority_has_no_problems(busy: Busy) -> None:
    report = check_authority(busy.settings)

    assert report.problems == ()
    assert report.num_entries == len(busy.receipts)
    # Five keys, the word list, recorded outputs (of two), a manifest with two files, a report.
    assert report.num_contents == 12


def _given_by(seed: int) -> Any:
    return update(HANDED_OVER).where(HANDED_OVER.c.fingerprint == KeyOwner(seed).fingerprint)


def _first(kind: str) -> Any:
    """The id of the first entry of a kind."""
    columns = LOG_ENTRIES.c
    query = select(columns.entry_id).where(columns.kind == kind)
    return query.order_by(columns.position).limit(1).scalar_subquery()


_is_deposit = HANDED_OVER.c.content == hashlib.sha256(ANSWERS).hexdigest()

DAMAGES: dict[str, tuple[Any, str]] = {
    "entry": (
        update(LOG_ENTRIES).where(LOG_ENTRIES.c.position == 2).values(entry=b"{}"),
        "entry 2:",
    ),
    "entry is gone": (delete(LOG_ENTRIES).where(LOG_ENTRIES.c.position == 2), "no entry 2"),
    "id": (
        update(LOG_ENTRIES).where(LOG_ENTRIES.c.position == 2).values(entry_id="ab" * 32),
        "another id",
    ),
    "time": (
        update(LOG_ENTRIES).where(LOG_ENTRIES.c.position == 2).values(time="2001-01-01T00:00:00Z"),
        "another time",
    ),
    "token": (
        update(LOG_ENTRIES).where(LOG_ENTRIES.c.position == 2).values(token=b"\x30\x00"),
        "entry 2:",
    ),
    "roots": (update(LOG_ROOTS).values(pem="none"), "root certificates"),
    "kind of time": (update(LOG_ROOTS).values(is_local=False), "another kind"),
    "node": (update(LOG_NODES).where(LOG_NODES.c.level == 2).values(hash=bytes(32)), "tree"),
    "node is gone": (delete(LOG_NODES).where(LOG_NODES.c.level == 3), "tree"),
    "checkpoint": (
        update(LOG_CHECKPOINTS).where(LOG_CHECKPOINTS.c.size == 3).values(note=b"none"),
        "checkpoint over 3",
    ),
    "checkpoint is gone": (
        delete(LOG_CHECKPOINTS).where(LOG_CHECKPOINTS.c.size == 3),
        "no checkpoint over 3",
    ),
    "view": (update(VIEW_FILINGS).values(state="admitted"), "view_filings"),
    "view row is gone": (delete(VIEW_OWNERS), "view_owners"),
    "job is gone": (
        delete(JOBS).where(JOBS.c.kind == "admission", JOBS.c.state == "queued"),
        "there is no job for entry",
    ),
    "size": (update(CONTENTS).values(bytes=7), "another size"),
    "files": (
        update(CONTENT_FILES).where(CONTENT_FILES.c.name == "config.json").values(name="c.json"),
        "other files",
    ),
    "giver": (
        _given_by(2).values(fingerprint=KeyOwner(1).fingerprint),
        "another giver than its signer",
    ),
    "given with an unknown entry": (
        _given_by(2).where(_is_deposit).values(entry_id="ab" * 32),
        f"the log has no entry {'ab' * 8}…, with which content was handed over",
    ),
    "given with an entry that announces nothing": (
        _given_by(2).where(_is_deposit).values(entry_id=_first("registration")),
        "entry 0 announces no content",
    ),
    "given with an answer of the authority's": (
        _given_by(2).where(_is_deposit).values(entry_id=_first("ruling")),
        "announces no content",
    ),
    "given with a dispute about an endpoint": (
        _given_by(2).where(_is_deposit).values(entry_id=_first("dispute")),
        "announces no content",
    ),
    "given another content": (
        _given_by(1).values(content=select(CONTENTS.c.sha256).limit(1).scalar_subquery()),
        "another content than it announces",
    ),
    "given another suspect": (
        _given_by(1)
        .where(HANDED_OVER.c.content == hashlib.sha256(SUSPECT).hexdigest())
        .values(bytes=7),
        "another size than it announces",
    ),
    "given before": (_given_by(1).values(time="2001-01-01T00:00:00Z"), "a time before its entry's"),
    "given at no time": (_given_by(1).values(time="2999-02-30T00:00:00Z"), "what is no time"),
    "given as another kind": (
        update(CONTENTS).where(CONTENTS.c.is_folder).values(is_folder=False),
        "is kept as another kind",
    ),
    "given and gone": (
        delete(CONTENTS).where(CONTENTS.c.sha256 == hashlib.sha256(ANSWERS).hexdigest()),
        "was handed over and is not there",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_in_the_database_is_found(tmp_path: Path, plain: bytes, name: str) -> None:
    (tmp_path / "a.backup").write_bytes(plain)
    place = new_settings(tmp_path / "new")
    restore_backup(tmp_path / "a.backup", place, None)
    change, expected = DAMAGES[name]
    engine = create_engine(parse_url(place.database))  # which knows of no foreign keys
    with engine.begin() as connection:
        connection.execute(change)
    engine.dispose()

    problems = check_authority(place).problems

    assert any(expected in problem for problem in problems), problems


def test_content_may_be_handed_over_later_than_it_was_announced(
    tmp_path: Path, plain: bytes
) -> None:
    (tmp_path / "a.backup").write_bytes(plain)
    place = new_settings(tmp_path / "new")
    restore_backup(tmp_path / "a.backup", place, None)
    authority = open_authority(place)
    with authority.database.write() as connection:
        connection.execute(update(HANDED_OVER).values(time="2999-12-31T00:00:00Z"))
    authority.close()

    assert check_authority(place).problems == ()
    write_backup(place, tmp_path / "b.backup", None)
    restore_backup(tmp_path / "b.backup", new_settings(tmp_path / "newer"), None)


def test_damage_on_the_disk_is_found(tmp_path: Path, plain: bytes) -> None:
    (tmp_path / "a.backup").write_bytes(plain)
    place = new_settings(tmp_path / "new")
    restore_backup(tmp_path / "a.backup", place, None)
    files = sorted(path for path in (place.folder / "content").rglob("*") if path.is_file())

    whole = files[0].read_bytes()
    files[0].write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    files[1].unlink()
    files[2].write_bytes(files[3].read_bytes())
    (place.folder / "signing.pub").write_text(KeyOwner(9).pem)
    problems = check_authority(place).problems
    assert "signing.pub is not the public half of signing.pem" in problems
    for path in files[:3]:
        assert any(path.name[:16] in problem for problem in problems)
    assert not any(files[3].name[:16] in problem for problem in problems)


def test_a_database_older_than_the_log_is_found(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    KeyOwner(1).register(authority)
    authority.close()
    shutil.copy(tmp_path / "authority" / "authority.db", tmp_path / "old.db")
    authority = make_authority(tmp_path)
    KeyOwner(2).register(authority)
    authority.close()
    make_authority(tmp_path).close()  # remembers the checkpoint
    shutil.copy(tmp_path / "old.db", tmp_path / "authority" / "authority.db")

    (problem,) = check_authority(new_settings(tmp_path / "authority")).problems

    assert problem.startswith("last.checkpoint: the database is older")
