"""Doing many slow things at once, a bounded number of them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Done(Generic[Job, Result]):
    job: Job
    result: Result


def in_parallel(
    jobs: Sequence[Job],
    work: Callable[[Job], Result],
    num_threads: int,
    on_failure: Callable[[], None],
) -> Iterator[tuple[Job, Result]]:
    """Yield each job with its result, as they come.

    The first job runs alone: what is wrong with all of them is then found, and said, once. When
    a job fails, no other is begun; the results of those under way are still yielded, for they are
    paid for, and then the first failure is raised.

    Threads are daemons: an interrupted program does not wait for the network.

    Args:
        jobs: What to do.
        work: Does one, in any thread.
        num_threads: How many at once.
        on_failure: Called at the first failure, to make those under way end sooner.
    """
    if not jobs:
        return
    yield jobs[0], work(jobs[0])
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs[1:]:
        waiting.put(job)
    # None: a thread has ended.
    outcomes: queue.SimpleQueue[_Done[Job, Result] | BaseException | None] = queue.SimpleQueue()
    stopped = threading.Event()

    def run() -> None:
        try:
            while not stopped.is_set():
                job = waiting.get_nowait()
                outcomes.put(_Done(job, work(job)))
        except queue.Empty:
            pass
        except BaseException as error:
            outcomes.put(error)
        finally:
            outcomes.put(None)

    running = min(num_threads, len(jobs) - 1)
    for _ in range(running):
        threading.Thread(target=run, daemon=True).start()
    failure: BaseException | None = None
    try:
        while running:
            outcome = outcomes.get()
            if outcome is None:
                running -= 1
            elif isinstance(outcome, _Done):
                yield outcome.job, outcome.result
            elif failure is None:
                failure = outcome
                stopped.set()
                on_failure()
    finally:
        stopped.set()
    if failure is not None:
        raise failure
