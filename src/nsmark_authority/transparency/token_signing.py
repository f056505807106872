"""The certificates and signed structures of the local time-stamp authority (RFC 3161, RFC 5652)."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from nsmark_authority.transparency.timestamp_messages import import_extra

AUTHORITY_NAME = "nsmark local time-stamp authority (not independent)"
ROOT_NAME = "nsmark local root (not independent)"
LIFETIME = timedelta(days=20 * 365)
_SEQUENCE = (0, 1, 16)


def make_certificates(
    public_key: ec.EllipticCurvePublicKey, now: datetime
) -> tuple[x509.Certificate, x509.Certificate]:
    """Return a root and, under it, a certificate for time stamps alone.

    The key of the root is thrown away: nobody can make another certificate under it.
    """
    root_key = ec.generate_private_key(ec.SECP256R1())
    issuer_id = x509.SubjectKeyIdentifier.from_public_key(root_key.public_key())
    root = (
        _certificate_builder(ROOT_NAME, root_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(certificates=True), critical=True)
        .sign(root_key, hashes.SHA256())
    )
    stamping = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_id)
    certificate = (
        _certificate_builder(AUTHORITY_NAME, public_key, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(certificates=False), critical=True)
        .add_extension(stamping, critical=True)
        .add_extension(issuer, critical=False)
        .sign(root_key, hashes.SHA256())
    )
    return root, certificate


def _certificate_builder(
    name: str, public_key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    start = now.astimezone(UTC).replace(microsecond=0)
    return (
        x509.CertificateBuilder()
        .issuer_name(_common_name(ROOT_NAME))
        .subject_name(_common_name(name))
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _key_usage(*, certificates: bool) -> x509.KeyUsage:
    """Allow to sign certificates, or anything else, never both."""
    return x509.KeyUsage(
        digital_signature=not certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=certificates,
        encipher_only=False,
        decipher_only=False,
    )


def sign_token(
    content: dict[str, Any],
    certificate: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    *,
    with_certificate: bool,
) -> bytes:
    """Return the DER token that says ``content``, the fields of a TSTInfo but for the name."""
    cms, tsp = import_extra("asn1crypto.cms"), import_extra("asn1crypto.tsp")
    names = import_extra("asn1crypto.x509")
    own = names.Certificate.load(certificate.public_bytes(Encoding.DER))
    tsa = names.GeneralName("directory_name", own.subject)
    stated = tsp.TSTInfo(content | {"version": "v1", "tsa": tsa}).dump()
    attributes = _signed_attributes(stated, own)
    sha256 = {"algorithm": "sha256"}
    signer = {
        "version": "v1",
        "sid": cms.IssuerAndSerialNumber(
            {"issuer": own.issuer, "serial_number": own.serial_number}
        ),
        "digest_algorithm": sha256,
        "signed_attrs": attributes,
        "signature_algorithm": {"algorithm": "sha256_ecdsa"},
        "signature": key.sign(attributes.dump(), ec.ECDSA(hashes.SHA256())),
    }
    signed = {
        "version": "v3",
        "digest_algorithms": [sha256],
        "encap_content_info": {
            "content_type": "tst_info",
            "content": import_extra("asn1crypto.core").ParsableOctetString(stated),
        },
        "signer_infos": [cms.SignerInfo(signer)],
    }
    if with_certificate:
        signed["certificates"] = [own]
    fields = {"content_type": "signed_data", "content": cms.SignedData(signed)}
    return bytes(cms.ContentInfo(fields).dump())


def _signed_attributes(stated: bytes, own: Any) -> Any:
    """Return what the signature covers: the statement, and by whose certificate it is made."""
    cms, tsp = import_extra("asn1crypto.cms"), import_extra("asn1crypto.tsp")
    names = import_extra("asn1crypto.x509")
    issuer = names.GeneralName("directory_name", own.issuer)
    named = tsp.ESSCertIDv2(
        {
            "cert_hash": hashlib.sha256(own.dump()).digest(),
            "issuer_serial": {"issuer": [issuer], "serial_number": own.serial_number},
        }
    )
    values = {
        "content_type": ["tst_info"],
        "message_digest": [hashlib.sha256(stated).digest()],
        "signing_certificate_v2": [tsp.SigningCertificateV2({"certs": [named]})],
    }
    return cms.CMSAttributes([{"type": name, "values": each} for name, each in values.items()])


def granted(token: bytes) -> bytes:
    """Return the DER answer that carries a token."""
    tsp = import_extra("asn1crypto.tsp")
    return _answer(tsp.PKIStatusInfo({"status": "granted"}).dump() + token)


def refused(fail_info: str, text: str) -> bytes:
    """Return the DER answer that gives a reason instead of a token."""
    tsp = import_extra("asn1crypto.tsp")
    status = {"status": "rejection", "status_string": [text], "fail_info": {fail_info}}
    return _answer(tsp.PKIStatusInfo(status).dump())


def _answer(content: bytes) -> bytes:
    # Not tsp.TimeStampResp: that one demands a token even from a refusal.
    return bytes(import_extra("asn1crypto.parser").emit(*_SEQUENCE, content))
