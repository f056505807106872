"""Hostile key files over HTTP: none is acknowledged, none takes the server down or fills it."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from authority_server import RunningAuthority, file_key, running_authority
from authority_world import KeyOwner, small_key
from nsmark.keyfile.codec import encode_key
from nsmark_authority.statements import Filing

ALLOWED_GROWTH_BYTES = 600 << 20


def zip_bomb() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("key.json", b"\x00" * (64 << 20))
    return stream.getvalue()


def huge_header(content: bytes, rng: np.random.Generator) -> bytes:
    return struct.pack("<Q", int(rng.integers(1 << 20, 1 << 62))) + content[8:]


def hostile_contents(count: int) -> Iterator[tuple[str, bytes]]:
    """Yield contents that are no sealed key of this owner: altered, cut, swollen or nonsense."""
    rng = np.random.default_rng(7)
    honest = encode_key(small_key(0, 1))
    bomb = zip_bomb()
    deep = b"[" * 200_000
    for number in range(count):
        kind = number % 10
        content = bytearray(honest)
        if kind == 0:
            for place in rng.integers(0, len(content), 3):
                content[place] ^= int(rng.integers(1, 256))
            yield "bits turned", bytes(content)
        elif kind == 1:
            yield "cut", honest[: int(rng.integers(1, len(honest)))]
        elif kind == 2:
            yield "longer", honest + rng.bytes(int(rng.integers(1, 50_000)))
        elif kind == 3:
            yield "random", rng.bytes(int(rng.integers(1, 100_000)))
        elif kind == 4:
            yield "huge header", huge_header(honest, rng)
        elif kind == 5:
            yield "zip bomb", bomb + rng.bytes(4)
        elif kind == 6:
            yield "nested JSON", deep + rng.bytes(4)
        elif kind == 7:
            begin = int(rng.integers(0, len(content) - 64))
            content[begin : begin + 64] = b"\xff" * 64
            yield "overwritten", bytes(content)
        elif kind == 8:
            members = {"__metadata__": {}, "x": {"dtype": "F64", "shape": [1 << 40, 1 << 20]}}
            header = json.dumps(members | {"n": int(rng.integers(1 << 62))}).encode()
            yield "impossible shapes", struct.pack("<Q", len(header)) + header
        else:
            begin, end = sorted(int(place) for place in rng.integers(0, len(content), 2))
            yield "pieces exchanged", bytes(content[end:] + content[begin:end] + content[:begin])


def assert_withstood(server: RunningAuthority, count: int) -> None:
    owner = KeyOwner(1, server.name)
    key = small_key(0, 1)
    honest = encode_key(key)
    statuses: dict[int, int] = {}
    with server.client(server.register(owner)) as client:
        size = client.get("/v1/health").json()["log_size"]
        before = server.resident_bytes()
        highest = before
        for number, (kind, content) in enumerate(hostile_contents(count)):
            if content == honest:
                continue
            statement = Filing.of(
                key.signed_claim,
                authority=server.name,
                key_id=key.key_id,
                content=content,
                succeeds=None,
            )
            answer = file_key(client, owner.sign(statement), content)
            assert answer.status_code == 422, (kind, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
            statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
            if number % 10 == 9:
                highest = max(highest, server.resident_bytes())
        assert client.get("/v1/health").json()["log_size"] == size
        honest_answer = file_key(client, *owner.filing(0))

    assert honest_answer.status_code == 201
    assert server.process.poll() is None
    assert sum(statuses.values()) >= count - 5
    assert highest - before < ALLOWED_GROWTH_BYTES
    # Nothing of what was refused stays.
    assert list((server.folder / "incoming").iterdir()) == []
    sealed = [path for path in (server.folder / "content").rglob("*") if path.is_file()]
    assert len([path for path in sealed if len(path.name) == 64]) == 4
    assert not [path for path in sealed if path.name.startswith(".partial")]


def test_a_hundred_hostile_keys(tmp_path: Path) -> None:
    with running_authority(tmp_path) as server:
        assert_withstood(server, 100)


@pytest.mark.slow
def test_a_thousand_hostile_keys(tmp_path: Path) -> None:
    with running_authority(tmp_path) as server:
        assert_withstood(server, 1000)
