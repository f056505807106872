"""A public log in memory, honest or not, and a server that gives out what a test wants."""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives.serialization import Encoding

from authority_world import NAME, KeyOwner
from handmade_keys import make_identity
from nsmark_authority.client.log_reader import LoggedEntry
from nsmark_authority.client.trust import TrustedAuthority
from nsmark_authority.statements import Deposit, Registration, entry_id_of
from nsmark_authority.transparency import (
    Checkpoint,
    MemoryTree,
    consistency_proof,
    hash_leaf,
    sign_checkpoint,
    tree_root,
)
from nsmark_authority.transparency.local_authority import LocalAuthority
from nsmark_authority.transparency.strict_base64 import encode_base64

AUTHORITY_SEED = 99
TIME = "2026-01-31T12:00:00Z"


@cache
def local_root() -> str:
    with tempfile.TemporaryDirectory() as folder:
        root = LocalAuthority.create(Path(folder) / "stamps").root
    return root.public_bytes(Encoding.PEM).decode("ascii")


def trusted(url: str = "http://127.0.0.1:1", seed: int = AUTHORITY_SEED) -> TrustedAuthority:
    return TrustedAuthority.of(
        url,
        name=NAME,
        public_key=make_identity(seed).public_key.to_pem(),
        roots=[local_root()],
        local_time=True,
        since=TIME,
    )


@cache
def deposit_entry(number: int, seed: int = 1) -> bytes:
    """A signed deposit; every number gives another one."""
    owner = KeyOwner(seed)
    return owner.sign(
        Deposit(
            authority=NAME,
            public_key=owner.pem,
            what="recorded",
            content_sha256=f"{number:064x}",
            content_bytes=1,
        )
    )


@cache
def registration_entry(name: str, seed: int) -> bytes:
    owner = KeyOwner(seed)
    return owner.sign(
        Registration(authority=NAME, public_key=owner.pem, owner=name, nonce="0" * 64)
    )


class MemoryLog:
    """A log whose entries a test can change behind everybody's back."""

    def __init__(self, entries: list[bytes], page: int = 3) -> None:
        self.history = list(entries)
        self.page = page
        self.shown_size: int | None = None
        self.reads = 0
        self.about: dict[str, object] = {
            "name": NAME,
            "public_key": make_identity(AUTHORITY_SEED).public_key.to_pem(),
            "roots": [local_root()],
            "is_local_time": True,
        }

    def tree(self) -> MemoryTree:
        return MemoryTree(map(hash_leaf, self.history))

    def checkpoint_note(self) -> bytes:
        size = len(self.history) if self.shown_size is None else self.shown_size
        checkpoint = Checkpoint(origin=NAME, size=size, root=tree_root(self.tree(), size))
        return sign_checkpoint(checkpoint, make_identity(AUTHORITY_SEED)).to_bytes()

    def consistency(self, old: int, new: int) -> tuple[bytes, ...]:
        return consistency_proof(self.tree(), old, new)

    def entries(self, start: int, end: int) -> Iterator[list[LoggedEntry]]:
        for first in range(start, end, self.page):
            self.reads += 1
            yield [
                LoggedEntry(
                    index=index, entry=self.history[index], kind=self.kind(index), time=TIME
                )
                for index in range(first, min(end, first + self.page))
            ]

    def kind(self, index: int) -> str:
        payload_type = json.loads(self.history[index])["payloadType"]
        return str(payload_type).split(".")[2]

    def answer(self, path: str, query: dict[str, str]) -> tuple[str, bytes]:
        """What a server of this log answers."""
        if path == "/v1/authority":
            return _json(self.about)
        if path == "/v1/log/checkpoint":
            return "text/plain", self.checkpoint_note()
        if path == "/v1/log/consistency":
            proof = self.consistency(int(query["old"]), int(query["new"]))
            return _json({"proof": [encode_base64(each) for each in proof]})
        if path == "/v1/log/entries":
            start = int(query["start"])
            end = min(len(self.history), start + min(int(query["count"]), self.page))
            items = [
                {
                    "index": index,
                    "entry": encode_base64(self.history[index]),
                    "kind": self.kind(index),
                    "time": TIME,
                    "entry_id": entry_id_of(self.history[index]),
                }
                for index in range(start, end)
            ]
            return _json({"items": items, "next": None})
        raise KeyError(path)


def _json(document: object) -> tuple[str, bytes]:
    return "application/json", json.dumps(document).encode()


Handle = Callable[[BaseHTTPRequestHandler], None]


@contextlib.contextmanager
def serving(handle: Handle) -> Iterator[str]:
    """Run a server whose every request goes to one function; yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            with contextlib.suppress(OSError):
                handle(self)

        do_POST = do_DELETE = do_GET  # noqa: N815 - the names that http.server looks for

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *args: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def respond(
    request: BaseHTTPRequestHandler,
    content: bytes,
    status: int = 200,
    content_type: str = "application/json",
    **headers: str,
) -> None:
    request.send_response(status)
    request.send_header("Content-Type", content_type)
    request.send_header("Content-Length", str(len(content)))
    for name, value in headers.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(content)


def serving_log(log: MemoryLog) -> contextlib.AbstractContextManager[str]:
    """Run a server of a log."""

    def handle(request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        try:
            content_type, content = log.answer(parts.path, query)
        except KeyError:
            respond(request, b'{"detail":"there is no such path"}', 404)
            return
        respond(request, content, content_type=content_type)

    return serving(handle)
