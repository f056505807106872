"""Work on what strangers handed in: in a process of its own, with little memory, time and rights.

A model folder holds no code, but a tokenizer's pattern can take hours and a configuration all
memory. So each piece of work is done by a child that can be ended, and that knows neither the
authority's keys nor its database and, where the system can do that, cannot open them either.
Children are forked from a server that has imported what they need and nothing else; when the worker
dies, the server ends, and every child with it.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import queue
import select
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from nsmark.errors import NsmarkError
from nsmark_authority.errors import AuthorityError
from nsmark_authority.sandbox import Rights, enter
from nsmark_authority.sandbox.kernel import PR_SET_PDEATHSIG, prctl

if sys.platform != "win32":
    import resource

Task = Callable[[Mapping[str, Any], Sequence[bytes], "TellProgress"], Mapping[str, Any]]
"""What is to be done: a function of a module, given a JSON object and files; returns another."""

TellProgress = Callable[[str, int, int], None]
"""Told what is done, how many steps of it, and of how many."""

_POLL_SECONDS = 0.1
_END_SECONDS = 10.0
_TELL_SECONDS = 0.2
_MAX_FRAME_BYTES = 64 << 20
_PROGRESS, _RESULT, _TROUBLE, _FAILURE = b"p", b"r", b"t", b"f"
_MAX_FILE_BYTES = 8 << 30
_MAX_OPEN_FILES = 4096


class EndedError(Exception):
    """The child did not come to a result, and why, in half a sentence without secrets."""

    def __init__(self, reason: str, *, may_pass: bool) -> None:
        super().__init__(reason)
        self.may_pass = may_pass
        """Whether another attempt may do better."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the child is."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What one piece of work may take."""

    seconds: float = 4 * 3600.0
    memory_bytes: int = 16 << 30
    """Of its own: files that are mapped into memory are not counted. Only on Linux."""

    threads: int = 1


class Workshop:
    """Where children work, one at a time."""

    def __init__(self, confinement: Confinement, preload: Sequence[str]) -> None:
        """Prepare; nothing is started yet.

        Args:
            confinement: For every child.
            preload: Modules that children need.
        """
        self.confinement = confinement
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(preload))
        # Read when the server starts, and then by the libraries it imports.
        os.environ["OMP_NUM_THREADS"] = str(confinement.threads)
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        os.environ["HF_HUB_OFFLINE"] = "1"

    def run(
        self,
        task: Task,
        request: Mapping[str, Any],
        files: Sequence[bytes] = (),
        *,
        readable: Sequence[Path] | None = None,
        writable: Sequence[Path] = (),
        hidden: Sequence[Path] = (),
        network: bool = True,
        on_tick: Callable[[Progress | None], None] = lambda progress: None,
    ) -> dict[str, Any]:
        """Do a piece of work in a child, and once more if the child broke down.

        What the child must not do is kept from it as far as the system can: see ``sandbox``.

        Args:
            task: A function of a module; the child imports it.
            request: What it is given, as JSON.
            files: Contents that it is given in memory.
            readable: Files and folders that it may read, besides what programs need. None: it may
                open whatever this user may.
            writable: Files and folders that it may read and change; they must be there. A folder
                for temporary files it always has.
            hidden: Folders of which it sees nothing, even if they lie beneath what programs need;
                what is named in ``readable`` or ``writable`` and lies inside them it does see.
            network: Whether it may use the network.
            on_tick: Called some times a second; if it raises, the child is ended.

        Returns:
            What the task returned. The child may have been taken over by what it worked on: check
            everything.

        Raises:
            EndedError: It took too much, or broke down twice.
            AuthorityError: The task says that it is the authority's own trouble.
        """
        rights = Rights(
            readable=None if readable is None else tuple(readable),
            writable=tuple(writable),
            hidden=tuple(hidden),
            network=network,
        )
        try:
            return self._run(task, request, files, rights, on_tick)
        except EndedError as error:
            if not error.may_pass:
                raise
        return self._run(task, request, files, rights, on_tick)

    def _run(
        self,
        task: Task,
        request: Mapping[str, Any],
        files: Sequence[bytes],
        rights: Rights,
        on_tick: Callable[[Progress | None], None],
    ) -> dict[str, Any]:
        ours, theirs = self._context.Pipe()
        with _scratch_folder() as scratch:
            rights = replace(rights, writable=(*rights.writable, scratch))
            child = self._context.Process(
                target=_serve, args=(theirs, task, self.confinement, rights, scratch), daemon=True
            )
            child.start()
            theirs.close()
            frames: queue.Queue[bytes | None] = queue.Queue(maxsize=16)
            talk = threading.Thread(
                target=_talk,
                args=(ours, _encoded({**request, "num_files": len(files)}), files, frames),
                daemon=True,
            )
            talk.start()
            try:
                return self._watch(child, frames, on_tick)
            finally:
                # A child that waits for the disk cannot even be killed: it is left behind then.
                end_group(child.pid)
                child.kill()
                child.join(_END_SECONDS)
                given_up = time.monotonic() + _END_SECONDS
                while talk.is_alive() and time.monotonic() < given_up:
                    with contextlib.suppress(queue.Empty):  # the other thread may wait for room
                        frames.get(timeout=_POLL_SECONDS)
                ours.close()

    def _watch(
        self,
        child: Any,
        frames: queue.Queue[bytes | None],
        on_tick: Callable[[Progress | None], None],
    ) -> dict[str, Any]:
        limits = self.confinement
        deadline = time.monotonic() + limits.seconds
        progress = None
        while True:
            with contextlib.suppress(queue.Empty):
                frame = frames.get(timeout=_POLL_SECONDS)
                if frame is None:
                    child.join(_END_SECONDS)
                    raise EndedError(_said_end(child.exitcode), may_pass=True)
                kind, message = frame[:1], _decoded(frame[1:])
                if kind == _RESULT:
                    return message
                if kind == _TROUBLE:
                    raise AuthorityError(_text(message, "message"), _text(message, "hint"))
                if kind == _FAILURE:
                    raise EndedError(f"it failed ({_text(message, 'kind')})", may_pass=True)
                progress = _to_progress(message)
            on_tick(progress)
            if time.monotonic() > deadline:
                raise EndedError(f"it took longer than {limits.seconds:g} s", may_pass=False)
            if own_memory(child.pid) > limits.memory_bytes:
                raise EndedError(
                    f"it took more than {limits.memory_bytes:,} bytes of memory", may_pass=False
                )


def own_memory(pid: int) -> int:
    """Return the bytes that a process has for itself alone; 0 where the system does not tell."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def end_group(leader: int | None) -> None:
    """Kill a process with all that it started, if it leads a group of its own."""
    if leader is not None:
        with contextlib.suppress(OSError):
            os.killpg(leader, signal.SIGKILL)


