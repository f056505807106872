from __future__ import annotations

import json
from pathlib import Path

import pytest

from nsmark.authority.client.trust import TrustStore, config_folder
from nsmark.errors import InputError, TransparencyError, UsageError
from watched_log import trusted

URL = "https://authority.example"


@pytest.fixture
def store(tmp_path) -> TrustStore:
    return TrustStore(tmp_path / "nsmark" / "trust.json")


def test_what_was_trusted_is_found_again(store):
    store.add(trusted(URL))

    for url in (None, URL, "https://AUTHORITY.example:443/", f"{URL}/v1"):
        assert TrustStore(store.path).find(url) == trusted(URL)
    assert store.find_by_name("authority.example") == trusted(URL)
    assert store.find_by_name("other.example") is None


def test_a_changed_key_is_refused_loudly_until_the_old_one_is_forgotten(store):
    store.add(trusted(URL))
    before = store.path.read_bytes()

    with pytest.raises(TransparencyError, match="KEY HAS CHANGED") as refused:
        store.add(trusted(URL, seed=5))

    assert "--forget" in refused.value.hint
    assert store.path.read_bytes() == before
    store.forget(URL)
    store.add(trusted(URL, seed=5))
    assert store.find(URL) == trusted(URL, seed=5)


def test_two_keys_under_one_name_are_refused(store):
    store.add(trusted(URL))

    with pytest.raises(TransparencyError, match="ANOTHER KEY"):
        store.add(trusted("https://elsewhere.example", seed=5))
    store.add(trusted("https://mirror.example"))  # the same authority by another way


def test_without_a_url_there_must_be_exactly_one(store):
    with pytest.raises(UsageError, match="no authority is trusted"):
        store.find(None)
    store.add(trusted(URL))
    with pytest.raises(UsageError, match="not among the trusted"):
        store.find("https://elsewhere.example")
    store.add(trusted("https://mirror.example"))
    with pytest.raises(UsageError, match="several"):
        store.find(None)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: {},
        lambda d: d | {"format": "nsmark/trust/9"},
        lambda d: d | {"more": 1},
        lambda d: d | {"authorities": [d["authorities"][0] | {"public_key": "none"}]},
        lambda d: d | {"authorities": [d["authorities"][0] | {"roots": []}]},
        lambda d: d | {"authorities": [d["authorities"][0] | {"roots": ["none"]}]},
        lambda d: d | {"authorities": [d["authorities"][0] | {"name": "a b"}]},
    ],
)
def test_a_malformed_trust_file_trusts_nobody(store, change):
    store.add(trusted(URL))
    store.path.write_text(json.dumps(change(json.loads(store.path.read_text()))))

    with pytest.raises(InputError) as refused:
        store.authorities()
    assert refused.value.hint


def test_the_configuration_folder_follows_xdg(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert config_folder() == tmp_path / "nsmark"
    monkeypatch.setenv("HOME", str(tmp_path))
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_CONFIG_HOME", ignored)
        assert config_folder() == Path(tmp_path) / ".config" / "nsmark"
