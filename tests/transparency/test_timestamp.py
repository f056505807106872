"""Tokens that hold, and every way in which one does not."""

import hashlib
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

cms = pytest.importorskip("asn1crypto.cms", reason="needs the authority extra")
rfc3161_client = pytest.importorskip("rfc3161_client", reason="needs the authority extra")
from asn1crypto import core, parser, tsp  # noqa: E402

from nsmark.errors import ConfigError, InputError, MissingExtraError, UsageError  # noqa: E402
from nsmark_authority.errors import TransparencyError  # noqa: E402
from nsmark_authority.transparency.local_authority import LocalAuthority  # noqa: E402
from nsmark_authority.transparency.timestamp import (  # noqa: E402
    check_token,
    read_root_certificates,
)
from nsmark_authority.transparency.timestamp_messages import (  # noqa: E402
    MAX_TOKEN_BYTES,
    build_request,
    extract_token,
)
from nsmark_authority.transparency.token_signing import refused, sign_token  # noqa: E402
from processes import PATIENCE  # noqa: E402

DIGEST = hashlib.sha256(b"a key file").digest()
YEAR = timedelta(days=365)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
STAMPING = ExtendedKeyUsageOID.TIME_STAMPING
needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="needs the openssl command"
)

OPENSSL_CONFIG = """
[req]
distinguished_name = dn
[dn]
[ca]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign
[tsa]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = critical,timeStamping
[stamps]
serial = serial
signer_cert = tsa.crt
signer_key = tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
accuracy = secs:1, millisecs:500, microsecs:100
clock_precision_digits = 3
ess_cert_id_alg = {ess_hash}
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return LocalAuthority.create(tmp_path_factory.mktemp("local") / "authority")


@pytest.fixture(scope="module")
def request_(authority):
    return build_request(DIGEST)


@pytest.fixture(scope="module")
def token(authority, request_):
    return extract_token(authority.answer(request_.der))


def refuses(token, *, digest=DIGEST, roots, nonce=None):
    with pytest.raises(TransparencyError) as caught:
        check_token(token, digest, roots, nonce=nonce)
    assert caught.value.hint
    assert caught.value.exit_code == 3
    return str(caught.value)


def flipped(token, position, mask):
    changed = bytearray(token)
    changed[position] ^= mask
    return bytes(changed)


class Chain:
    """A root and a certificate under it, as wrong as a test wants them."""

    def __init__(self, usages=(STAMPING,), *, critical=True, start=NOON - YEAR, end=NOON + YEAR):
        self.root_key = ec.generate_private_key(ec.SECP256R1())
        self.key = ec.generate_private_key(ec.SECP256R1())
        authority = x509.BasicConstraints(ca=True, path_length=None)
        span = NOON - 9 * YEAR, NOON + 9 * YEAR
        root = self.builder("Root", self.root_key, *span).add_extension(authority, critical=True)
        self.root = root.sign(self.root_key, hashes.SHA256())
        builder = self.builder("Stamper", self.key, start, end)
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=critical)
        self.certificate = builder.sign(self.root_key, hashes.SHA256())

    def builder(self, name, key, start, end, number=None):
        def named(text):
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        return (
            x509.CertificateBuilder()
            .issuer_name(named("Root"))
            .subject_name(named(name))
            .public_key(key.public_key())
            .serial_number(number or x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
        )

    def token(self, time=NOON, algorithm="sha256", **fields):
        imprint = {"hash_algorithm": {"algorithm": algorithm}, "hashed_message": DIGEST}
        content = {"policy": "1.2.3", "message_imprint": imprint, "serial_number": 7} | fields
        content["gen_time"] = time
        return sign_token(content, self.certificate, self.key, with_certificate=True)


def openssl(folder, *arguments):
    done = subprocess.run(
        ["openssl", *arguments], cwd=folder, capture_output=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr.decode()


def openssl_authority(folder, *, algorithm="rsa:2048", ess_hash="sha256"):
    """Make a root, an intermediate and a certificate for time stamps with the command line."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "conf").write_text(OPENSSL_CONFIG.format(ess_hash=ess_hash))
    (folder / "serial").write_text("41\n")
    new = ["-newkey", *algorithm.split(), "-nodes", "-config", "conf"]
    root = ["-x509", "-extensions", "ca", "-keyout", "root.key", "-out", "root.crt"]
    openssl(folder, "req", *new, *root, "-subj", "/CN=Test Root")
    issuer = "root"
    for name, kind, subject in (("middle", "ca", "/CN=Middle"), ("tsa", "tsa", "/O=O/CN=Stamps")):
        openssl(folder, "req", *new, "-keyout", f"{name}.key", "-out", "csr", "-subj", subject)
        under = ["-CA", f"{issuer}.crt", "-CAkey", f"{issuer}.key", "-CAcreateserial"]
        made = ["-extfile", "conf", "-extensions", kind, "-out", f"{name}.crt"]
        openssl(folder, "x509", "-req", "-in", "csr", *under, *made)
        issuer = name
    return folder


