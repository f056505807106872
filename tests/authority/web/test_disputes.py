"""Deposits and disputes over HTTP: files by name, progress as it happens, the report caged."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from authority_world import NAME, KeyOwner, admit, small_key
from nsmark_authority.manifest import Manifest
from nsmark_authority.queueing import open_queue
from nsmark_authority.registry import MAX_ROWS
from nsmark_authority.service import Authority
from nsmark_authority.statements import Defence, Deposit, Ruling, Suspect, Withdrawal, entry_id_of
from nsmark_authority.web.app import create_app
from processes import PATIENCE, wait_for

JSON = {"Content-Type": "application/json"}
MODEL = {"config.json": b"{}", "1_Pooling/config.json": b"[]", "model.safetensors": b"x" * 70_000}


@pytest.fixture
def url(serve) -> str:
    return str(serve(poll_seconds=0.05))


@pytest.fixture
def tokens(authority: Authority) -> dict[int, str]:
    return {seed: KeyOwner(seed).register(authority).token.token for seed in (1, 2)}


@pytest.fixture
def client(url: str, tokens: dict[int, str]) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {tokens[1]}"}
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=PATIENCE) as opened:
        yield opened


@pytest.fixture
def respondent(url: str, tokens: dict[int, str]) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {tokens[2]}"}
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=PATIENCE) as opened:
        yield opened


def form(document: bytes, files: dict[str, bytes] | None = None) -> list[tuple[str, object]]:
    parts: list[tuple[str, object]] = [("envelope", ("e.json", document, "application/json"))]
    return parts + [("files", (name, content)) for name, content in (files or {}).items()]


def model_deposit(owner: KeyOwner, manifest: Manifest) -> bytes:
    return owner.sign(
        Deposit(
            authority=NAME,
            public_key=owner.pem,
            what="model",
            content_sha256=manifest.digest,
            content_bytes=manifest.total_bytes,
            model_digest="ab" * 32,
        )
    )


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    folder = tmp_path / "model"
    for name, content in MODEL.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return Manifest.of_folder(folder)


def open_dispute(client: httpx.Client, authority: Authority) -> str:
    owner = KeyOwner(1)
    admit(authority, owner.file(authority).entry_id)
    document = owner.dispute()
    answer = client.post("/v1/disputes", files=form(document))
    assert answer.status_code == 201, answer.text
    return entry_id_of(document)


def rule(authority: Authority, dispute: str, report: bytes | None) -> str:
    found = authority.registry.dispute(dispute)
    ruling = Ruling(
        authority=NAME,
        dispute=dispute,
        key_id=found.key_id,
        outcome="upheld",
        verdict="owned",
        reasons=("the signature was read",),
        evidence={"rate": 0.98},
        report_sha256=None if report is None else hashlib.sha256(report).hexdigest(),
        randomness="cd" * 32,
        defence=None,
        other_claims=(),
        opened=found.time,
        measured=found.time,
        versions={"nsmark": "0.1.0"},
    )
    return authority.record_ruling(ruling, report).entry_id


def test_a_model_is_deposited_later_by_the_names_of_its_files(
    client: httpx.Client, authority: Authority, manifest: Manifest, spool_folder: Path
) -> None:
    document = model_deposit(KeyOwner(1), manifest)
    dated = client.post("/v1/deposits", files=form(document))
    before = client.get(f"/v1/deposits/{entry_id_of(document)}").json()
    handed = client.post("/v1/deposits", files=form(document, MODEL))
    after = client.get(f"/v1/deposits/{entry_id_of(document)}").json()

    assert (dated.status_code, handed.status_code) == (201, 200)
    assert dated.content == handed.content
    assert (before["has_content"], after["has_content"]) == (False, True)
    assert {file.name for file in authority.contents.manifest(manifest.digest).files} == set(MODEL)
    assert client.get("/v1/deposits", params={"model": "ab" * 32}).json()["items"][0] == {
        name: value for name, value in after.items() if name != "has_content"
    }
    assert list(spool_folder.iterdir()) == []


@pytest.mark.parametrize("name", ["../up", "/root", "a/../b", "C:\\x", "", ".hidden", "a\x00b"])
def test_names_that_lead_elsewhere_are_refused(
    client: httpx.Client, manifest: Manifest, name: str
) -> None:
    document = model_deposit(KeyOwner(1), manifest)
    body = (
        b'--x\r\nContent-Disposition: form-data; name="envelope"\r\n\r\n' + document + b"\r\n"
        b'--x\r\nContent-Disposition: form-data; name="files"; filename="' + name.encode() + b'"'
        b"\r\n\r\nx\r\n--x--\r\n"
    )
    headers = {"Content-Type": "multipart/form-data; boundary=x"}

    answer = client.post("/v1/deposits", content=body, headers=headers)

    assert answer.status_code == 422, answer.text


def test_recorded_outputs_are_one_file(client: httpx.Client) -> None:
    owner, content = KeyOwner(1), b"recorded outputs"
    document = owner.sign(
        Deposit(
            authority=NAME,
            public_key=owner.pem,
            what="recorded",
            content_sha256=hashlib.sha256(content).hexdigest(),
            content_bytes=len(content),
        )
    )
    two = client.post("/v1/deposits", files=form(document, {"a": content, "b": content}))
    one = client.post("/v1/deposits", files=form(document, {"a": content}))

    assert (two.status_code, one.status_code) == (422, 201)


def test_a_dispute_about_a_model_carries_its_files(
    client: httpx.Client, authority: Authority, manifest: Manifest
) -> None:
    owner = KeyOwner(1)
    admit(authority, owner.file(authority).entry_id)
    suspect = Suspect(
        kind="model", content_sha256=manifest.digest, content_bytes=manifest.total_bytes
    )
    document = owner.dispute(suspect=suspect)

    without = client.post("/v1/disputes", files=form(document))
    opened = client.post("/v1/disputes", files=form(document, MODEL))
    again = client.post("/v1/disputes", files=form(document))

    assert (without.status_code, opened.status_code, again.status_code) == (422, 201, 200)
    assert opened.content == again.content
    found = client.get("/v1/disputes", params={"state": "open"}).json()["items"]
    assert found[0]["suspect"]["content_sha256"] == manifest.digest


def test_a_key_that_is_not_admitted_opens_no_dispute(
    client: httpx.Client, authority: Authority
) -> None:
    KeyOwner(1).file(authority)
    answer = client.post("/v1/disputes", files=form(KeyOwner(1).dispute()))
    assert answer.status_code == 409


def test_a_dispute_is_answered_and_withdrawn(
    client: httpx.Client, respondent: httpx.Client, authority: Authority
) -> None:
    dispute = open_dispute(client, authority)
    other = KeyOwner(2)
    defence = other.sign(
        Defence(
            authority=NAME,
            public_key=other.pem,
            dispute=dispute,
            evidence=None,
            statement="it is not yours",
        )
    )
    elsewhere = respondent.post(f"/v1/disputes/{'ab' * 32}/defences", content=defence, headers=JSON)
    given = respondent.post(f"/v1/disputes/{dispute}/defences", content=defence, headers=JSON)
    owner = KeyOwner(1)
    withdrawn = owner.sign(
        Withdrawal(authority=NAME, public_key=owner.pem, subject=dispute, reason="settled")
    )
    done = client.post(f"/v1/disputes/{dispute}/withdrawal", content=withdrawn, headers=JSON)
    detail = client.get(f"/v1/disputes/{dispute}").json()

    assert (elsewhere.status_code, given.status_code, done.status_code) == (422, 201, 201)
    assert [each["statement"] for each in detail["defences"]] == ["it is not yours"]
    assert detail["num_defences"] == 1
    assert (detail["dispute"]["state"], detail["job"]["state"]) == ("withdrawn", "cancelled")
    assert detail["ruling"] is None


def answer_dispute(authority: Authority, dispute: str, words: str) -> None:
    other = KeyOwner(2)
    defence = Defence(
        authority=NAME, public_key=other.pem, dispute=dispute, evidence=None, statement=words
    )
    authority.answer_dispute(other.sign(defence))


def test_many_answers_are_counted_and_come_in_parts(
    client: httpx.Client, authority: Authority
) -> None:
    dispute = open_dispute(client, authority)
    path = f"/v1/disputes/{dispute}/defences"
    assert client.get(path).json() == {"items": [], "next": None}
    said = [f"answer {number}" for number in range(MAX_ROWS + 3)]
    for words in said:
        answer_dispute(authority, dispute, words)

    detail = client.get(f"/v1/disputes/{dispute}").json()
    parts, query = [], {"limit": "100"}
    while "cursor" not in query or query["cursor"]:
        part = client.get(path, params=query).json()
        parts.append([each["statement"] for each in part["items"]])
        query["cursor"] = part["next"]

    assert detail["num_defences"] == len(said)
    assert [each["statement"] for each in detail["defences"]] == said[:MAX_ROWS]
    assert parts == [said[:100], said[100:200], said[200:]]
    # What the page shows, and where the rest is.
    page = client.get(f"/disputes/{dispute}", headers={"Accept": "text/html"}).text
    assert f"Only the first {MAX_ROWS} of {len(said)} answers are shown" in page
    assert f'data-defences="{len(said)}"' in page
    assert page.count("<blockquote") == 1 + MAX_ROWS
    rest = re.search(rf'href="({path}[^"]*)"', page)
    assert rest is not None
    items = client.get(rest[1]).json()["items"]
    assert [each["statement"] for each in items] == said[MAX_ROWS:]


def test_answers_are_listed_only_of_disputes(client: httpx.Client, authority: Authority) -> None:
    dispute = open_dispute(client, authority)
    answer_dispute(authority, dispute, "it is not yours")
    page = client.get(f"/disputes/{dispute}", headers={"Accept": "text/html"}).text

    assert client.get(f"/v1/disputes/{'ab' * 32}/defences").status_code == 404
    bad = client.get(f"/v1/disputes/{dispute}/defences", params={"cursor": "x"})
    assert bad.status_code == 422
    assert "it is not yours" in page
    assert "Only the first" not in page


def test_events_count_answers_and_do_not_repeat_them(
    client: httpx.Client, authority: Authority
) -> None:
    dispute = open_dispute(client, authority)
    answer_dispute(authority, dispute, "it is not yours")
    counts = []
    with client.stream("GET", f"/v1/disputes/{dispute}/events") as stream:
        for line in stream.iter_lines():
            assert "yours" not in line
            if line.startswith("data: "):
                detail = json.loads(line.removeprefix("data: "))
                assert detail["defences"] == []
                counts.append(detail["num_defences"])
                if len(counts) == 1:
                    answer_dispute(authority, dispute, "nor is it yours now")
                else:
                    break

    assert counts == [1, 2]


def test_progress_is_told_as_it_happens(client: httpx.Client, authority: Authority) -> None:
    dispute = open_dispute(client, authority)

    def work() -> None:
        job = authority.jobs.claim("worker", ("dispute",))
        assert job is not None
        for share in (0.25, 0.75):
            authority.jobs.heartbeat(job.job_id, "worker", share, f"{share:.0%}")
            wait_for(lambda share=share: share in progress(), "it to be told")
        rule(authority, dispute, None)

    thread = threading.Thread(target=work)
    events: list[tuple[str, dict[str, Any]]] = []

    def progress() -> list[float]:
        return [detail["job"]["progress"] for kind, detail in events if kind == "progress"]

    with client.stream("GET", f"/v1/disputes/{dispute}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        thread.start()
        kind = ""
        for line in stream.iter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                events.append((kind, json.loads(line.removeprefix("data: "))))
    thread.join()

    assert [kind for kind, _ in events].count("done") == 1
    assert events[-1][0] == "done"
    assert events[-1][1]["ruling"]["outcome"] == "upheld"
    assert progress() == sorted(progress())


@pytest.mark.parametrize("limit", ["max_streams", "streams_per_address"])
def test_streams_are_limited_and_end(
    serve, authority: Authority, tokens: dict[int, str], limit: str
) -> None:
    headers = {"Authorization": f"Bearer {tokens[1]}"}
    url = serve(**{limit: 1}, stream_seconds=3, poll_seconds=0.05)
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=PATIENCE) as client:
        path = f"/v1/disputes/{open_dispute(client, authority)}/events"
        with client.stream("GET", path) as held:
            refused = client.get(path)
            assert held.read().count(b"event: progress") == 1
        assert refused.status_code == 429
        assert refused.headers["retry-after"]
        with client.stream("GET", path) as again:
            assert again.status_code == 200


def test_a_ruling_is_served_with_its_report_caged(
    client: httpx.Client, authority: Authority
) -> None:
    dispute = open_dispute(client, authority)
    assert client.get(f"/v1/disputes/{dispute}/ruling").status_code == 404
    assert client.get(f"/v1/disputes/{dispute}/report").status_code == 404
    entry = rule(authority, dispute, b"<script>alert(1)</script>")

    ruling = client.get(f"/v1/disputes/{dispute}/ruling")
    report = client.get(f"/v1/disputes/{dispute}/report")

    assert ruling.json() == client.get(f"/v1/receipts/{entry}").json()
    assert client.post("/v1/receipts/check", json=ruling.json()).json()["kind"] == "ruling"
    assert report.content == b"<script>alert(1)</script>"
    assert report.headers["content-type"] == "text/html; charset=utf-8"
    policy = report.headers["content-security-policy"]
    assert policy.startswith("sandbox; default-src 'none'")
    assert "script" not in policy
    assert client.get(f"/v1/disputes/{dispute}").json()["ruling"]["entry_id"] == entry
    assert client.get(f"/v1/keys/{small_key().key_id}").json()["revealed_by"] == dispute


def test_workers_are_woken(authority: Authority, tmp_path: Path) -> None:
    queue = open_queue(authority.settings)
    try:
        app = create_app(authority, queue=queue)
        KeyOwner(1).register(authority)
        filing = KeyOwner(1).file(authority).entry_id
        app.state.context.wake_workers(filing)
        woken = queue.wait(PATIENCE, threading.Event())
    finally:
        queue.close()

    assert woken == authority.jobs.of_subject(filing)[0].job_id
