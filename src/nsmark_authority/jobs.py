"""Work in the background: rows that outlive the worker who holds them."""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from nsmark_authority.errors import ConflictError, NotFoundError
from nsmark_authority.fields import format_time
from nsmark_authority.records import Job, JobKind, JobState
from nsmark_authority.storage.database import Database
from nsmark_authority.storage.tables import JOBS

MAX_MESSAGE_CHARACTERS = 1000
MAX_ROWS = 200
MAX_DELAY_SECONDS = 6 * 3600
_JOB_ID_BYTES = 16
_MAX_WORKER_CHARACTERS = 128


def utc_now() -> datetime.datetime:
    """Return the time now."""
    return datetime.datetime.now(datetime.UTC)


class Jobs:
    """The list of jobs; the row is the truth, whatever a queue says.

    A job is ``queued``, then ``running`` in the hands of one worker, then ``done`` or ``failed``.
    One whose worker is not heard of any more is queued again.
    """

    def __init__(
        self,
        database: Database,
        *,
        stale_seconds: int,
        max_attempts: int,
        clock: Callable[[], datetime.datetime] = utc_now,
    ) -> None:
        self._database = database
        self._stale_seconds = stale_seconds
        self._max_attempts = max_attempts
        self._clock = clock

    def queue(
        self, kind: JobKind, subject: str, *, owner: str | None = None, delay_seconds: int = 0
    ) -> Job:
        """Queue a job, once for each kind and subject; a failed or cancelled one is queued again.

        Args:
            kind: What is to be done.
            subject: Entry id of the filing or dispute.
            owner: Whose it is (fingerprint): owners take turns.
            delay_seconds: Not to be begun before.
        """
        with self._database.write() as connection:
            return self.queue_in(
                connection, kind, subject, owner=owner, delay_seconds=delay_seconds
            )

    def queue_in(
        self,
        connection: Connection,
        kind: JobKind,
        subject: str,
        *,
        owner: str | None = None,
        delay_seconds: int = 0,
    ) -> Job:
        """Do as :meth:`queue`, in the caller's transaction."""
        now = self._clock()
        ready = format_time(now + datetime.timedelta(seconds=delay_seconds))
        query = select(JOBS).where(JOBS.c.kind == kind, JOBS.c.subject == subject)
        row = connection.execute(query).one_or_none()
        if row is None:
            number = connection.execute(select(func.max(JOBS.c.number))).scalar_one() or 0
            job_id = secrets.token_hex(_JOB_ID_BYTES)
            fresh = {
                "job_id": job_id,
                "number": number + 1,
                "kind": kind,
                "subject": subject,
                "state": "queued",
                "progress": 0.0,
                "message": "",
                "attempts": 0,
                "ready": ready,
                "not_before": ready,
                "owner": owner,
                "created": format_time(now),
            }
            connection.execute(insert(JOBS), fresh)
            return _find(connection, job_id)
        if row.state in ("failed", "cancelled"):
            _update(
                connection,
                row.job_id,
                state="queued",
                progress=0.0,
                attempts=0,
                troubles=0,
                owner=owner if row.owner is None else row.owner,
                ready=ready,
                message="",
                worker=None,
                finished=None,
            )
        return _find(connection, row.job_id)

    def cancel_in(self, connection: Connection, kind: JobKind, subject: str) -> None:
        """Cancel what is not finished, in the caller's transaction."""
        connection.execute(
            update(JOBS)
            .where(
                JOBS.c.kind == kind,
                JOBS.c.subject == subject,
                JOBS.c.state.in_(("queued", "running")),
            )
            .values(state="cancelled", finished=format_time(self._clock()))
        )

    def claim(self, worker: str, kinds: Sequence[JobKind] = ("admission", "dispute")) -> Job | None:
        """Take a job that is ready, if there is one; no other worker will get it.

        Owners take turns, so that one who files a thousand keys does not keep the others waiting;
        of one owner's jobs the oldest comes first.
        """
        with self._database.read() as connection:  # most of the time there is none
            if self._next(connection, kinds) is None:
                return None
        with self._database.write() as connection:
            row = self._next(connection, kinds)
            return None if row is None else self._start(connection, row, worker)

    def claim_one(self, job_id: str, worker: str) -> Job | None:
        """Take this very job, if it is queued and ready."""
        with self._database.write() as connection:
            query = select(JOBS).where(JOBS.c.job_id == job_id)
            row = connection.execute(query).one_or_none()
            is_ready = row is not None and row.ready <= format_time(self._clock())
            if row is None or row.state != "queued" or not is_ready:
                return None
            return self._start(connection, row, worker)

    def heartbeat(self, job_id: str, worker: str, progress: float, message: str = "") -> bool:
        """Say that a job is still being worked on; return False if it is the worker's no more.

        A worker that hears False must stop: the job was cancelled, or given to another.
        """
        with self._database.write() as connection:
            if not _is_held(connection, job_id, worker):
                return False
            _update(
                connection,
                job_id,
                progress=min(1.0, max(0.0, progress)),
                message=message[:MAX_MESSAGE_CHARACTERS],
                heartbeat=format_time(self._clock()),
            )
            return True

    def finish(
        self, job_id: str, worker: str, *, error: str | None = None, message: str = ""
    ) -> Job:
        """Say that a job is done, or that it failed for good.

        Args:
            job_id: Which.
            worker: Who held it.
            error: Why it failed, in a sentence without secrets; None if it is done.
            message: What came of it.

        Raises:
            ConflictError: The job is not this worker's any more.
        """
        with self._database.write() as connection:
            _require_held(connection, job_id, worker)
            _update(
                connection,
                job_id,
                state="done" if error is None else "failed",
                progress=1.0 if error is None else _find(connection, job_id).progress,
                message=(message if error is None else error)[:MAX_MESSAGE_CHARACTERS],
                finished=format_time(self._clock()),
            )
            return _find(connection, job_id)

    def put_back(
        self,
        job_id: str,
        worker: str,
        *,
        delay_seconds: int,
        message: str,
        is_trouble: bool = False,
    ) -> Job:
        """Give a job back to be tried later, such as when something it needs is not there yet.

        Args:
            job_id: Which.
            worker: Who held it.
            delay_seconds: When it is tried again.
            message: Why.
            is_trouble: Counted; the delay doubles each time, up to six hours.

        Raises:
            ConflictError: The job is not this worker's any more.
        """
        with self._database.write() as connection:
            _require_held(connection, job_id, worker)
            job = _find(connection, job_id)
            troubles = job.troubles + 1 if is_trouble else 0
            if is_trouble:
                delay_seconds = min(MAX_DELAY_SECONDS, delay_seconds << min(job.troubles, 16))
            ready = self._clock() + datetime.timedelta(seconds=delay_seconds)
            attempts = max(0, job.attempts - 1)
            _update(
                connection,
                job_id,
                state="queued",
                worker=None,
                progress=0.0,
                attempts=attempts,
                troubles=troubles,
                message=message[:MAX_MESSAGE_CHARACTERS],
                ready=format_time(ready),
            )
            return _find(connection, job_id)

    def make_ready(self, kind: JobKind) -> int:
        """Let queued jobs be begun now, because what they waited for is there; return how many."""
        now = format_time(self._clock())
        late = (JOBS.c.kind == kind) & (JOBS.c.state == "queued") & (JOBS.c.ready > now)
        with self._database.write() as connection:
            return connection.execute(update(JOBS).where(late).values(ready=now)).rowcount

    def requeue_stale(self, stale_seconds: int | None = None) -> list[Job]:
        """Queue again what workers left behind; too many attempts are a failure.

        Args:
            stale_seconds: Age of the last heartbeat; by default that of the settings.
        """
        age = self._stale_seconds if stale_seconds is None else stale_seconds
        limit = format_time(self._clock() - datetime.timedelta(seconds=age))
        query = select(JOBS).where(JOBS.c.state == "running", JOBS.c.heartbeat <= limit)
        with self._database.read() as connection:
            if connection.execute(query).first() is None:
                return []
        with self._database.write() as connection:
            stale = connection.execute(query.order_by(JOBS.c.number)).all()
            for row in stale:
                if row.attempts >= self._max_attempts:
                    _update(
                        connection,
                        row.job_id,
                        state="failed",
                        message=f"given up after {row.attempts} attempts",
                        finished=format_time(self._clock()),
                    )
                else:
                    _update(connection, row.job_id, state="queued", worker=None, progress=0.0)
            return [_find(connection, row.job_id) for row in stale]

    def get(self, job_id: str) -> Job:
        """Return a job.

        Raises:
            NotFoundError: There is none.
        """
        with self._database.read() as connection:
            return _find(connection, job_id)

    def of_subject(self, subject: str) -> list[Job]:
        """Return the jobs about a filing or dispute."""
        query = select(JOBS).where(JOBS.c.subject == subject).order_by(JOBS.c.number)
        with self._database.read() as connection:
            return [_to_job(row) for row in connection.execute(query)]

    def newest(self, state: JobState | None = None, limit: int = 50) -> list[Job]:
        """Return jobs, the newest first."""
        query = select(JOBS)
        if state is not None:
            query = query.where(JOBS.c.state == state)
        query = query.order_by(JOBS.c.number.desc()).limit(max(0, min(limit, MAX_ROWS)))
        with self._database.read() as connection:
            return [_to_job(row) for row in connection.execute(query)]

    def _next(self, connection: Connection, kinds: Sequence[JobKind]) -> Row[Any] | None:
        every = JOBS.alias("every")
        last_turn = (
            select(func.max(every.c.started)).where(every.c.owner == JOBS.c.owner).scalar_subquery()
        )
        query = (
            select(JOBS)
            .where(
                JOBS.c.state == "queued",
                JOBS.c.kind.in_(kinds),
                JOBS.c.ready <= format_time(self._clock()),
            )
            .order_by(func.coalesce(last_turn, ""), JOBS.c.number)
            .limit(1)
        )
        return connection.execute(query).one_or_none()

    def _start(self, connection: Connection, row: Row[Any], worker: str) -> Job:
        now = format_time(self._clock())
        _update(
            connection,
            row.job_id,
            state="running",
            worker=worker[:_MAX_WORKER_CHARACTERS],
            attempts=row.attempts + 1,
            started=now,
            heartbeat=now,
            progress=0.0,
        )
        return _find(connection, row.job_id)


