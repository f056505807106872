"""Nothing that is secret leaves the server: not in an answer, not in a log, not on the disk."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import httpx

from authority_server import file_key, running_authority
from authority_world import KeyOwner, small_key
from nsmark_authority.statements import entry_id_of


def unpacked(octets: bytes) -> bytes:
    """Return what stands in base64, and in the base64 inside of that."""
    found = b""
    for _ in range(2):
        packed = re.findall(rb"(?:[A-Za-z0-9+/]{4}){10,}={0,2}", octets)
        octets = b"\n".join(base64.b64decode(each + b"=" * (-len(each) % 4)) for each in packed)
        found += octets
    return found


def test_a_whole_filing_leaks_nothing(tmp_path: Path) -> None:
    answers: list[bytes] = []

    def keep(answer: httpx.Response) -> httpx.Response:
        heads = b"".join(name + b": " + value + b"\n" for name, value in answer.headers.raw)
        answers.append(heads + answer.content)
        return answer

    with running_authority(tmp_path) as server:
        owner = KeyOwner(1, server.name)
        token = server.register(owner)
        document, content = owner.filing(1)
        key = small_key(1)
        entry_id = entry_id_of(document)
        with server.client(token) as client, server.client(server.admin_token) as admin:
            keep(file_key(client, document, content))
            keep(file_key(client, document, content))
            keep(file_key(client, document, content[:-9]))
            keep(file_key(client, *KeyOwner(2, server.name).filing(1)))
            keep(client.get(f"/v1/filings/{entry_id}", params={"token": token}))
            keep(client.get(f"/v1/tokens/{token}"))
            keep(client.delete(f"/v1/tokens/{token}"))
            keep(client.get(f"/{token}/{key.signed_claim.signature.hex()}"))
            keep(client.get("/v1/filings", headers={"Authorization": f"Bearer {token}x"}))
            keep(client.get("/v1/audit", headers={"Authorization": f"Bearer {token}x"}))
            keep(client.post("/v1/tokens", json={"scopes": [token], "days": token}))
            made = client.post("/v1/tokens", json={"scopes": ["file"]})
            second = made.json()["token"]
            for path in (
                "/v1/authority",
                "/v1/filings",
                f"/v1/keys/{key.key_id}",
                f"/v1/receipts/{entry_id}",
                "/v1/log/entries?count=100",
                "/v1/tokens",
                "/v1/openapi.json",
            ):
                keep(client.get(path))
            keep(admin.get("/v1/audit", params={"limit": "100"}))
            keep(admin.get("/v1/tokens"))
        admin_token = server.admin_token
        assert server.stop() == 0
        log = server.log.encode()

    signature = key.signed_claim.signature
    trigger = re.compile(rb"\b" + re.escape(key.trigger.encode()) + rb"\b", re.IGNORECASE)
    secrets = {
        "token": token.encode(),
        "token's digits": token.removeprefix("nsm_").encode(),
        "second token": second.encode(),
        "admin's token": admin_token.encode(),
        "signature": signature.hex().encode(),
        "signature, raw": signature,
        "content": content[-40:],
    }
    said = {f"answer {number}": answer for number, answer in enumerate(answers)} | {"log": log}
    assert len(log.splitlines()) > 20
    assert any(b"signature_sha256" in unpacked(answer) for answer in answers)
    for where, plain in said.items():
        octets = plain + b"\n" + unpacked(plain)
        for name, secret in secrets.items():
            # A path that is not there is not repeated, so even a secret in it is not.
            assert secret not in octets, f"{name} in {where}"
        assert not trigger.search(octets), f"trigger in {where}"
    # What is on the disk is sealed, and the database knows tokens by their digest.
    for path in (tmp_path / "authority").rglob("*"):
        if path.is_file():
            octets = path.read_bytes()
            for name in ("token", "second token", "admin's token", "signature, raw", "content"):
                assert secrets[name] not in octets, f"{name} in {path.name}"
