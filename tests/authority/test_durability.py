"""Many at once, and the plug pulled at any moment: what was acknowledged is there and provable."""

from __future__ import annotations

import hashlib
import itertools
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from authority_world import KeyOwner, make_authority
from nsmark_authority.receipt import check_receipt
from nsmark_authority.service import Authority
from nsmark_authority.transparency import MemoryTree, hash_leaf, open_checkpoint, tree_root
from nsmark_authority.transparency.checkpoint import NoteKey
from processes import PATIENCE, running

PROGRAM = Path(__file__).parents[1] / "filing_loop.py"


def check_log(authority: Authority) -> None:
    """The stored tree is the tree of the entries, at every size; every entry can be proved."""
    key = NoteKey(authority.name, authority.public_key)
    entries = list(
        itertools.chain.from_iterable(
            authority.log.entries(start, 1000) for start in range(0, authority.log.size(), 1000)
        )
    )
    assert [entry.index for entry in entries] == list(range(authority.log.size()))
    tree = MemoryTree()
    for entry in entries:
        tree.append(hash_leaf(entry.entry))
        checkpoint = open_checkpoint(authority.log.checkpoint(tree.size), key)
        assert (checkpoint.size, checkpoint.root) == (tree.size, tree_root(tree, tree.size))
    for entry in entries[:: max(1, len(entries) // 40)]:
        receipt = authority.log.receipt(entry.entry_id)
        assert check_receipt(receipt, authority.public_key, authority.roots).index == entry.index


def test_eight_threads_file_at_once(any_authority: Authority) -> None:
    owners = [KeyOwner(1), KeyOwner(2)]
    for owner in owners:
        owner.register(any_authority)
    work = [(owners[number % 2], number) for number in range(40)]
    for owner, number in work:
        owner.filing(number)  # made before, so that the threads meet at the database
    start = threading.Barrier(8)
    first = threading.local()

    def file(job: tuple[KeyOwner, int]):
        if not hasattr(first, "came"):
            first.came = True
            start.wait(PATIENCE)
        owner, number = job
        return owner.file(any_authority, number)

    # Every key twice: the second one gets the receipt of the first.
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(file, work + work))

    assert sorted({receipt.index for receipt in receipts}) == list(range(2, 42))
    assert [r.to_json() for r in receipts[:40]] == [r.to_json() for r in receipts[40:]]
    for receipt in receipts[:40]:
        check_receipt(receipt, any_authority.public_key, any_authority.roots)
    check_log(any_authority)
    assert len(any_authority.jobs.newest("queued", 200)) == 40


def prepare(folder: Path, owner: KeyOwner, count: int) -> None:
    folder.mkdir()
    for number in range(count):
        statement, content = owner.filing(number)
        (folder / f"{number:05d}.json").write_bytes(statement)
        (folder / f"{number:05d}.nsmark").write_bytes(content)


def kill_while_filing(
    folder: Path, database_url: str | None, prepared: Path, wanted: int
) -> dict[str, str]:
    """Let a process file until so many more are acknowledged, then kill it at a random moment."""
    command = [sys.executable, str(PROGRAM), str(folder), database_url or "-", str(prepared)]
    acknowledged: dict[str, str] = {}
    with running(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):
                number, entry_id, _ = line.split()
                acknowledged[number] = entry_id
            if len(acknowledged) == wanted:
                # S311: when the plug is pulled is no secret.
                time.sleep(random.uniform(0, 0.03))  # noqa: S311
                process.kill()
    return acknowledged


def file_and_kill(tmp_path: Path, database_url: str | None, count: int, kills: int) -> None:
    owner = KeyOwner(1)
    authority = make_authority(tmp_path, database_url)
    owner.register(authority)
    authority.close()
    prepared = tmp_path / "prepared"
    prepare(prepared, owner, count)
    acknowledged: dict[str, str] = {}
    notes = []

    for round_number in range(1, kills + 1):
        # A later process begins again at the first key: what is filed already costs it nothing.
        wanted = count * round_number // (kills + 1)
        acknowledged |= kill_while_filing(tmp_path / "authority", database_url, prepared, wanted)
        authority = make_authority(tmp_path, database_url)
        notes.append(authority.log.checkpoint())
        assert authority.log.size() - 1 in (len(acknowledged), len(acknowledged) + 1)
        for number, entry_id in acknowledged.items():
            statement = (prepared / f"{number}.json").read_bytes()
            assert authority.log.entry(entry_id).entry == statement
            assert authority.contents.handed_over(entry_id) is not None
            filing = authority.registry.filing(entry_id)
            sealed = authority.contents.read(filing.content_sha256, filing.content_bytes)
            assert hashlib.sha256(sealed).hexdigest() == filing.content_sha256
        authority.close()
    acknowledged |= kill_while_filing(tmp_path / "authority", database_url, prepared, -1)

    authority = make_authority(tmp_path, database_url)
    assert len(acknowledged) == count == authority.log.size() - 1
    check_log(authority)
    for entry_id in acknowledged.values():
        receipt = authority.log.receipt(entry_id)
        check_receipt(receipt, authority.public_key, authority.roots)
        filing = authority.registry.filing(entry_id)
        assert authority.read_filed_key(filing).key_id == filing.key_id
        assert [job.kind for job in authority.jobs.of_subject(entry_id)] == ["admission"]
    for note in notes:  # no checkpoint that was ever seen is contradicted
        size = open_checkpoint(note, NoteKey(authority.name, authority.public_key)).size
        assert authority.log.checkpoint(size) == note
    assert authority.contents.remove_unreferenced() == 0
    authority.close()


def test_killed_while_filing(tmp_path: Path, database_url: str | None) -> None:
    file_and_kill(tmp_path, database_url, count=150, kills=2)


@pytest.mark.slow
def test_killed_while_filing_a_thousand(tmp_path: Path, database_url: str | None) -> None:
    file_and_kill(tmp_path, database_url, count=1000, kills=20)