@contextlib.contextmanager
def _scratch_folder() -> Iterator[Path]:
    """Make a folder for a child's temporary files; it is gone afterwards."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="nsmark-"))
    except OSError as error:
        raise AuthorityError(
            f"no folder for temporary files can be made: {error.strerror or error}",
            "see whether the disk has space, or let TMPDIR name another folder",
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _talk(
    connection: Connection,
    request: bytes,
    files: Sequence[bytes],
    frames: queue.Queue[bytes | None],
) -> None:
    """Hand over the work, then take what comes: in a thread, because a child may stop halfway."""
    with contextlib.suppress(OSError, EOFError):
        connection.send_bytes(request)
        for file in files:
            connection.send_bytes(file)
        while True:
            frames.put(connection.recv_bytes(_MAX_FRAME_BYTES))
    frames.put(None)


def _encoded(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, allow_nan=False).encode("utf-8")


def _decoded(frame: bytes) -> dict[str, Any]:
    try:
        message = json.loads(frame)
    except (ValueError, RecursionError) as error:
        raise EndedError("it answered nonsense", may_pass=False) from error
    if not isinstance(message, dict):
        raise EndedError("it answered nonsense", may_pass=False)
    return message


def _text(message: Mapping[str, Any], name: str) -> str:
    said = str(message.get(name, ""))[:500]
    return "".join(letter if letter.isprintable() else " " for letter in said)


def _to_progress(message: Mapping[str, Any]) -> Progress:
    done, total = message.get("done"), message.get("total")
    if type(done) is not int or type(total) is not int:
        raise EndedError("it answered nonsense", may_pass=False)
    return Progress(_text(message, "stage"), done, total)


def _said_end(exit_code: int | None) -> str:
    if exit_code is None:
        return "it stopped answering"
    if exit_code == -signal.SIGKILL:
        return "the system ended it, perhaps for lack of memory"
    return f"it ended with signal {-exit_code}" if exit_code < 0 else f"it ended with {exit_code}"


# --- In the child. ---


def _serve(
    connection: Connection, task: Task, confinement: Confinement, rights: Rights, scratch: Path
) -> None:
    """Do one piece of work."""
    os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
    try:
        _confine(confinement, connection.fileno())
        enter(rights)
    except OSError as error:
        said = f"a child cannot be confined: {error.strerror or error}"
        hint = "see whether a container's settings or limits stand in the way"
        connection.send_bytes(_TROUBLE + _encoded({"message": said, "hint": hint}))
        return
    threading.Thread(target=_end_with_worker, args=(connection.fileno(),), daemon=True).start()
    request = json.loads(connection.recv_bytes())
    files = [connection.recv_bytes() for _ in range(request.pop("num_files", 0))]
    told = (0.0, "")

    def tell(stage: str, done: int, total: int) -> None:
        nonlocal told
        now = time.monotonic()
        if stage != told[1] or now - told[0] > _TELL_SECONDS:
            told = (now, stage)
            message = {"stage": stage, "done": done, "total": total}
            connection.send_bytes(_PROGRESS + _encoded(message))

    try:
        answer = _RESULT + _encoded(task(request, files, tell))
    except NsmarkError as error:
        answer = _TROUBLE + _encoded({"message": str(error), "hint": error.hint})
    except Exception as error:  # its text may hold what is secret
        answer = _FAILURE + _encoded({"kind": type(error).__name__})
    connection.send_bytes(answer)


def _end_with_worker(handle: int) -> None:
    """End at once when the other side of the connection is gone; the server takes its time."""
    waiting = select.poll()
    waiting.register(handle, 0)  # hanging up is always told
    waiting.poll()
    os._exit(1)


def _confine(confinement: Confinement, ours: int) -> None:
    """Give up what the work does not need; ``ours`` is the handle that stays."""
    # Whoever holds one of them can disturb the server, or keep it alive when the worker is gone.
    for handle in map(int, os.listdir("/dev/fd")):
        with contextlib.suppress(OSError):
            mode = os.fstat(handle).st_mode
            if handle not in (0, 1, 2, ours) and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
                os.close(handle)
    os.setpgid(0, 0)  # what it starts is ended with it
    if sys.platform == "linux":
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        with contextlib.suppress(OSError):  # should memory end, the web process is to stay
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _limit(resource.RLIMIT_FSIZE, _MAX_FILE_BYTES)
    _limit(resource.RLIMIT_NOFILE, _MAX_OPEN_FILES)
    # For a child that nobody watches any more.
    seconds = int(confinement.seconds * max(1, confinement.threads)) + 60
    _limit(resource.RLIMIT_CPU, seconds)
    # What libraries print may repeat what a stranger wrote.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _limit(what: int, amount: int) -> None:
    """Lower a limit for good; one that is lower already stays."""
    _, most = resource.getrlimit(what)
    amount = amount if most == resource.RLIM_INFINITY else min(amount, most)
    resource.setrlimit(what, (amount, amount))
