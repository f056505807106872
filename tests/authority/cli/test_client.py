"""``nsmark client`` against a real ``nsmark serve``."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs the authority extra")

from cryptography.hazmat.primitives.serialization import Encoding

from authority_server import RunningAuthority, running_authority
from authority_world import NAME, RELEASED, KeyOwner, admit, small_key
from nsmark.cli.main import main
from nsmark.keyfile import write_key
from nsmark.suspects import save_recorded
from nsmark_authority.client.trust import TrustStore
from nsmark_authority.service import Authority, open_authority
from nsmark_authority.settings import AuthoritySettings
from nsmark_authority.stamping import roots_pem
from nsmark_authority.statements import Ruling, entry_id_of
from nsmark_authority.transparency.local_authority import LocalAuthority
from nsmark_authority.transparency.timestamp_messages import build_request, extract_token
from processes import running, wait_for
from watched_log import MemoryLog, deposit_entry, registration_entry, serving_log, trusted

ENDPOINT = "openai:https://models.example/v1#encoder"
REPORT = b"<!doctype html><title>report</title>"
_seeds = itertools.count(60)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAuthority]:
    with running_authority(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture(scope="module")
def inside(server: RunningAuthority) -> Iterator[Authority]:
    opened = open_authority(AuthoritySettings(folder=server.folder))
    yield opened
    opened.close()


@dataclass
class User:
    """Somebody with a folder of his own who types commands."""

    folder: Path
    capsys: pytest.CaptureFixture[str]
    owner: KeyOwner

    def run(self, *words: object, status: int = 0) -> dict[str, Any]:
        """Run ``nsmark client`` with --json; its output must be one JSON document."""
        self.capsys.readouterr()
        found = main(["client", *map(str, words), "--json"])
        said = self.capsys.readouterr()
        assert found == status, said.err
        assert "Traceback" not in said.err
        return dict(json.loads(said.out))

    def say(self, *words: object, status: int = 0) -> str:
        self.capsys.readouterr()
        found = main(["client", *map(str, words)])
        said = self.capsys.readouterr()
        assert found == status, said.err
        return said.out + said.err

    def path(self, name: str) -> Path:
        return self.folder / name


class Terminal(io.StringIO):
    """Somebody who sits before the screen and types."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch, capsys) -> User:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("NSMARK_AUTHORITY_TOKEN", "NSMARK_AUTHORITY_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    user = User(tmp_path, capsys, KeyOwner(next(_seeds), "nsmark.local"))
    user.owner.identity.save(tmp_path / "me")
    write_key(small_key(0, user.owner.seed), tmp_path / "owner.nsmark")
    return user


@pytest.fixture
def user(stranger: User, server: RunningAuthority) -> User:
    """Somebody who trusts the authority and is registered."""
    stranger.run("trust", server.url, "--yes")
    stranger.run("register", "--identity", "me.pem", "--owner", stranger.owner.name)
    return stranger


def ruling_for(inside: Authority, dispute: str, key_id: str, outcome: str) -> Ruling:
    return Ruling(
        authority=inside.name,
        dispute=dispute,
        key_id=key_id,
        outcome=outcome,
        verdict=None,
        reasons=("as it was found",),
        evidence={},
        report_sha256=hashlib.sha256(REPORT).hexdigest(),
        randomness=None,
        defence=None,
        other_claims=(),
        opened=RELEASED,
        measured=RELEASED,
        versions={},
    )


# --- Trust. ---


def test_an_authority_is_trusted_by_its_fingerprint(stranger, server):
    wrong = stranger.run("trust", server.url, "--fingerprint", "0" * 64, status=3)
    assert "FINGERPRINTS DIFFER" in wrong["error"]
    assert "not compared" in stranger.run("trust", server.url, status=2)["error"]
    assert stranger.run("trust")["authorities"] == []

    fingerprint = server.about["fingerprint"]
    done = stranger.run("trust", server.url, "--fingerprint", fingerprint)

    assert done["fingerprint"] == fingerprint
    assert [each["url"] for each in stranger.run("trust")["authorities"]] == [server.url]
    assert "nothing has changed" in stranger.run("trust", server.url)["outcome"]


