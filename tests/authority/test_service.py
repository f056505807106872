"""What owners and the authority do: every check before the receipt, and what each act changes."""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace
from pathlib import Path

import pytest

from authority_world import ENDPOINT, NAME, RELEASED, KeyOwner, admit, make_authority, small_key
from handmade_keys import make_identity
from nsmark.core.texts import lines_digest
from nsmark.errors import ConfigError, InputError, KeyFileError
from nsmark.keyfile.codec import encode_key
from nsmark_authority.errors import (
    AccessDeniedError,
    AuthorityError,
    ConflictError,
    NotFoundError,
    TransparencyError,
)
from nsmark_authority.jobs import utc_now
from nsmark_authority.manifest import Manifest
from nsmark_authority.receipt import check_receipt
from nsmark_authority.records import Account
from nsmark_authority.service import Authority, open_authority
from nsmark_authority.stamping import Stamp
from nsmark_authority.statements import (
    Admission,
    Defence,
    Deposit,
    Dispute,
    Filing,
    Ruling,
    Suspect,
    Withdrawal,
    sign_statement,
)
from processes import wait_for


def files_on_disk(authority: Authority) -> list[str]:
    folder = authority.settings.folder / "content"
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


# --- Registering ---


def test_an_owner_registers_and_gets_a_token_once_per_challenge(authority: Authority) -> None:
    owner = KeyOwner(1)
    document = owner.registration(authority.challenge().nonce)

    registered = authority.register(document)

    account = authority.accounts.authenticate(registered.token.token, "file")
    assert account.fingerprint == registered.owner.fingerprint == owner.fingerprint
    assert check_receipt(registered.receipt, authority.public_key, authority.roots).index == 0
    with pytest.raises(AccessDeniedError, match="challenge"):
        authority.register(document)
    with pytest.raises(AccessDeniedError, match="challenge"):
        authority.register(KeyOwner(2).registration("00" * 32))
    assert authority.log.size() == 1


def test_an_owner_who_lost_his_token_registers_again(authority: Authority) -> None:
    first, again = KeyOwner(1).register(authority), KeyOwner(1).register(authority)

    assert again.receipt == first.receipt
    assert again.token.token != first.token.token
    assert authority.log.size() == 1
    with pytest.raises(ConflictError, match="registered as 'Owner 1'"):
        authority.register(KeyOwner(1).registration(authority.challenge().nonce, "Another"))


def test_nobody_registers_another_s_key(authority: Authority) -> None:
    nonce = authority.challenge().nonce
    members = KeyOwner(1).registration(nonce)
    forged = members.replace(members[-40:-20], b"A" * 20)

    with pytest.raises(TransparencyError):
        authority.register(forged)
    authority.register(members)  # the challenge was not used up by the forgery


# --- Filing ---


def test_a_filing_is_acknowledged_public_in_part_and_queued(
    any_authority: Authority,
) -> None:
    authority, owner = any_authority, KeyOwner(1)
    owner.register(authority)
    document, content = owner.filing()

    receipt = authority.file_key(document, io.BytesIO(content))

    found = authority.registry.filing_of_key(small_key().key_id)
    assert found == authority.registry.filing(receipt.entry_id)
    assert (found.state, found.index, found.owner) == ("waiting", 1, "Owner 1")
    assert [job.kind for job in authority.jobs.of_subject(receipt.entry_id)] == ["admission"]
    assert authority.read_filed_key(found) == small_key()
    checked = check_receipt(receipt, authority.public_key, authority.roots)
    assert checked.opened.entry == document
    # The secret is nowhere: not in the log, not in a row, not on the disk.
    secret = small_key().signature
    everything = repr(found).encode() + receipt.to_json()
    for path in (p for p in authority.settings.folder.rglob("*") if p.is_file()):
        everything += path.read_bytes()
    assert secret not in everything
    assert secret.hex().encode() not in everything


