"""Filing over HTTP: the receipt holds offline, the registry shows what is public."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from authority_server import RunningAuthority, file_key
from authority_world import KeyOwner, admit, small_key
from nsmark.identity import PublicKey
from nsmark_authority.receipt import Receipt, check_receipt
from nsmark_authority.service import Authority
from nsmark_authority.statements import Filing, Withdrawal, entry_id_of
from nsmark_authority.transparency.timestamp import read_root_certificates
from processes import PATIENCE

JSON = {"Content-Type": "application/json"}


def withdrawal(owner: KeyOwner, subject: str) -> bytes:
    return owner.sign(
        Withdrawal(
            authority=owner.authority, public_key=owner.pem, subject=subject, reason="an error"
        )
    )


def test_a_receipt_from_the_server_holds_without_it(
    server: RunningAuthority, client: httpx.Client, claimant: KeyOwner
) -> None:
    document, content = claimant.filing(1)

    first, again = (file_key(client, document, content) for _ in range(2))
    about = client.get("/v1/authority").json()

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.content == again.content
    key = PublicKey.from_pem(about["public_key"])
    assert key == PublicKey.from_pem(server.about["public_key"])
    roots = read_root_certificates("".join(about["roots"]).encode())
    checked = check_receipt(Receipt.parse(first.content), key, roots)
    assert isinstance(checked.statement, Filing)
    assert checked.is_local_time is about["is_local_time"] is True


def test_a_filing_is_found_by_all_its_names(client: httpx.Client, claimant: KeyOwner) -> None:
    document, content = claimant.filing(2)
    file_key(client, document, content)
    entry_id, key_id = entry_id_of(document), small_key(2).key_id

    detail = client.get(f"/v1/filings/{entry_id}").json()

    assert detail == client.get(f"/v1/keys/{key_id}").json()
    assert (detail["state"], detail["decision"], detail["owner"]) == ("waiting", None, "Owner 1")
    assert detail["job"]["kind"] == "admission"
    job = client.get(f"/v1/jobs/{detail['job']['job_id']}").json()
    assert job["subject"] == entry_id
    for query in (
        {"key": key_id[:12]},
        {"text": "HANDMADE", "owner": "owner 1", "limit": "100"},
        {"fingerprint": claimant.fingerprint, "state": "waiting", "limit": "100"},
    ):
        found = client.get("/v1/filings", params=query).json()["items"]
        assert entry_id in [each["entry_id"] for each in found]
    assert client.get("/v1/filings", params={"owner": "Owner 3"}).json()["items"] == []
    assert client.get("/v1/owners", params={"name": "OWNER 1"}).json()["items"][0] == (
        client.get(f"/v1/owners/{claimant.fingerprint}").json()
    )


def test_a_job_is_its_owners_own(
    server: RunningAuthority, client: httpx.Client, claimant: KeyOwner, tokens: dict[int, str]
) -> None:
    document, content = claimant.filing(3)
    file_key(client, document, content)
    job = client.get(f"/v1/filings/{entry_id_of(document)}").json()["job"]["job_id"]
    with server.client(tokens[2]) as stranger, server.client(server.admin_token) as admin:
        assert stranger.get(f"/v1/jobs/{job}").status_code == 404
        assert admin.get(f"/v1/jobs/{job}").status_code == 200


def test_lists_come_in_parts_newest_first(client: httpx.Client, claimant: KeyOwner) -> None:
    filed = []
    for number in range(4, 9):
        document, content = claimant.filing(number)
        assert file_key(client, document, content).status_code == 201
        filed.append(entry_id_of(document))
    seen, cursor, parts = [], None, 0
    while True:
        params = {"limit": "2"} | ({} if cursor is None else {"cursor": cursor})
        part = client.get("/v1/filings", params=params).json()
        seen += [each["entry_id"] for each in part["items"]]
        parts += 1
        cursor = part["next"]
        if cursor is None:
            break

    assert seen[:5] == filed[::-1]
    assert len(set(seen)) == len(seen)
    assert parts == -(-len(seen) // 2)


@pytest.mark.parametrize("change", ["content", "envelope", "both", "signature"])
def test_what_does_not_fit_together_is_refused(
    client: httpx.Client, claimant: KeyOwner, change: str
) -> None:
    (document, content), (other, _) = claimant.filing(30), claimant.filing(31)
    if change == "content":
        content = content[:-1] + bytes([content[-1] ^ 1])
    elif change == "envelope":
        document = other
    elif change == "both":
        document, content = b"{}", b""
    else:
        document = document.replace(b'"sig":"', b'"sig":"A', 1)

    answer = file_key(client, document, content)

    assert answer.status_code == 422, answer.text
    assert client.get(f"/v1/filings/{entry_id_of(document)}").status_code == 404


def test_a_decision_is_shown_with_its_reasons(serve, authority: Authority, owner: KeyOwner) -> None:
    refused, admitted = (owner.file(authority, number).entry_id for number in (0, 1))
    admit(authority, refused, admitted=False)
    admit(authority, admitted)
    with httpx.Client(base_url=serve(), trust_env=False, timeout=PATIENCE) as client:
        no = client.get(f"/v1/filings/{refused}").json()
        yes = client.get(f"/v1/filings/{admitted}").json()

    assert (no["state"], no["decision"]["reasons"]) == ("refused", ["it accepts a control"])
    assert (yes["state"], yes["decision"]["admitted"]) == ("admitted", True)


def test_a_filing_is_withdrawn_by_its_owner(client: httpx.Client, claimant: KeyOwner) -> None:
    document, content = claimant.filing(40)
    file_key(client, document, content)
    entry_id = entry_id_of(document)
    path = f"/v1/filings/{entry_id}/withdrawal"

    misplaced = client.post(path, content=withdrawal(claimant, "ab" * 32), headers=JSON)
    stranger = KeyOwner(2, claimant.authority)
    stolen = client.post(path, content=withdrawal(stranger, entry_id), headers=JSON)
    done = client.post(path, content=withdrawal(claimant, entry_id), headers=JSON)

    assert (misplaced.status_code, stolen.status_code, done.status_code) == (422, 403, 201)
    assert client.get(f"/v1/filings/{entry_id}").json()["state"] == "withdrawn"


def test_many_read_while_some_write(
    server: RunningAuthority, tokens: dict[int, str], claimant: KeyOwner
) -> None:
    filings = [claimant.filing(number) for number in range(50, 62)]

    def write(filing: tuple[bytes, bytes]) -> int:
        with server.client(tokens[1]) as client:
            return file_key(client, *filing).status_code

    def read(number: int) -> int:
        with server.client() as client:
            return client.get("/v1/filings", params={"limit": "20"}).status_code

    with ThreadPoolExecutor(8) as pool:
        writing = [pool.submit(write, filing) for filing in filings]
        reading = [pool.submit(read, number) for number in range(60)]
        assert {each.result() for each in writing} == {201}
        assert {each.result() for each in reading} == {200}