def test_a_changed_key_is_refused_by_every_command(stranger, server):
    path = stranger.path("trust.json")
    TrustStore(path).add(trusted(server.url))

    refused = stranger.run("trust", server.url, "--yes", "--trust-file", path, status=3)

    assert "KEY HAS CHANGED" in refused["error"]
    refused = stranger.run("log", "--trust-file", path, status=3)
    assert "KEY HAS CHANGED" in refused["error"]
    stranger.run("trust", server.url, "--forget", "--trust-file", path)
    stranger.run("trust", server.url, "--yes", "--trust-file", path)


def change_trust(user: User, **changes: object) -> None:
    """Let a user remember something else: as if the server had changed."""
    store = TrustStore(user.path("config") / "nsmark" / "trust.json")
    known = store.find(None)
    store.forget(known.url)
    store.add(replace(known, **changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"roots": trusted().roots}, "ROOTS OF THE AUTHORITY'S TIME STAMPS HAVE CHANGED"),
        ({"local_time": False}, "TIME HAS CHANGED"),
        ({"roots": trusted().roots, "local_time": False}, "only its own word"),
    ],
    ids=["roots", "time", "both"],
)
def test_other_roots_and_a_worse_time_are_refused_by_every_command_until_renewed(
    user, server, changes, words
):
    user.run("file", "owner.nsmark", "--identity", "me.pem")
    change_trust(user, **changes)
    for command in (
        *(["log"], ["search"], ["status", "owner.nsmark"], ["receipt", "owner.nsmark"]),
        ["file", "owner.nsmark", "--identity", "me.pem"],
        ["trust", server.url],
        # A script that knows the key's fingerprint accepts nothing by it.
        ["trust", server.url, "--fingerprint", server.about["fingerprint"]],
        ["trust", server.url, "--yes"],
    ):
        refused = user.run(*command, status=3)
        assert words in refused["error"]
        assert f"nsmark client trust {server.url} --renew" in refused["hint"]
    looked = user.run("monitor", "--once", status=1)
    assert [alert["kind"] for alert in looked["alerts"]] == ["authority"]
    assert words in user.say("monitor", "--once", status=1)
    unseen = user.run("trust", server.url, "--renew", status=2)
    assert "not compared" in unseen["error"]
    by_key = ("--fingerprint", server.about["fingerprint"])
    user.run("trust", server.url, "--renew", *by_key, status=2)

    renewed = user.run("trust", server.url, "--renew", "--yes")

    assert renewed["local_time"]
    assert len(renewed["roots"]) == 1 + ("roots" in changes)
    assert user.run("log")["size"] > 0
    assert user.run("monitor", "--once")["alerts"] == []
    again = user.run("trust", server.url, "--renew", "--yes")
    assert "nothing has changed" in again["outcome"]


def test_renewing_shows_what_changes_and_asks(user, server, monkeypatch):
    change_trust(user, roots=trusted().roots, local_time=False)
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    said = user.say("trust", server.url, "--renew", status=130)
    assert "new root" in said
    assert "time so far" in said
    assert "another way?" in said
    user.run("log", status=3)
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert "renewed" in user.say("trust", server.url, "--renew")
    user.run("log")


def test_only_one_thing_is_done_with_trust(user, server):
    user.run("trust", "--renew", status=2)
    user.run("trust", server.url, "--renew", "--forget", status=2)
    user.run("trust", server.url, "--forget")
    user.run("trust", server.url, "--renew", "--yes", status=2)


def test_nothing_is_done_with_an_authority_nobody_trusts(stranger, server):
    for words in (["log"], ["log", "--url", server.url], ["search"], ["monitor", "--once"]):
        refused = stranger.run(*words, status=2)
        assert "nsmark client trust" in refused["hint"]


# --- An owner's way. ---


