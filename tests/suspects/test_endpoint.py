"""Addresses of endpoints, and which key goes where."""

import pytest

from nsmark.errors import UsageError
from nsmark.suspects import QueryOptions, open_suspect
from nsmark.suspects.endpoint import find_api_key, parse_endpoint


@pytest.mark.parametrize(
    ("address", "url", "model"),
    [
        ("http://h:8000/v1#m", "http://h:8000/v1/embeddings", "m"),
        ("http://h:8000/v1/#m", "http://h:8000/v1/embeddings", "m"),
        ("http://h:8000#org/m-1", "http://h:8000/v1/embeddings", "org/m-1"),
        ("https://h/v1/embeddings#m", "https://h/v1/embeddings", "m"),
        ("https://h/embeddings#m", "https://h/embeddings", "m"),
        ("https://h/api/openai#a#b", "https://h/api/openai/embeddings", "a#b"),
        ("http://[::1]:9/v1#m", "http://[::1]:9/v1/embeddings", "m"),
    ],
)
def test_urls_are_taken_as_people_give_them(address, url, model):
    endpoint = parse_endpoint(address, "embeddings")

    assert (endpoint.url, endpoint.model) == (url, model)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "http://h/v1",
        "http://h/v1#",
        "#m",
        "h:8000/v1#m",
        "ftp://h/v1#m",
        "file:///etc/passwd#m",
        "http://#m",
        "http://h:99999/v1#m",
        "http://h:0/v1#m",
        "http://[::1/v1#m",
        "http://h/v1?key=secret#m",
        "http://h/v1#a model",
        "http://h/v1\r\nx: y#m",
        "http://user:secret@h/v1#m",
    ],
)
def test_everything_else_is_wrong_usage_and_says_no_secret(address):
    for scheme in ("openai", "completions"):
        with pytest.raises(UsageError) as caught:
            open_suspect(f"{scheme}:{address}")
        assert caught.value.hint
        assert "secret" not in str(caught.value) + caught.value.hint


def key_for(url: str, variable: str | None = None) -> str | None:
    options = QueryOptions(api_key_variable=variable)
    return find_api_key(parse_endpoint(f"{url}#m", "embeddings"), options)


def test_usual_key_goes_to_its_service_and_to_this_machine_only(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-usual")

    for url in ("https://api.openai.com/v1", "http://localhost:1/v1", "http://127.0.0.1:1/v1"):
        assert key_for(url) == "sk-usual"
    # A suspect is somebody accused of theft: he gets no key that is not meant for him.
    for url in ("https://api.thief.example/v1", "https://openai.com.thief.example/v1"):
        assert key_for(url) is None


def test_named_key_goes_wherever_it_is_meant_to(monkeypatch):
    monkeypatch.setenv("THEIR_KEY", " sk-theirs\n")

    assert key_for("https://api.thief.example/v1", "THEIR_KEY") == "sk-theirs"


def test_missing_or_impossible_keys_are_refused(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert key_for("https://api.openai.com/v1") is None
    with pytest.raises(UsageError, match="NO_SUCH_KEY is not set"):
        key_for("http://h/v1", "NO_SUCH_KEY")
    monkeypatch.setenv("ODD_KEY", "sk-secret\r\nx: y")
    with pytest.raises(UsageError, match="ODD_KEY") as caught:
        key_for("http://h/v1", "ODD_KEY")
    assert "sk-secret" not in str(caught.value) + caught.value.hint