def test_filing_twice_gives_the_same_receipt(authority: Authority, owner: KeyOwner) -> None:
    first = owner.file(authority)
    owner.file(authority, 1)

    assert owner.file(authority).to_json() == first.to_json()
    assert authority.log.size() == 3
    again = Filing.of(
        small_key().signed_claim,
        authority=NAME,
        key_id=small_key().key_id,
        content=owner.filing()[1],
        model_digest=small_key().model_digest,
    )
    with pytest.raises(ConflictError, match="filed before"):
        authority.file_key(owner.sign(again), io.BytesIO(owner.filing()[1]))


def test_only_registered_owners_file(authority: Authority) -> None:
    with pytest.raises(NotFoundError, match="registered"):
        KeyOwner(1).file(authority)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"key_id": "00" * 32}, KeyFileError),
        ({"signature_sha256": "00" * 32}, KeyFileError),
        ({"model_digest": "00" * 32}, KeyFileError),
        ({"content_sha256": "00" * 32}, InputError),
        ({"content_bytes": 17}, InputError),
        ({"content_bytes": 1 << 50}, InputError),
        ({"succeeds": "00" * 32}, NotFoundError),
        ({"authority": "other.example"}, TransparencyError),
    ],
)
def test_statement_and_key_must_fit(
    authority: Authority, owner: KeyOwner, changes: dict[str, object], error: type[Exception]
) -> None:
    key, content = small_key(), owner.filing()[1]
    filing = Filing.of(key.signed_claim, authority=NAME, key_id=key.key_id, content=content)
    document = owner.sign(Filing(**(filing.model_dump() | changes)))

    with pytest.raises(error):
        authority.file_key(document, io.BytesIO(content))

    assert authority.log.size() == 1
    assert files_on_disk(authority) == []


@pytest.mark.parametrize("damage", ["cut", "flipped", "pickle", "empty header", "longer"])
def test_a_damaged_key_is_refused_and_leaves_nothing(
    authority: Authority, owner: KeyOwner, damage: str
) -> None:
    key, content = small_key(), bytearray(owner.filing()[1])
    if damage == "cut":
        del content[-1]
    elif damage == "flipped":
        content[-1] ^= 1
    elif damage == "pickle":
        content[:2] = b"\x80\x04"
    elif damage == "longer":
        content += b"x"
    else:
        content[:8] = bytes(8)
    filing = Filing.of(key.signed_claim, authority=NAME, key_id=key.key_id, content=bytes(content))

    with pytest.raises(KeyFileError):
        authority.file_key(owner.sign(filing), io.BytesIO(content))

    assert authority.log.size() == 1
    assert files_on_disk(authority) == []


def test_a_stolen_key_file_cannot_be_filed_by_the_thief(
    authority: Authority, owner: KeyOwner
) -> None:
    thief = KeyOwner(2)
    thief.register(authority)
    key, content = small_key(), owner.filing()[1]
    filing = Filing.of(key.signed_claim, authority=NAME, key_id=key.key_id, content=content)
    as_his = Filing(**(filing.model_dump() | {"public_key": thief.pem}))

    with pytest.raises(TransparencyError):
        sign_statement(filing, thief.identity)
    with pytest.raises(KeyFileError, match="another one"):
        authority.file_key(thief.sign(as_his), io.BytesIO(content))


def test_a_token_of_another_owner_does_not_admit(authority: Authority, owner: KeyOwner) -> None:
    other = KeyOwner(2).register(authority).token.account
    document, content = owner.filing()

    with pytest.raises(AccessDeniedError, match="another owner"):
        authority.file_key(document, io.BytesIO(content), by=other)
    staff: Account = authority.accounts.issue(["admin"]).account
    authority.file_key(document, io.BytesIO(content), by=staff)


def test_too_large_a_key_is_not_read(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, max_key_bytes=1000)
    owner = KeyOwner(1)
    owner.register(authority)

    class Unread:
        def read(self, size: int, /) -> bytes:
            raise AssertionError("was read")

    with pytest.raises(InputError, match="larger than 1,000"):
        authority.file_key(owner.filing()[0], Unread())
    authority.close()