def openssl_token(folder, request, extra=()):
    """Answer with ``openssl ts``; ``extra`` certificates go into the token in the order given."""
    (folder / "query").write_bytes(request)
    certs = ""
    if extra:
        (folder / "extra").write_text("".join((folder / name).read_text() for name in extra))
        certs = "certs = extra\n"
    (folder / "conf-reply").write_text((folder / "conf").read_text() + certs)
    reply = ["-config", "conf-reply", "-section", "stamps", "-queryfile", "query", "-out", "reply"]
    openssl(folder, "ts", "-reply", *reply)
    return extract_token((folder / "reply").read_bytes())


@pytest.fixture(scope="module")
def stamps(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    return openssl_authority(tmp_path_factory.mktemp("openssl"))


def test_a_request_says_what_it_should(request_):
    parsed = rfc3161_client._rust.parse_timestamp_request(request_.der)

    assert parsed.version == 1
    assert parsed.message_imprint.message == DIGEST
    assert parsed.nonce == request_.nonce
    assert parsed.cert_req
    assert build_request(DIGEST).nonce != request_.nonce


@pytest.mark.parametrize("digest", [b"", b"x" * 31, b"x" * 33])
def test_only_sha256_digests_are_asked_for_or_checked(authority, token, digest):
    for call in (
        lambda: build_request(digest),
        lambda: check_token(token, digest, [authority.root]),
    ):
        with pytest.raises(ConfigError, match="32 bytes"):
            call()


def test_a_token_of_the_local_authority_holds(authority, token, request_):
    stamp = check_token(token, DIGEST, [authority.root], nonce=request_.nonce)

    assert abs(datetime.now(UTC) - stamp.time) < timedelta(minutes=5)
    assert stamp.time.tzinfo is UTC
    assert stamp.accuracy == timedelta(seconds=1)
    assert stamp.serial >= 1
    assert "not independent" in stamp.authority
    assert check_token(token, DIGEST, [authority.root]) == stamp


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_no_byte_of_a_token_can_change(authority, token, mask):
    for position in range(len(token)):
        refuses(flipped(token, position, mask), roots=[authority.root])


def test_no_byte_of_a_token_of_openssl_can_change(stamps):
    token = openssl_token(stamps, build_request(DIGEST).der)
    roots = read_root_certificates((stamps / "root.crt").read_bytes())
    roots += read_root_certificates((stamps / "middle.crt").read_bytes())

    check_token(token, DIGEST, roots)
    for position in range(0, len(token), 3):
        refuses(flipped(token, position, 0x01), roots=roots)


def test_a_token_cannot_be_cut_or_lengthened(authority, token):
    for length in range(1, len(token), 37):
        refuses(token[:length], roots=[authority.root])
    refuses(token + b"\0", roots=[authority.root])
    refuses(token + token, roots=[authority.root])


def test_another_digest_nonce_or_root_is_refused(authority, token, request_):
    other = hashlib.sha256(b"another file").digest()

    assert "another digest" in refuses(token, digest=other, roots=[authority.root])
    assert "nonce" in refuses(token, roots=[authority.root], nonce=request_.nonce + 1)
    assert "chain" in refuses(token, roots=[Chain().root])
    assert "chain" in refuses(token, roots=[authority.certificate])
    with pytest.raises(UsageError, match="no root"):
        check_token(token, DIGEST, [])


def test_an_authority_is_not_taken_for_another_of_the_same_name(tmp_path, authority, token):
    other = LocalAuthority.create(tmp_path / "other")

    assert other.root.subject == authority.root.subject
    refuses(token, roots=[other.root])
    check_token(token, DIGEST, [other.root, authority.root, other.root])


def test_a_token_without_nonce_does_not_pass_for_an_answer():
    chain = Chain()

    refuses(chain.token(), roots=[chain.root], nonce=5)
    assert check_token(chain.token(nonce=5), DIGEST, [chain.root], nonce=5).accuracy is None


def test_a_token_outlives_its_certificate_but_not_the_other_way_round():
    chain = Chain(start=NOON - YEAR, end=NOON - timedelta(days=30))

    held = check_token(chain.token(NOON - timedelta(days=31)), DIGEST, [chain.root])
    assert held.time == NOON - timedelta(days=31)
    refuses(chain.token(NOON), roots=[chain.root])
    refuses(chain.token(NOON - 2 * YEAR), roots=[chain.root])


@pytest.mark.parametrize(
    ("usages", "critical"),
    [
        ((), True),
        ((STAMPING,), False),
        ((ExtendedKeyUsageOID.CODE_SIGNING,), True),
        ((STAMPING, ExtendedKeyUsageOID.CODE_SIGNING), True),
        ((ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,), True),
    ],
)
def test_a_certificate_for_anything_else_is_refused(usages, critical):
    chain = Chain(usages, critical=critical)

    assert "time stamps alone" in refuses(chain.token(), roots=[chain.root])


def test_another_hash_of_the_same_length_is_another_digest():
    chain = Chain()

    assert "another digest" in refuses(chain.token(algorithm="sha3_256"), roots=[chain.root])


def rebuilt(token, change):
    """Return the token after ``change`` was made to its signed data."""
    content = cms.ContentInfo.load(token)
    change(content["content"])
    return content.dump(force=True)


def test_the_signer_must_be_one_and_in_the_token():
    chain = Chain()
    double = chain.builder(
        "Double", chain.root_key, NOON - YEAR, NOON + YEAR, chain.certificate.serial_number
    ).sign(chain.root_key, hashes.SHA256())
    der = double.public_bytes(serialization.Encoding.DER)
    token = chain.token()

    def without(signed):
        signed["certificates"] = None

    def with_double(signed):
        both = [*signed["certificates"], cms.CertificateChoices.load(der)]
        signed["certificates"] = both

    def signed_twice(signed):
        signed["signer_infos"] = [signed["signer_infos"][0], signed["signer_infos"][0]]

    def unsigned(signed):
        signed["signer_infos"] = []

    check_token(rebuilt(token, lambda signed: None), DIGEST, [chain.root])
    for change in (without, with_double, signed_twice, unsigned):
        refuses(rebuilt(token, change), roots=[chain.root])


def test_the_signature_must_name_its_certificate():
    chain = Chain()
    again = chain.builder(
        "Stamper", chain.key, NOON - YEAR, NOON + YEAR, chain.certificate.serial_number
    ).add_extension(x509.ExtendedKeyUsage([STAMPING]), critical=True)
    der = again.sign(chain.root_key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)

    def swap(signed):
        signed["certificates"] = [cms.CertificateChoices.load(der)]

    # Same issuer, number and key: only the hash inside the signature tells them apart.
    assert "RFC 3161" in refuses(rebuilt(chain.token(), swap), roots=[chain.root])


@pytest.mark.parametrize("size", [1, 10, 100, 1000, MAX_TOKEN_BYTES])
def test_garbage_is_refused(authority, size):
    for number in range(20):
        garbage = hashlib.shake_256(b"%d" % number).digest(size)
        refuses(garbage, roots=[authority.root])
        with pytest.raises(TransparencyError):
            extract_token(garbage)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * (50 << 20), b"\x30\x80" * 30_000, b"\x30\x84\xff\xff\xff\xff", b"<html></html>"],
    ids=["nothing", "huge", "deep", "long length", "HTML"],
)
def test_hostile_input_is_refused(authority, content):
    refuses(content, roots=[authority.root])
    with pytest.raises(TransparencyError) as caught:
        extract_token(content)
    assert caught.value.hint


