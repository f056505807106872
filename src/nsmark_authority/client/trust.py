"""What a checker knows about authorities from elsewhere: their public keys and time-stamp roots.

Kept in one small file, ``trust.json``. An authority is added once, after somebody compared its
fingerprint; a key that changes later is refused, loudly, until the old one is removed by hand. So
are other roots of its time stamps, or time that is only its own from now on, until somebody
accepts them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from pydantic import Field

from nsmark.errors import InputError, NsmarkError, UsageError
from nsmark.files import read_bounded, write_json
from nsmark.identity import PublicKey, parse_json_object
from nsmark.identity.claim import utc_now
from nsmark_authority.client.http import normalise_url
from nsmark_authority.errors import TransparencyError
from nsmark_authority.fields import (
    AuthorityName,
    Line,
    Pem,
    Record,
    Time,
    parse_time,
    public_key_of,
)
from nsmark_authority.receipt import CheckedReceipt, Receipt
from nsmark_authority.transparency import NoteKey
from nsmark_authority.transparency.timestamp import read_root_certificates

TRUST_FORMAT: Final = "nsmark/trust/1"
TRUST_FILE = "trust.json"
_MAX_TRUST_BYTES = 4 << 20
_MAX_AUTHORITIES = 256
_MAX_ROOTS = 16
_MAX_ROOT_CHARACTERS = 16 * 1024


class _Entry(Record):
    url: Line
    name: AuthorityName
    public_key: Pem
    roots: Annotated[
        tuple[Annotated[str, Field(max_length=_MAX_ROOT_CHARACTERS)], ...],
        Field(min_length=1, max_length=_MAX_ROOTS, strict=False),
    ]
    local_time: bool
    since: Time


class _Document(Record):
    format: Literal["nsmark/trust/1"]
    authorities: Annotated[tuple[_Entry, ...], Field(max_length=_MAX_AUTHORITIES, strict=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedAuthority:
    """An authority whose key and roots somebody vouched for."""

    url: str
    name: str
    """Its log's origin."""

    public_key: PublicKey
    roots: tuple[x509.Certificate, ...]
    """Of the time stamps it gives."""

    local_time: bool
    """Whether its time stamps are only its own word."""

    since: str
    """When it was added, or its roots were last renewed."""

    @property
    def note_key(self) -> NoteKey:
        """What its checkpoints are checked with."""
        return NoteKey(self.name, self.public_key)

    @classmethod
    def of(
        cls,
        url: str,
        *,
        name: str,
        public_key: str,
        roots: Sequence[str],
        local_time: bool,
        since: str | None = None,
    ) -> TrustedAuthority:
        """Return an authority as it describes itself; nothing is trusted by that.

        Raises:
            TransparencyError: A member is not as it must be.
        """
        entry = _Entry.from_members(
            {
                "url": normalise_url(url),
                "name": name,
                "public_key": public_key,
                "roots": list(roots),
                "local_time": local_time,
                "since": since or utc_now(),
            },
            "description of the authority",
        )
        return _to_authority(entry)

    def root_fingerprints(self) -> list[str]:
        """Return SHA-256 (hex) of every root certificate, for people to compare."""
        return [root.fingerprint(hashes.SHA256()).hex() for root in self.roots]