def test_statements_go_where_they_belong(authority: Authority, owner: KeyOwner) -> None:
    document, _ = owner.filing()
    for act in (authority.deposit, authority.open_dispute, authority.answer_dispute):
        with pytest.raises(TransparencyError, match="is a filing, not a"):
            act(document)
    forged = sign_statement(
        Admission(
            authority=NAME,
            filing="00" * 32,
            key_id="00" * 32,
            admitted=True,
            reasons=(),
            control_set=None,
            versions={},
        ),
        make_identity(4),
    ).to_json()
    with pytest.raises(TransparencyError, match="signed by 0"):
        authority.deposit(forged)


# --- Searching ---


def test_search(any_authority: Authority) -> None:
    authority = any_authority
    one, two = KeyOwner(1), KeyOwner(2)
    for owner in (one, two):
        owner.register(authority)
    ids = [one.file(authority, 0), one.file(authority, 1), two.file(authority, 0)]
    expected = [receipt.entry_id for receipt in ids]
    search = authority.registry.search_filings

    def found(*args: str, **kwargs: object) -> list[str]:
        return [filing.entry_id for filing in search(*args, **kwargs)]

    assert found() == expected[::-1]
    assert found("HANDMADE-encoder  is") == expected[::-1]
    assert found("owner 2 handmade") == [expected[2]]
    assert found("%") == found("_______") == found("'; DROP TABLE log_entries; --") == []
    assert found(owner="owner 1") == expected[1::-1]
    assert found(owner="owner") == []
    assert found(key_id=small_key(1, 1).key_id) == [expected[1]]
    assert found(key_id=small_key(1, 1).key_id[:12]) == [expected[1]]
    assert found(fingerprint=two.fingerprint) == [expected[2]]
    assert found(state="admitted") == []
    assert found(limit=1) == [expected[2]]
    assert found(before=ids[2].index) == expected[1::-1]
    assert [o.owner for o in authority.registry.owners("OWNER 2")] == ["Owner 2"]
    with pytest.raises(NotFoundError):
        authority.registry.filing("00" * 32)


# --- Admission, disputes ---


def test_admission_is_said_once(authority: Authority, owner: KeyOwner) -> None:
    filing = owner.file(authority).entry_id

    first = admit(authority, filing)

    assert admit(authority, filing, admitted=False) == first
    assert authority.registry.filing(filing).state == "admitted"
    statement = check_receipt(first, authority.public_key, authority.roots).statement
    assert isinstance(statement, Admission)
    assert statement.admitted
    with pytest.raises(NotFoundError):
        admit(authority, "00" * 32)


def test_only_an_admitted_key_of_one_s_own_is_disputed(
    authority: Authority, owner: KeyOwner
) -> None:
    filing = owner.file(authority).entry_id

    with pytest.raises(ConflictError, match="waiting"):
        authority.open_dispute(owner.dispute())
    admit(authority, filing)
    with pytest.raises(NotFoundError):
        authority.open_dispute(owner.dispute(7))
    other = KeyOwner(2)
    other.register(authority)
    borrowed = Dispute(
        authority=NAME,
        public_key=other.pem,
        key_id=small_key().key_id,
        suspect=ENDPOINT,
        released=RELEASED,
        statement="mine",
    )
    with pytest.raises(AccessDeniedError, match="another owner's"):
        authority.open_dispute(other.sign(borrowed))

    receipt = authority.open_dispute(owner.dispute())

    assert authority.open_dispute(owner.dispute()) == receipt
    dispute = authority.registry.dispute(receipt.entry_id)
    assert (dispute.state, dispute.suspect, dispute.outcome) == ("open", ENDPOINT, None)
    assert dispute.job == authority.jobs.of_subject(receipt.entry_id)[0].job_id
    assert authority.registry.filing(filing).state == "revealed"
    assert authority.registry.filing(filing).revealed_by == receipt.entry_id


