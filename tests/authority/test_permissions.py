"""What owners may not say, although they sign it."""

from __future__ import annotations

import hashlib
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from authority_world import ENDPOINT, NAME, KeyOwner, admit, make_authority, rule, small_key
from nsmark.errors import InputError
from nsmark_authority.errors import ConflictError, TransparencyError
from nsmark_authority.fields import format_time
from nsmark_authority.service import Authority
from nsmark_authority.stamping import LocalStamper, roots_pem
from nsmark_authority.statements import Dispute, Suspect, Withdrawal
from nsmark_authority.transparency.local_authority import LocalAuthority
from nsmark_authority.transparency.strict_base64 import encode_base64
from nsmark_authority.transparency.timestamp_messages import build_request, extract_token

CONTENT = b"recorded outputs"
RECORDED = Suspect(
    kind="recorded",
    content_sha256=hashlib.sha256(CONTENT).hexdigest(),
    content_bytes=len(CONTENT),
)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def claimant(authority: Authority, owner: KeyOwner) -> KeyOwner:
    """Somebody with an admitted key."""
    admit(authority, owner.file(authority).entry_id)
    return owner


# --- Disputes. ---


def test_a_claim_that_fell_is_not_brought_up_again(
    authority: Authority, claimant: KeyOwner
) -> None:
    rule(authority, authority.open_dispute(claimant.dispute()).entry_id, "fell")

    with pytest.raises(ConflictError, match="fell in an earlier dispute"):
        authority.open_dispute(claimant.dispute(words="again"))


@pytest.mark.parametrize(
    ("outcome", "may"),
    [
        ("not_shown", False),
        ("upheld", False),
        ("not_covered", False),
        ("could_not_measure", True),
        ("preceded", True),  # the earlier claim may fall
    ],
)
def test_the_same_bytes_are_ruled_on_once(
    authority: Authority, claimant: KeyOwner, outcome: str, may: bool
) -> None:
    """Whoever could draw again and again would be right some day."""
    first = authority.open_dispute(claimant.dispute(suspect=RECORDED), io.BytesIO(CONTENT))
    again = claimant.dispute(suspect=RECORDED, words="again")
    with pytest.raises(ConflictError, match="is being ruled on"):
        authority.open_dispute(again, io.BytesIO(CONTENT))
    rule(authority, first.entry_id, outcome)

    if may:
        authority.open_dispute(again, io.BytesIO(CONTENT))
    else:
        with pytest.raises(ConflictError) as caught:
            authority.open_dispute(again, io.BytesIO(CONTENT))
        assert first.entry_id[:16] in caught.value.hint


def test_neither_withdrawing_nor_another_file_of_the_same_signature_helps(
    authority: Authority, claimant: KeyOwner
) -> None:
    for number in range(250):  # more than are looked at in one page
        again = claimant.dispute(suspect=RECORDED, words=f"attempt {number}")
        dispute = authority.open_dispute(again, io.BytesIO(CONTENT)).entry_id
        if number == 249:
            rule(authority, dispute, "not_shown")
        else:
            withdrawal = Withdrawal(
                authority=NAME, public_key=claimant.pem, subject=dispute, reason=""
            )
            authority.withdraw(claimant.sign(withdrawal))
    with pytest.raises(ConflictError, match="or was before"):
        authority.open_dispute(
            claimant.dispute(suspect=RECORDED, words="more"), io.BytesIO(CONTENT)
        )

    admit(authority, claimant.file(authority, 1).entry_id)  # the same claim, sealed once more
    rule(authority, authority.open_dispute(claimant.dispute(1)).entry_id, "fell")
    with pytest.raises(ConflictError, match="fell in an earlier dispute"):
        authority.open_dispute(claimant.dispute(0))


def test_a_suspect_is_not_public_since_tomorrow(authority: Authority, claimant: KeyOwner) -> None:
    tomorrow = format_time(datetime.now(UTC) + timedelta(days=1))
    dispute = Dispute(
        authority=NAME,
        public_key=claimant.pem,
        key_id=small_key().key_id,
        suspect=ENDPOINT,
        released=tomorrow,
        statement="mine",
    )

    with pytest.raises(InputError, match="still to come"):
        authority.open_dispute(claimant.sign(dispute))


def test_an_endpoint_may_be_disputed_again(authority: Authority, claimant: KeyOwner) -> None:
    rule(authority, authority.open_dispute(claimant.dispute()).entry_id, "not_shown")

    assert authority.open_dispute(claimant.dispute(words="it was changed"))


def test_too_many_disputes_at_one_time(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, max_open_disputes=2)
    claimant = KeyOwner()
    claimant.register(authority)
    admit(authority, claimant.file(authority).entry_id)
    first, _ = (authority.open_dispute(claimant.dispute(words=word)) for word in ("one", "two"))

    with pytest.raises(ConflictError, match="2 disputes of yours are open"):
        authority.open_dispute(claimant.dispute(words="three"))

    rule(authority, first.entry_id, "not_shown")
    assert authority.open_dispute(claimant.dispute(words="three"))
    authority.close()


