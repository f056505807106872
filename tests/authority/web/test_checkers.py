"""Receipts are checked in processes of their own; whatever happens to those, there is an answer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the authority extra")

from authority_world import KeyOwner, make_authority
from nsmark_authority.receipt import MAX_RECEIPT_BYTES, Receipt, ReceiptDocument
from nsmark_authority.stamping import roots_pem
from nsmark_authority.statements import MAX_STATEMENT_BYTES
from nsmark_authority.transparency import Envelope
from nsmark_authority.transparency.envelope import EnvelopeSignature
from nsmark_authority.web.app import create_app
from nsmark_authority.web.checkers import MAX_PROCESSES, Checkers, usual_processes
from nsmark_authority.web.documents import MAX_CHECKED_BYTES
from nsmark_authority.web.receipts import check_content
from processes import PATIENCE, is_running, wait_for


@pytest.fixture
def filed(tmp_path: Path) -> tuple[bytes, str, str]:
    """A receipt, and what it is checked with."""
    authority = make_authority(tmp_path)
    owner = KeyOwner(1)
    owner.register(authority)
    receipt = owner.file(authority).to_json()
    known = receipt, authority.public_key.to_pem(), roots_pem(authority.roots)
    authority.close()
    return known


@pytest.mark.parametrize("processes", [0, 1])
def test_good_receipts_hold_and_others_do_not(filed: tuple[bytes, str, str], processes: int):
    receipt, key, roots = filed
    altered = receipt.replace(b'"index":1', b'"index":0')
    assert altered != receipt

    async def check() -> list[bool]:
        checkers = Checkers(processes)
        try:
            contents = (receipt, altered, b"", b"[1]", receipt)
            checked = [await checkers.check(each, key, roots) for each in contents]
            assert all(each.entry_id for each in checked if each.result.valid)
            return [each.result.valid for each in checked]
        finally:
            checkers.close()

    assert asyncio.run(check()) == [True, False, False, False, True]


def test_what_is_no_receipt_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    authority = make_authority(tmp_path)
    context = create_app(authority).state.context
    read, parse = [], Receipt.parse
    monkeypatch.setattr(Receipt, "parse", lambda content: read.append(content) or parse(content))
    nothing = b'{"format":"nsmark/receipt/1"' + b" " * (MAX_CHECKED_BYTES - 100) + b"}"

    found = asyncio.run(check_content(context, nothing))

    authority.close()
    assert not found.valid
    assert read == [nothing]


def test_the_largest_receipt_there_can_be_is_checked():
    """Every field as long as its bound; the entry's is that of the statements we take."""
    lengths = {
        name: [each.max_length for each in field.metadata if hasattr(each, "max_length")]
        for name, field in ReceiptDocument.model_fields.items()
    }
    envelope = Envelope(
        payload_type="application/vnd.nsmark.registration.v1+json",
        payload=b"x" * MAX_STATEMENT_BYTES,
        signatures=(EnvelopeSignature(key_id="a" * 64, signature=b"s" * 64),),
    )
    largest = {
        "format": "nsmark/receipt/1",
        "authority": "a" * 256,
        "public_key": "k" * 1024,
        "entry": envelope.to_json().decode(),
        "index": 2**53 - 1,
        "proof": ["A" * 44] * lengths["proof"][0],
        "checkpoint": ("n" * 63 + "\n") * (lengths["checkpoint"][0] // 64),
        "token": "t" * lengths["token"][0],
        "roots": [("r" * 64 + "\n") * (16 * 1024 // 65)] * lengths["roots"][0],
        "local_time": False,
    }
    assert set(largest) == set(ReceiptDocument.model_fields)
    assert len(json.dumps(largest, indent=1)) < MAX_CHECKED_BYTES < MAX_RECEIPT_BYTES


def test_a_killed_process_costs_no_answer(filed: tuple[bytes, str, str]):
    async def check() -> tuple[bool, bool, bool]:
        checkers = Checkers(1)
        try:
            before = await checkers.check(*filed)
            first = checkers._pool
            assert first is not None
            (process,) = first._processes.values()
            os.kill(process.pid, signal.SIGKILL)
            process.join(PATIENCE)
            during = await checkers.check(*filed)
            after = await checkers.check(*filed)
            held = during.result.valid and after.result.valid
            return before.result.valid, held, checkers._pool is not first
        finally:
            checkers.close()

    assert asyncio.run(check()) == (True, True, True)


def test_processes_end_with_the_one_that_started_them(filed: tuple[bytes, str, str], tmp_path):
    import multiprocessing

    told = tmp_path / "pid"
    starter = multiprocessing.get_context("spawn").Process(target=_start, args=(filed, told))
    starter.start()
    try:
        wait_for(told.exists, "the checker to begin")
    finally:
        starter.kill()
        starter.join()
    checker = int(told.read_text())
    wait_for(lambda: not is_running(checker), "the checker to end")


def _start(filed: tuple[bytes, str, str], told: Path) -> None:
    async def check() -> None:
        checkers = Checkers(1)
        assert (await checkers.check(*filed)).result.valid
        assert checkers._pool is not None
        (process,) = checkers._pool._processes.values()
        partial = told.with_suffix(".partial")
        partial.write_text(str(process.pid))
        partial.rename(told)
        await asyncio.sleep(3600)

    asyncio.run(check())


def test_one_processor_is_left_to_the_web_process():
    assert 0 <= usual_processes() <= min(MAX_PROCESSES, max(0, (os.cpu_count() or 1) - 1))
