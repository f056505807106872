"""Trusted timestamps (RFC 3161): ask for one, and check one without asking anybody.

A token says that an authority saw a SHA-256 digest at a stated time. The signature and the chain
of certificates are checked by ``rfc3161-client``, at the stated time: a token outlives the
certificate it was made with. What that package leaves open is checked here: which hash was
stamped, that the certificate is for time stamps alone, and that the signature names it.

Revocation is not looked up, and whoever holds the authority's key can make any time true: a token
is worth as much as the root certificates given here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from nsmark.errors import UsageError
from nsmark.files import read_bounded
from nsmark_authority.errors import TransparencyError
from nsmark_authority.transparency.timestamp_messages import (
    ASK_AGAIN,
    import_extra,
    refused_if_malformed,
    require_sha256,
    require_size,
    sort_certificates,
)

_SHA256 = "2.16.840.1.101.3.4.2.1"
_SOUND_HASHES = ("sha256", "sha384", "sha512")
_GRANTED = bytes.fromhex("3003020100")
_SEQUENCE = (0, 1, 16)
_MAX_ROOTS_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Timestamp:
    """What a token says, after every check was passed."""

    time: datetime
    """When the digest was seen, in UTC."""

    policy: str
    """Object identifier of the rules the authority says it follows."""

    serial: int
    """Number of the token, unique for its authority."""

    accuracy: timedelta | None
    """How far the time may be off, if the authority says."""

    authority: str
    """Name of the authority, from its certificate."""


def check_token(
    token: bytes, digest: bytes, roots: Sequence[x509.Certificate], *, nonce: int | None = None
) -> Timestamp:
    """Check a token against root certificates and return what it says.

    Args:
        token: The DER bytes :func:`extract_token` returned.
        digest: The SHA-256 digest it must be for.
        roots: Self-signed certificates that are trusted; those in the token are not.
        nonce: That of the request, if it is still known.

    Raises:
        TransparencyError: Anything about the token is not as it must be.
        UsageError: No root, or the digest is no SHA-256 digest.
    """
    require_sha256(digest)
    if not roots:
        raise UsageError("no root certificate is trusted", "give that of the authority")
    require_size(token, "token")
    rfc3161, parser = import_extra("rfc3161_client"), import_extra("asn1crypto.parser")
    with refused_if_malformed("token"):
        token = sort_certificates(token)
        # The package reads whole answers only.
        response = rfc3161.decode_timestamp_response(parser.emit(*_SEQUENCE, _GRANTED + token))
        info = response.tst_info
        _check_content(info, digest, nonce)
        certificate = _signer_certificate(response.signed_data)
        _check_purpose(certificate)
        exact_time = _check_signed_data(token, certificate, info.gen_time)
        _check_signature(rfc3161, response, digest, roots)
        return Timestamp(
            time=exact_time,
            policy=info.policy.dotted_string,
            serial=info.serial_number,
            accuracy=_as_timedelta(info.accuracy),
            authority=_name(certificate),
        )


def read_root_certificates(pem: bytes) -> tuple[x509.Certificate, ...]:
    """Return the certificates of a PEM file.

    Raises:
        TransparencyError: There is none in it.
    """
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except ValueError as error:
        raise TransparencyError(
            "this holds no certificate in PEM form", "expected the root of a time-stamp authority"
        ) from error


def load_root_certificates(path: Path) -> tuple[x509.Certificate, ...]:
    """Return the certificates of a PEM file on the disk.

    Raises:
        TransparencyError: There is none in it.
        FileAccessError: It cannot be read.
    """
    return read_root_certificates(read_bounded(path, _MAX_ROOTS_BYTES, "root certificates"))


def _check_content(info: Any, digest: bytes, nonce: int | None) -> None:
    imprint = info.message_imprint
    if imprint.hash_algorithm.dotted_string != _SHA256 or imprint.message != digest:
        raise TransparencyError(
            "the token is for another digest", "check which file the token was made for"
        )
    if nonce is not None and info.nonce != nonce:
        raise TransparencyError("the token answers another request: its nonce differs", ASK_AGAIN)


def _signer_certificate(signed_data: Any) -> x509.Certificate:
    signers = list(signed_data.signer_infos)
    certificates = map(x509.load_der_x509_certificate, signed_data.certificates)
    found = [
        certificate
        for certificate in certificates
        if (certificate.issuer, certificate.serial_number)
        == (signers[0].issuer, signers[0].serial_number)
    ]
    # With two of one name, OpenSSL might check one while we look at the other.
    if len(signers) != 1 or len(found) != 1:
        raise TransparencyError(
            "the token does not hold exactly one signature and its certificate",
            f"{ASK_AGAIN}, with its certificate in it",
        )
    return found[0]


def _check_purpose(certificate: x509.Certificate) -> None:
    """Refuse a certificate whose key may do anything but sign timestamps (RFC 3161 §2.3)."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    except x509.ExtensionNotFound:
        usage = None
    stamping = [ExtendedKeyUsageOID.TIME_STAMPING]
    if usage is None or not usage.critical or list(usage.value) != stamping:
        raise TransparencyError(
            "the token's certificate is not for time stamps alone (critical timeStamping)",
            "use a time-stamp authority",
        )


