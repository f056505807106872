"""The OpenAPI document is true, and nothing that can be said by it makes the server fail."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from authority_server import RunningAuthority, file_key, running_authority
from authority_world import KeyOwner, small_key
from nsmark_authority.service import Authority
from nsmark_authority.statements import entry_id_of
from nsmark_authority.web.app import create_app
from nsmark_authority.web.errors import PROBLEM_TYPE
from nsmark_authority.web.options import WebOptions

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "unsupported_method",
    "ignored_auth",
    "missing_required_header",
    "negative_data_rejection",
)
AGREED = {
    "GET /v1/authority",
    "GET /v1/health",
    "POST /v1/challenges",
    "POST /v1/owners",
    "GET /v1/owners",
    "GET /v1/owners/{fingerprint}",
    "POST /v1/tokens",
    "GET /v1/tokens",
    "DELETE /v1/tokens",
    "DELETE /v1/tokens/{token_id}",
    "POST /v1/filings",
    "GET /v1/filings",
    "GET /v1/filings/{entry_id}",
    "POST /v1/filings/{entry_id}/withdrawal",
    "GET /v1/keys/{key_id}",
    "POST /v1/deposits",
    "GET /v1/deposits",
    "GET /v1/deposits/{entry_id}",
    "GET /v1/publications",
    "POST /v1/publications",
    "GET /v1/publications/{digest}",
    "GET /v1/publications/{digest}/content",
    "POST /v1/disputes",
    "GET /v1/disputes",
    "GET /v1/disputes/{entry_id}",
    "GET /v1/disputes/{entry_id}/events",
    "GET /v1/disputes/{entry_id}/defences",
    "POST /v1/disputes/{entry_id}/defences",
    "POST /v1/disputes/{entry_id}/withdrawal",
    "GET /v1/disputes/{entry_id}/ruling",
    "GET /v1/disputes/{entry_id}/report",
    "GET /v1/log/checkpoint",
    "GET /v1/log/entries",
    "GET /v1/log/entries/{index}",
    "GET /v1/log/inclusion",
    "GET /v1/log/consistency",
    "GET /v1/receipts/{entry_id}",
    "POST /v1/receipts/check",
    "GET /v1/jobs/{job_id}",
    "GET /v1/audit",
}


@pytest.fixture(scope="module")
def document(server: RunningAuthority) -> dict[str, object]:
    with server.client() as client:
        return dict(client.get("/v1/openapi.json").json())


def test_the_agreed_paths_are_there_and_no_others(document) -> None:
    found = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    }
    assert found == AGREED


def test_every_operation_is_described_with_its_errors(document) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert operation["summary"], where
            assert operation["description"], where
            assert list(operation["responses"]["default"]["content"]) == [PROBLEM_TYPE], where
            for status, answer in operation["responses"].items():
                if status.startswith(("4", "5")):
                    assert list(answer["content"]) == [PROBLEM_TYPE], f"{where} {status}"
                    assert answer["description"], f"{where} {status}"
            assert ("401" in operation["responses"]) == ("security" in operation), where
    assert "HTTPValidationError" not in str(document)
    assert document["components"]["schemas"]["Problem"]["example"]["hint"]


def run_schemathesis(server: RunningAuthority, folder: Path, *options: str) -> None:
    """Run it against a server whose names it knows, so that not every path ends in 404."""
    owner = KeyOwner(1, server.name)
    token = server.register(owner)
    filing, content = owner.filing(1)
    with server.client(token) as client:
        assert file_key(client, filing, content).status_code == 201
        published = client.get("/v1/publications").json()["items"][0]["digest"]
        job = client.get(f"/v1/filings/{entry_id_of(filing)}").json()["job"]["job_id"]
    names = {
        "path.fingerprint": owner.fingerprint,
        "path.key_id": small_key(1).key_id,
        "path.digest": published,
        "path.job_id": job,
        "query.entry_id": entry_id_of(filing),
    }
    known = folder / "known.toml"
    lines = [f'"{name}" = "{value}"' for name, value in names.items()]
    known.write_text("[parameters]\n" + "\n".join(lines) + "\n")
    empty = folder / "empty.toml"
    empty.write_text("")
    before = server.resident_bytes()
    for config in (known, empty):
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"),
            *(f"{server.url}/v1/openapi.json", "--checks", ",".join(CHECKS), "--seed", "1"),
            *("-H", f"Authorization: Bearer {server.admin_token}", "--no-color"),
            *("--suppress-health-check", "all", "--continue-on-failure", *options),
        ]
        ran = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=folder,
            env=os.environ | {"PYTHONWARNINGS": "default"},
            timeout=1500,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
        assert "40 selected / 40 total" in ran.stdout
    assert server.resident_bytes() < before + (300 << 20)
    assert server.process.poll() is None
    with server.client() as client:
        assert client.get("/v1/health").status_code == 200
    assert " 500 " not in server.log
    assert "ERROR" not in server.log


def test_whatever_the_document_allows_or_forbids_is_answered_properly(tmp_path: Path) -> None:
    with running_authority(tmp_path) as server:
        run_schemathesis(
            server, tmp_path, "--phases", "examples,coverage,fuzzing", "--max-examples", "2"
        )


@pytest.mark.slow
def test_whatever_the_document_allows_or_forbids_is_answered_properly_at_length(
    tmp_path: Path,
) -> None:
    with running_authority(tmp_path) as server:
        run_schemathesis(server, tmp_path, "--max-examples", "200")


def test_wild_texts_are_no_error_of_the_server(any_authority: Authority) -> None:
    """On either database; PostgreSQL does not take every character."""
    app = create_app(any_authority, WebOptions(enrolments_per_minute=0))
    token = any_authority.accounts.issue(("admin",)).token
    wild = (b"%", b"_", b"\\", b"'; DROP TABLE", b"\x00", "é".encode() * 256, b"\xed\xa0\x80")

    async def ask() -> None:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            for octets in wild:
                quoted = "".join(f"%{octet:02x}" for octet in octets)
                for path in ("/v1/filings?text=", "/v1/filings?owner=", "/v1/owners?name="):
                    answer = await client.get(path + quoted)
                    assert answer.status_code in (200, 422), (path, octets, answer.text)
                bad = {"Authorization": "Bearer nsm_" + "0" * 64}
                answer = await client.get(f"/v1/jobs/{quoted}", headers=bad)
                assert answer.status_code in (401, 404), (octets, answer.text)
            good = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            for label in (r"\u0000", r"\ud800", r"\udbff\udfff"):
                content = f'{{"scopes": ["admin"], "label": "{label}"}}'
                answer = await client.post("/v1/tokens", content=content, headers=good)
                assert answer.status_code in (201, 422), (label, answer.text)

    asyncio.run(ask())
    noted = {event.subject for event in any_authority.accounts.events()}
    assert "GET /v1/jobs/{job_id}" in noted