def test_deep_nesting_is_refused(authority):
    nested = b""
    while len(nested) < MAX_TOKEN_BYTES // 2:
        nested = parser.emit(0, 1, 16, nested)

    refuses(nested, roots=[authority.root])
    with pytest.raises(TransparencyError):
        extract_token(nested)


def test_a_refusal_is_told_in_its_own_words():
    with pytest.raises(TransparencyError, match=r"rejection \(bad_alg\) 'no such hash  x'"):
        extract_token(refused("bad_alg", "no such hash\x1b\nx"))


def test_an_answer_must_hold_a_token():
    granted = tsp.PKIStatusInfo({"status": "granted"}).dump()
    waiting = tsp.PKIStatusInfo({"status": "waiting"}).dump()
    unheard = tsp.PKIStatusInfo({"status": 99, "fail_info": (0, 1, 0, 0, 1)}).dump()

    for content in (granted, waiting, unheard, b"", core.Integer(5).dump()):
        with pytest.raises(TransparencyError):
            extract_token(parser.emit(0, 1, 16, content))


@needs_openssl
@pytest.mark.parametrize("ess_hash", ["sha1", "sha256", "sha512"])
@pytest.mark.parametrize("algorithm", ["rsa:2048", "ec -pkeyopt ec_paramgen_curve:P-384"])
def test_tokens_of_openssl_hold(tmp_path, algorithm, ess_hash):
    folder = openssl_authority(tmp_path, algorithm=algorithm, ess_hash=ess_hash)
    roots = read_root_certificates((folder / "root.crt").read_bytes())
    request = build_request(DIGEST)

    for extra in (["middle.crt"], ["root.crt", "middle.crt"], ["middle.crt", "root.crt"]):
        token = openssl_token(folder, request.der, extra)
        stamp = check_token(token, DIGEST, roots, nonce=request.nonce)
        assert stamp.policy == "1.2.3.4.1"
        assert stamp.authority == "Stamps"
        assert stamp.accuracy == timedelta(seconds=1, milliseconds=500, microseconds=100)
        assert abs(datetime.now(UTC) - stamp.time) < timedelta(minutes=5)
    # Without the certificate between, there is no chain to the root.
    assert "chain" in refuses(openssl_token(folder, request.der), roots=roots)


def test_fractions_of_a_second_are_kept():
    chain = Chain()
    time = NOON + timedelta(milliseconds=123)

    assert check_token(chain.token(time), DIGEST, [chain.root]).time == time


def test_accuracy_beyond_all_time_is_refused():
    chain = Chain()

    refuses(chain.token(accuracy={"seconds": 1 << 100}), roots=[chain.root])


@pytest.mark.parametrize("pem", [b"", b"garbage", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_root_certificates_are_pem(pem):
    with pytest.raises(InputError) as caught:
        read_root_certificates(pem)
    assert caught.value.hint


def test_a_missing_package_is_named(monkeypatch, authority, token):
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    with pytest.raises(MissingExtraError, match="rfc3161_client") as caught:
        check_token(token, DIGEST, [authority.root])
    assert "'.[authority]'" in caught.value.hint

    monkeypatch.setitem(sys.modules, "asn1crypto.tsp", None)
    with pytest.raises(MissingExtraError, match="asn1crypto"):
        build_request(DIGEST)