def test_a_key_from_registration_to_withdrawal(user, inside):
    tokens = user.path("config") / "nsmark" / "tokens.json"
    assert tokens.stat().st_mode & 0o777 == 0o600
    assert user.path("me.pem.receipt").exists()

    filed = user.run("file", "owner.nsmark", "--identity", "me.pem")

    assert filed["receipt"] == "owner.nsmark.receipt"
    first = user.path("owner.nsmark.receipt").read_bytes()
    assert user.run("file", "owner.nsmark", "--identity", "me.pem")["earlier_receipt"] is None
    checked = user.run("check-receipt", "owner.nsmark.receipt", "--key", "owner.nsmark")
    assert checked["valid"]
    assert checked["trusted_key"]
    assert user.run("status", "owner.nsmark")["state"] == "waiting"
    assert user.run("wait", "owner.nsmark", "--for", 0, status=3)["exit_code"] == 3
    shown = user.run("claim", filed["statement"]["key_id"])
    assert (shown["entry_id"], shown["state"]) == (filed["entry_id"], "waiting")
    assert user.owner.name in user.say("claim", "owner.nsmark")
    items = user.run("search", "handmade", "--owner", user.owner.name)["items"]
    assert [item["key_id"] for item in items] == [filed["statement"]["key_id"]]
    admit(inside, filed["entry_id"])
    assert user.run("wait", "owner.nsmark")["state"] == "admitted"

    fresh = user.run("receipt", "owner.nsmark")
    assert fresh["tree_size"] > filed["tree_size"]
    assert Path(fresh["earlier_receipt"]).read_bytes() == first
    user.run("check-receipt", "owner.nsmark.receipt", "--key", "owner.nsmark")
    user.run("withdraw", "owner.nsmark", "--identity", "me.pem", "--reason", "done")
    assert user.run("status", filed["entry_id"])["state"] == "withdrawn"


def test_a_refused_key_ends_waiting_with_1_and_its_reasons(user, inside):
    filed = user.run("file", "owner.nsmark", "--identity", "me.pem")
    admit(inside, filed["entry_id"], admitted=False)

    assert user.run("wait", "owner.nsmark", status=1)["state"] == "refused"
    assert "it accepts a control" in user.say("status", "owner.nsmark")


@pytest.mark.parametrize(
    ("outcome", "status"), [("upheld", 0), ("fell", 1), ("could_not_measure", 3)]
)
def test_a_dispute_ends_with_the_status_of_its_ruling(user, inside, server, outcome, status):
    filed = user.run("file", "owner.nsmark", "--identity", "me.pem")
    admit(inside, filed["entry_id"])
    rows = np.random.default_rng(user.owner.seed).random((3, 2))
    save_recorded(user.path("outputs.safetensors"), rows, rows)
    opened = user.run(
        *("dispute", "owner.nsmark", "recorded:outputs.safetensors", "--identity", "me.pem"),
        *("--released", RELEASED, "--statement", "ours", "--out", "dispute.receipt"),
    )
    other = KeyOwner(next(_seeds), "nsmark.local")
    other.identity.save(user.path("other"))
    user.run("register", "--identity", "other.pem", "--owner", other.name)
    earlier = user.run("deposit", "outputs.safetensors", "--identity", "other.pem")
    assert earlier["statement"]["what"] == "recorded"
    user.run(
        *("answer", "dispute.receipt", "--identity", "other.pem", "--statement", "no"),
        *("--evidence", "outputs.safetensors"),
    )
    assert len(user.run("status", "dispute.receipt")["defences"]) == 1
    user.run("ruling", "dispute.receipt", status=3)

    key_id = filed["statement"]["key_id"]
    inside.record_ruling(ruling_for(inside, opened["entry_id"], key_id, outcome), REPORT)

    assert user.run("wait", "dispute.receipt", status=status)["outcome"] == outcome
    ruled = user.run("ruling", "dispute.receipt", "--out", "ruling.receipt", status=status)
    assert ruled["statement"]["outcome"] == outcome
    assert "as it was found" in user.say("ruling", opened["entry_id"], status=status)
    user.run("check-receipt", "ruling.receipt")
    user.run("report", "dispute.receipt", "--out", "report.html")
    assert user.path("report.html").read_bytes() == REPORT


def open_dispute(*more: str) -> tuple[str, ...]:
    return (
        *("dispute", "owner.nsmark", ENDPOINT, "--identity", "me.pem"),
        *("--released", RELEASED, "--statement", "ours", *more),
    )


