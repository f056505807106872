from __future__ import annotations

import threading

import pytest

from nsmark.verification.two_threads import both


@pytest.mark.parametrize("cores", [None, 1, 2, 64])
def test_both_results_come_in_order_whatever_the_cores(monkeypatch, cores):
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert both(lambda: "first", lambda: 2) == ("first", 2)


def test_with_few_cores_they_run_side_by_side(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    meeting = threading.Barrier(2, timeout=20)  # neither comes through alone
    assert sorted(both(meeting.wait, meeting.wait)) == [0, 1]


@pytest.mark.parametrize("failing", [0, 1])
def test_errors_come_through(monkeypatch, failing):
    monkeypatch.setattr("os.cpu_count", lambda: 2)

    def fail() -> None:
        raise ValueError("no")

    tasks = [lambda: None, lambda: None]
    tasks[failing] = fail
    with pytest.raises(ValueError, match="no"):
        both(*tasks)