class TrustStore:
    """The authorities of a trust file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def authorities(self) -> list[TrustedAuthority]:
        """Return all; none if there is no such file.

        Raises:
            InputError: It is no trust file.
            FileAccessError: It cannot be read.
        """
        if not self.path.exists():
            return []
        content = read_bounded(self.path, _MAX_TRUST_BYTES, "trust file")
        members = parse_json_object(content, "trust file")
        if members.get("format") != TRUST_FORMAT:
            raise InputError(
                f"{self.path} is no trust file of this version",
                f"expected format {TRUST_FORMAT!r}; make one with `nsmark client trust URL`",
            )
        document = _Document.from_members(members, "trust file")
        return [_to_authority(entry) for entry in document.authorities]

    def find(self, url: str | None) -> TrustedAuthority:
        """Return the authority of a URL; without one, the only one there is.

        Raises:
            UsageError: It is not trusted, or there are several.
        """
        known = self.authorities()
        if url is not None:
            wanted = normalise_url(url)
            for authority in known:
                if authority.url == wanted:
                    return authority
            raise UsageError(
                f"{wanted} is not among the trusted authorities",
                f"compare its fingerprint first: `nsmark client trust {wanted}`",
            )
        if len(known) != 1:
            raise UsageError(
                "no authority is trusted yet" if not known else "several authorities are trusted",
                "trust one: `nsmark client trust URL`" if not known else "say which: --url URL",
            )
        return known[0]

    def find_by_name(self, name: str) -> TrustedAuthority | None:
        """Return the trusted authority of a name, such as a receipt's."""
        return next((one for one in self.authorities() if one.name == name), None)

    def refuse_change(self, authority: TrustedAuthority) -> None:
        """Refuse an authority that shows another key or name than the one remembered.

        Raises:
            TransparencyError: It does.
        """
        for known in self.authorities():
            if known.url == authority.url:
                require_same(known, name=authority.name, public_key=authority.public_key)
            elif known.name == authority.name and known.public_key != authority.public_key:
                raise TransparencyError(
                    f"{known.name!r} is trusted with ANOTHER KEY, at {known.url}",
                    "two of one name cannot be told apart; if you know why, `nsmark client trust "
                    f"{known.url} --forget` first",
                )

    def add(self, authority: TrustedAuthority) -> None:
        """Remember an authority; its key and time must not differ from what is remembered.

        Raises:
            TransparencyError: They do.
            FileAccessError: The file cannot be written.
        """
        self.refuse_change(authority)
        others = self.authorities()
        for known in others:
            if known.name == authority.name:
                require_same_time(known, roots=authority.roots, local_time=authority.local_time)
        self._write([*(one for one in others if one.url != authority.url), authority])

    def renew(self, authority: TrustedAuthority) -> TrustedAuthority:
        """Accept the roots and the kind of time that a trusted authority shows now.

        Returns:
            What is remembered: receipts given under earlier roots stay good.

        Raises:
            TransparencyError: Its key is another one.
            UsageError: It is not trusted, or showed too many roots in its life.
            FileAccessError: The file cannot be written.
        """
        self.refuse_change(authority)
        known = self.find(authority.url)
        roots = tuple(dict.fromkeys((*known.roots, *authority.roots)))
        if len(roots) > _MAX_ROOTS:
            raise UsageError(
                f"{known.url} had more than {_MAX_ROOTS} time-stamp roots so far",
                f"begin anew: `nsmark client trust {known.url} --forget`; check earlier receipts "
                "with --roots",
            )
        renewed = replace(known, roots=roots, local_time=authority.local_time, since=utc_now())
        others = [one for one in self.authorities() if one.url != known.url]
        self._write([*others, renewed])
        return renewed

    def forget(self, url: str) -> TrustedAuthority:
        """Remove an authority.

        Raises:
            UsageError: It is not there.
        """
        gone = self.find(url)
        self._write([one for one in self.authorities() if one.url != gone.url])
        return gone

    def _write(self, authorities: list[TrustedAuthority]) -> None:
        entries = [_to_entry(one).to_members() for one in authorities]
        write_json(self.path, {"format": TRUST_FORMAT, "authorities": entries})


