"""Admissions and disputes from a signed statement to the logged ruling, with a real worker process.

Models are tiny and real: a marked one, strangers as controls, and a key that a thief made from the
marked model after the fact, which nothing but its date tells from an honest one.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the torch extra")
pytest.importorskip("huey", reason="needs the authority extra")

from authority_world import make_authority
from disputing_world import (
    LONG_AGO,
    Party,
    WorkerProcess,
    a_second_later,
    count_entries,
    endpoint_suspect,
    job_of,
    key_after_the_fact,
    now,
    publish_texts,
    said_in,
    uploaded,
    wait_admission,
    wait_ruling,
)
from endpoint_server import EndpointServer
from handmade_keys import make_key, reseal
from nsmark.keyfile import WatermarkKey
from nsmark.models.loading import open_encoder
from nsmark.transforms.outputs import linear_map
from nsmark_authority.errors import ConflictError
from nsmark_authority.fields import format_time
from nsmark_authority.manifest import Manifest
from nsmark_authority.service import Authority
from nsmark_authority.stamping import LocalStamper, roots_pem
from nsmark_authority.transparency.local_authority import LocalAuthority
from nsmark_authority.transparency.strict_base64 import encode_base64
from nsmark_authority.transparency.timestamp_messages import build_request, extract_token
from postgres_server import PostgresServer
from processes import PATIENCE, is_running, wait_for
from tiny_models import build_sentence_transformer

OWNER, THIEF, RESPONDENT = Party(1), Party(2), Party(3)


@dataclass
class Scene:
    """An authority with its worker, and what was filed with it, in this order."""

    authority: Authority
    worker: WorkerProcess
    controls: Path
    root: Path
    marked: Path
    """The marked model."""

    key: WatermarkKey
    """The owner's."""

    stolen_key: WatermarkKey
    """Made from the marked model by the thief."""

    server: EndpointServer
    filings: dict[str, str]
    earlier_deposit: str = ""
    """The marked model, by the respondent: after the owner's key, before the thief's."""

    def start_worker(self) -> None:
        self.worker = start_worker(self.authority, self.root, self.controls, self.server)


def start_worker(
    authority: Authority, root: Path, controls: Path, server: EndpointServer
) -> WorkerProcess:
    port = server.server_address[1]
    return WorkerProcess(
        authority,
        root / "worker.log",
        "--allow",
        f"127.0.0.1:{port}",
        "--answer-days",
        "0",
        controls=(controls,),
    )


