"""Headers, tokens and scopes."""

from __future__ import annotations

import httpx

from authority_server import RunningAuthority, file_key
from authority_world import KeyOwner
from nsmark_authority.accounts import MAX_LIVE_TOKENS
from nsmark_authority.service import Authority
from processes import PATIENCE


def test_every_answer_has_the_headers_and_no_cookie(client: httpx.Client) -> None:
    for path in ("/v1/authority", "/nowhere", "/v1/openapi.json", "/v1/log/checkpoint"):
        headers = client.get(path, headers={"Origin": "https://evil.example"}).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; frame-ancestors")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers
        assert "set-cookie" not in headers
        assert "strict-transport-security" not in headers
        assert not [name for name in headers if name.startswith("access-control")]


def test_over_https_browsers_are_told_to_stay_there(serve) -> None:
    https = {"X-Forwarded-Proto": "https"}
    with httpx.Client(
        base_url=serve(proxies=("127.0.0.1",)), trust_env=False, timeout=PATIENCE
    ) as client:
        told = client.get("/v1/health", headers=https).headers["strict-transport-security"]
    with httpx.Client(base_url=serve(), trust_env=False, timeout=PATIENCE) as client:
        forged = client.get("/v1/health", headers=https).headers

    assert told.startswith("max-age=31536000")
    assert "strict-transport-security" not in forged


def test_a_token_counts_in_the_header_only(
    server: RunningAuthority, tokens: dict[int, str]
) -> None:
    token = tokens[1]
    with server.client() as client:
        assert client.get("/v1/tokens", params={"token": token}).status_code == 401
        assert client.get("/v1/tokens", params={"access_token": token}).status_code == 401
        cookie = {"Cookie": f"token={token}; Authorization=Bearer {token}"}
        assert client.get("/v1/tokens", headers=cookie).status_code == 401
        assert client.get(f"/v1/tokens/{token}").status_code == 405
        bearer = {"Authorization": f"bearer {token}"}
        assert client.get("/v1/tokens", headers=bearer).status_code == 200


def test_a_token_is_good_for_its_scopes_only(
    server: RunningAuthority, client: httpx.Client, claimant: KeyOwner
) -> None:
    made = client.post("/v1/tokens", json={"scopes": ["dispute"], "label": "lawyer"})
    assert made.status_code == 201
    with server.client(made.json()["token"]) as lawyer:
        refused = file_key(lawyer, *claimant.filing(90))
        assert refused.status_code == 403
        assert "'file'" in refused.json()["detail"]
        more = lawyer.post("/v1/tokens", json={"scopes": ["file", "dispute"]})
        assert more.status_code == 403
        assert lawyer.get("/v1/audit").status_code == 403


def test_a_token_never_outlives_the_one_it_was_made_with(
    server: RunningAuthority, client: httpx.Client
) -> None:
    short = client.post("/v1/tokens", json={"scopes": ["file"], "days": 2}).json()
    with server.client(short["token"]) as holder:
        longer = holder.post("/v1/tokens", json={"scopes": ["file"], "days": 3650}).json()

    assert short["created"] <= longer["expires"] <= short["expires"]


def test_tokens_are_revoked_by_their_owner_or_an_admin(
    server: RunningAuthority, client: httpx.Client, tokens: dict[int, str]
) -> None:
    made = client.post("/v1/tokens", json={"scopes": ["file"]}).json()
    path = f"/v1/tokens/{made['token_id']}"
    with server.client(tokens[2]) as stranger, server.client(made["token"]) as holder:
        assert stranger.delete(path).status_code == 404
        assert made["token_id"] not in stranger.get("/v1/tokens").text
        assert holder.get("/v1/tokens").status_code == 200
        assert client.delete(path).status_code == 204
        assert holder.get("/v1/tokens").status_code == 401
    second = client.post("/v1/tokens", json={"scopes": ["file"]}).json()
    with server.client(server.admin_token) as admin:
        assert admin.delete(f"/v1/tokens/{second['token_id']}").status_code == 204
        listed = {each["token_id"]: each for each in admin.get("/v1/tokens").json()["items"]}
        trail = admin.get("/v1/audit").json()["items"]
    assert listed[second["token_id"]]["revoked"]
    assert "token" not in listed[second["token_id"]]
    assert ("token", second["token_id"], "revoked") in [
        (event["what"], event["subject"], event["outcome"]) for event in trail
    ]


