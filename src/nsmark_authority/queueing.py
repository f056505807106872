"""Waking workers: huey carries the ids of jobs from the web process to whoever is free.

The job's row is the truth. A message that is lost costs a few seconds, until a worker looks at the
rows by itself; one that comes twice, or that nobody sent, costs a look.
"""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

from nsmark.errors import ConfigError, MissingExtraError
from nsmark_authority.errors import AuthorityError
from nsmark_authority.settings import AuthoritySettings

try:
    from huey import Huey, RedisHuey, SqliteHuey  # type: ignore[import-untyped]
    from huey.registry import Message  # type: ignore[import-untyped]
    from huey.serializer import Serializer  # type: ignore[import-untyped]
except ModuleNotFoundError as error:
    raise MissingExtraError(str(error.name), "authority") from error

QUEUE_FILE = "queue.db"
_QUEUE_NAME = "nsmark-authority"
_TASK_NAME = "work_on"
_JOB_ID = re.compile(rb"[0-9a-f]{32}")
_POLL_SECONDS = 0.2
_REDIS_TIMEOUT_SECONDS = 5


def open_queue(settings: AuthoritySettings) -> WorkQueue:
    """Open the queue that the settings name: Redis, or a file in the authority's folder.

    Raises:
        ConfigError: The URL is no ``redis://`` one.
        MissingExtraError: Redis is wanted and its client is not installed.
    """
    return WorkQueue(make_huey(settings.queue_url, settings.folder))


def make_huey(url: str | None, folder: Path) -> Huey:
    """Return the huey of a URL; without one, that of a folder.

    Raises:
        ConfigError: The URL is no ``redis://`` one.
        MissingExtraError: Redis is wanted and its client is not installed.
    """
    if url is None:
        return SqliteHuey(
            _QUEUE_NAME,
            filename=str(folder / QUEUE_FILE),
            serializer=JobIdSerializer(),
            results=False,
        )
    if not url.startswith(("redis://", "rediss://")):
        # It may hold a password: it is not shown.
        raise ConfigError("queue", url.partition(":")[0][:20], "must be redis://HOST:PORT/NUMBER")
    try:
        from redis import ConnectionPool
    except ModuleNotFoundError as error:
        raise MissingExtraError("redis", "redis") from error
    return RedisHuey(
        _QUEUE_NAME,
        connection_pool=ConnectionPool.from_url(
            url,
            socket_connect_timeout=_REDIS_TIMEOUT_SECONDS,
            socket_timeout=_REDIS_TIMEOUT_SECONDS,
        ),
        serializer=JobIdSerializer(),
        results=False,
        blocking=False,  # we wait ourselves, and can be stopped
    )


class JobIdSerializer(Serializer):  # type: ignore[misc]
    """Messages that are nothing but a job's id: what huey itself would write is pickle."""

    def _serialize(self, data: Any) -> bytes:
        (job_id,) = data.args
        return str(job_id).encode("ascii")

    def _deserialize(self, data: bytes) -> Any:
        if not _JOB_ID.fullmatch(data):
            raise ValueError("no id of a job")
        job_id = data.decode("ascii")
        return Message(
            id=job_id, name=f"{__name__}.{_TASK_NAME}", args=(job_id,), kwargs={}, retries=0
        )


class WorkQueue:
    """Tells workers that there is something to do."""

    def __init__(self, huey: Huey) -> None:
        self._huey = huey

        @huey.task(name=_TASK_NAME)  # type: ignore[untyped-decorator]
        def work_on(job_id: str) -> None:
            """Give messages their name; workers take the id and look at the row."""

        self._work_on = work_on

    def wake(self, job_id: str) -> None:
        """Tell a worker of a job; harmless if it is known, or not ready yet.

        Raises:
            AuthorityError: The queue cannot be reached. The job is not lost: workers look at the
                rows by themselves, only later.
        """
        try:
            self._work_on(job_id)
        except Exception as error:  # of the driver, whichever it is
            raise AuthorityError(
                f"the queue did not do its work ({type(error).__name__})",
                "see whether it runs and can be reached",
            ) from error

    def wait(self, seconds: float, stop: threading.Event) -> str | None:
        """Wait for a message, or until the time is up or somebody says stop.

        Returns:
            The id of a job that may be ready; None if nobody called.
        """
        deadline = time.monotonic() + seconds
        while not stop.is_set():
            if (job_id := self._take()) is not None:
                return job_id
            left = deadline - time.monotonic()
            if left <= 0:
                break
            stop.wait(min(left, _POLL_SECONDS))
        return None

    def close(self) -> None:
        """Close the connection."""
        self._huey.storage.close()

    def _take(self) -> str | None:
        try:
            task = self._huey.dequeue()
        except Exception:
            # A message that is none of ours is gone by now; a driver's trouble passes or does not,
            # and the rows are looked at in any case.
            return None
        return None if task is None else str(task.args[0])