def require_same(known: TrustedAuthority, *, name: str, public_key: PublicKey) -> None:
    """Refuse an authority that is no longer the one that was trusted.

    Raises:
        TransparencyError: Key or name differ.
    """
    if public_key != known.public_key:
        raise TransparencyError(
            f"THE AUTHORITY'S KEY HAS CHANGED: {known.url} shows {public_key.fingerprint}, "
            f"trusted since {known.since} is {known.public_key.fingerprint}",
            "somebody may stand in between; ask the authority by another way, and only then "
            "`nsmark client trust URL --forget`",
        )
    if name != known.name:
        raise TransparencyError(
            f"the authority at {known.url} calls itself {name[:80]!r}, not {known.name!r}",
            "one key signs for several logs; ask the authority which is meant",
        )


def require_same_time(
    known: TrustedAuthority, *, roots: Sequence[x509.Certificate], local_time: bool
) -> None:
    """Refuse an authority whose time stamps are no longer those that were trusted.

    Raises:
        TransparencyError: It shows a root that nobody vouched for, or its time is of another kind.
    """
    if local_time != known.local_time:
        raise TransparencyError(
            f"THE AUTHORITY'S TIME HAS CHANGED: {known.url} shows {_whose_time(local_time)}, "
            f"trusted since {known.since} are {_whose_time(known.local_time)}",
            _renew_hint(known),
        )
    _require_known_roots(known, roots)


def require_trusted_receipt(known: TrustedAuthority, receipt: Receipt) -> None:
    """Refuse a receipt, before it is checked, whose key or roots are not the trusted ones.

    Raises:
        TransparencyError: They are not.
    """
    require_same(known, name=receipt.authority, public_key=receipt.public_key)
    _require_known_roots(known, receipt.roots)


def require_trusted_time(known: TrustedAuthority, checked: CheckedReceipt) -> None:
    """Refuse a receipt whose time is only the authority's own where better was trusted.

    What was stamped before the authority's time was renewed keeps the time that it has.

    Raises:
        TransparencyError: It is.
    """
    if checked.is_local_time and not known.local_time and checked.time >= parse_time(known.since):
        raise TransparencyError(
            f"THE AUTHORITY'S TIME HAS CHANGED: the receipt bears {_whose_time(True)}, trusted "
            f"since {known.since} are {_whose_time(False)}",
            _renew_hint(known),
        )


def config_folder() -> Path:
    """Return where a user's settings are kept (XDG)."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    # A relative path there is to be ignored, says the standard.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return root / "nsmark"


def _require_known_roots(known: TrustedAuthority, roots: Sequence[x509.Certificate]) -> None:
    for root in roots:
        if root not in known.roots:
            raise TransparencyError(
                f"THE ROOTS OF THE AUTHORITY'S TIME STAMPS HAVE CHANGED: {known.url} shows "
                f"{root.fingerprint(hashes.SHA256()).hex()}, which is not among those trusted "
                f"since {known.since}",
                _renew_hint(known),
            )


def _renew_hint(known: TrustedAuthority) -> str:
    return (
        "ask the authority by another way whether and why; only then accept it: "
        f"`nsmark client trust {known.url} --renew`"
    )


def _whose_time(is_local: bool) -> str:
    return "times that are only its own word" if is_local else "independent time stamps"


def _to_authority(entry: _Entry) -> TrustedAuthority:
    return TrustedAuthority(
        url=normalise_url(entry.url),
        name=entry.name,
        public_key=public_key_of(entry.public_key),
        roots=tuple(_read_root(pem) for pem in entry.roots),
        local_time=entry.local_time,
        since=entry.since,
    )


def _to_entry(authority: TrustedAuthority) -> _Entry:
    return _Entry(
        url=authority.url,
        name=authority.name,
        public_key=authority.public_key.to_pem(),
        roots=tuple(root.public_bytes(Encoding.PEM).decode("ascii") for root in authority.roots),
        local_time=authority.local_time,
        since=authority.since,
    )


def _read_root(pem: str) -> x509.Certificate:
    try:
        (root,) = read_root_certificates(pem.encode("utf-8"))
    except (NsmarkError, ValueError) as error:
        raise TransparencyError(
            "a root of the authority is no certificate", "fetch the description again"
        ) from error
    return root
