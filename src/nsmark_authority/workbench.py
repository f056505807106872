"""What the worker's duties have in common: controls, publications, unsealed files, children."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from nsmark.errors import FileAccessError, InputError
from nsmark.files import write_errors
from nsmark.keyfile import WatermarkKey
from nsmark.keyfile.codec import decode_key
from nsmark.models.folder import model_digest
from nsmark.report import library_versions
from nsmark_authority.confined_tasks import MeasureRequest, Request
from nsmark_authority.confinement import EndedError, Progress, Task, Workshop
from nsmark_authority.errors import AuthorityError, ConflictError, TransparencyError
from nsmark_authority.fields import Record, printable_prose
from nsmark_authority.jobs import Jobs
from nsmark_authority.records import FiledKey, Job
from nsmark_authority.registry import find_publication
from nsmark_authority.sandbox import with_link_targets
from nsmark_authority.service import Authority

if sys.platform != "win32":
    import fcntl

_Answer = TypeVar("_Answer", bound=Record)

WORK_FOLDER = "work"
"""In the authority's folder: where contents lie unsealed while they are worked on."""

_CONTROL_SET_FORMAT = "nsmark/control-set/1"
_CONTROL = re.compile(r"control ([0-9]+) of ([0-9]+)")
_CONTROLS_SHARE = 0.8
_MIN_BEAT_SECONDS = 0.5
_HINT = "see whether the authority's disk is there and has space"


class StoppedError(Exception):
    """The worker is to end."""


class LostError(Exception):
    """The job is not this worker's any more."""


class NotYetError(Exception):
    """The job must wait, and why, in a sentence that anybody may read."""


class JobWatch:
    """Tells the job's row how far the work is, and the work when to end."""

    def __init__(
        self, jobs: Jobs, job: Job, worker: str, stop: threading.Event, beat_seconds: float
    ) -> None:
        self._jobs, self._job_id, self._worker = jobs, job.job_id, worker
        self._stop, self._beat_seconds = stop, beat_seconds
        self._last_beat, self._last_message = 0.0, ""

    def between(self, start: float, end: float, label: str) -> Callable[[Progress | None], None]:
        """Return what a child's progress is told to, during one of several pieces of work.

        The returned function raises StoppedError or LostError when the work is to end.
        """

        def on_tick(progress: Progress | None) -> None:
            done = 0.0 if progress is None else fraction_done(progress)
            message = label if progress is None else f"{label}: {progress.stage}"
            self.beat(start + (end - start) * done, message)

        return on_tick

    def beat(self, progress: float, message: str) -> None:
        """Say how far it is, if it is time to.

        Raises:
            StoppedError: The worker is to end.
            LostError: The job was cancelled, or given to another.
        """
        if self._stop.is_set():
            raise StoppedError
        since = time.monotonic() - self._last_beat
        is_news = message != self._last_message and since > _MIN_BEAT_SECONDS
        if since <= self._beat_seconds and not is_news:
            return
        self._last_beat, self._last_message = time.monotonic(), message
        try:
            is_held = self._jobs.heartbeat(self._job_id, self._worker, progress, message)
        except AuthorityError:
            return  # the database is away for a moment: hours of work are not thrown away for that
        if not is_held:
            raise LostError


def fraction_done(progress: Progress) -> float:
    """Return how much of one child's work is done, from 0 to 1."""
    part = min(1.0, max(0.0, progress.done / progress.total)) if progress.total > 0 else 0.0
    control = _CONTROL.fullmatch(progress.stage)
    if control is not None:
        number, count = int(control[1]), max(1, int(control[2]))
        return _CONTROLS_SHARE * min(1.0, (max(0, number - 1) + part) / count)
    if progress.stage == "suspect":
        return _CONTROLS_SHARE + (1 - _CONTROLS_SHARE) * part
    return part


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSettings:
    """How a worker measures."""

    controls: tuple[Path, ...] = ()
    """Model folders, or folders of model folders."""

    with_kin: bool = True
    """Whether further controls are made from each."""

    device: str = "auto"
    allowed: tuple[str, ...] = ()
    """``host:port`` pairs of suspects that may be asked although they are private."""

    suspect_seconds: float = 3600.0
    """For asking one suspect."""

    max_exhibits: int = 64
    """Of what is held against one claim, how many are measured."""


