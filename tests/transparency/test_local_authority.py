"""The authority on this machine: what it signs, refuses, keeps and numbers."""

import hashlib
import json
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

tsp = pytest.importorskip("asn1crypto.tsp", reason="needs the authority extra")
rfc3161_client = pytest.importorskip("rfc3161_client", reason="needs the authority extra")
from asn1crypto import core  # noqa: E402

from nsmark.errors import FileAccessError, InputError  # noqa: E402
from nsmark_authority.errors import TransparencyError  # noqa: E402
from nsmark_authority.transparency.local_authority import LOCAL_POLICY, ROOT_FILE, LocalAuthority  # noqa: E402
from nsmark_authority.transparency.timestamp import (  # noqa: E402
    check_token,
    read_root_certificates,
)
from nsmark_authority.transparency.timestamp_messages import build_request, extract_token  # noqa: E402
from processes import PATIENCE, running  # noqa: E402

DATA = b"a key file"
DIGEST = hashlib.sha256(DATA).digest()
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def authority(tmp_path):
    return LocalAuthority.create(tmp_path / "authority")


def request_with(algorithm="sha256", digest=DIGEST, **fields):
    imprint = {"hash_algorithm": {"algorithm": algorithm}, "hashed_message": digest}
    base = {"version": "v1", "message_imprint": imprint, "cert_req": True}
    return tsp.TimeStampReq(base | fields).dump()


def status_of(answer):
    parts = core.SequenceOf.load(answer, spec=core.Any, strict=True)
    return parts[0].parse(tsp.PKIStatusInfo).native, len(parts)


def serial_of(authority):
    token = extract_token(authority.answer(build_request(DIGEST).der))
    return check_token(token, DIGEST, [authority.root]).serial


def openssl(folder, *arguments):
    return subprocess.run(
        ["openssl", *arguments], cwd=folder, capture_output=True, timeout=PATIENCE
    )


def test_the_files_are_for_their_owner_alone(authority):
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in authority.folder.iterdir()}

    assert stat.S_IMODE(authority.folder.stat().st_mode) == 0o700
    assert modes == dict.fromkeys(["authority.pem", "key.pem", "root.pem", "serial.txt"], 0o600)


def test_the_key_of_the_root_is_kept_nowhere(authority):
    keys = [path for path in authority.folder.iterdir() if b"PRIVATE KEY" in path.read_bytes()]

    assert [path.name for path in keys] == ["key.pem"]
    key = serialization.load_pem_private_key(keys[0].read_bytes(), None)
    assert key.public_key() == authority.certificate.public_key() != authority.root.public_key()
    assert keys[0].read_text() not in repr(authority)


def test_the_certificates_say_that_they_are_local(authority):
    for certificate in (authority.root, authority.certificate):
        name = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        assert name.startswith("nsmark local")
        assert "not independent" in name
    assert isinstance(authority.certificate.public_key().curve, ec.SECP256R1)
    constraints = authority.root.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)


def test_an_authority_comes_back_from_its_folder(authority):
    again = LocalAuthority.open(authority.folder)

    assert (again.root, again.certificate) == (authority.root, authority.certificate)
    assert [serial_of(authority), serial_of(again), serial_of(authority)] == [1, 2, 3]
    roots = read_root_certificates((authority.folder / ROOT_FILE).read_bytes())
    assert roots == (authority.root,)


def test_an_authority_is_never_replaced(authority):
    before = {path.name: path.read_bytes() for path in authority.folder.iterdir()}

    with pytest.raises(FileAccessError, match="exists already"):
        LocalAuthority.create(authority.folder)
    assert {path.name: path.read_bytes() for path in authority.folder.iterdir()} == before


@pytest.mark.parametrize("name", ["root.pem", "authority.pem", "key.pem"])
def test_damaged_files_are_told(authority, name):
    path = authority.folder / name
    good = path.read_bytes()
    for content in (b"", b"garbage", good[:-100], b"\0" * (1 << 20), good.replace(b"A", b"B")):
        path.write_bytes(content)
        with pytest.raises(InputError) as caught:
            LocalAuthority.open(authority.folder)
        assert caught.value.hint
    path.unlink()
    with pytest.raises(FileAccessError):
        LocalAuthority.open(authority.folder)


