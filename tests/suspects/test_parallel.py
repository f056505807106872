"""Many jobs at once: all results, bounded threads, one failure."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.suspects.parallel import in_parallel
from processes import PATIENCE


@settings(deadline=None)
@given(count=st.integers(0, 40), num_threads=st.integers(1, 8))
def test_every_job_is_done_once(count, num_threads):
    jobs = list(range(count))

    done = dict(in_parallel(jobs, lambda job: job * job, num_threads, lambda: None))

    assert done == {job: job * job for job in jobs}


def test_first_job_runs_alone_and_its_failure_ends_all():
    begun = []

    def work(job):
        begun.append(job)
        raise ValueError(job)

    with pytest.raises(ValueError, match="0"):
        list(in_parallel(range(10), work, 4, lambda: None))
    assert begun == [0]


def test_no_more_at_once_than_allowed():
    lock, counts, crowded = threading.Lock(), [0, 0], threading.Event()

    def work(job):
        with lock:
            counts[0] += 1
            counts[1] = max(counts)
        if counts[1] >= 3:
            crowded.set()
        if job:  # the first runs alone
            assert crowded.wait(PATIENCE)
        time.sleep(0.02)  # for one too many
        with lock:
            counts[0] -= 1

    list(in_parallel(range(30), work, 3, lambda: None))

    assert counts == [0, 3]


def test_what_was_under_way_at_a_failure_is_still_had():
    slow_began, told = threading.Event(), threading.Event()

    def work(job):
        if job == "slow":
            slow_began.set()
            assert told.wait(PATIENCE)
        if job == "broken":
            assert slow_began.wait(PATIENCE)
            raise ValueError("broken")
        return job

    outcomes = in_parallel(["first", "slow", "broken", *"never"], work, 2, told.set)

    assert [next(outcomes)[0], next(outcomes)[0]] == ["first", "slow"]
    with pytest.raises(ValueError, match="broken"):
        next(outcomes)