# --- Answers. ---


def test_answers_are_taken_until_somebody_measures(
    authority: Authority, claimant: KeyOwner
) -> None:
    respondent, late = KeyOwner(2), KeyOwner(3)
    for each in (respondent, late):
        each.register(authority)
    dispute = authority.open_dispute(claimant.dispute()).entry_id
    until = authority.registry.dispute(dispute).answer_until
    authority.answer_dispute(respondent.answer(dispute))  # late, but nobody has begun
    job = authority.jobs.claim("worker", ["dispute"])
    assert job is not None

    with pytest.raises(ConflictError, match="is being measured"):
        authority.answer_dispute(late.answer(dispute))

    # It is put back: whoever measures it later hears this answer, too.
    authority.jobs.put_back(job.job_id, "worker", delay_seconds=100, message="")
    authority.answer_dispute(late.answer(dispute))
    assert len(authority.registry.defences(dispute)) == 2
    assert authority.registry.dispute(dispute).answer_until == until


# --- Withdrawals. ---


def test_a_filing_is_not_withdrawn_from_under_its_dispute(
    authority: Authority, claimant: KeyOwner
) -> None:
    filing = authority.registry.filing_of_key(small_key().key_id).entry_id
    dispute = authority.open_dispute(claimant.dispute(suspect=ENDPOINT)).entry_id

    def withdraw(subject: str) -> None:
        authority.withdraw(
            claimant.sign(
                Withdrawal(authority=NAME, public_key=claimant.pem, subject=subject, reason="")
            )
        )

    with pytest.raises(ConflictError, match="is open"):
        withdraw(filing)
    withdraw(dispute)
    withdraw(filing)
    assert authority.registry.filing(filing).state == "withdrawn"


# --- Time stamps from outside. ---


class Outside:
    """A time-stamp authority that the operator believes, and its token of a content."""

    def __init__(self, folder: Path, time: datetime = NOON) -> None:
        self.stamper = LocalStamper(LocalAuthority.create(folder / "outside", lambda: time))
        self.roots = folder / "outside.pem"
        self.roots.write_text(roots_pem(self.stamper.roots))
        self.time = time

    def token(self, content: bytes = CONTENT) -> str:
        digest = hashlib.sha256(content).digest()
        request = build_request(digest)
        return encode_base64(extract_token(self.stamper.authority.answer(request.der)))


def dated(owner: KeyOwner, token: str, proven: str = format_time(NOON)) -> bytes:
    return owner.recorded(CONTENT, token=token, proven=proven)


def test_a_time_stamp_from_outside_dates_a_deposit(tmp_path: Path) -> None:
    outside = Outside(tmp_path)
    authority = make_authority(tmp_path, evidence_roots=outside.roots)
    owner = KeyOwner()
    owner.register(authority)

    receipt = authority.deposit(dated(owner, outside.token()), io.BytesIO(CONTENT))

    found = authority.registry.deposit(receipt.entry_id)
    assert found.proven == "2026-01-31T12:00:00Z" < found.time
    assert authority.rebuild_views() == authority.log.size()
    assert authority.registry.deposit(receipt.entry_id) == found
    authority.close()


def test_a_time_stamp_from_outside_must_hold(tmp_path: Path) -> None:
    (tmp_path / "stranger").mkdir()
    outside, stranger = Outside(tmp_path), Outside(tmp_path / "stranger")
    tomorrow = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    (tmp_path / "fast").mkdir()
    fast = Outside(tmp_path / "fast", tomorrow)
    outside.roots.write_text(outside.roots.read_text() + fast.roots.read_text())
    authority = make_authority(tmp_path, evidence_roots=outside.roots)
    owner = KeyOwner()
    owner.register(authority)

    for document in (
        dated(owner, stranger.token()),
        dated(owner, outside.token(b"something else")),
        dated(owner, outside.token()[:-8]),
        dated(owner, "no token"),
    ):
        with pytest.raises(TransparencyError):
            authority.deposit(document)
    with pytest.raises(InputError, match="says 2026-01-31T12:00:00Z"):
        authority.deposit(dated(owner, outside.token(), "2025-01-31T12:00:00Z"))
    with pytest.raises(InputError, match="still to come"):
        authority.deposit(dated(owner, fast.token(), format_time(tomorrow)))
    assert authority.log.size() == 1
    authority.close()


def test_an_authority_that_believes_nobody_says_so(authority: Authority, owner: KeyOwner) -> None:
    token = encode_base64(b"whatever")

    with pytest.raises(InputError, match="no time stamps but its own"):
        authority.deposit(dated(owner, token))
