"""What every endpoint needs, kept by the application."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request

from nsmark.errors import NsmarkError
from nsmark_authority.errors import AuthorityError
from nsmark_authority.queueing import WorkQueue
from nsmark_authority.records import Account
from nsmark_authority.service import Authority
from nsmark_authority.web.checkers import Checkers
from nsmark_authority.web.crowds import Crowd
from nsmark_authority.web.errors import WebError
from nsmark_authority.web.limits import RateLimits
from nsmark_authority.web.options import WebOptions
from nsmark_authority.web.spool import Spool

MAX_WRITERS = 4
"""Writers stand in line for the disk: more threads would only wait, and leave none to readers."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The authority and the limits around it."""

    authority: Authority
    options: WebOptions
    rates: RateLimits
    spool: Spool
    checkers: Checkers
    streams: Crowd = field(default_factory=Crowd)
    """Progress streams that are open, by address; for the event loop alone."""

    queue: WorkQueue | None = None
    """By which workers are woken; without it they look for themselves, a little later."""

    has_worker: bool = False
    """Whether a worker was started beside the server."""

    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the server stops: streams end."""

    writers: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(MAX_WRITERS))

    async def write(self, action: Callable[[], _Result]) -> _Result:
        """Run what writes in a thread."""
        return await to_thread.run_sync(action, limiter=self.writers)

    def wake_workers(self, subject: str) -> None:
        """Tell workers of the jobs about a filing or dispute."""
        if self.queue is None:
            return
        for job in self.authority.jobs.of_subject(subject):
            # The job is on record whether or not the queue can be reached.
            with contextlib.suppress(AuthorityError):
                self.queue.wake(job.job_id)

    @contextlib.contextmanager
    def audited(self, account: Account, what: str, subject: str) -> Iterator[None]:
        """Note in the audit trail that something was refused; what is done, notes itself."""
        try:
            yield
        except (NsmarkError, WebError) as error:
            who = account.fingerprint or account.token_id
            outcome = f"refused: {type(error).__name__}"
            self.authority.accounts.note(who, what, subject, outcome)
            raise


async def get_context(request: Request) -> Context:
    """Return the application's context; asynchronous, so that no thread is taken for it."""
    context: Any = request.app.state.context
    assert isinstance(context, Context)  # noqa: S101 - set when the application was made
    return context


Here = Annotated[Context, Depends(get_context)]