def test_a_successor_takes_the_place_of_a_revealed_key(
    authority: Authority, owner: KeyOwner
) -> None:
    first = owner.file(authority).entry_id
    admit(authority, first)
    second = owner.file(authority, 1, succeeds=small_key().key_id).entry_id
    other = KeyOwner(2)
    other.register(authority)
    with pytest.raises(AccessDeniedError, match="succeeded"):
        other.file(authority, 0, succeeds=small_key().key_id)

    authority.open_dispute(owner.dispute())
    assert authority.registry.filing(first).state == "revealed"
    admit(authority, second)
    assert authority.registry.filing(first).state == "succeeded"
    assert authority.registry.filing(second).state == "admitted"


def test_the_time_to_answer_is_the_job_s(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, answer_seconds=3600)
    owner = KeyOwner(1)
    owner.register(authority)
    admit(authority, owner.file(authority).entry_id)
    receipt = authority.open_dispute(owner.dispute())

    dispute = authority.registry.dispute(receipt.entry_id)

    assert dispute.answer_until is not None
    assert dispute.answer_until > dispute.time
    assert authority.jobs.claim("worker", ["dispute"]) is None
    authority.close()


@pytest.fixture
def dispute(authority: Authority, owner: KeyOwner) -> str:
    admit(authority, owner.file(authority).entry_id)
    return authority.open_dispute(owner.dispute()).entry_id


def defence(owner: KeyOwner, dispute: str, evidence: str | None = None) -> bytes:
    return owner.sign(
        Defence(
            authority=NAME,
            public_key=owner.pem,
            dispute=dispute,
            evidence=evidence,
            statement="mine is older",
        )
    )


def test_the_respondent_is_heard(authority: Authority, owner: KeyOwner, dispute: str) -> None:
    respondent = KeyOwner(2)
    with pytest.raises(NotFoundError, match="registered"):
        authority.answer_dispute(defence(respondent, dispute))
    respondent.register(authority)
    own = authority.deposit(respondent.recorded(b"outputs")).entry_id
    foreign = authority.deposit(owner.recorded(b"outputs")).entry_id

    for document, error in [
        (defence(respondent, "00" * 32), NotFoundError),
        (defence(respondent, dispute, "00" * 32), NotFoundError),
        (defence(respondent, dispute, foreign), AccessDeniedError),
        (defence(owner, dispute), ConflictError),
    ]:
        with pytest.raises(error):
            authority.answer_dispute(document)
    receipt = authority.answer_dispute(defence(respondent, dispute, own))
    words = authority.answer_dispute(defence(respondent, dispute))

    assert authority.answer_dispute(defence(respondent, dispute, own)) == receipt
    found = authority.registry.defences(dispute)
    assert [(one.entry_id, one.evidence) for one in found] == [
        (receipt.entry_id, own),
        (words.entry_id, None),
    ]


def ruling(authority: Authority, dispute: str, report: bytes | None, **changes: object) -> Ruling:
    found = authority.registry.dispute(dispute)
    members = {
        "authority": NAME,
        "dispute": dispute,
        "key_id": found.key_id,
        "outcome": "upheld",
        "verdict": "owned",
        "reasons": ("all statistics passed",),
        "evidence": {"extraction_rate": 1.0},
        "report_sha256": None if report is None else hashlib.sha256(report).hexdigest(),
        "randomness": "00" * 32,
        "defence": None,
        "other_claims": (),
        "opened": found.time,
        "measured": found.time,
        "versions": {"nsmark": "0.1.0"},
    }
    return Ruling(**(members | changes))


