"""A time-stamp authority on this machine (RFC 3161), for when no independent one is at hand.

Its tokens fix an order and a time for whoever runs it. They prove nothing to others, since whoever
holds its key could set its clock: the names in its certificates say so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from nsmark.errors import FileAccessError, InputError
from nsmark.files import locked, new_folder, read_bounded, sync_folder, write_atomic
from nsmark_authority.errors import TransparencyError
from nsmark_authority.transparency.timestamp_messages import import_extra
from nsmark_authority.transparency.token_signing import (
    granted,
    make_certificates,
    refused,
    sign_token,
)

LOCAL_POLICY = "2.25.151727916748436260861186416211756422699"
"""Made from a random UUID; it promises what this module says, no more."""

ROOT_FILE = "root.pem"
_CERTIFICATE_FILE = "authority.pem"
_KEY_FILE = "key.pem"
_SERIAL_FILE = "serial.txt"
_MAX_FILE_BYTES = 16 << 10
_MAX_SERIAL_BYTES = 64
_MAX_REQUEST_BYTES = 4 << 10
_LOCK_HINT = "see whether the authority's folder is still there, on a disk that can lock"
_HASH_BYTES = {"sha256": 32, "sha384": 48, "sha512": 64}
# The time is cut to whole seconds.
_ACCURACY = {"seconds": 1}


def _utc_now() -> datetime:
    return datetime.now(UTC)


class _RefusedRequest(Exception):  # noqa: N818 - it becomes an answer
    """A request that gets no token, and the RFC's name for the reason."""

    def __init__(self, fail_info: str, text: str) -> None:
        super().__init__(text)
        self.fail_info = fail_info


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAuthority:
    """Answers time-stamp requests; threads and processes may share its folder."""

    folder: Path

    root: x509.Certificate
    """What a checker must trust."""

    certificate: x509.Certificate
    """Whose key signs the tokens."""

    key: ec.EllipticCurvePrivateKey = field(repr=False)

    clock: Callable[[], datetime] = field(default=_utc_now, repr=False)

    @classmethod
    def create(cls, folder: Path, clock: Callable[[], datetime] = _utc_now) -> LocalAuthority:
        """Make a root, a certificate and a key in a new folder, for its owner's eyes only.

        Raises:
            FileAccessError: The folder holds something, or cannot be written.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        root, certificate = make_certificates(key.public_key(), clock())
        pem = serialization.Encoding.PEM
        private = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        with new_folder(folder) as staging:
            write_atomic(staging / ROOT_FILE, root.public_bytes(pem), 0o600)
            write_atomic(staging / _CERTIFICATE_FILE, certificate.public_bytes(pem), 0o600)
            write_atomic(staging / _KEY_FILE, private, 0o600)
            write_atomic(staging / _SERIAL_FILE, b"0\n", 0o600)
        with contextlib.suppress(OSError):  # the files are for the owner alone in any case
            folder.chmod(0o700)
        sync_folder(folder.parent)
        return cls(folder=folder, root=root, certificate=certificate, key=key, clock=clock)

    @classmethod
    def open(cls, folder: Path, clock: Callable[[], datetime] = _utc_now) -> LocalAuthority:
        """Read what :meth:`create` wrote.

        Raises:
            FileAccessError: A file is missing.
            InputError: A file is damaged, or they do not belong together.
        """
        root_pem, certificate_pem, key_pem = (
            read_bounded(folder / name, _MAX_FILE_BYTES, "authority's file")
            for name in (ROOT_FILE, _CERTIFICATE_FILE, _KEY_FILE)
        )
        try:
            root = x509.load_pem_x509_certificate(root_pem)
            certificate = x509.load_pem_x509_certificate(certificate_pem)
            key = serialization.load_pem_private_key(key_pem, None)
            certificate.verify_directly_issued_by(root)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise TypeError("not ECDSA")
            if key.public_key() != certificate.public_key():
                raise ValueError("the key is of another certificate")
        except Exception as error:  # six kinds, depending on which byte is damaged
            raise TransparencyError(
                f"the files of the local time-stamp authority in {folder} are damaged",
                "restore them from a backup, or make a new authority in another folder",
            ) from error
        return cls(folder=folder, root=root, certificate=certificate, key=key, clock=clock)

    def answer(self, request: bytes) -> bytes:
        """Return the DER answer to a DER request: a token, or a refusal with its reason."""
        try:
            asked = _read_request(request)
            now = self._time()
            content = {
                "policy": LOCAL_POLICY,
                "message_imprint": asked["message_imprint"],
                "serial_number": self._next_serial(),
                "gen_time": now,
                "accuracy": _ACCURACY,
            }
        except _RefusedRequest as refusal:
            return refused(refusal.fail_info, str(refusal))
        except (FileAccessError, InputError):
            # Not why: that holds a path of this machine, which is none of the asker's business.
            return refused("system_failure", "the authority cannot number its tokens")
        if asked["nonce"].native is not None:
            content["nonce"] = asked["nonce"].native
        wanted = asked["cert_req"].native
        return granted(sign_token(content, self.certificate, self.key, with_certificate=wanted))

    def _time(self) -> datetime:
        now = self.clock().astimezone(UTC).replace(microsecond=0)
        own = self.certificate
        if not own.not_valid_before_utc <= now <= own.not_valid_after_utc:
            raise _RefusedRequest(
                "time_not_available", "the clock is outside the years of the certificate"
            )
        return now

    def _next_serial(self) -> int:
        """Return a number above all before; it is on the disk before any token carries it."""
        path = self.folder / _SERIAL_FILE
        with locked(self.folder, _LOCK_HINT):
            content = read_bounded(path, _MAX_SERIAL_BYTES, "serial number")
            # Also an empty file: starting again would give a number twice.
            if not content.strip().isdigit():
                raise TransparencyError(f"{path} is damaged", "make a new authority")
            serial = int(content) + 1
            write_atomic(path, b"%d\n" % serial, 0o600)
            sync_folder(self.folder)
        return serial


def _read_request(request: bytes) -> Any:
    """Return the fields of a request that may have a token."""
    tsp = import_extra("asn1crypto.tsp")
    if len(request) > _MAX_REQUEST_BYTES:
        raise _RefusedRequest("bad_data_format", "the request is too long")
    try:
        asked = tsp.TimeStampReq.load(request, strict=True)
        fields = asked.native  # reads all of it, now
        imprint = fields["message_imprint"]
        algorithm, digest = imprint["hash_algorithm"], imprint["hashed_message"]
        # The token repeats these bytes, and must be DER even if the request is not.
        is_der = asked["message_imprint"].dump(force=True) in request
    except Exception as error:  # whatever asn1crypto raises: the bytes may come from anybody
        raise _RefusedRequest("bad_data_format", "this is no time-stamp request") from error
    if fields["version"] != "v1":
        raise _RefusedRequest("bad_request", "only version 1 is answered")
    if algorithm["algorithm"] not in _HASH_BYTES or algorithm["parameters"] is not None:
        raise _RefusedRequest("bad_alg", "only SHA-256, SHA-384 and SHA-512 are stamped")
    if len(digest) != _HASH_BYTES[algorithm["algorithm"]] or not is_der:
        raise _RefusedRequest(
            "bad_data_format", "the digest is not of the hash's length, or no DER"
        )
    if fields["req_policy"] not in (None, LOCAL_POLICY):
        raise _RefusedRequest("unaccepted_policy", f"the only policy is {LOCAL_POLICY}")
    if fields["extensions"] is not None:
        raise _RefusedRequest("unaccepted_extensions", "no extension is known")
    return asked
