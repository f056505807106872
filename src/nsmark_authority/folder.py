"""The authority's folder: its keys, made once, and its sealed content.

::

    FOLDER/authority.json   name of the authority (its log's origin)
    FOLDER/signing.pem      Ed25519 key that signs checkpoints, admissions and rulings
    FOLDER/signing.pub      its public half: what checkers of receipts need
    FOLDER/data.key         32 bytes, under which content is sealed
    FOLDER/timestamps/      the local time-stamp authority
    FOLDER/content/         sealed files
    FOLDER/last.checkpoint  a checkpoint that the log must contain: no older database is taken
    FOLDER/authority.db     the database, unless it is elsewhere
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nsmark.errors import ConfigError, InputError
from nsmark.files import locked, read_bounded, sync_folder, write_atomic, write_errors
from nsmark.identity import Identity, parse_json_object
from nsmark_authority.errors import AuthorityError, NotFoundError
from nsmark_authority.sealing import DATA_KEY_BYTES, SealedStore
from nsmark_authority.settings import DEFAULT_NAME, AuthoritySettings
from nsmark_authority.stamping import LocalStamper, RemoteStamper, Stamper
from nsmark_authority.transparency import MAX_NOTE_BYTES, SignedCheckpoint
from nsmark_authority.transparency.local_authority import LocalAuthority
from nsmark_authority.transparency.timestamp import load_root_certificates

_FORMAT = "nsmark/authority/1"
_ABOUT_FILE = "authority.json"
_SIGNING_FILE = "signing.pem"
_DATA_KEY_FILE = "data.key"
_LOCK_FILE = "lock"
LAST_CHECKPOINT_FILE = "last.checkpoint"
_MAX_ABOUT_BYTES = 4096
_HINT = "choose a folder you can write to"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorityFolder:
    """What the folder holds, opened."""

    name: str
    identity: Identity = field(repr=False)
    stamper: Stamper = field(repr=False)
    store: SealedStore = field(repr=False)


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keep other processes from setting up the same folder at the same time.

    Raises:
        FileAccessError: It cannot be made or locked.
    """
    with write_errors(folder, _HINT):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(folder / _LOCK_FILE, _HINT):
        yield


def is_open_to_others(folder: Path) -> bool:
    """Return whether other users of this machine can look into the folder.

    The keys in it have modes of their own; the database, and what else comes to lie there, should
    not have to.
    """
    return bool(folder.stat().st_mode & 0o077)


def open_folder(settings: AuthoritySettings) -> AuthorityFolder:
    """Open the folder, making what is not there yet; call it inside :func:`locked_folder`.

    Raises:
        ConfigError: The folder is of an authority of another name.
        AuthorityError: A part of an existing authority is missing: it is not made anew.
        InputError: A file is damaged.
        FileAccessError: The folder cannot be read or written.
    """
    folder = settings.folder
    if not (folder / _ABOUT_FILE).exists():
        _create(folder, settings.name or DEFAULT_NAME)
    name = _read_name(folder)
    if settings.name not in (None, name):
        raise ConfigError("name", settings.name, f"the authority in this folder is {name!r}")
    missing = [n for n in (_SIGNING_FILE, _DATA_KEY_FILE) if not (folder / n).is_file()]
    if missing:
        raise AuthorityError(
            f"the authority's folder has no {missing[0]}", "restore the folder from a backup"
        )
    data_key = read_bounded(folder / _DATA_KEY_FILE, DATA_KEY_BYTES, "data key")
    return AuthorityFolder(
        name=name,
        identity=Identity.load(folder / _SIGNING_FILE),
        stamper=_open_stamper(settings),
        store=SealedStore(folder / "content", data_key),
    )


def check_last_checkpoint(folder: Path, read_checkpoint: Callable[[int], bytes]) -> None:
    """Refuse a database that does not contain what this authority has signed before.

    To go on from an older one would give the same index to two entries; and its sealed content
    would be taken for loose.

    Args:
        folder: The authority's.
        read_checkpoint: Returns the database's signed note over so many entries.

    Raises:
        AuthorityError: The database is an older one, or another authority's.
    """
    path = folder / LAST_CHECKPOINT_FILE
    if not path.exists():
        return
    seen = read_bounded(path, MAX_NOTE_BYTES, "last checkpoint")
    size = SignedCheckpoint.parse(seen).checkpoint.size
    try:
        found = read_checkpoint(size)
    except NotFoundError:
        found = b""
    if found != seen:
        raise AuthorityError(
            f"the database is older than the log that this authority has signed ({size} entries), "
            "or is another one",
            "restore the newest database; to go on without it, remove last.checkpoint: "
            "monitors will see that the log was rewritten",
        )


def save_last_checkpoint(folder: Path, note: bytes) -> None:
    """Remember a checkpoint for the next start."""
    write_atomic(folder / LAST_CHECKPOINT_FILE, note, 0o600)


def _create(folder: Path, name: str) -> None:
    """Make the keys; the file with the name comes last, so that a broken start is begun again."""
    # It may have been there, empty. Where it is somebody else's, `nsmark serve` warns.
    with contextlib.suppress(OSError):
        folder.chmod(0o700)
    if not (folder / _SIGNING_FILE).exists():
        (folder / "signing.pub").unlink(missing_ok=True)
        Identity.generate().save(folder / "signing")
    if not (folder / _DATA_KEY_FILE).exists():
        write_atomic(folder / _DATA_KEY_FILE, secrets.token_bytes(DATA_KEY_BYTES), 0o600)
    if not (folder / "timestamps").exists():
        LocalAuthority.create(folder / "timestamps")
    about = json.dumps({"format": _FORMAT, "name": name}, sort_keys=True) + "\n"
    write_atomic(folder / _ABOUT_FILE, about.encode("utf-8"), 0o600)
    sync_folder(folder)
    sync_folder(folder.parent)


def _read_name(folder: Path) -> str:
    content = read_bounded(folder / _ABOUT_FILE, _MAX_ABOUT_BYTES, "authority's file")
    about = parse_json_object(content, _ABOUT_FILE)
    name = about.get("name")
    if about.get("format") != _FORMAT or not isinstance(name, str):
        raise InputError(
            f"{folder / _ABOUT_FILE} is not of this version", "a newer nsmark may read it"
        )
    return name


def _open_stamper(settings: AuthoritySettings) -> Stamper:
    if settings.timestamp_url is None or settings.timestamp_roots is None:
        return LocalStamper(LocalAuthority.open(settings.folder / "timestamps"))
    return RemoteStamper(settings.timestamp_url, load_root_certificates(settings.timestamp_roots))
