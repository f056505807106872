"""Nobody asks more often than he may; whom to count is not for the caller to say."""

from __future__ import annotations

import httpx
import pytest

from authority_world import KeyOwner
from nsmark.errors import ConfigError
from nsmark_authority.service import Authority
from nsmark_authority.web.limits import RateLimits, address_group, network_group
from nsmark_authority.web.options import WebOptions
from processes import PATIENCE


def client_of(url: str, token: str | None = None) -> httpx.Client:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=PATIENCE)


def assert_refused(answer: httpx.Response) -> None:
    assert answer.status_code == 429, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert "x-content-type-options" in answer.headers


def test_an_address_reads_so_often_and_no_more(serve) -> None:
    with client_of(serve(reads_per_minute=5)) as client:
        answers = [client.get(path) for path in ["/v1/health", "/nowhere"] * 3]
        forged = client.get("/v1/health", headers={"X-Forwarded-For": "203.0.113.9"})

    assert [answer.status_code for answer in answers[:5]] == [200, 404, 200, 404, 200]
    assert_refused(answers[5])
    assert_refused(forged)


def test_a_trusted_proxy_says_who_asks(serve) -> None:
    with client_of(serve(reads_per_minute=2, proxies=("127.0.0.1",))) as client:
        for address in ("203.0.113.1", "203.0.113.2"):
            headers = {"X-Forwarded-For": address}
            assert client.get("/v1/health", headers=headers).status_code == 200
            assert client.get("/v1/health", headers=headers).status_code == 200
            assert_refused(client.get("/v1/health", headers=headers))


def test_a_token_writes_so_often_and_no_more(serve, authority: Authority) -> None:
    token, other = (KeyOwner(seed).register(authority).token.token for seed in (1, 2))
    url = serve(writes_per_minute=2)
    with client_of(url, token) as client, client_of(url, other) as neighbour:
        for _ in range(2):
            assert client.post("/v1/tokens", json={"scopes": ["file"]}).status_code == 201
        assert_refused(client.post("/v1/tokens", json={"scopes": ["file"]}))
        assert client.get("/v1/tokens").status_code == 200
        assert neighbour.post("/v1/tokens", json={"scopes": ["file"]}).status_code == 201


def test_further_tokens_are_no_further_writes(serve, authority: Authority) -> None:
    token = KeyOwner(1).register(authority).token.token
    url = serve(writes_per_minute=2)
    with client_of(url, token) as client:
        made = client.post("/v1/tokens", json={"scopes": ["file"]}).json()
        with client_of(url, made["token"]) as second:
            assert second.post("/v1/tokens", json={"scopes": ["file"]}).status_code == 201
            assert_refused(second.post("/v1/tokens", json={"scopes": ["file"]}))
        assert_refused(client.post("/v1/tokens", json={"scopes": ["file"]}))


def test_challenges_are_counted_per_address(serve) -> None:
    with client_of(serve(enrolments_per_minute=2)) as client:
        assert client.post("/v1/challenges").status_code == 201
        assert client.post("/v1/challenges").status_code == 201
        assert_refused(client.post("/v1/challenges"))


def test_tokens_cannot_be_guessed_at_will(serve, authority: Authority) -> None:
    token = KeyOwner(1).register(authority).token.token
    url = serve(enrolments_per_minute=3)
    with client_of(url) as client:
        for number in range(3):
            headers = {"Authorization": f"Bearer nsm_{number:064x}"}
            assert client.get("/v1/tokens", headers=headers).status_code == 401
        for number in range(3, 6):
            headers = {"Authorization": f"Bearer nsm_{number:064x}"}
            assert_refused(client.get("/v1/tokens", headers=headers))
        # Behind one address there may be many: whoever has a right token is let in.
        right = {"Authorization": f"Bearer {token}"}
        assert client.get("/v1/tokens", headers=right).status_code == 200
        assert_refused(client.get("/v1/tokens", headers=headers))
    events = [(event.what, event.outcome) for event in authority.accounts.events()]
    assert events.count(("access", "no valid token")) == 3


def test_checks_of_receipts_are_counted_by_themselves(serve) -> None:
    json = {"Content-Type": "application/json"}
    form = {"receipt": ("r", b"{}")}
    with client_of(serve(checks_per_minute=2)) as client:
        assert client.post("/v1/receipts/check", content=b"{}", headers=json).status_code == 200
        assert client.post("/check", files=form).status_code == 200
        assert_refused(client.post("/v1/receipts/check", content=b"{}", headers=json))
        assert_refused(client.post("/check", files=form))
        assert client.get("/v1/health").status_code == 200


def test_no_limit_is_no_limit() -> None:
    rates = RateLimits(WebOptions(reads_per_minute=0))
    for _ in range(10_000):
        rates.count("read", "somebody")
    with pytest.raises(ConfigError):
        WebOptions(reads_per_minute=-1)


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_a_network_of_ipv6_counts_as_one_caller(host: str, group: str) -> None:
    assert address_group(host) == group


def test_a_wider_network_is_counted_where_addresses_cost_nothing() -> None:
    assert network_group("2001:db8:1:2:3:4:5:6") == "2001:db8:1::/48"
    assert network_group("192.0.2.7") == network_group("::ffff:192.0.2.7") == "192.0.2.7"
