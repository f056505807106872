"""The worker: takes jobs from their rows, one at a time, and leaves the web process its processor.

    python -m nsmark_authority.worker --folder DIR --control MODELS

It can be killed at any moment: what it was at is queued again when it is not heard of any more.
Asked to stop (SIGTERM, SIGINT), it puts its job back and ends.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nsmark.errors import NsmarkError
from nsmark_authority.errors import ConflictError, WithdrawnError
from nsmark_authority.giving_way import NICENESS, give_way

if TYPE_CHECKING:
    from nsmark_authority.queueing import WorkQueue
    from nsmark_authority.records import Job, OpenedDispute
    from nsmark_authority.workbench import JobWatch, Workbench

LOG = logging.getLogger("nsmark_authority.worker")

MAX_TROUBLES = 20
"""One after the other, each after twice the time: some four days, then nobody need wait."""

_PARENT_SECONDS = 1.0
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_MEMORY_SHARE = 0.7
_DAY = 24 * 3600
_TROUBLE = "the authority cannot do this at the moment, and tries again by itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a worker does what nobody asks it for."""

    poll_seconds: float = 2.0
    """Rows are looked at, if nobody calls."""

    sweep_seconds: float = 15.0
    """Rows that others left behind, new control models."""

    beat_seconds: float = 5.0
    """A job's row is told that somebody works on it."""

    waiting_seconds: int = 600
    """A key that waits for control models is looked at again, should their coming be missed."""

    trouble_seconds: int = 60
    """What failed for the authority's own reasons is tried again."""


