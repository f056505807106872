from __future__ import annotations

import datetime
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from nsmark.errors import InputError, UsageError
from nsmark_authority.client.trust import (
    TrustStore,
    config_folder,
    require_same_time,
    require_trusted_receipt,
    require_trusted_time,
)
from nsmark_authority.errors import TransparencyError
from nsmark_authority.fields import format_time
from nsmark_authority.receipt import check_receipt
from nsmark_authority.transparency.local_authority import LocalAuthority
from watched_log import trusted

URL = "https://authority.example"


def other_root() -> x509.Certificate:
    with tempfile.TemporaryDirectory() as folder:
        return LocalAuthority.create(Path(folder) / "stamps").root


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


@pytest.mark.parametrize(
    ("local_time", "has_new_root", "words"),
    [
        (True, True, "ROOTS OF THE AUTHORITY'S TIME STAMPS HAVE CHANGED"),
        (False, False, "TIME HAS CHANGED: .* shows independent time stamps"),
        (False, True, "TIME HAS CHANGED"),
    ],
)
def test_other_roots_or_another_time_are_refused_until_renewed(
    store, local_time, has_new_root, words
):
    store.add(trusted(URL))
    before = store.path.read_bytes()
    roots = (other_root(),) if has_new_root else trusted(URL).roots
    changed = replace(trusted(URL), roots=roots, local_time=local_time)

    with pytest.raises(TransparencyError, match=words) as refused:
        store.add(changed)
    assert f"trust {URL} --renew" in refused.value.hint
    assert store.path.read_bytes() == before
    # Nor by another way to the same authority.
    with pytest.raises(TransparencyError, match=words):
        store.add(replace(changed, url="https://mirror.example"))

    renewed = store.renew(changed)

    assert store.find(URL) == renewed
    assert set(renewed.roots) == {*trusted(URL).roots, *roots}
    assert renewed.local_time is local_time
    assert renewed.since > trusted(URL).since
    require_same_time(renewed, roots=changed.roots, local_time=changed.local_time)
    with pytest.raises(TransparencyError, match="KEY HAS CHANGED"):
        store.renew(trusted(URL, seed=5))


def test_time_that_becomes_the_authoritys_own_is_refused_loudly(store):
    independent = replace(trusted(URL), local_time=False)
    store.add(independent)

    for roots in (independent.roots, (other_root(),)):
        with pytest.raises(TransparencyError, match=r"TIME HAS CHANGED: .* only its own word"):
            require_same_time(store.find(URL), roots=roots, local_time=True)
        with pytest.raises(TransparencyError, match="TIME HAS CHANGED"):
            store.add(replace(trusted(URL), roots=roots))
    assert store.find(URL) == independent


def test_only_what_is_trusted_is_renewed_and_not_without_end(store):
    with pytest.raises(UsageError, match="not among the trusted"):
        store.renew(trusted(URL))
    store.add(replace(trusted(URL), roots=tuple(other_root() for _ in range(16))))
    with pytest.raises(UsageError, match="more than 16"):
        store.renew(trusted(URL))


def test_a_receipt_by_an_unknown_root_or_of_a_worse_time_is_refused(authority, owner):
    receipt = owner.file(authority)
    checked = check_receipt(receipt, authority.public_key, authority.roots)
    known = replace(
        trusted(URL), public_key=authority.public_key, roots=authority.roots, local_time=True
    )
    require_trusted_receipt(known, receipt)
    require_trusted_time(known, checked)

    with pytest.raises(TransparencyError, match=r"ROOTS .* HAVE CHANGED"):
        require_trusted_receipt(replace(known, roots=(other_root(),)), receipt)
    independent = replace(known, local_time=False)
    with pytest.raises(TransparencyError, match="TIME HAS CHANGED"):
        require_trusted_time(independent, checked)
    # What was stamped before the authority changed to independent time stamps stays good.
    later = format_time(checked.time + datetime.timedelta(seconds=1))
    require_trusted_time(replace(independent, since=later), checked)


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