def test_a_ruling_is_said_once_and_its_report_served(authority: Authority, dispute: str) -> None:
    report = b'{"verdict":"owned"}'
    with pytest.raises(NotFoundError, match="no ruling"):
        authority.registry.ruling(dispute)
    with pytest.raises(InputError, match="another report"):
        authority.record_ruling(ruling(authority, dispute, report), b"other")
    with pytest.raises(InputError):
        authority.record_ruling(ruling(authority, dispute, None, key_id="00" * 32))

    receipt = authority.record_ruling(ruling(authority, dispute, report), report)

    again = ruling(authority, dispute, None, outcome="not_shown")
    assert authority.record_ruling(again) == receipt
    assert authority.ruling_report(dispute) == report
    assert authority.registry.ruling(dispute).outcome == "upheld"
    found = authority.registry.dispute(dispute)
    assert (found.state, found.outcome, found.ruling) == ("ruled", "upheld", receipt.entry_id)
    assert [one.dispute for one in authority.registry.rulings()] == [dispute]


def withdrawal(owner: KeyOwner, subject: str) -> bytes:
    return owner.sign(
        Withdrawal(authority=NAME, public_key=owner.pem, subject=subject, reason="an error")
    )


def test_withdrawing(authority: Authority, owner: KeyOwner, dispute: str) -> None:
    other = KeyOwner(2)
    other.register(authority)
    with pytest.raises(AccessDeniedError):
        authority.withdraw(withdrawal(other, dispute))
    with pytest.raises(NotFoundError):
        authority.withdraw(withdrawal(owner, "00" * 32))

    receipt = authority.withdraw(withdrawal(owner, dispute))

    assert authority.withdraw(withdrawal(owner, dispute)) == receipt
    assert authority.registry.dispute(dispute).state == "withdrawn"
    assert authority.jobs.of_subject(dispute)[0].state == "cancelled"
    with pytest.raises(ConflictError, match="withdrawn"):
        authority.record_ruling(ruling(authority, dispute, None))
    filing = authority.registry.filing_of_key(small_key().key_id).entry_id
    authority.withdraw(withdrawal(owner, filing))
    assert authority.registry.filing(filing).state == "withdrawn"
    with pytest.raises(ConflictError, match="withdrawn"):
        authority.open_dispute(owner.dispute(words="once more"))


# --- Contents ---


def test_recorded_outputs_can_be_deposited_later(authority: Authority, owner: KeyOwner) -> None:
    content = b"recorded outputs"
    document = owner.recorded(content)

    receipt = authority.deposit(document)
    sha256 = hashlib.sha256(content).hexdigest()
    assert authority.contents.handed_over(receipt.entry_id) is None
    with pytest.raises(InputError, match="not the one"):
        authority.deposit(document, io.BytesIO(b"recorded OUTPUTS"))
    with pytest.raises(InputError, match="larger"):
        authority.deposit(document, io.BytesIO(content + b"x"))
    with pytest.raises(InputError, match="as one file"):
        authority.deposit(document, [("a", io.BytesIO(content))])
    assert files_on_disk(authority) == []

    assert authority.deposit(document, io.BytesIO(content)) == receipt
    assert authority.contents.handed_over(receipt.entry_id) is not None
    assert authority.contents.read(sha256, 100) == content
    assert authority.registry.deposit(receipt.entry_id).what == "recorded"
    assert authority.log.size() == 2


def test_a_model_folder_is_deposited_and_given_to_the_worker(
    authority: Authority, owner: KeyOwner, tmp_path: Path
) -> None:
    source = tmp_path / "model"
    (source / "1_Pooling").mkdir(parents=True)
    files = {"config.json": b"{}", "model.safetensors": b"w" * 5000, "1_Pooling/config.json": b"{}"}
    for name, content in files.items():
        (source / name).write_bytes(content)
    manifest = Manifest.of_folder(source)
    document = owner.sign(
        Deposit(
            authority=NAME,
            public_key=owner.pem,
            what="model",
            content_sha256=manifest.digest,
            content_bytes=manifest.total_bytes,
            model_digest="ab" * 32,
        )
    )

    with pytest.raises(InputError, match="files of its folder"):
        authority.deposit(document, io.BytesIO(b"zip"))
    with pytest.raises(TransparencyError, match="plain relative path"):
        authority.deposit(document, [("../config.json", io.BytesIO(b"{}"))])
    with pytest.raises(InputError, match="not the one"):
        authority.deposit(document, [("config.json", io.BytesIO(b"{}"))])
    assert files_on_disk(authority) == []
    authority.deposit(document, [(name, io.BytesIO(files[name])) for name in sorted(files)])

    authority.contents.copy_folder(manifest.digest, tmp_path / "copy")
    assert Manifest.of_folder(tmp_path / "copy") == manifest
    with pytest.raises(NotFoundError):
        authority.contents.read(manifest.digest, 10_000)
    assert authority.contents.remove_unreferenced() == 0
    [found] = authority.registry.deposits(model_digest="ab" * 32)
    assert found.content_sha256 == manifest.digest