class Workbench:
    """An authority, children to work for it, and its control models."""

    def __init__(self, authority: Authority, workshop: Workshop, settings: BenchSettings) -> None:
        self.authority = authority
        self.workshop = workshop
        self.settings = settings
        self._work = authority.settings.folder / WORK_FOLDER
        self._known: tuple[object, str] | None = None

    def controls(self) -> dict[str, Path]:
        """Return the control models that are there now, by name."""
        return find_controls(self.settings.controls)

    def require_controls(self) -> None:
        """Wait if there is nothing to compare a suspect with.

        Raises:
            NotYetError: There are too few control models.
        """
        needed = 1 if self.settings.with_kin else 2
        if len(self.controls()) < needed:
            raise NotYetError("the authority has too few control models: the dispute waits")

    def control_set(self) -> str | None:
        """Return the digest of the published description of the controls; None without any.

        Raises:
            ModelError: A folder holds no model.
        """
        controls = self.controls()
        if not controls:
            return None
        state = [(name, _looks(folder)) for name, folder in controls.items()]
        if self._known is None or self._known[0] != state:
            self._known = (state, self._publish_controls(controls))
        return self._known[1]

    def request(self, key: WatermarkKey | None) -> tuple[Request, list[bytes]]:
        """Return what a child needs besides the key's file: a request, and publications."""
        found, files = [], []
        for what, kind, digest in _named_publications(key):
            with self.authority.database.read() as connection:
                there = find_publication(connection, kind, digest)
            if there is not None:
                found.append((what, digest))
                limit = self.authority.settings.max_publication_bytes
                files.append(self.authority.contents.read(there.content_sha256, limit))
        request = Request(
            controls=tuple((name, str(path)) for name, path in self.controls().items()),
            with_kin=self.settings.with_kin,
            device=self.settings.device,
            published=tuple(found),
        )
        return request, files

    def run(
        self,
        task: Task,
        request: Request,
        files: Sequence[bytes],
        on_tick: Callable[[Progress | None], None],
        answer: type[_Answer],
    ) -> _Answer:
        """Let a child do a task.

        Raises:
            EndedError: It came to no result, or to none that can be read.
            AuthorityError: The authority's own trouble.
        """
        members = self.workshop.run(
            task,
            request.to_members(),
            files,
            readable=_readable(request),
            writable=_writable(request),
            hidden=[self.authority.settings.folder],
            network=isinstance(request, MeasureRequest) and request.suspect == "endpoint",
            on_tick=on_tick,
        )
        try:
            return answer.from_members(members, "answer")
        except TransparencyError as error:
            raise EndedError("it answered nonsense", may_pass=False) from error

    def key_file(self, filing: FiledKey) -> bytes:
        """Return a filed key's file, unsealed: for children and nobody else."""
        limit = self.authority.settings.max_key_bytes
        return self.authority.contents.read(filing.content_sha256, limit)

    @contextlib.contextmanager
    def work_folder(self) -> Iterator[Path]:
        """Make a folder for unsealed content, for this process alone; it is gone afterwards."""
        with write_errors(self._work, _HINT):
            self._work.mkdir(mode=0o700, exist_ok=True)
            folder = self._work / secrets.token_hex(8)
            # Locked before there is a folder: what is not locked was left behind.
            lock = os.open(_lock_of(folder), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with write_errors(self._work, _HINT):
                fcntl.flock(lock, fcntl.LOCK_EX)
                folder.mkdir(mode=0o700)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            _lock_of(folder).unlink(missing_ok=True)
            os.close(lock)

    def remove_abandoned(self) -> int:
        """Remove what workers that were killed left unsealed; return how many folders."""
        count = 0
        for folder in self._work.glob("*/"):
            with write_errors(self._work, _HINT):
                lock = os.open(_lock_of(folder), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
                    _lock_of(folder).unlink(missing_ok=True)
                    count += 1
            finally:
                os.close(lock)
        return count

    def _publish_controls(self, controls: dict[str, Path]) -> str:
        """Publish what the controls are: names and digests, no weights."""
        members = {
            "format": _CONTROL_SET_FORMAT,
            "models": [
                {"name": name, "model_digest": model_digest(folder)}
                for name, folder in controls.items()
            ],
            "with_kin": self.settings.with_kin,
        }
        content = json.dumps(members, sort_keys=True, ensure_ascii=False).encode("utf-8")
        name = f"{len(controls)} control models"
        with contextlib.suppress(ConflictError):  # published before
            self.authority.publish("control_set", name, content)
        return hashlib.sha256(content).hexdigest()


def find_controls(paths: Sequence[Path]) -> dict[str, Path]:
    """Return the model folders among the paths, and in them, by names that show no path."""
    found: dict[str, Path] = {}
    for path in paths:
        inside = sorted(each for each in path.glob("*/") if _is_model(each))
        for folder in [path] if _is_model(path) else inside:
            name, number = folder.resolve().name, 1
            while name in found:
                number += 1
                name = f"{folder.resolve().name} ({number})"
            found[name] = folder
    return found


def key_of(content: bytes) -> WatermarkKey | None:
    """Return the key in a file, None if it is none."""
    try:
        return decode_key(io.BytesIO(content), len(content))
    except InputError:
        return None


def printable(texts: Sequence[str]) -> tuple[str, ...]:
    """Return texts as statements may hold them: what they refuse becomes a space."""
    return tuple(map(printable_prose, texts))


def versions() -> dict[str, str]:
    """Return the versions of the programs that measure."""
    return {name: version for name, version in library_versions().items() if version is not None}


def _readable(request: Request) -> list[Path]:
    """Return the folders that a child works on; those of strangers lead nowhere else."""
    folders = [each for _, path in request.controls for each in with_link_targets(Path(path))]
    if isinstance(request, MeasureRequest):
        folders += [Path(path) for path in (request.path, request.owner_model) if path is not None]
    return folders


def _writable(request: Request) -> list[Path]:
    """Return the folders that a child may write to: where an endpoint's answers are kept."""
    if not isinstance(request, MeasureRequest) or request.cache is None:
        return []
    cache = Path(request.cache)
    with write_errors(cache, _HINT):
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    return [cache]


def _is_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("config.json", "modules.json"))


def _looks(folder: Path) -> tuple[Any, ...]:
    """Return what changes when somebody changes a model, without reading it."""
    try:
        found = [(str(file), file.stat()) for file in sorted(folder.rglob("*.safetensors"))]
    except OSError as error:
        raise FileAccessError(
            f"cannot look at the control model {folder}: {error.strerror or error}",
            "see whether somebody changes it",
        ) from error
    return tuple((file, stat.st_size, stat.st_mtime_ns) for file, stat in found)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _named_publications(key: WatermarkKey | None) -> list[tuple[str, str, str]]:
    """Return what a key was made from: for what, of which kind, by digest."""
    if key is None:
        return []
    named = [("pool", "pool", key.pool_digest), ("words", "word_list", key.word_list_digest)]
    if key.pairs is not None and key.pairs.word_list_digest != key.word_list_digest:
        named.append(("pair_words", "word_list", key.pairs.word_list_digest))
    return named