def test_a_dispute_says_before_what_it_reveals(user, inside):
    filed = user.run("file", "owner.nsmark", "--identity", "me.pem")
    admit(inside, filed["entry_id"])
    opened = user.run(*open_dispute())
    assert (opened["has_admitted_successor"], opened["successor"]) == (False, None)
    assert opened["key_revealed"]
    assert user.run("status", "owner.nsmark")["state"] == "revealed"
    said = user.say(*open_dispute("--statement", "again"))
    assert "reveals the key" in said
    assert "NO SUCCESSOR IS FILED" in said
    assert "--succeeds" in said

    second = small_key(1, user.owner.seed)
    write_key(second, user.path("second.nsmark"))
    follows = ("file", "second.nsmark", "--identity", "me.pem", "--succeeds", "owner.nsmark")
    filed = user.run(*follows)
    said = user.say(*open_dispute("--statement", "for the third time"))
    assert "is not admitted yet" in said
    assert "none that is admitted" in said
    admit(inside, filed["entry_id"])

    said = user.say(*open_dispute("--statement", "for the fourth time"))
    assert "An admitted successor of yours takes its place" in said
    assert f"successor   {second.key_id}" in said
    opened = user.run(*open_dispute("--statement", "for the fifth time"))
    assert (opened["has_admitted_successor"], opened["successor"]) == (True, second.key_id)


def test_a_terminal_is_asked_before_a_key_is_revealed(user, inside, monkeypatch):
    filed = user.run("file", "owner.nsmark", "--identity", "me.pem")
    admit(inside, filed["entry_id"])

    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    said = user.say(*open_dispute(), status=130)

    assert "Open the dispute?" in said
    assert user.run("status", "owner.nsmark")["state"] == "admitted"
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    user.say(*open_dispute())
    assert user.run("status", "owner.nsmark")["state"] == "revealed"
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    said = user.say(*open_dispute("--yes", "--statement", "again"))
    assert "Open the dispute?" not in said
    assert "reveals the key" in said


def test_a_claim_in_another_name_than_the_registered_one_is_shown_with_both(stranger, server):
    stranger.run("trust", server.url, "--yes")
    stranger.run("register", "--identity", "me.pem", "--owner", "Mallory")
    stranger.run("file", "owner.nsmark", "--identity", "me.pem")
    claimed = stranger.owner.name

    assert stranger.run("claim", "owner.nsmark")["registered_owner"] == "Mallory"
    assert "registered as  Mallory" in stranger.say("claim", "owner.nsmark")
    assert stranger.run("status", "owner.nsmark")["registered_owner"] == "Mallory"
    both = f"{claimed} (registered as Mallory)"
    assert both in stranger.say("status", "owner.nsmark")
    (item,) = stranger.run("search", "--owner", claimed)["items"]
    assert (item["owner"], item["registered_owner"]) == (claimed, "Mallory")
    assert both in stranger.say("search", "--owner", claimed)
    looked = stranger.run("monitor", "--once", "--owner", claimed, status=1)
    (alert,) = looked["alerts"]
    assert (alert["owner"], alert["registered_owner"]) == (claimed, "Mallory")
    assert "which is registered as 'Mallory'" in alert["message"]


def test_of_long_lists_the_first_owners_are_compared_and_the_rest_is_said(user, monkeypatch):
    user.run("file", "owner.nsmark", "--identity", "me.pem")
    other = KeyOwner(next(_seeds), "nsmark.local")
    other.identity.save(user.path("other"))
    user.run("register", "--identity", "other.pem", "--owner", other.name)
    write_key(small_key(0, other.seed), user.path("other.nsmark"))
    user.run("file", "other.nsmark", "--identity", "other.pem")
    monkeypatch.setattr("nsmark_authority.cli.client.reading._MAX_COMPARED", 1)

    items = user.run("search", "--limit", 2)["items"]

    assert [item["registered_owner"] for item in items] == [other.name, None]
    assert "the others were not" in user.say("search", "--limit", 2)


def test_one_name_is_shown_once(user):
    user.run("file", "owner.nsmark", "--identity", "me.pem")
    for command in (["claim", "owner.nsmark"], ["status", "owner.nsmark"], ["search"]):
        assert f"{user.owner.name} (registered" not in user.say(*command)
    assert "registered as" not in user.say("claim", "owner.nsmark")


def test_invisible_names_are_refused_before_anything_is_sent(stranger, server):
    stranger.run("trust", server.url, "--yes")
    refused = stranger.run("register", "--identity", "me.pem", "--owner", "Ac\u200dme", status=2)
    assert "U+200D ZERO WIDTH JOINER" in refused["error"]
    assert "without" in refused["hint"]


