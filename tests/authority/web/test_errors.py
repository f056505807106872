"""Whatever goes wrong is told as a problem, and nothing else is told."""

from __future__ import annotations

import asyncio
import logging

import httpx
import pytest

import nsmark.errors
from authority_server import RunningAuthority
from authority_world import KeyOwner
from nsmark.errors import (
    ConfigError,
    EmptyNullSpaceError,
    FileAccessError,
    InputError,
    MissingExtraError,
    NsmarkError,
)
from nsmark_authority.errors import (
    AccessDeniedError,
    AuthorityError,
    ConflictError,
    NotFoundError,
    TransparencyError,
)
from nsmark_authority.service import Authority
from nsmark_authority.web.app import create_app
from nsmark_authority.web.errors import PROBLEM_TYPE, status_of

DIGEST = "ab" * 32
FORM = {"Content-Type": "multipart/form-data; boundary=x"}
JSON = {"Content-Type": "application/json"}


def problem_of(answer: httpx.Response) -> dict[str, object]:
    assert answer.headers["content-type"] == PROBLEM_TYPE
    document = answer.json()
    assert set(document) == {"type", "title", "status", "detail", "hint"}
    assert document["status"] == answer.status_code
    assert document["detail"]
    assert document["hint"]
    return dict(document)


@pytest.mark.parametrize(
    ("method", "path", "headers", "content", "status"),
    [
        ("GET", "/nowhere", {}, b"", 404),
        ("GET", "/v1/filings/", {}, b"", 404),
        ("GET", f"/v1/filings/{DIGEST}", {}, b"", 404),
        ("GET", f"/v1/disputes/{DIGEST}/events", {}, b"", 404),
        ("PUT", "/v1/tokens", {}, b"", 405),
        ("OPTIONS", "/v1/filings", {"Origin": "https://evil.example"}, b"", 405),
        ("GET", "/v1/receipts/check", {}, b"", 405),
        ("POST", "/v1/owners", {"Content-Type": "text/plain"}, b"{}", 415),
        ("POST", "/v1/filings", JSON, b"{}", 415),
        ("POST", "/v1/owners", JSON, b"{}", 422),
        ("POST", "/v1/owners", JSON, b"\xff", 422),
        ("POST", "/v1/filings", FORM, b"no form", 422),
        ("POST", "/v1/tokens", JSON, b"{", 422),
        ("POST", "/v1/tokens", JSON, b'{"scopes":["file"],"more":1}', 422),
        ("POST", "/v1/tokens", JSON, b'{"scopes":["admin"]}', 403),
        ("GET", "/v1/owners?limit=101", {}, b"", 422),
        ("GET", "/v1/owners?cursor=MA==", {}, b"", 422),
        ("GET", "/v1/log/entries/99999999999999999999", {}, b"", 422),
        ("GET", "/v1/log/entries/999999", {}, b"", 404),
        ("GET", "/v1/log/consistency?old=5&new=2", {}, b"", 422),
        ("GET", "/v1/log/consistency?old=1&new=99999", {}, b"", 404),
        ("GET", "/v1/audit", {}, b"", 403),
        ("POST", "/v1/owners", JSON, b"x" * (5 << 20), 413),
    ],
)
def test_every_refusal_is_a_problem(
    client: httpx.Client,
    method: str,
    path: str,
    headers: dict[str, str],
    content: bytes,
    status: int,
) -> None:
    answer = client.request(method, path, headers=headers, content=content)

    assert answer.status_code == status, answer.text
    problem_of(answer)
    assert "access-control-allow-origin" not in answer.headers


def test_all_methods_of_a_path_are_allowed_not_only_the_first_ones(client: httpx.Client) -> None:
    assert client.put("/v1/tokens").headers["allow"] == "DELETE, GET, POST"
    assert client.get("/v1/receipts/check").headers["allow"] == "POST"


def test_without_a_token_the_scheme_is_named(server: RunningAuthority) -> None:
    with server.client() as client:
        for headers in ({}, {"Authorization": "Basic x"}, {"Authorization": "Bearer nonsense"}):
            answer = client.get("/v1/tokens", headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            problem_of(answer)


def test_a_contradiction_is_a_conflict(server: RunningAuthority, claimant: KeyOwner) -> None:
    with server.client() as client:
        nonce = client.post("/v1/challenges").json()["nonce"]
        document = claimant.registration(nonce, name="Somebody else")
        answer = client.post("/v1/owners", content=document, headers=JSON)

    assert answer.status_code == 409
    assert "Owner 1" in str(problem_of(answer)["detail"])


def test_what_was_sent_is_not_repeated(client: httpx.Client) -> None:
    answer = client.post("/v1/tokens", json={"scopes": ["hunter2"], "days": "hunter2"})

    assert answer.status_code == 422
    assert "hunter2" not in answer.text


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFoundError("x"), 404),
        (ConflictError("x"), 409),
        (AccessDeniedError("x"), 403),
        (AuthorityError("x"), 503),
        (FileAccessError("x"), 503),
        (MissingExtraError("x", "y"), 503),
        (ConfigError("x", 1, "y"), 422),
        (InputError("x"), 422),
        (TransparencyError("x"), 422),
        (EmptyNullSpaceError(num_texts=1, output_dim=2), 422),
    ],
)
def test_our_errors_have_a_status(error: NsmarkError, status: int) -> None:
    assert status_of(error) == status


def test_no_error_of_ours_is_without_a_status() -> None:
    for name in nsmark.errors.__all__:
        kind = getattr(nsmark.errors, name)
        assert 400 <= status_of(kind.__new__(kind)) < 504


@pytest.mark.parametrize("error", [RuntimeError("hunter2"), RecursionError(), MemoryError()])
def test_a_bug_is_told_without_its_message(
    authority: Authority, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(authority)

    @app.get("/bug")
    def bug() -> None:
        raise error

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.get("/bug")

    with caplog.at_level(logging.INFO, "nsmark_authority"):
        answer = asyncio.run(ask())

    assert answer.status_code == 500
    problem_of(answer)
    assert "x-content-type-options" in answer.headers
    assert "hunter2" not in answer.text + caplog.text
    assert f"{type(error).__name__} in bug" in caplog.text