@dataclass(slots=True)
class Worker:
    """One worker."""

    bench: Workbench
    queue: WorkQueue
    stop: threading.Event = field(default_factory=threading.Event)
    """Set to end it."""

    pace: Pace = field(default_factory=Pace)
    name: str = field(
        default_factory=lambda: f"{socket.gethostname()[:60]}:{os.getpid()}:{secrets.token_hex(4)}"
    )
    _controls: frozenset[str] = frozenset()
    _next_sweep: float = 0.0

    def run(self, *, once: bool = False) -> int:
        """Work until told to stop; or, ``once``, until there is nothing to do.

        Returns:
            How many jobs were worked on.
        """
        self.restore_jobs()
        count = 0
        while not self.stop.is_set():
            try:
                self.sweep()
                job = self.bench.authority.jobs.claim(self.name)
            except NsmarkError as error:  # the database is away: it comes back, or an operator
                if once:
                    raise
                LOG.error("cannot look for work: %s", error)
                self.stop.wait(self.pace.sweep_seconds)
                continue
            if job is not None:
                self.work_on(job)
                count += 1
            elif once:
                break
            else:
                self.queue.wait(self.pace.poll_seconds, self.stop)
        return count

    def work_on(self, job: Job) -> None:
        """Do one job; whatever happens, the worker lives on."""
        from nsmark_authority.workbench import JobWatch

        started = time.monotonic()
        jobs = self.bench.authority.jobs
        watch = JobWatch(jobs, job, self.name, self.stop, self.pace.beat_seconds)
        try:
            came = self._do(job, watch)
        except NsmarkError as error:
            # The row of a job that cannot be told now is found later, by its age.
            came = f"not told: {error}"
        seconds = time.monotonic() - started
        LOG.info(
            "%s %s, attempt %d, %.1f s: %s", job.kind, job.subject[:16], job.attempts, seconds, came
        )

    def _do(self, job: Job, watch: JobWatch) -> str:
        """Do one job and write into its row what came of it; return that."""
        from nsmark_authority.confinement import EndedError
        from nsmark_authority.workbench import LostError, NotYetError, StoppedError

        jobs, job_id = self.bench.authority.jobs, job.job_id
        try:
            came = _duty(job)(self.bench, job.subject, watch)
        except LostError:
            return "not this worker's any more"
        except WithdrawnError as error:
            return self._finish(job_id, error=str(error))
        except StoppedError:
            jobs.put_back(job_id, self.name, delay_seconds=0, message="its worker was stopped")
            return "put back: the worker stops"
        except NotYetError as error:
            delay = self.pace.waiting_seconds
            jobs.put_back(job_id, self.name, delay_seconds=delay, message=str(error))
            return f"waits: {error}"
        except EndedError as error:
            return self._finish(job_id, error=f"the work was ended: {error}")
        except NsmarkError as error:
            # Operators read the reason here; it may name their folders, and the row is not theirs.
            if job.troubles >= MAX_TROUBLES:
                self._finish(job_id, error="the authority could not do this, for its own reasons")
                return f"given up: {error} ({error.hint})"
            jobs.put_back(
                job_id,
                self.name,
                delay_seconds=self.pace.trouble_seconds,
                message=_TROUBLE,
                is_trouble=True,
            )
            return f"put back: {error} ({error.hint})"
        except Exception as error:
            # A fault of ours is nobody's refusal: the row is left as a killed worker leaves it, and
            # the attempts are counted. What the error says may be secret; where it is, is not.
            where = traceback.extract_tb(error.__traceback__)[-1]
            return f"failed: {type(error).__name__} at {Path(where.filename).name}:{where.lineno}"
        return self._finish(job_id, message=came)

    def _finish(self, job_id: str, *, error: str | None = None, message: str = "") -> str:
        with contextlib.suppress(ConflictError):  # cancelled, or given to another, a moment ago
            self.bench.authority.jobs.finish(job_id, self.name, error=error, message=message)
        return error or message

    def sweep(self) -> None:
        """Look after what others left behind, if it is time to."""
        from nsmark_authority.settling import forget_old_draws

        now = time.monotonic()
        if now < self._next_sweep:
            return
        self._next_sweep = now + self.pace.sweep_seconds
        authority = self.bench.authority
        for job in authority.jobs.requeue_stale():
            LOG.warning("%s %s: its worker is gone, now %s", job.kind, job.subject[:16], job.state)
        self._rule_given_up()
        forget_old_draws(self.bench)
        self.bench.remove_abandoned()
        controls = frozenset(self.bench.controls())
        if controls - self._controls and (count := authority.jobs.make_ready("admission")):
            LOG.info("there are %d control models: %d filings are examined", len(controls), count)
        self._controls = controls

    def _rule_given_up(self) -> None:
        """Rule the disputes whose jobs failed for good: nobody is to wait for ever."""
        from nsmark_authority.settling import give_up_dispute

        jobs = self.bench.authority.jobs
        for dispute in _open_disputes(self.bench):
            if dispute.job is None:
                continue
            job = jobs.get(dispute.job)
            if job.state == "failed":
                give_up_dispute(self.bench, dispute.entry_id, job.message)
                LOG.warning("dispute %s: could_not_measure: %s", job.subject[:16], job.message)

    def restore_jobs(self) -> None:
        """Queue what waits without a job, and clear up.

        Such as after a database was made anew from its log; or keys whose examination was ended:
        now there may be more time for it, or more memory.
        """
        from nsmark_authority.fields import parse_time
        from nsmark_authority.jobs import utc_now
        from nsmark_authority.registry import every_row

        authority = self.bench.authority
        for dispute in _open_disputes(self.bench):
            if dispute.job is None:
                age = (utc_now() - parse_time(dispute.time)).total_seconds()
                delay = max(0, int(authority.settings.answer_seconds - age))
                authority.jobs.queue(
                    "dispute", dispute.entry_id, owner=dispute.fingerprint, delay_seconds=delay
                )
        search = authority.registry.search_filings
        for filing in every_row(lambda before: search(state="waiting", before=before, limit=200)):
            jobs = authority.jobs.of_subject(filing.entry_id)
            if all(job.state == "failed" for job in jobs):
                authority.jobs.queue("admission", filing.entry_id, owner=filing.fingerprint)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a worker; return the exit status."""
    options = _parser().parse_args(argv)
    for name in ("NSMARK_DATABASE", "NSMARK_QUEUE"):
        os.environ.pop(name, None)  # children need not know
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    LOG.setLevel(logging.INFO)
    give_way(options.niceness)
    os.umask(0o077)
    _confine_children()
    stop = threading.Event()
    for number in _STOP_SIGNALS:
        signal.signal(number, lambda *_: stop.set())
    if options.parent is not None:
        _follow(options.parent, stop)
    try:
        with _opened(options, stop) as worker:
            LOG.info("%s works for %s", worker.name, worker.bench.authority.name)
            worker.run(once=options.once)
    except NsmarkError as error:
        LOG.error("%s", error)
        LOG.error("hint: %s", error.hint)
        return error.exit_code
    return 0


@contextlib.contextmanager
def _opened(options: argparse.Namespace, stop: threading.Event) -> Iterator[Worker]:
    """Open the authority and everything that a worker needs."""
    from nsmark_authority.confined_tasks import PRELOAD
    from nsmark_authority.confinement import Confinement, Workshop
    from nsmark_authority.outgoing import OutgoingPolicy
    from nsmark_authority.queueing import open_queue
    from nsmark_authority.service import open_authority
    from nsmark_authority.settings import AuthoritySettings
    from nsmark_authority.workbench import BenchSettings, Workbench

    OutgoingPolicy(frozenset(options.allow))  # is refused here rather than in every dispute
    settings = AuthoritySettings(
        folder=options.folder,
        database_url=options.database,
        queue_url=options.queue,
        timestamp_url=options.timestamp_url,
        timestamp_roots=options.timestamp_roots,
        answer_seconds=round(options.answer_days * _DAY),
        job_stale_seconds=options.stale_seconds,
        control_models=tuple(options.control),
        allowed_suspects=tuple(options.allow),
    )
    confinement = Confinement(
        seconds=options.job_seconds, memory_bytes=options.job_memory, threads=options.threads
    )
    authority = open_authority(settings)
    queue = open_queue(settings)
    bench = Workbench(
        authority,
        Workshop(confinement, PRELOAD),
        BenchSettings(
            controls=settings.control_models,
            with_kin=not options.no_kin,
            device=options.device,
            allowed=settings.allowed_suspects,
            max_exhibits=options.max_exhibits,
        ),
    )
    pace = Pace(
        beat_seconds=min(Pace().beat_seconds, options.stale_seconds / 4),
        sweep_seconds=min(Pace().sweep_seconds, options.stale_seconds / 2),
    )
    try:
        yield Worker(bench, queue, stop, pace)
    finally:
        queue.close()
        authority.close()


def _confine_children() -> None:
    """Keep children from looking into this process, and say what else they are kept from."""
    from nsmark_authority.sandbox import available, explain, harden_process

    harden_process()
    found = available()
    if not all(found.values()):
        LOG.warning("%s", explain(found))


def _duty(job: Job) -> Callable[[Workbench, str, JobWatch], str]:
    from nsmark_authority.admitting import admit_filing
    from nsmark_authority.settling import settle_dispute

    return {"admission": admit_filing, "dispute": settle_dispute}[job.kind]


def _open_disputes(bench: Workbench) -> Iterator[OpenedDispute]:
    from nsmark_authority.registry import every_row

    disputes = bench.authority.registry.disputes
    return every_row(lambda before: disputes(state="open", before=before, limit=200))


def _follow(parent: int, stop: threading.Event) -> None:
    """Stop when a process is gone: a worker must not outlive the service that started it."""
    is_ours = os.getppid() == parent

    def is_gone() -> bool:
        if is_ours:
            return os.getppid() != parent
        try:
            os.kill(parent, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False

    def watch() -> None:
        while not is_gone():
            time.sleep(_PARENT_SECONDS)
        stop.set()

    threading.Thread(target=watch, daemon=True).start()


def _default_memory() -> int:
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        whole = 16 << 30
    return int(_MEMORY_SHARE * whole)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m nsmark_authority.worker",
        description="Examine filed keys and measure disputes.",
    )
    add = parser.add_argument
    add("--folder", type=Path, required=True, help="the authority's folder")
    # A password in an argument can be read by every user of the machine.
    add(
        "--database",
        metavar="URL",
        default=os.environ.get("NSMARK_DATABASE"),
        help="postgresql://…; by default $NSMARK_DATABASE, or SQLite in the folder",
    )
    add(
        "--queue",
        metavar="URL",
        default=os.environ.get("NSMARK_QUEUE"),
        help="redis://…; by default $NSMARK_QUEUE, or a file in the folder",
    )
    add("--timestamp-url", metavar="URL", help="a time-stamp authority; by default the folder's")
    add("--timestamp-roots", metavar="PEM", type=Path, help="roots to check its tokens against")
    add(
        "--control",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="an innocent model's folder, or a folder of such folders; may be repeated",
    )
    add("--no-kin", action="store_true", help="make no further controls from the given ones")
    add(
        "--allow",
        metavar="HOST:PORT",
        action="append",
        default=[],
        help="a suspect that may be asked although it is private; may be repeated",
    )
    add("--answer-days", type=float, default=14.0, metavar="N", help="time to answer a dispute")
    add(
        "--max-exhibits",
        type=int,
        default=64,
        metavar="N",
        help="of what is held against one claim, so many are measured; more keep it from being "
        "upheld",
    )
    add("--device", default="auto", help="where models run (auto, cpu, cuda, …)")
    threads = max(1, (os.cpu_count() or 2) // 2)
    add("--threads", type=int, default=threads, help="of one measurement")
    add("--niceness", type=int, default=NICENESS, help="0: as important as those who answer")
    add(
        "--job-seconds",
        type=float,
        default=4 * 3600.0,
        metavar="N",
        help="time after which one examination or measurement is ended",
    )
    add(
        "--job-memory",
        type=int,
        default=_default_memory(),
        metavar="BYTES",
        help="memory above which it is ended",
    )
    add(
        "--stale-seconds",
        type=int,
        default=120,
        metavar="N",
        help="a job whose worker was not heard of for so long is queued again",
    )
    add("--parent", type=int, metavar="PID", help="stop when this process is gone")
    add("--once", action="store_true", help="do what there is to do, then end")
    return parser


if __name__ == "__main__":
    sys.exit(main())