def test_a_successor_is_filed_by_the_predecessors_file(user):
    user.run("file", "owner.nsmark", "--identity", "me.pem")
    write_key(small_key(1, user.owner.seed), user.path("second.nsmark"))

    filed = user.run("file", "second.nsmark", "--identity", "me.pem", "--succeeds", "owner.nsmark")

    assert filed["statement"]["succeeds"] == small_key(0, user.owner.seed).key_id


def test_material_is_fetched_by_digest(user):
    items = user.run("pool")["items"]
    digest = next(item["digest"] for item in items if item["what"] == "word_list")

    done = user.run("pool", digest, "--out", "words.txt")

    assert done["bytes"] == user.path("words.txt").stat().st_size
    user.run("pool", digest, "--out", "words.txt", status=3)  # it is there already
    user.run("pool", digest, status=2)


def test_the_log_is_listed(user):
    listed = user.run("log", "--count", 3)

    assert len(listed["items"]) == 3
    assert listed["items"][-1]["index"] == listed["size"] - 1
    assert user.run("log", "--start", 0, "--count", 2)["items"][0]["kind"] == "publication"


def test_tokens_stay_in_their_files(user, server, monkeypatch):
    made = user.run("token", "--new", "dispute", "--days", 2, "--out", "second.token")
    token = user.path("second.token").read_text().strip()
    assert user.path("second.token").stat().st_mode & 0o777 == 0o600
    assert token not in json.dumps(made)
    listed = user.run("token", "--token-file", "second.token")
    assert made["token_id"] in {item["token_id"] for item in listed["items"]}
    refused = user.run(
        "file", "owner.nsmark", "--identity", "me.pem", "--token-file", "second.token", status=3
    )
    assert "not good for 'file'" in refused["error"]
    monkeypatch.setenv("NSMARK_AUTHORITY_TOKEN", token)
    user.run("token")
    monkeypatch.delenv("NSMARK_AUTHORITY_TOKEN")

    user.run("token", "--revoke", made["token_id"])

    user.run("token", "--token-file", "second.token", status=3)
    again = user.run("register", "--identity", "me.pem", "--owner", user.owner.name)
    assert "token" not in again
    user.run(
        *("register", "--identity", "me.pem", "--owner", user.owner.name),
        *("--token-file", "third.token"),
    )
    assert user.path("third.token").read_text().startswith("nsm_")

    assert user.run("token", "--revoke-all", "--token-file", "third.token")["revoked"] >= 2
    for options in ((), ("--token-file", "third.token")):
        user.run("token", *options, status=3)
    user.run("register", "--identity", "me.pem", "--owner", user.owner.name)
    assert len([each for each in user.run("token")["items"] if not each["revoked"]]) == 1


# --- Receipts, offline. ---


@pytest.fixture
def filed(user: User, inside: Authority, monkeypatch) -> User:
    """Somebody with a filed key, its receipt and the authority's key, and no network."""
    user.run("file", "owner.nsmark", "--identity", "me.pem")
    user.path("authority.pub").write_text(inside.public_key.to_pem())
    roots = b"".join(root.public_bytes(Encoding.PEM) for root in inside.roots)
    user.path("roots.pem").write_bytes(roots)

    def no_network(*args: object, **kwargs: object) -> None:
        raise AssertionError("nobody may be asked")

    monkeypatch.setattr(socket, "socket", no_network)
    return user


def test_a_receipt_is_checked_with_whatever_one_has(filed):
    base = ("check-receipt", "owner.nsmark.receipt")
    with_pem = filed.run(*base, "--authority", "authority.pub", "--roots", "roots.pem")
    assert with_pem["trusted_roots"]
    assert with_pem["local_time"]
    assert any("local time-stamp key" in each for each in with_pem["not_proven"])
    own_roots = filed.run(*base, "--authority", "authority.pub")
    assert not own_roots["trusted_roots"]
    trust_file = filed.path("config") / "nsmark" / "trust.json"
    assert filed.run(*base, "--authority", trust_file)["trusted_roots"]

    said = filed.say(*base, "--key", "owner.nsmark")
    assert "Proven:" in said
    assert "Not proven:" in said
    assert "proves no time" in said
    trust_file.unlink()
    alone = filed.run(*base, status=1)
    assert not alone["trusted_key"]
    assert any("came with the receipt itself" in each for each in alone["not_proven"])