def test_a_dispute_about_recorded_outputs_needs_them(authority: Authority, owner: KeyOwner) -> None:
    admit(authority, owner.file(authority).entry_id)
    content = b"the suspect's outputs"
    suspect = Suspect(
        kind="recorded",
        content_sha256=hashlib.sha256(content).hexdigest(),
        content_bytes=len(content),
    )
    document = owner.dispute(suspect=suspect)

    with pytest.raises(InputError, match="not handed over"):
        authority.open_dispute(document)
    receipt = authority.open_dispute(document, io.BytesIO(content))

    assert authority.registry.dispute(receipt.entry_id).suspect == suspect
    assert authority.contents.read(suspect.content_sha256 or "", 100) == content


def test_publications_are_named_as_keys_name_them(authority: Authority) -> None:
    content = "ein Text\nnoch ein Text – länger\n".encode()

    receipt = authority.publish("pool", "Texte", content, note="von Hand")

    digest = lines_digest(["ein Text", "noch ein Text – länger"])
    assert authority.registry.publication(digest).entry_id == receipt.entry_id
    assert authority.publication_content(digest) == content
    assert authority.publish("pool", "Texte", content, note="von Hand") == receipt
    with pytest.raises(ConflictError, match="'Texte'"):
        authority.publish("pool", "other name", content)
    with pytest.raises(InputError, match="UTF-8"):
        authority.publish("pool", "bytes", b"\xff")
    with pytest.raises(NotFoundError):
        authority.publication_content("00" * 32)
    assert [one.what for one in authority.registry.publications("pool")] == ["pool"]
    assert authority.registry.publications("word_list") == []


# --- The folder ---