def _check_signed_data(
    token: bytes, certificate: x509.Certificate, whole_second: datetime
) -> datetime:
    """Check what rfc3161-client does not look at; return the time with its fraction."""
    cms = import_extra("asn1crypto.cms")
    import_extra("asn1crypto.tsp")  # teaches cms the structures of timestamps
    signed = cms.ContentInfo.load(token, strict=True)["content"]
    signer = signed["signer_infos"][0]
    attributes = {one["type"].native: one["values"][0] for one in signer["signed_attrs"]}
    time: datetime = signed["encap_content_info"]["content"].parsed["gen_time"].native
    if not (
        (signed["version"].native, signer["version"].native) == ("v3", "v1")
        and _is_sound(signer, certificate)
        and _names_certificate(attributes, certificate)
        and attributes["content_type"].native == "tst_info"
        and time.replace(microsecond=0) == whole_second
    ):
        raise TransparencyError("the token is not signed as RFC 3161 demands", ASK_AGAIN)
    return time.astimezone(UTC)


def _is_sound(signer: Any, certificate: x509.Certificate) -> bool:
    """Return whether the hash is a good one, and the same wherever the signer names it."""
    name = signer["digest_algorithm"]["algorithm"].native
    is_rsa = isinstance(certificate.public_key(), rsa.RSAPublicKey)
    usual = ("rsassa_pkcs1v15", f"{name}_rsa") if is_rsa else (f"{name}_ecdsa",)
    return name in _SOUND_HASHES and signer["signature_algorithm"]["algorithm"].native in usual


def _names_certificate(attributes: dict[str, Any], certificate: x509.Certificate) -> bool:
    """Return whether the signature covers the certificate's hash (RFC 5816, or RFC 2634)."""
    der = certificate.public_bytes(Encoding.DER)
    if "signing_certificate_v2" in attributes:
        named = attributes["signing_certificate_v2"]["certs"][0]
        # SHA-256 is the default, left out of the bytes and filled in by asn1crypto.
        actual = hashlib.new(named["hash_algorithm"]["algorithm"].native, der).digest()
    else:
        named = attributes["signing_certificate"]["certs"][0]
        actual = hashlib.sha1(der, usedforsecurity=False).digest()
    return bool(named["cert_hash"].native == actual)


def _check_signature(
    rfc3161: Any, response: Any, digest: bytes, roots: Sequence[x509.Certificate]
) -> None:
    try:
        rfc3161.VerifierBuilder(roots=list(roots)).build().verify(response, digest)
    except rfc3161.VerificationError as error:
        raise TransparencyError(
            "the token's signature or its chain of certificates does not hold",
            "the token was altered, its authority is not among the trusted roots, or a "
            "certificate was not valid at the stated time",
        ) from error


def _as_timedelta(accuracy: Any) -> timedelta | None:
    if accuracy is None:
        return None
    return timedelta(
        seconds=accuracy.seconds or 0,
        milliseconds=accuracy.millis or 0,
        microseconds=accuracy.micros or 0,
    )


def _name(certificate: x509.Certificate) -> str:
    common_names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(common_names[0].value) if common_names else certificate.subject.rfc4514_string()