def test_a_receipt_that_does_not_hold_proves_nothing(filed):
    base = ("check-receipt", "owner.nsmark.receipt")
    write_key(small_key(7, filed.owner.seed), filed.path("other.nsmark"))
    assert "another file" in filed.run(*base, "--key", "other.nsmark", status=1)["reason"]
    filed.path("stranger.pub").write_text(KeyOwner(1).pem)
    refused = filed.run(*base, "--authority", "stranger.pub", status=1)
    assert not refused["valid"]
    assert "another authority key" in refused["reason"]

    receipt = json.loads(filed.path("owner.nsmark.receipt").read_text())
    for change in ({"index": receipt["index"] + 1}, {"proof": []}, {"local_time": False}):
        filed.path("bad.receipt").write_text(json.dumps(receipt | change))
        assert filed.run("check-receipt", "bad.receipt", status=1)["valid"] is False
    assert "Nothing is proven" in filed.say("check-receipt", "bad.receipt", status=1)
    filed.path("bad.receipt").write_text("{}")
    filed.run("check-receipt", "bad.receipt", status=3)
    filed.run("check-receipt", "absent.receipt", status=3)


# --- The monitor. ---


def test_the_monitor_tells_what_was_done_in_ones_name(user, server):
    watch = ("monitor", "--once", "--owner", user.owner.name, "--public-key", "me.pub")
    looked = user.run(*watch, "--receipt", ".")
    assert looked["alerts"] == []
    assert looked["num_new"] == looked["size"] > 0
    thief = KeyOwner(next(_seeds), "nsmark.local")
    thief.identity.save(user.path("thief"))
    name = user.owner.name.upper()
    user.run("register", "--identity", "thief.pem", "--owner", name, "--out", "t.json")
    user.run("file", "owner.nsmark", "--identity", "me.pem", "--out", "f.json")

    looked = user.run(*watch, "--receipt", ".", status=1)

    assert [alert["kind"] for alert in looked["alerts"]] == ["name", "key"]
    assert user.run(*watch)["alerts"] == []
    assert "0 new, 0 alerts" in user.say(*watch)


@pytest.fixture
def log_user(stranger: User) -> Callable[[MemoryLog, str], tuple[str, ...]]:
    def trust(log: MemoryLog, url: str) -> tuple[str, ...]:
        path = stranger.path("log-trust.json")
        TrustStore(path).add(trusted(url))
        return ("--trust-file", str(path), "--url", url, "--state", str(stranger.path("m.json")))

    return trust


def test_a_rewritten_log_gives_the_alarm_every_time(stranger, log_user):
    log = MemoryLog([deposit_entry(n) for n in range(5)])
    with serving_log(log) as url:
        where = log_user(log, url)
        assert stranger.run("monitor", "--once", *where)["size"] == 5
        stranger.run("log", *where[:4])
        log.history[2] = deposit_entry(99)
        log.history.append(deposit_entry(5))
        for _ in range(2):
            looked = stranger.run("monitor", "--once", *where, status=1)
            assert [alert["kind"] for alert in looked["alerts"]] == ["rewritten"]
            assert {"earlier", "later"} <= set(looked["alerts"][0])
        # Other commands notice it, too.
        assert "REWRITTEN" in stranger.run("log", *where[:4], status=3)["error"]
        assert "ALERT  rewritten: THE LOG" in stranger.say("monitor", "--once", *where, status=1)


def test_a_log_that_keeps_entries_back_or_goes_away_is_an_error(stranger, log_user):
    log = MemoryLog([deposit_entry(n) for n in range(5)])
    with serving_log(log) as url:
        where = log_user(log, url)
        honest = log.answer

        def keep_back(path, query):
            if path == "/v1/log/entries":
                return "application/json", b'{"items": []}'
            return honest(path, query)

        log.answer = keep_back
        refused = stranger.run("monitor", "--once", *where, status=3)
        assert "does not give out its entries" in refused["error"]
    assert "cannot be asked" in stranger.run("monitor", "--once", *where, status=3)["error"]


