"""What is kept from the beginning of a dispute's measurement to its ruling.

Randomness is drawn once, after the dispute was logged: a worker that is killed and started again
goes on with the same, so nobody can try again until the texts suit him. What was measured already
is kept, too, and is not measured again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import rfc8785

from nsmark.errors import NsmarkError
from nsmark.files import read_bounded, write_atomic, write_errors
from nsmark_authority.confined_tasks import Measured
from nsmark_authority.errors import AuthorityError
from nsmark_authority.fields import Record, parse_canonical
from nsmark_authority.workbench import NotYetError

if sys.platform != "win32":
    import fcntl

DRAWS_FOLDER = "measuring"
"""In the authority's folder."""

_RANDOM_BYTES = 32
_MAX_KEPT_BYTES = 64 << 20


class Finding(Record):
    """What came of a measurement."""

    measured: Measured
    is_ended: bool = False
    """Whether it took more than the authority's limits allow, or broke a child down."""


class Draw:
    """The folder of one dispute."""

    def __init__(self, authority_folder: Path, dispute: str) -> None:
        self.folder = authority_folder / DRAWS_FOLDER / dispute

    @property
    def answers(self) -> Path:
        """Where an endpoint's answers are kept."""
        return self.folder / "answers"

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep others from measuring the same, such as a worker who is only slow to be heard of.

        Raises:
            NotYetError: Somebody is at it.
        """
        with write_errors(self.folder, "see whether the authority's disk is there and has space"):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise NotYetError("another worker is measuring it") from None
            yield
        finally:
            os.close(lock)

    def randomness(self) -> bytes:
        """Return the random bytes; drawn when they are asked for the first time."""
        path = self.folder / "randomness"
        if not path.exists():
            write_atomic(path, secrets.token_bytes(_RANDOM_BYTES), 0o600)
        drawn = read_bounded(path, _RANDOM_BYTES, "randomness")
        if len(drawn) != _RANDOM_BYTES:
            raise AuthorityError(f"{path} is damaged", "remove it: the measurement begins anew")
        return drawn

    def seed(self, entry: bytes) -> str:
        """Return what texts are drawn with: whoever has the dispute's entry can check it."""
        return hashlib.sha256(entry + self.randomness()).hexdigest()

    def keep(self, of: list[str | None], finding: Finding) -> None:
        """Keep a result, under everything that it depends on."""
        write_atomic(self._place(of), finding.to_json(), 0o600)

    def kept(self, of: list[str | None]) -> Finding | None:
        """Return a result that was kept, if it was."""
        path = self._place(of)
        if not path.exists():
            return None
        try:
            content = read_bounded(path, _MAX_KEPT_BYTES, "measurement")
            members = parse_canonical(content, "measurement", _MAX_KEPT_BYTES)
            return Finding.from_members(members, "measurement")
        except NsmarkError:
            return None  # measured again

    def forget(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _place(self, of: list[str | None]) -> Path:
        return self.folder / f"{hashlib.sha256(rfc8785.dumps(of)).hexdigest()}.json"