def test_files_that_do_not_belong_together_are_told(authority, tmp_path):
    other = LocalAuthority.create(tmp_path / "other")
    pem = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )

    for name in ("root.pem", "authority.pem", "key.pem"):
        path = authority.folder / name
        good = path.read_bytes()
        for content in ((other.folder / name).read_bytes(), pem):
            path.write_bytes(content)
            with pytest.raises(TransparencyError, match="damaged"):
                LocalAuthority.open(authority.folder)
        path.write_bytes(good)
    LocalAuthority.open(authority.folder)


def test_the_token_repeats_the_request(authority):
    answer = rfc3161_client.decode_timestamp_response(
        authority.answer(request_with(nonce=1 << 63, req_policy=LOCAL_POLICY))
    )

    info = answer.tst_info
    assert answer.status == 0
    assert info.version == 1
    assert info.policy.dotted_string == LOCAL_POLICY
    assert info.message_imprint.message == DIGEST
    assert info.nonce == 1 << 63
    assert info.accuracy.seconds == 1
    assert info.name.value == authority.certificate.subject
    assert not info.ordering


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_rfc3161_client_verifies_its_own_request(authority, algorithm):
    name = rfc3161_client.HashAlgorithm(algorithm.upper())
    request = rfc3161_client.TimestampRequestBuilder().data(DATA).hash_algorithm(name).build()
    answer = rfc3161_client.decode_timestamp_response(authority.answer(request.as_bytes()))
    builder = rfc3161_client.VerifierBuilder.from_request(request)

    verifier = builder.add_root_certificate(authority.root).build()
    assert verifier.verify_message(answer, DATA)
    with pytest.raises(rfc3161_client.VerificationError):
        verifier.verify_message(answer, b"another file")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
@pytest.mark.parametrize("algorithm", ["sha256", "sha384", "sha512"])
def test_openssl_verifies_the_token(authority, tmp_path, algorithm):
    (tmp_path / "data").write_bytes(DATA)
    query = ["-data", "data", f"-{algorithm}", "-cert", "-out", "query"]
    assert openssl(tmp_path, "ts", "-query", *query).returncode == 0

    answer = authority.answer((tmp_path / "query").read_bytes())
    (tmp_path / "answer").write_bytes(answer)
    (tmp_path / "token").write_bytes(extract_token(answer))

    trusted = ["-CAfile", str(authority.folder / ROOT_FILE)]
    for found in (["-in", "answer"], ["-in", "token", "-token_in"]):
        for asked in (["-queryfile", "query"], ["-data", "data"]):
            done = openssl(tmp_path, "ts", "-verify", *asked, *found, *trusted)
            assert done.returncode == 0, done.stderr.decode()
    (tmp_path / "data").write_bytes(b"another file")
    done = openssl(tmp_path, "ts", "-verify", "-data", "data", "-in", "answer", *trusted)
    assert done.returncode != 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_openssl_reads_a_refusal(authority, tmp_path):
    (tmp_path / "answer").write_bytes(authority.answer(request_with("sha1", b"x" * 20)))

    text = openssl(tmp_path, "ts", "-reply", "-in", "answer", "-text").stdout.decode()
    assert "Status: Rejected." in text
    assert "unrecognized or unsupported algorithm identifier" in text


def test_the_certificate_is_left_out_where_nobody_asked_for_it(authority):
    def certificates(**fields):
        answer = rfc3161_client.decode_timestamp_response(authority.answer(request_with(**fields)))
        return len(answer.signed_data.certificates)

    assert (certificates(), certificates(cert_req=False)) == (1, 0)