def test_a_monitor_that_runs_on_ends_with_1_at_the_first_alert(stranger, log_user):
    log = MemoryLog([deposit_entry(n) for n in range(3)])
    with serving_log(log) as url:
        where = log_user(log, url)
        command = [sys.executable, "-m", "nsmark", "client", "monitor", "--every", "0.2", "--json"]
        command += ["--owner", "Example Lab", *where]
        with running(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            first = json.loads(process.stdout.readline())
            log.history.append(registration_entry("example lab", 2))
            rest, _ = process.communicate()
    assert (first["size"], first["alerts"]) == (3, [])
    last = json.loads(rest.splitlines()[-1])
    assert [alert["kind"] for alert in last["alerts"]] == ["name"]
    assert last["alerts"][0]["entry_id"] == entry_id_of(log.history[-1])
    assert process.returncode == 1


def test_a_monitor_can_be_interrupted(stranger, log_user):
    log = MemoryLog([deposit_entry(n) for n in range(3)])
    with serving_log(log) as url:
        command = [sys.executable, "-m", "nsmark", "client", "monitor", "--every", "3600"]
        with running(
            [*command, *log_user(log, url)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "3 entries, 3 new, 0 alerts\n"

            def size_kept() -> int:
                return json.loads(stranger.path("m.json").read_text())["verified"]["size"]

            wait_for(lambda: size_kept() == 3, "what was seen to be kept")
            process.terminate()
            _, said = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in said
    assert json.loads(stranger.path("m.json").read_text())["authority"] == NAME


# --- What others have dated. ---


def test_a_time_stamp_from_elsewhere_dates_a_deposit(stranger, tmp_path_factory):
    """The digest is had without the authority, and the day counts once the operator believes it."""
    folder = tmp_path_factory.mktemp("believing")
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    outside = LocalAuthority.create(folder / "outside", lambda: long_ago)
    (folder / "roots.pem").write_text(roots_pem((outside.root,)))
    rows = np.random.default_rng(1).random((3, 2))
    save_recorded(stranger.path("outputs.safetensors"), rows, rows)
    digest = stranger.run("digest", "outputs.safetensors")["content_sha256"]
    assert stranger.say("digest", "outputs.safetensors").strip() == digest
    answer = outside.answer(build_request(bytes.fromhex(digest)).der)
    stranger.path("whole.tsr").write_bytes(answer)
    stranger.path("token.tsr").write_bytes(extract_token(answer))
    stranger.path("broken.tsr").write_bytes(answer[:-9])
    others = (stranger.path("outputs.safetensors"), "--identity", "me.pem")
    dated = (*others, "--timestamp-roots", folder / "roots.pem", "--timestamp")
    with running_authority(folder / "served", "--evidence-roots", str(folder / "roots.pem")) as it:
        stranger.run("trust", it.url, "--yes")
        stranger.run("register", "--identity", "me.pem", "--owner", stranger.owner.name)

        given = stranger.run("deposit", *dated, stranger.path("whole.tsr"))

        assert given["statement"]["proven"] == "2020-01-01T00:00:00Z"
        with it.client() as client:
            found = client.get(f"/v1/deposits/{given['entry_id']}").json()
        assert (found["proven"], found["has_content"]) == ("2020-01-01T00:00:00Z", True)
        again = ("--note", "only the token", "--out", "again.receipt")
        given = stranger.run("deposit", *dated, stranger.path("token.tsr"), *again)
        assert given["statement"]["proven"] == "2020-01-01T00:00:00Z"
        assert "is damaged" in stranger.say(
            "deposit", *dated, stranger.path("broken.tsr"), *again, status=3
        )
        assert "come together" in stranger.say(
            "deposit", *others, "--timestamp", stranger.path("whole.tsr"), status=2
        )


def test_an_answer_can_contest_the_day(user, inside):
    filed = user.run("file", "owner.nsmark", "--identity", "me.pem")
    admit(inside, filed["entry_id"])
    dispute = user.run(*open_dispute())["entry_id"]
    other = KeyOwner(next(_seeds), "nsmark.local")
    other.identity.save(user.path("other"))
    user.run("register", "--identity", "other.pem", "--owner", other.name)

    user.run(
        *("answer", dispute, "--identity", "other.pem", "--statement", "it is older"),
        *("--released", "2020-01-01T00:00:00Z"),
    )

    (answered,) = user.run("status", dispute)["defences"]
    assert answered["released"] == "2020-01-01T00:00:00Z"
    assert "released" in user.say(
        *("answer", dispute, "--identity", "other.pem", "--statement", "older"),
        *("--released", "some day"),
        status=2,
    )