def has_begun(connection: Connection, kind: JobKind, subject: str) -> bool:
    """Return whether somebody works on it now, or is done with it."""
    query = select(JOBS.c.state).where(JOBS.c.kind == kind, JOBS.c.subject == subject)
    return connection.execute(query).scalar_one_or_none() in ("running", "done")


def _update(connection: Connection, job_id: str, **changes: Any) -> None:
    connection.execute(update(JOBS).where(JOBS.c.job_id == job_id).values(**changes))


def _is_held(connection: Connection, job_id: str, worker: str) -> bool:
    query = select(JOBS.c.job_id).where(
        JOBS.c.job_id == job_id,
        JOBS.c.state == "running",
        JOBS.c.worker == worker[:_MAX_WORKER_CHARACTERS],
    )
    return connection.execute(query).first() is not None


def _require_held(connection: Connection, job_id: str, worker: str) -> None:
    if not _is_held(connection, job_id, worker):
        raise ConflictError(
            "the job is not in this worker's hands any more", "leave it to the other one"
        )


def _find(connection: Connection, job_id: str) -> Job:
    row = connection.execute(select(JOBS).where(JOBS.c.job_id == job_id)).one_or_none()
    if row is None:
        raise NotFoundError(f"there is no job {job_id[:32]!r}", "look at the filing or dispute")
    return _to_job(row)


def _to_job(row: Row[Any]) -> Job:
    return Job(**{name: getattr(row, name) for name in Job.__slots__})