def test_the_folder_is_its_owner_s_alone_and_opens_again(tmp_path: Path) -> None:
    first = make_authority(tmp_path)
    KeyOwner(1).register(first)
    folder = first.settings.folder
    first.close()
    again = make_authority(tmp_path)

    assert folder.stat().st_mode & 0o777 == 0o700
    for name in ("signing.pem", "data.key", "authority.json"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600
    assert again.public_key == first.public_key
    assert again.log.size() == 1
    assert again.is_local_time
    again.close()


def test_keys_that_are_missing_are_not_made_anew(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    authority.close()
    (authority.settings.folder / "data.key").unlink()

    with pytest.raises(AuthorityError, match=r"no data\.key"):
        make_authority(tmp_path)


def test_another_name_is_refused(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    authority.close()
    with pytest.raises(ConfigError, match=r"authority\.example"):
        open_authority(replace(authority.settings, name="other.example"))


def test_what_a_killed_process_left_is_removed_at_the_next_start(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    with authority.contents.staging() as staging:
        staging.add(io.BytesIO(encode_key(small_key())), 100_000)
        staging.keep()  # and no row follows
    authority.close()
    assert len(files_on_disk(authority)) == 1

    make_authority(tmp_path).close()

    assert files_on_disk(authority) == []


def test_a_manifest_is_not_taken_as_a_file(
    authority: Authority, owner: KeyOwner, tmp_path: Path
) -> None:
    """Whoever knows a folder's files could otherwise void its deposit, or stall who measures it."""
    source = tmp_path / "model"
    source.mkdir()
    (source / "config.json").write_bytes(b"{}")
    manifest = Manifest.of_folder(source)
    thief = KeyOwner(7)
    thief.register(authority)

    with pytest.raises(InputError, match="manifest of a folder"):
        authority.deposit(thief.recorded(manifest.to_json()), io.BytesIO(manifest.to_json()))

    document = owner.sign(
        Deposit(
            authority=NAME,
            public_key=owner.pem,
            what="model",
            content_sha256=manifest.digest,
            content_bytes=manifest.total_bytes,
            model_digest="ab" * 32,
        )
    )
    receipt = authority.deposit(document, [("config.json", io.BytesIO(b"{}"))])
    assert authority.contents.handed_over(receipt.entry_id) is not None


def test_whoever_only_knows_a_digest_has_handed_over_nothing(
    authority: Authority, owner: KeyOwner
) -> None:
    content, other = b"what the owner has", KeyOwner(7)
    other.register(authority)
    mine = authority.deposit(owner.recorded(content), io.BytesIO(content))

    copied = authority.deposit(other.recorded(content))

    assert authority.contents.handed_over(mine.entry_id) is not None
    assert authority.contents.handed_over(copied.entry_id) is None
    authority.deposit(other.recorded(content), io.BytesIO(content))
    assert authority.contents.handed_over(copied.entry_id) is not None


def test_content_is_never_handed_over_before_it_was_announced(
    authority: Authority, owner: KeyOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same statement is sent twice at once: what is stamped first may be written last."""
    content = b"sent twice"
    document = owner.recorded(content)
    quick = authority._stamper

    class Overtaken:
        roots, is_local = quick.roots, quick.is_local

        def stamp(self, entry: bytes) -> Stamp:
            early = quick.stamp(entry)
            before = utc_now().replace(microsecond=0)
            wait_for(lambda: utc_now().replace(microsecond=0) > before, "the next second")
            monkeypatch.setattr(authority, "_stamper", quick)
            authority.deposit(document)
            return early

    monkeypatch.setattr(authority, "_stamper", Overtaken())

    receipt = authority.deposit(document, io.BytesIO(content))

    given = authority.contents.handed_over(receipt.entry_id)
    assert given is not None
    assert given >= authority.registry.deposit(receipt.entry_id).time


def test_an_owner_hands_over_no_more_than_he_may(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, max_owner_bytes=100)
    owner, other = KeyOwner(1), KeyOwner(2)
    for each in (owner, other):
        each.register(authority)
    first, second = b"a" * 60, b"b" * 60
    authority.deposit(owner.recorded(first), io.BytesIO(first))

    with pytest.raises(ConflictError, match="100 bytes"):
        authority.deposit(owner.recorded(second), io.BytesIO(second))

    authority.deposit(owner.recorded(second))  # the digest alone costs nothing
    authority.deposit(other.recorded(second), io.BytesIO(second))
    with authority.database.read() as connection:
        assert authority.contents.bytes_of(connection, owner.fingerprint) == 60
    authority.close()


def test_nothing_is_taken_that_would_fill_the_disk(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, min_free_bytes=1 << 60)
    owner = KeyOwner(1)
    owner.register(authority)

    with pytest.raises(AuthorityError, match="almost full"):
        authority.deposit(owner.recorded(b"outputs"), io.BytesIO(b"outputs"))

    assert authority.log.size() == 1
    authority.close()


def test_what_others_deposited_cannot_be_named_as_a_suspect(
    authority: Authority, owner: KeyOwner
) -> None:
    other, content = KeyOwner(7), b"outputs of somebody else's"
    other.register(authority)
    authority.deposit(other.recorded(content), io.BytesIO(content))
    admit(authority, owner.file(authority).entry_id)
    suspect = Suspect(
        kind="recorded",
        content_sha256=hashlib.sha256(content).hexdigest(),
        content_bytes=len(content),
    )

    with pytest.raises(InputError, match="was not handed over"):
        authority.open_dispute(owner.dispute(suspect=suspect))
