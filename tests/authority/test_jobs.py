"""Jobs: one worker each, nothing lost when a worker dies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from authority_world import StoppedClock
from nsmark_authority.errors import ConflictError, NotFoundError
from nsmark_authority.jobs import Jobs
from nsmark_authority.service import Authority

A, B = "aa" * 32, "bb" * 32


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def jobs(any_authority: Authority, clock: StoppedClock) -> Jobs:
    return Jobs(any_authority.database, stale_seconds=60, max_attempts=2, clock=clock)


def test_a_job_s_life(jobs: Jobs, clock: StoppedClock) -> None:
    queued = jobs.queue("admission", A)
    assert (queued.state, queued.attempts, queued.progress) == ("queued", 0, 0.0)
    assert jobs.queue("admission", A) == queued  # once for each subject

    taken = jobs.claim("worker 1")
    assert taken is not None
    assert (taken.job_id, taken.state, taken.worker, taken.attempts) == (
        queued.job_id,
        "running",
        "worker 1",
        1,
    )
    assert jobs.claim("worker 2") is None
    clock.pass_seconds(5)
    assert jobs.heartbeat(taken.job_id, "worker 1", 0.5, "half of it")
    found = jobs.get(taken.job_id)
    assert (found.progress, found.message, found.heartbeat) == (
        0.5,
        "half of it",
        "2026-01-31T12:00:05Z",
    )
    done = jobs.finish(taken.job_id, "worker 1", message="admitted")
    assert (done.state, done.progress, done.message) == ("done", 1.0, "admitted")
    assert done.finished == "2026-01-31T12:00:05Z"
    assert jobs.queue("admission", A) == done  # what is done is not done again
    assert not jobs.heartbeat(taken.job_id, "worker 1", 0.9)
    with pytest.raises(ConflictError):
        jobs.finish(taken.job_id, "worker 1")
    with pytest.raises(NotFoundError):
        jobs.get("0" * 32)


def test_the_oldest_ready_one_comes_first(jobs: Jobs, clock: StoppedClock) -> None:
    jobs.queue("dispute", A, delay_seconds=100)
    second = jobs.queue("dispute", B)

    assert jobs.claim("w", ["admission"]) is None
    taken = jobs.claim("w", ["dispute"])
    assert taken is not None
    assert taken.job_id == second.job_id
    assert jobs.claim("w") is None
    later = jobs.of_subject(A)[0]
    assert jobs.claim_one(later.job_id, "w") is None
    clock.pass_seconds(100)
    assert jobs.claim_one(later.job_id, "w") is not None
    assert jobs.claim_one(later.job_id, "w") is None
    assert jobs.claim_one("0" * 32, "w") is None


def test_what_a_dead_worker_left_is_queued_again_then_given_up(
    jobs: Jobs, clock: StoppedClock
) -> None:
    job_id = jobs.queue("admission", A).job_id
    jobs.claim("dead")
    clock.pass_seconds(59)
    assert jobs.requeue_stale() == []
    clock.pass_seconds(1)
    assert [job.state for job in jobs.requeue_stale()] == ["queued"]

    again = jobs.claim("alive")
    assert again is not None
    assert again.attempts == 2
    assert not jobs.heartbeat(job_id, "dead", 0.9)  # it was only slow, and must stop
    with pytest.raises(ConflictError):
        jobs.finish(job_id, "dead")
    clock.pass_seconds(60)
    assert [job.state for job in jobs.requeue_stale()] == ["failed"]
    assert jobs.get(job_id).message == "given up after 2 attempts"
    assert jobs.queue("admission", A).state == "queued"  # somebody asks for it anew


def test_failures_and_waiting(jobs: Jobs, clock: StoppedClock) -> None:
    job_id = jobs.queue("admission", A).job_id
    jobs.claim("w")
    waiting = jobs.put_back(job_id, "w", delay_seconds=30, message="no control models yet")
    assert (waiting.state, waiting.attempts, waiting.worker) == ("queued", 0, None)
    assert jobs.claim("w") is None
    with pytest.raises(ConflictError):
        jobs.put_back(job_id, "w", delay_seconds=30, message="")
    clock.pass_seconds(30)
    jobs.claim("w")
    jobs.heartbeat(job_id, "w", 7.0, "x" * 5000)
    assert jobs.get(job_id).progress == 1.0
    assert len(jobs.get(job_id).message) == 1000
    failed = jobs.finish(job_id, "w", error="the model cannot be opened")
    assert (failed.state, failed.message) == ("failed", "the model cannot be opened")
    assert [job.job_id for job in jobs.newest("failed")] == [job_id]
    assert jobs.newest("queued") == []


def test_no_job_is_given_to_two_workers(jobs: Jobs) -> None:
    for number in range(12):
        jobs.queue("admission", f"{number:064x}")

    def work(worker: int) -> list[str]:
        taken = []
        while (job := jobs.claim(f"worker {worker}")) is not None:
            taken.append(job.job_id)
        return taken

    with ThreadPoolExecutor(4) as pool:
        taken = [job for found in pool.map(work, range(4)) for job in found]

    assert len(taken) == len(set(taken)) == 12


def test_owners_take_turns(jobs: Jobs, clock: StoppedClock) -> None:
    """One who files a thousand keys does not keep another waiting for all of them."""
    greedy, modest = "aa" * 32, "bb" * 32
    for number in range(20):
        jobs.queue("admission", f"{number:064x}", owner=greedy)
    jobs.queue("dispute", f"{100:064x}", owner=modest)
    jobs.queue("admission", f"{101:064x}", owner=modest)
    taken = []
    while (job := jobs.claim("w")) is not None:
        taken.append(int(job.subject, 16))
        jobs.finish(job.job_id, "w")
        clock.pass_seconds(1)

    assert taken[:5] == [0, 100, 1, 101, 2]
    assert sorted(taken) == [*range(20), 100, 101]


def test_trouble_is_tried_again_after_longer_and_longer_times(
    jobs: Jobs, clock: StoppedClock
) -> None:
    job_id = jobs.queue("dispute", A).job_id
    waited = []
    for _ in range(12):
        assert jobs.claim("w") is not None
        jobs.put_back(job_id, "w", delay_seconds=60, message="", is_trouble=True)
        seconds = 0
        while jobs.claim_one(job_id, "w") is None:
            clock.pass_seconds(60)
            seconds += 60
        waited.append(seconds)
        jobs.put_back(job_id, "w", delay_seconds=0, message="", is_trouble=True)

    assert waited[0] == 60
    assert waited == sorted(waited)
    assert waited[-1] == 6 * 3600
    assert jobs.get(job_id).troubles == 24
    jobs.claim("w")
    assert jobs.put_back(job_id, "w", delay_seconds=0, message="").troubles == 0