@pytest.fixture(scope="module")
def scene(tiny_marked: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Everything is filed, nothing examined: there are no control models yet."""
    root = tmp_path_factory.mktemp("scene")
    controls = root / "controls"
    controls.mkdir()
    authority = make_authority(root, answer_seconds=0)
    publish_texts(authority)
    for party in (OWNER, THIEF, RESPONDENT):
        party.register(authority)
    with EndpointServer() as server:
        worker = start_worker(authority, root, controls, server)
        key, marked = tiny_marked.key, uploaded(tiny_marked.model_folder, root / "marked")
        server.embed = behind_a_linear_map(marked, key)
        filings = {"owner's": OWNER.file_key(authority, key)}
        OWNER.deposit(authority, marked)
        after = key_after_the_fact(marked, OWNER.seed)
        filings["successor"] = OWNER.file_key(authority, after, succeeds=key.key_id)
        deposit = RESPONDENT.deposit(authority, marked)
        stolen_key = key_after_the_fact(marked, THIEF.seed)
        filings["thief's"] = THIEF.file_key(authority, stolen_key)
        forged = reseal(make_key(identity_seed=THIEF.seed), THIEF.seed, pool_digest="5e" * 32)
        filings["forged"] = THIEF.file_key(authority, forged)
        found = Scene(
            authority,
            worker,
            controls,
            root,
            marked,
            key,
            stolen_key,
            server,
            filings,
            deposit,
        )
        yield found
        found.worker.__exit__()
    authority.close()


def behind_a_linear_map(model: Path, key: WatermarkKey) -> Any:
    """What a thief serves: the outputs of a model, each multiplied by one secret matrix."""
    encoder = open_encoder(model, device="cpu")
    sample = encoder.encode(list(key.verification_texts)).astype(np.float64)
    change = linear_map(sample, np.random.default_rng(5))
    return lambda texts: change(encoder.encode(list(texts)))


@pytest.fixture(scope="module")
def waiting(scene: Scene) -> dict[str, str]:
    """What the job of the owner's key said before there were control models."""
    authority = scene.authority
    wait_admission(authority, scene.filings["forged"])
    job = job_of(authority, scene.filings["owner's"])
    state = authority.registry.filing(scene.filings["owner's"]).state
    return {"filing": state, "job": job.state, "message": job.message}


@pytest.fixture(scope="module")
def admitted(scene: Scene, waiting: dict[str, str]) -> Scene:
    """Control models came, the keys are admitted."""
    for seed in range(2):
        built = build_sentence_transformer(scene.root / f"built {seed}", seed=80 + seed)
        shutil.move(built, scene.controls / f"stranger {seed}")
    for name in ("owner's", "successor", "thief's"):
        wait_admission(scene.authority, scene.filings[name])
    return scene


# --- Admission. ---


def test_without_control_models_a_sound_key_waits_and_says_so(waiting: dict[str, str]) -> None:
    assert waiting["filing"] == "waiting"
    assert waiting["job"] == "queued"
    assert "control models" in waiting["message"]


def test_a_forged_key_is_refused_with_a_reason_that_tells_no_secret(
    scene: Scene, waiting: dict[str, str]
) -> None:
    filing = scene.authority.registry.filing(scene.filings["forged"])
    assert filing.state == "refused"
    assert filing.admission is not None
    said = said_in(scene.authority, filing.admission)
    assert "not published here" in said.reasons[0]
    assert said.control_set is None
    assert job_of(scene.authority, filing.entry_id).state == "done"


def test_an_honest_key_is_admitted_when_control_models_appear(admitted: Scene) -> None:
    authority = admitted.authority
    filing = authority.registry.filing(admitted.filings["owner's"])
    assert filing.state in ("admitted", "revealed", "succeeded")
    assert filing.admission is not None
    said = said_in(authority, filing.admission)
    assert said.admitted
    assert said.reasons == ()
    assert "torch" in said.versions
    published = authority.registry.publication(said.control_set)
    assert published.what == "control_set"
    assert b"stranger 1" in authority.publication_content(said.control_set)


def test_the_worker_s_log_has_a_line_for_each_job_and_no_secret(admitted: Scene) -> None:
    wait_for(lambda: "admitted" in admitted.worker.said, "a line")
    said = admitted.worker.said
    for filing in admitted.filings.values():
        assert f"admission {filing[:16]}, attempt 1" in said
    for secret in (admitted.key.trigger, admitted.key.signature.hex(), str(admitted.root)):
        assert secret not in said
    assert "Traceback" not in said


# --- Disputes. ---


def test_a_stolen_model_behind_a_linear_map_and_an_endpoint(admitted: Scene) -> None:
    authority, key_id = admitted.authority, admitted.key.key_id
    released = a_second_later()
    suspect = endpoint_suspect(admitted.server.url, "stolen")
    dispute = OWNER.accuse(authority, key_id, suspect, released)

    ruling = wait_ruling(authority, dispute)

    assert ruling.outcome == "upheld"
    assert ruling.verdict == "owned"
    assert ruling.randomness is not None
    entry = authority.log.entry(dispute).entry
    used = hashlib.sha256(entry + bytes.fromhex(ruling.randomness)).hexdigest()
    assert ruling.evidence["fresh"] == used
    assert ruling.evidence["extraction_rate"] is not None
    report = authority.ruling_report(dispute)
    assert b"<html" in report
    assert used.encode() in report
    assert str(admitted.root).encode() not in report
    job = wait_for(lambda: job_of(authority, dispute).finished and job_of(authority, dispute), "")
    assert (job.state, job.progress, job.message) == ("done", 1.0, "upheld")
    # The trigger is known to the suspect from now on: the successor takes the key's place.
    assert authority.registry.filing_of_key(key_id).state == "succeeded"

    # The thief comes later, with a key that he made from the same model.
    late = THIEF.accuse(authority, admitted.stolen_key.key_id, suspect, a_second_later())
    ruling = wait_ruling(authority, late)
    assert ruling.outcome == "preceded"
    assert ruling.verdict == "owned"
    assert [claim.key_id for claim in ruling.other_claims] == [key_id]


def test_an_innocent_model(admitted: Scene) -> None:
    stranger = build_sentence_transformer(admitted.root / "innocent", seed=99)
    folder = uploaded(stranger, admitted.root / "innocent upload")
    dispute = OWNER.accuse(admitted.authority, admitted.key.key_id, folder, a_second_later())
    ruling = wait_ruling(admitted.authority, dispute)
    assert (ruling.outcome, ruling.verdict) == ("not_shown", "not_shown")
    assert ruling.report_sha256 is not None


def test_what_was_public_before_the_filing_is_not_covered_and_not_even_asked(
    admitted: Scene,
) -> None:
    asked = len(admitted.server.requests)
    suspect = endpoint_suspect(admitted.server.url, "old")
    dispute = OWNER.accuse(admitted.authority, admitted.key.key_id, suspect, LONG_AGO)
    ruling = wait_ruling(admitted.authority, dispute)
    assert (ruling.outcome, ruling.verdict) == ("not_covered", None)
    assert ruling.randomness is None
    # What he said once counts, whatever he says now.
    again = OWNER.accuse(admitted.authority, admitted.key.key_id, suspect, a_second_later())
    ruling = wait_ruling(admitted.authority, again)
    assert (ruling.outcome, ruling.verdict) == ("not_covered", None)
    assert "disputed this suspect 1 times before" in " ".join(ruling.reasons)
    assert f"said {LONG_AGO} before" in " ".join(ruling.reasons)
    assert len(admitted.server.requests) == asked


@contextlib.contextmanager
def time_to_answer(scene: Scene, **others: Any) -> Iterator[Authority]:
    """The authority with a time to answer, which is over when the block ends."""
    patient = make_authority(scene.root, answer_seconds=3600, **others)
    try:
        yield patient
        patient.jobs.make_ready("dispute")
    finally:
        patient.close()


@pytest.mark.slow
def test_what_came_after_the_key_or_never_came_does_not_count(admitted: Scene) -> None:
    empty = uploaded(
        build_sentence_transformer(admitted.root / "never", seed=98), admitted.root / "never sent"
    )
    with time_to_answer(admitted) as authority:
        never_sent = RESPONDENT.deposit(authority, empty, with_content=False)
        suspect = endpoint_suspect(admitted.server.url, "answered-in-vain")
        dispute = OWNER.accuse(authority, admitted.key.key_id, suspect, a_second_later())
        RESPONDENT.answer(authority, dispute, admitted.earlier_deposit)
        RESPONDENT.answer(authority, dispute, never_sent)
        THIEF.answer(authority, dispute, admitted.filings["forged"])
    ruling = wait_ruling(admitted.authority, dispute)
    assert ruling.outcome == "upheld"
    assert ruling.defence is None
    said = " ".join(ruling.reasons)
    assert f"{admitted.earlier_deposit[:12]} came after the key" in said
    assert f"{never_sent[:12]} came after the key" in said
    assert "'refused'" in said


@pytest.mark.slow
def test_of_two_claims_on_one_suspect_the_earlier_filing_prevails(admitted: Scene) -> None:
    suspect = endpoint_suspect(admitted.server.url, "wanted-by-two")
    with time_to_answer(admitted) as authority:
        released = a_second_later()
        late = THIEF.accuse(authority, admitted.stolen_key.key_id, suspect, released)
        early = OWNER.accuse(authority, admitted.key.key_id, suspect, released)
    rulings = {name: wait_ruling(admitted.authority, name) for name in (late, early)}
    assert rulings[late].outcome == "preceded"
    assert rulings[early].outcome == "upheld"
    assert [claim.key_id for claim in rulings[late].other_claims] == [admitted.key.key_id]
    assert [claim.owner for claim in rulings[early].other_claims] == ["Owner 2"]
    assert "filed later" in " ".join(rulings[early].reasons)
    assert "he did not deposit it" in " ".join(rulings[late].reasons)
    assert rulings[late].evidence["earlier_key_verdict"] == "owned"


@pytest.mark.slow
def test_a_key_that_the_respondent_names_is_measured_on_the_suspect(admitted: Scene) -> None:
    with time_to_answer(admitted) as authority:
        suspect = endpoint_suspect(admitted.server.url, "the-owners-own")
        key_id = admitted.stolen_key.key_id
        dispute = THIEF.accuse(authority, key_id, suspect, a_second_later())
        OWNER.answer(authority, dispute, admitted.filings["owner's"])
    ruling = wait_ruling(admitted.authority, dispute)
    assert ruling.outcome == "preceded"
    assert [claim.key_id for claim in ruling.other_claims] == [admitted.key.key_id]


def test_a_claim_falls_by_what_the_respondent_had_before(admitted: Scene) -> None:
    with time_to_answer(admitted) as authority:
        suspect = endpoint_suspect(admitted.server.url, "the-respondents-own")
        key_id = admitted.stolen_key.key_id
        dispute = THIEF.accuse(authority, key_id, suspect, a_second_later())
        RESPONDENT.answer(authority, dispute, None)
        defence = RESPONDENT.answer(authority, dispute, admitted.earlier_deposit)
        assert job_of(authority, dispute).state == "queued"
    ruling = wait_ruling(admitted.authority, dispute)
    assert ruling.outcome == "fell"
    assert ruling.defence == defence
    assert admitted.earlier_deposit[:12] in ruling.reasons[0]
    assert ruling.evidence["exhibit_verdict"] == "owned"
    assert ruling.evidence["exhibit_extraction_rate"] is not None
    # Nor is it brought up again, on this suspect or another.
    with pytest.raises(ConflictError, match="fell in an earlier dispute"):
        THIEF.accuse(admitted.authority, key_id, suspect, now())


# --- Accidents. ---


@dataclass
class Hold:
    """The endpoint does not answer until it is let go."""

    reached: threading.Event
    go_on: threading.Event


@pytest.fixture
def hold(admitted: Scene) -> Iterator[Hold]:
    held = Hold(threading.Event(), threading.Event())

    def wait(handler: Any, payload: Any) -> bool:
        held.reached.set()
        held.go_on.wait(PATIENCE)
        return False

    admitted.server.faults.extend([wait, wait])
    yield held
    held.go_on.set()
    admitted.server.faults.clear()


def work_left(scene: Scene) -> list[str]:
    return [path.name for path in (scene.authority.settings.folder / "work").iterdir()]


@pytest.mark.slow
def test_a_worker_that_is_killed_while_it_measures(admitted: Scene, hold: Hold) -> None:
    authority = admitted.authority
    suspect = endpoint_suspect(admitted.server.url, "killed")
    dispute = OWNER.accuse(authority, admitted.key.key_id, suspect, a_second_later())
    assert hold.reached.wait(PATIENCE)
    wait_for(
        lambda: job_of(authority, dispute).message == "measuring the suspect: control 2 of 2",
        "progress in the job's row",
    )
    assert job_of(authority, dispute).state == "running"
    assert 0 < job_of(authority, dispute).progress < 1
    drawn = (authority.settings.folder / "measuring" / dispute / "randomness").read_bytes()
    family = admitted.worker.descendants()
    assert work_left(admitted)

    admitted.worker.kill()

    wait_for(lambda: not any(is_running(pid) for pid in family), "the end of all children")
    assert authority.registry.dispute(dispute).state == "open"
    hold.go_on.set()
    admitted.start_worker()
    ruling = wait_ruling(authority, dispute)
    assert ruling.outcome == "upheld"
    assert ruling.randomness == drawn.hex()
    wait_for(lambda: job_of(authority, dispute).state == "done", "the job's end")
    assert job_of(authority, dispute).attempts == 2
    mine = [each for each in authority.registry.rulings(limit=200) if each.dispute == dispute]
    assert len(mine) == 1
    assert count_entries(authority, "ruling") == len(authority.registry.rulings(limit=200))
    wait_for(lambda: not work_left(admitted), "unsealed content to be gone")
    assert not (authority.settings.folder / "measuring" / dispute).exists()


@pytest.mark.slow
def test_a_worker_that_is_stopped_puts_its_job_back(admitted: Scene, hold: Hold) -> None:
    authority = admitted.authority
    suspect = endpoint_suspect(admitted.server.url, "stopped")
    dispute = OWNER.accuse(authority, admitted.key.key_id, suspect, a_second_later())
    assert hold.reached.wait(PATIENCE)
    family = admitted.worker.descendants()

    admitted.worker.process.send_signal(signal.SIGTERM)

    assert admitted.worker.process.wait(PATIENCE) == 0
    job = job_of(authority, dispute)
    assert (job.state, job.attempts, job.message) == ("queued", 0, "its worker was stopped")
    wait_for(lambda: not any(is_running(pid) for pid in family), "the end of all children")
    assert work_left(admitted) == []
    hold.go_on.set()
    admitted.start_worker()
    assert wait_ruling(authority, dispute).outcome == "upheld"


@pytest.mark.slow
def test_a_dispute_that_is_withdrawn_while_it_is_measured(admitted: Scene, hold: Hold) -> None:
    authority = admitted.authority
    suspect = endpoint_suspect(admitted.server.url, "withdrawn")
    dispute = OWNER.accuse(authority, admitted.key.key_id, suspect, now())
    assert hold.reached.wait(PATIENCE)
    OWNER.take_back(authority, dispute)
    wait_for(lambda: f"{dispute[:16]}, attempt 1" in admitted.worker.said, "the worker to notice")
    assert authority.registry.dispute(dispute).ruling is None
    assert job_of(authority, dispute).state == "cancelled"
    assert admitted.worker.process.poll() is None


@pytest.mark.slow
def test_what_an_outside_time_stamp_proves_is_older_than_the_key(admitted: Scene) -> None:
    """The respondent has never heard of this authority before, but can prove a day."""
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    outside = LocalStamper(LocalAuthority.create(admitted.root / "outside", lambda: long_ago))
    roots = admitted.root / "outside.pem"
    roots.write_text(roots_pem(outside.roots))
    digest = bytes.fromhex(Manifest.of_folder(admitted.marked).digest)
    token = extract_token(outside.authority.answer(build_request(digest).der))
    newcomer = Party(4)
    with time_to_answer(admitted, evidence_roots=roots) as authority:
        newcomer.register(authority)
        deposit = newcomer.deposit(
            authority, admitted.marked, token=encode_base64(token), proven=format_time(long_ago)
        )
        suspect = endpoint_suspect(admitted.server.url, "older-than-you-think")
        dispute = OWNER.accuse(authority, admitted.key.key_id, suspect, a_second_later())
        defence = newcomer.answer(authority, dispute, deposit, released=LONG_AGO)
    ruling = wait_ruling(admitted.authority, dispute)
    assert (ruling.outcome, ruling.defence) == ("fell", defence)
    assert "2020-01-01 00:00:00 UTC" in ruling.reasons[0]
    assert f"public since {LONG_AGO}, before the key was filed" in ruling.reasons[1]
    assert ruling.evidence["release_contested"] is True


@pytest.mark.slow
def test_the_same_on_postgresql(tiny_marked: Any, postgres: PostgresServer, tmp_path: Path) -> None:
    controls = tuple(
        build_sentence_transformer(tmp_path / f"stranger {seed}", seed=80 + seed)
        for seed in range(2)
    )
    authority = make_authority(tmp_path, postgres.new_database(), answer_seconds=0)
    publish_texts(authority)
    OWNER.register(authority)
    filing = OWNER.file_key(authority, tiny_marked.key)
    log = tmp_path / "worker.log"
    with WorkerProcess(authority, log, "--once", controls=controls) as worker:
        assert worker.process.wait(PATIENCE) == 0
    assert authority.registry.filing(filing).state == "admitted"
    marked = uploaded(tiny_marked.model_folder, tmp_path / "marked")
    dispute = OWNER.accuse(authority, tiny_marked.key.key_id, marked, a_second_later())
    with WorkerProcess(authority, log, "--once", controls=controls) as worker:
        assert worker.process.wait(PATIENCE) == 0
    assert wait_ruling(authority, dispute).outcome == "upheld"
    assert job_of(authority, dispute).state == "done"
    authority.close()
