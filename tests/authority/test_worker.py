"""The worker survives what it works on: children that burn, break down or lie, and dead colleagues.

Children are real processes. What they do here is named in ``burning_tasks``, or is cut short by
limits so narrow that no examination fits in.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

pytest.importorskip("huey", reason="needs the authority extra")

import burning_tasks
from authority_world import KeyOwner, admit, make_authority, small_key
from disputing_world import a_second_later, job_of, said_in
from handmade_keys import make_key
from nsmark.payload import PairConfig
from nsmark_authority.confined_tasks import Examined, Request, without_secrets
from nsmark_authority.confinement import Confinement, EndedError, Progress, Workshop
from nsmark_authority.errors import AuthorityError
from nsmark_authority.examining import suspect_identity
from nsmark_authority.giving_way import NICENESS
from nsmark_authority.queueing import open_queue
from nsmark_authority.service import Authority
from nsmark_authority.statements import Dispute, Suspect
from nsmark_authority.storage.tables import JOBS
from nsmark_authority.workbench import (
    BenchSettings,
    JobWatch,
    LostError,
    StoppedError,
    Workbench,
    find_controls,
    fraction_done,
)
from nsmark_authority.worker import Pace, Worker
from nsmark_authority.worker import _parser as worker_parser
from processes import PATIENCE, descendants_of, is_running, run, running, wait_for

ROOMY = Confinement(seconds=PATIENCE, memory_bytes=1 << 30)
HASTY = Confinement(seconds=0.05, memory_bytes=1 << 30)
CRAMPED = Confinement(seconds=PATIENCE, memory_bytes=1 << 20)


# --- Children. ---


def test_a_child_works_on_what_it_is_given_and_knows_nothing_else() -> None:
    ticks: list[Progress | None] = []
    found = Workshop(ROOMY, ()).run(
        burning_tasks.sum_up, {"numbers": [1, 2]}, [b"abc", bytes(2 << 20)], on_tick=ticks.append
    )
    assert found["sum"] == 3
    assert found["bytes"] == [3, 2 << 20]
    assert found["pid"] != os.getpid()
    # Whoever takes a child over finds no keys of the authority's in its memory.
    assert "nsmark_authority.service" not in found["modules"]
    assert Progress("adding", 1, 2) in ticks


@pytest.mark.parametrize(
    ("task", "limits", "said"),
    [
        (
            burning_tasks.burn_memory,
            Confinement(seconds=PATIENCE, memory_bytes=200 << 20),
            "more than 209,715,200 bytes",
        ),
        (burning_tasks.burn_time, Confinement(seconds=0.5), "longer than 0.5 s"),
        (burning_tasks.stop_halfway, Confinement(seconds=1.0), "longer than 1 s"),
        (burning_tasks.crash, ROOMY, "signal 6"),
        (burning_tasks.talk_nonsense, ROOMY, "nonsense"),
    ],
)
def test_children_that_burn_break_down_or_lie_are_ended(
    task: Any, limits: Confinement, said: str
) -> None:
    with pytest.raises(EndedError, match=said):
        Workshop(limits, ()).run(task, {})


def test_a_child_that_breaks_down_once_is_forgiven(tmp_path: Path) -> None:
    found = Workshop(ROOMY, ()).run(burning_tasks.crash_once, {"path": str(tmp_path / "mark")})
    assert found == {"attempts": 2}


def test_what_a_failure_says_is_not_repeated() -> None:
    with pytest.raises(EndedError) as caught:
        Workshop(ROOMY, ()).run(burning_tasks.fail, {})
    assert str(caught.value) == "it failed (RuntimeError)"


def test_the_authority_s_own_trouble_is_told_as_such() -> None:
    with pytest.raises(AuthorityError, match="a control cannot be opened"):
        Workshop(ROOMY, ()).run(burning_tasks.have_trouble, {})


def test_a_child_ends_when_its_watcher_raises() -> None:
    pids: set[int] = set()

    def on_tick(progress: Progress | None) -> None:
        if progress is not None:
            pids.update(_children())
            raise StoppedError

    with pytest.raises(EndedError):
        Workshop(ROOMY, ()).run(burning_tasks.fail, {})  # now the server that forks is there
    before = _children()
    with pytest.raises(StoppedError):
        Workshop(ROOMY, ()).run(burning_tasks.burn_time, {}, on_tick=on_tick)
    assert pids - before
    assert not any(is_running(pid) for pid in pids - before)


def _children() -> set[int]:
    return set(descendants_of(os.getpid()))


# --- The worker and its jobs. ---


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Authority]:
    opened = make_authority(tmp_path, answer_seconds=3600, job_stale_seconds=1, max_job_attempts=1)
    yield opened
    opened.close()


def make_worker(
    authority: Authority, limits: Confinement = ROOMY, controls: tuple[Path, ...] = ()
) -> Worker:
    settings = BenchSettings(controls=controls, with_kin=False, device="cpu")
    bench = Workbench(authority, Workshop(limits, ()), settings)
    return Worker(bench, open_queue(authority.settings), pace=Pace(sweep_seconds=0))


def accuse(authority: Authority, owner: KeyOwner) -> str:
    """Open a dispute that is covered: released after the filing, before the dispute."""
    dispute = Dispute(
        authority=owner.authority,
        public_key=owner.pem,
        key_id=small_key(0, owner.seed).key_id,
        suspect=Suspect(
            kind="endpoint", interface="embeddings", url="http://10.0.0.1/v1", model="m"
        ),
        released=a_second_later(),
        statement="ours",
    )
    return authority.open_dispute(owner.sign(dispute)).entry_id


@pytest.mark.parametrize("limits", [HASTY, CRAMPED])
def test_an_examination_that_takes_too_much_fails_and_the_worker_goes_on(
    authority: Authority, owner: KeyOwner, limits: Confinement
) -> None:
    filings = [owner.file(authority, number).entry_id for number in range(2)]
    assert make_worker(authority, limits).run(once=True) == 2
    for filing in filings:
        job = job_of(authority, filing)
        assert job.state == "failed"
        assert job.message.startswith("the work was ended: it took ")
        # Nobody knows whether the key is sound: it is not refused for ever.
        assert authority.registry.filing(filing).state == "waiting"


def two_folders(root: Path) -> tuple[Path, ...]:
    """Enough to begin with; nobody gets so far as to open them."""
    for name in ("one", "two"):
        (root / name).mkdir()
        (root / name / "config.json").write_text("{}")
        save_file({"x": np.ones(2, np.float32)}, root / name / "model.safetensors")
    return find_two(root)


def find_two(root: Path) -> tuple[Path, ...]:
    return (root / "one", root / "two")


@pytest.mark.parametrize("limits", [HASTY, CRAMPED])
def test_a_measurement_that_takes_too_much_could_not_be_made(
    authority: Authority, owner: KeyOwner, limits: Confinement, tmp_path: Path
) -> None:
    admit(authority, owner.file(authority).entry_id)
    dispute = accuse(authority, owner)
    worker = make_worker(authority, limits, two_folders(tmp_path))
    worker.run(once=True)
    found = authority.registry.dispute(dispute)
    assert found.outcome == "could_not_measure"
    assert found.ruling is not None
    ruling = said_in(authority, found.ruling)
    assert "the measurement was ended: it took" in " ".join(ruling.reasons)
    assert job_of(authority, dispute).message == "could_not_measure"
    assert list((authority.settings.folder / "work").iterdir()) == []
    worker.restore_jobs()
    assert worker.run(once=True) == 0


def test_a_broken_control_model_is_the_operator_s_trouble(
    authority: Authority, owner: KeyOwner, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "models" / "broken"
    broken.mkdir(parents=True)
    (broken / "config.json").write_text("{}")
    filing = owner.file(authority).entry_id
    with caplog.at_level(logging.INFO, "nsmark_authority.worker"):
        make_worker(authority, controls=(tmp_path / "models",)).run(once=True)
    job = job_of(authority, filing)
    assert (job.state, job.attempts) == ("queued", 0)
    assert "tries again" in job.message
    assert str(tmp_path) not in job.message
    assert "broken" in caplog.text


def test_without_control_models_a_dispute_waits(authority: Authority, owner: KeyOwner) -> None:
    admit(authority, owner.file(authority).entry_id)
    dispute = accuse(authority, owner)
    make_worker(authority).run(once=True)
    job = job_of(authority, dispute)
    assert (job.state, job.attempts) == ("queued", 0)
    assert "too few control models" in job.message
    assert authority.registry.dispute(dispute).state == "open"


def test_a_fault_of_ours_is_tried_again_and_says_where_it_is(
    patient: Authority, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = KeyOwner(1)
    owner.register(patient)
    filing = owner.file(patient).entry_id
    worker = make_worker(patient)

    def broken() -> None:
        raise KeyError("the secret trigger word")

    monkeypatch.setattr(worker.bench, "control_set", broken)
    with caplog.at_level(logging.INFO, "nsmark_authority.worker"):
        worker.run(once=True)
    assert "failed: KeyError at test_worker.py:" in caplog.text
    assert "secret" not in caplog.text
    assert job_of(patient, filing).state == "running"  # until it is missed

    def given_up() -> bool:
        worker.sweep()
        return job_of(patient, filing).message == "given up after 1 attempts"

    wait_for(given_up, "the job to be missed")


def test_work_goes_on_while_the_database_is_away(
    patient: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient.jobs.queue("admission", "ab" * 32)
    job = patient.jobs.claim("me")
    assert job is not None
    watch = JobWatch(patient.jobs, job, "me", threading.Event(), beat_seconds=0)

    def away(*arguments: object) -> bool:
        raise AuthorityError("the database did not do its work", "see whether it runs")

    with monkeypatch.context() as patched:
        patched.setattr(patient.jobs, "heartbeat", away)
        watch.beat(0.1, "first")
    watch.beat(0.2, "second")
    assert patient.jobs.get(job.job_id).progress == 0.2


def test_lies_of_a_child_are_not_believed(authority: Authority) -> None:
    bench = make_worker(authority).bench
    request = Request(controls=(), with_kin=False, device="cpu", published=())
    with pytest.raises(EndedError, match="nonsense"):
        bench.run(burning_tasks.answer_strangely, request, [], lambda progress: None, Examined)


def test_a_dispute_that_no_worker_survives_is_ruled_all_the_same(patient: Authority) -> None:
    owner = KeyOwner(1)
    owner.register(patient)
    admit(patient, owner.file(patient).entry_id)
    patient.jobs.claim("somebody")  # the admission's job, which is done by hand here
    dispute = accuse(patient, owner)
    worker = make_worker(patient)
    worker.run(once=True)
    assert patient.registry.dispute(dispute).state == "open"  # there is time to answer
    patient.jobs.make_ready("dispute")
    assert patient.jobs.claim("killed", ["dispute"]) is not None

    def ruling() -> str | None:
        worker.sweep()
        return patient.registry.dispute(dispute).ruling

    wait_for(ruling, "the job to be missed")
    ruled = patient.registry.dispute(dispute)
    assert ruled.outcome == "could_not_measure"
    assert ruled.ruling is not None
    assert "given up after 1 attempts" in said_in(patient, ruled.ruling).reasons[0]
    worker.sweep()
    assert len(patient.registry.rulings()) == 1


def test_what_somebody_measures_is_not_measured_by_another(
    authority: Authority, owner: KeyOwner, tmp_path: Path
) -> None:
    admit(authority, owner.file(authority).entry_id)
    dispute = accuse(authority, owner)
    folder = authority.settings.folder / "measuring" / dispute
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make_worker(authority, HASTY, two_folders(tmp_path)).run(once=True)
        assert job_of(authority, dispute).message == "another worker is measuring it"
    authority.jobs.make_ready("dispute")
    make_worker(authority, HASTY, find_two(tmp_path)).run(once=True)
    assert authority.registry.dispute(dispute).state == "ruled"
    assert not folder.exists()


def test_a_child_ends_when_its_worker_is_killed(tmp_path: Path) -> None:
    code = (
        "import burning_tasks\n"
        "from nsmark_authority.confinement import Confinement, Workshop\n"
        "if __name__ == '__main__':\n"
        "    Workshop(Confinement(seconds=3600), ()).run(burning_tasks.burn_quietly, {})\n"
    )
    (tmp_path / "worker_program.py").write_text(code)
    tests = str(Path(burning_tasks.__file__).parent)
    program = [sys.executable, str(tmp_path / "worker_program.py")]
    with running(program, env={**os.environ, "PYTHONPATH": tests}) as worker:
        mark = wait_for(lambda: burning_marks(worker.pid), "the child to begin")
        worker.kill()
        worker.wait()
        wait_for(lambda: not any(is_running(pid) for pid in mark), "the end of it")


def burning_marks(pid: int) -> list[int]:
    """Process ids of the fork server and its child, once there is one."""
    servers = [child for child in descendants_of(pid) if descendants_of(child)]
    return [*servers, *descendants_of(servers[0])] if servers else []


def test_what_has_no_job_gets_one(patient: Authority) -> None:
    owner = KeyOwner(1)
    owner.register(patient)
    admit(patient, owner.file(patient).entry_id)
    waiting = owner.file(patient, 1).entry_id
    dispute = accuse(patient, owner)
    until = patient.registry.dispute(dispute).answer_until
    with patient.database.write() as connection:
        connection.execute(JOBS.delete())
    make_worker(patient).restore_jobs()
    assert job_of(patient, waiting).kind == "admission"
    assert until is not None
    assert abs(_seconds(job_of(patient, dispute).ready) - _seconds(until)) <= 60
    assert len(patient.jobs.newest()) == 2


def _seconds(time_said: str) -> float:
    from nsmark_authority.fields import parse_time

    return parse_time(time_said).timestamp()


def test_a_job_that_is_taken_away_or_stopped_ends_the_work(patient: Authority) -> None:
    job_id = patient.jobs.queue("admission", "ab" * 32).job_id
    job = patient.jobs.claim("me")
    assert job is not None
    stop = threading.Event()
    watch = JobWatch(patient.jobs, job, "me", stop, beat_seconds=0)
    watch.between(0.5, 1.0, "measuring x")(Progress("suspect", 1, 2))
    told = patient.jobs.get(job_id)
    assert (told.progress, told.message) == (0.95, "measuring x: suspect")
    with patient.database.write() as connection:
        patient.jobs.cancel_in(connection, "admission", "ab" * 32)
    with pytest.raises(LostError):
        watch.beat(0.9, "more")
    stop.set()
    with pytest.raises(StoppedError):
        watch.beat(0.9, "more")


def test_progress_never_goes_back() -> None:
    stages = [Progress("control 1 of 2", 0, 9), Progress("control 1 of 2", 9, 9)]
    stages += [
        Progress("control 2 of 2", 3, 9),
        Progress("suspect", 0, 5),
        Progress("suspect", 5, 5),
    ]
    found = [fraction_done(stage) for stage in stages]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0.0, 1.0)
    for strange in (
        Progress("control 9 of 0", 5, 0),
        Progress("suspect", -7, 3),
        Progress("", 9, 1),
    ):
        assert 0.0 <= fraction_done(strange) <= 1.0


# --- Folders. ---


def test_unsealed_content_is_private_and_does_not_outlive_its_worker(authority: Authority) -> None:
    bench = make_worker(authority).bench
    work = authority.settings.folder / "work"
    with bench.work_folder() as folder:
        (folder / "secret").write_bytes(b"x")
        assert folder.stat().st_mode & 0o777 == 0o700
        assert work.stat().st_mode & 0o777 == 0o700
        assert bench.remove_abandoned() == 0
        assert (folder / "secret").exists()
    assert list(work.iterdir()) == []
    abandoned = work / "0123"
    abandoned.mkdir()
    (abandoned / "secret").write_bytes(b"x")
    assert bench.remove_abandoned() == 1
    assert list(work.iterdir()) == []


def test_control_models_are_found_by_names_without_paths(tmp_path: Path) -> None:
    for name in ("many/b", "many/a", "one", "other/one", "empty/none"):
        (tmp_path / name).mkdir(parents=True)
        if "empty" not in name:
            (tmp_path / name / "config.json").write_text("{}")
    paths = [tmp_path / name for name in ("many", "one", "other", "empty", "missing")]
    assert list(find_controls(paths)) == ["a", "b", "one", "one (2)"]


# --- Secrets. ---


def test_reasons_are_public_and_repeat_nothing_of_the_key() -> None:
    key = make_key(pairs=PairConfig(size=12, repeats=2))
    assert key.pairs is not None
    secrets = [key.trigger, key.verification_texts[3], key.pairs.texts[0], key.signature.hex()]
    secrets += key.trigger.upper().split()
    told = without_secrets([f"it says {secret!r}, which is odd" for secret in secrets], key)
    for secret, reason in zip(secrets, told, strict=True):
        assert secret not in reason
        assert reason.startswith("it says ")
    plain = "the key has 3 texts, 32 are needed"
    assert without_secrets([plain], key) == [plain]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://a.example/v1", "https://A.example:80/v1/", False),
        ("http://a.example/v1", "http://A.EXAMPLE:80/v1/", True),
        ("http://a.example/v1", "https://a.example:443/v1", True),
        ("http://a.example/v1", "http://a.example/v2", False),
        ("http://a.example:bad/v1", "http://a.example:bad/v1", True),
    ],
)
def test_when_two_disputes_are_about_one_suspect(one: str, other: str, same: bool) -> None:
    first, second = (
        suspect_identity(Suspect(kind="endpoint", interface=how, url=url, model="m"))
        for how, url in (("embeddings", one), ("completions", other))
    )
    assert (first == second) == same


# --- As a program. ---


def worker_program(*arguments: str) -> list[str]:
    # What gives way to everybody may never be done on a busy machine.
    return [sys.executable, "-m", "nsmark_authority.worker", "--niceness", "1", *arguments]


def test_a_worker_ends_with_the_process_that_it_follows(tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "a"
    with running(["sleep", "3600"]) as parent, log.open("wb") as stderr:
        program = worker_program("--folder", str(folder), "--parent", str(parent.pid))
        with running(program, stderr=stderr) as worker:
            wait_for(lambda: "works for" in log.read_text(), "the worker to begin")
            assert os.getpriority(os.PRIO_PROCESS, worker.pid) == os.nice(0) + 1
            assert worker.poll() is None
            parent.kill()
            parent.wait()
            assert worker.wait() == 0, log.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--folder", "b", "--allow", "nonsense"), "host:port"),
        (("--folder", "c", "--queue", "amqp://u:secret@h"), "redis://"),
        (("--folder", "d", "--timestamp-url", "http://a"), "timestamp_roots"),
        (("--folder", "file"), "cannot"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    (tmp_path / "file").write_text("")
    done = run(worker_program(*arguments, "--once"), cwd=tmp_path)
    assert done.returncode not in (0, 1)
    assert words in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr


def test_a_worker_takes_only_what_nobody_else_wants_unless_told_otherwise() -> None:
    assert worker_parser().parse_args(["--folder", "a"]).niceness == NICENESS