EXTENSIONS = [{"extn_id": "1.2.3", "extn_value": b"x"}]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (b"", "bad_data_format"),
        (b"garbage", "bad_data_format"),
        (request_with() + b"\0", "bad_data_format"),
        (request_with()[:-1], "bad_data_format"),
        (b"\0" * (50 << 20), "bad_data_format"),
        (b"\x30\x80" * 2000, "bad_data_format"),
        (request_with(digest=b"short"), "bad_data_format"),
        (request_with("sha512"), "bad_data_format"),
        (request_with(version="v2"), "bad_request"),
        (request_with("sha1", b"x" * 20), "bad_alg"),
        (request_with("md5", b"x" * 16), "bad_alg"),
        (request_with("1.2.3.4"), "bad_alg"),
        (request_with(req_policy="1.2.3.4"), "unaccepted_policy"),
        (request_with(extensions=EXTENSIONS), "unaccepted_extensions"),
    ],
)
def test_a_refusal_names_its_reason(authority, request_, reason):
    status, parts = status_of(authority.answer(request_))

    assert status["status"] == "rejection"
    assert status["fail_info"] == {reason}
    assert status["status_string"][0]
    assert parts == 1
    assert (authority.folder / "serial.txt").read_text() == "0\n"


def test_no_changed_request_breaks_it(authority):
    request = build_request(DIGEST).der

    for position in range(len(request)):
        changed = bytearray(request)
        changed[position] ^= 0xFF
        status, parts = status_of(authority.answer(bytes(changed)))
        assert (status["status"] == "granted") == (parts == 2)


@pytest.mark.parametrize("offset", [-timedelta(days=1), timedelta(days=30 * 365)])
def test_a_clock_outside_its_years_is_no_clock(tmp_path, offset):
    now = NOON
    authority = LocalAuthority.create(tmp_path / "authority", lambda: now)
    granted, _ = status_of(authority.answer(build_request(DIGEST).der))
    now = NOON + offset

    status, _ = status_of(authority.answer(build_request(DIGEST).der))
    assert granted["status"] == "granted"
    assert status["fail_info"] == {"time_not_available"}


def test_the_time_is_that_of_the_clock(tmp_path):
    authority = LocalAuthority.create(tmp_path / "authority", lambda: NOON)

    token = extract_token(authority.answer(build_request(DIGEST).der))
    assert check_token(token, DIGEST, [authority.root]).time == NOON


@pytest.mark.parametrize("content", [b"", b"x\n", b"-5\n", b"1" * 5000, None])
def test_without_its_number_it_signs_nothing(authority, content):
    path = authority.folder / "serial.txt"
    path.unlink()
    if content is not None:
        path.write_bytes(content)

    answer = authority.answer(build_request(DIGEST).der)
    assert status_of(answer)[0]["fail_info"] == {"system_failure"}
    assert str(authority.folder).encode() not in answer


def test_a_lost_folder_is_a_refusal(authority):
    shutil.rmtree(authority.folder)

    answer = authority.answer(build_request(DIGEST).der)
    assert status_of(answer)[0]["fail_info"] == {"system_failure"}


def test_threads_never_share_a_number(authority):
    authorities = [authority, LocalAuthority.open(authority.folder)]

    with ThreadPoolExecutor(8) as pool:
        serials = list(pool.map(serial_of, authorities * 20))
    assert sorted(serials) == list(range(1, 41))


def test_processes_never_share_a_number(authority):
    program = """
import json, sys
from pathlib import Path
from nsmark_authority.transparency.local_authority import LocalAuthority
authority = LocalAuthority.open(Path(sys.argv[1]))
print(json.dumps([authority._next_serial() for _ in range(30)]))
"""
    command = [sys.executable, "-c", program, str(authority.folder)]
    with ExitStack() as stack:
        both = [stack.enter_context(running(command, stdout=subprocess.PIPE)) for _ in range(2)]
        serials = [json.loads(process.communicate()[0]) for process in both]
    assert sorted([*serials[0], *serials[1]]) == list(range(1, 61))
    assert all(numbers == sorted(numbers) for numbers in serials)
