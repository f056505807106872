"""Processes that check receipts, so that the web process is free to answer others."""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import os
import signal
import threading
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.process import BaseProcess

from anyio import CapacityLimiter, to_thread
from cryptography import x509

from nsmark.identity import PublicKey
from nsmark_authority.errors import TransparencyError
from nsmark_authority.fields import format_time
from nsmark_authority.receipt import Receipt, check_receipt
from nsmark_authority.statements import Filing, Registration
from nsmark_authority.web.models import ReceiptCheck

MAX_PROCESSES = 4
_MAX_IN_THREADS = 2
"""Receipts in check at once without processes: it is all computing, and readers want their turn."""


def usual_processes() -> int:
    """Return how many processes check: one processor is left to those who answer."""
    return min(MAX_PROCESSES, max(0, (os.cpu_count() or 1) - 1))


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found out about something that should be a receipt."""

    result: ReceiptCheck
    entry_id: str | None
    """Of the entry that it is about, proven or not; None: it is no receipt at all."""


class Checkers:
    """Checks receipts, in processes of its own or, without any, in threads."""

    def __init__(self, processes: int = 0) -> None:
        self._processes = processes
        self._pool = self._start()
        self._in_threads = CapacityLimiter(_MAX_IN_THREADS)

    async def check(self, content: bytes, public_key: str, roots: str) -> Checked:
        """Return what a receipt proves.

        Args:
            content: What is to be a receipt.
            public_key: The authority's, as PEM.
            roots: Certificates of trusted clocks, as PEM.
        """
        pool = self._pool
        if pool is not None:
            work = functools.partial(check_document, content, public_key, roots)
            try:
                return await asyncio.get_running_loop().run_in_executor(pool, work)
            except BrokenExecutor:  # a process was ended from outside; the others went with it
                if self._pool is pool:
                    self._pool = self._start()
        return await to_thread.run_sync(
            check_document, content, public_key, roots, limiter=self._in_threads
        )

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> ProcessPoolExecutor | None:
        if not self._processes:
            return None
        # Not forked: this process has threads, and keys that have no business in another one.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self._processes, context, _prepare)


def _prepare() -> None:
    """Leave signals to the web process, and end with it however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(0)


def check_document(content: bytes, public_key: str, roots: str) -> Checked:
    """Return what a receipt proves, by a key and roots in PEM form."""
    try:
        receipt = Receipt.parse(content)
    except TransparencyError as error:
        return Checked(_refusal(error), None)
    try:
        checked = check_receipt(receipt, _read_key(public_key), _read_roots(roots))
    except TransparencyError as error:
        return Checked(_refusal(error), receipt.entry_id)
    statement = checked.statement
    owner = None
    if isinstance(statement, Registration):
        owner = statement.owner
    elif isinstance(statement, Filing):
        owner = statement.claim["owner"]
    result = ReceiptCheck(
        valid=True,
        entry_id=checked.entry_id,
        index=checked.index,
        kind=statement.kind,
        owner=owner,
        fingerprint=checked.opened.signer.fingerprint,
        content_sha256=getattr(statement, "content_sha256", None),
        time=format_time(checked.time),
        local_time=checked.is_local_time,
        tree_size=checked.tree_size,
    )
    return Checked(result, checked.entry_id)


def _refusal(error: TransparencyError) -> ReceiptCheck:
    return ReceiptCheck(valid=False, reason=str(error), hint=error.hint)


@functools.lru_cache(4)
def _read_key(pem: str) -> PublicKey:
    return PublicKey.from_pem(pem)


@functools.lru_cache(4)
def _read_roots(pem: str) -> tuple[x509.Certificate, ...]:
    return tuple(x509.load_pem_x509_certificates(pem.encode("ascii")))