def test_a_token_of_nobodys_sees_and_revokes_only_itself(serve, authority: Authority) -> None:
    """The authority's own people may have tokens that are not an admin's."""
    owners = KeyOwner(1).register(authority).token.account
    token = authority.accounts.issue(("file",)).token
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(
        base_url=serve(), headers=headers, trust_env=False, timeout=PATIENCE
    ) as client:
        (own,) = client.get("/v1/tokens").json()["items"]
        assert client.delete(f"/v1/tokens/{owners.token_id}").status_code == 404
        assert client.post("/v1/tokens", json={"scopes": ["file"]}).status_code == 403
        assert client.delete("/v1/tokens").status_code == 409
        assert client.delete(f"/v1/tokens/{own['token_id']}").status_code == 204
        assert client.get("/v1/tokens").status_code == 401
    assert own["token_id"] != owners.token_id


def test_an_owner_revokes_all_his_tokens_at_once(serve, authority: Authority) -> None:
    """Also those that a thief made from a stolen one."""
    token = KeyOwner(1).register(authority).token.token
    stranger = KeyOwner(2).register(authority).token.token
    url = serve()

    def client_of(token: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=PATIENCE)

    with client_of(token) as client:
        child = client.post("/v1/tokens", json={"scopes": ["file"]}).json()
        revoked = client.delete("/v1/tokens")
    assert revoked.status_code == 200
    items = {each["token_id"]: each for each in revoked.json()["items"]}
    assert child["token_id"] in items
    assert len(items) == 2
    assert all(each["revoked"] for each in items.values())
    for each in (token, child["token"]):
        with client_of(each) as client:
            assert client.get("/v1/tokens").status_code == 401
    with client_of(stranger) as client:
        assert client.get("/v1/tokens").status_code == 200
    trail = [(event.what, event.subject, event.outcome) for event in authority.accounts.events()]
    assert ("token", child["token_id"], "revoked") in trail


def test_too_many_tokens_are_a_conflict(serve, authority: Authority) -> None:
    owner = KeyOwner(1)
    token = owner.register(authority).token.token
    for _ in range(MAX_LIVE_TOKENS - 1):
        authority.accounts.issue(("file",), fingerprint=owner.fingerprint)
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(
        base_url=serve(), headers=headers, trust_env=False, timeout=PATIENCE
    ) as client:
        answer = client.post("/v1/tokens", json={"scopes": ["file"]})
    assert answer.status_code == 409
    assert "revoke" in answer.json()["hint"]


def test_a_stolen_token_cannot_file_in_its_owners_name(
    server: RunningAuthority, tokens: dict[int, str], claimant: KeyOwner
) -> None:
    with server.client(tokens[2]) as thief:
        answer = file_key(thief, *claimant.filing(91))
    with server.client(server.admin_token) as admin:
        trail = admin.get("/v1/audit").json()["items"]

    assert answer.status_code == 403
    assert "another owner" in answer.json()["detail"]
    assert trail[0]["outcome"] == "refused: AccessDeniedError"


def test_the_audit_trail_comes_in_parts(serve, authority: Authority) -> None:
    for number in range(5):
        authority.accounts.note("somebody", "test", str(number), "done")
    token = authority.accounts.issue(("admin",)).token
    headers = {"Authorization": f"Bearer {token}"}
    seen, cursor = [], None
    with httpx.Client(
        base_url=serve(), headers=headers, trust_env=False, timeout=PATIENCE
    ) as client:
        while True:
            params = {"limit": "2"} | ({} if cursor is None else {"cursor": cursor})
            part = client.get("/v1/audit", params=params).json()
            seen += [event["subject"] for event in part["items"]]
            cursor = part["next"]
            if cursor is None:
                break

    assert seen == ["4", "3", "2", "1", "0"]
