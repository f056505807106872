from __future__ import annotations

import threading

import pytest

from nsmark.verification.side_by_side import num_cores, run_all, run_both
from processes import PATIENCE


def cores_are(monkeypatch, count):
    monkeypatch.setattr("nsmark.verification.side_by_side.num_cores", lambda: count)


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_both_results_come_in_order_whatever_the_cores(monkeypatch, cores):
    cores_are(monkeypatch, cores)
    assert run_both(lambda: "first", lambda: 2) == ("first", 2)


def test_with_few_cores_they_run_side_by_side(monkeypatch):
    cores_are(monkeypatch, 2)
    meeting = threading.Barrier(2, timeout=PATIENCE)  # neither comes through alone
    assert sorted(run_both(meeting.wait, meeting.wait)) == [0, 1]


@pytest.mark.parametrize("failing", [0, 1])
def test_errors_come_through(monkeypatch, failing):
    cores_are(monkeypatch, 2)

    def fail() -> None:
        raise ValueError("no")

    tasks = [lambda: None, lambda: None]
    tasks[failing] = fail
    with pytest.raises(ValueError, match="no"):
        run_both(*tasks)


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_many_results_come_in_order(monkeypatch, cores):
    cores_are(monkeypatch, cores)
    assert run_all([lambda n=n: n * n for n in range(9)]) == [n * n for n in range(9)]
    assert run_all([]) == []


def test_as_many_as_there_are_cores_run_at_a_time(monkeypatch):
    cores_are(monkeypatch, 3)
    meeting = threading.Barrier(3, timeout=PATIENCE)
    assert sorted(run_all([meeting.wait] * 6)) == [0, 0, 1, 1, 2, 2]


def test_an_error_among_many_comes_through(monkeypatch):
    cores_are(monkeypatch, 2)
    with pytest.raises(ZeroDivisionError):
        run_all([lambda: 1, lambda: 1 // 0, lambda: 2])


def test_this_machine_has_a_core():
    assert num_cores() >= 1
