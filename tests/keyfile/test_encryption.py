"""Encrypted key files: scrypt and AES-256-GCM, the whole file authenticated."""

import hashlib
import time

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsmark.errors import KeyFileError
from nsmark.keyfile.encryption import MAGIC, decrypt, encrypt, is_encrypted

PARAMETERS = slice(16, 19)
SALT = slice(19, 35)
NONCE = slice(35, 47)
BODY = slice(47, None)


@pytest.fixture(scope="module")
def encrypted():
    return encrypt(b"the content of a key file", b"correct horse")


# Every example runs scrypt twice: few examples.
@settings(max_examples=6, deadline=None)
@given(content=st.binary(max_size=300), passphrase=st.binary(min_size=1, max_size=40))
@example(content=b"", passphrase=b"\x00")
def test_decryption_undoes_encryption(content, passphrase):
    sealed = encrypt(content, passphrase)

    assert is_encrypted(sealed)
    assert decrypt(sealed, passphrase) == content


def test_layout_is_the_documented_one(encrypted):
    # Decrypted here with other tools: hashlib's scrypt and the bare cipher.
    assert encrypted[:16] == MAGIC == b"nsmark/sealed/1\x00"
    assert tuple(encrypted[PARAMETERS]) == (15, 8, 1)
    secret = hashlib.scrypt(
        b"correct horse", salt=encrypted[SALT], n=2**15, r=8, p=1, maxmem=2**26, dklen=32
    )

    plain = AESGCM(secret).decrypt(encrypted[NONCE], encrypted[BODY], encrypted[:47])

    assert plain == b"the content of a key file"
    assert len(encrypted) == 47 + len(plain) + 16


def test_salt_and_nonce_are_fresh_each_time(encrypted):
    again = encrypt(b"the content of a key file", b"correct horse")

    assert again[SALT] != encrypted[SALT]
    assert again[NONCE] != encrypted[NONCE]
    assert again[BODY] != encrypted[BODY]


def test_content_does_not_shine_through(encrypted):
    assert b"content" not in encrypted


@pytest.mark.parametrize("passphrase", [b"correct horsf", b"correct horse ", b"Correct horse", b""])
def test_wrong_passphrase_is_refused(encrypted, passphrase):
    with pytest.raises(KeyFileError, match="passphrase is wrong"):
        decrypt(encrypted, passphrase)


@pytest.mark.parametrize("position", [19, 34, 35, 46, 47, 60, -17, -16, -1])
@pytest.mark.parametrize("change", [0x01, 0x80])
def test_altered_salt_nonce_ciphertext_or_tag_is_refused(encrypted, position, change):
    altered = bytearray(encrypted)
    altered[position] ^= change

    with pytest.raises(KeyFileError, match="altered"):
        decrypt(bytes(altered), b"correct horse")


@pytest.mark.parametrize("parameters", [(14, 8, 1), (15, 4, 1), (15, 8, 2), (15, 7, 1)])
def test_altered_work_factors_are_refused(encrypted, parameters):
    altered = encrypted[:16] + bytes(parameters) + encrypted[19:]

    with pytest.raises(KeyFileError, match="altered"):
        decrypt(altered, b"correct horse")


def test_weaker_work_factors_cannot_be_slipped_in():
    # The factors are authenticated: a file sealed with other ones in its head does not open.
    salt, nonce = bytes(16), bytes(12)
    head = MAGIC + bytes([15, 8, 1]) + salt + nonce
    other_head = MAGIC + bytes([1, 8, 1]) + salt + nonce
    secret = hashlib.scrypt(b"pw", salt=salt, n=2, r=8, p=1, dklen=32)
    body = AESGCM(secret).encrypt(nonce, b"content", head)

    with pytest.raises(KeyFileError, match="altered"):
        decrypt(other_head + body, b"pw")


@pytest.mark.parametrize(
    "parameters",
    [
        (0, 8, 1),
        (15, 0, 1),
        (15, 8, 0),
        (21, 8, 1),
        (63, 8, 1),
        (255, 255, 255),
        (20, 9, 1),
        (20, 8, 2),  # memory within bounds, but twice the time
        (20, 1, 255),
        (15, 255, 255),
        (16, 1, 1),  # N ≥ 2^(16 r): scrypt is not defined there
        (20, 1, 1),
        (0, 0, 0),
    ],
)
def test_hostile_work_factors_are_refused_quickly(encrypted, parameters):
    hostile = encrypted[:16] + bytes(parameters) + encrypted[19:]
    started = time.thread_time()

    with pytest.raises(KeyFileError, match="unreasonable work"):
        decrypt(hostile, b"correct horse")

    assert time.thread_time() - started < 0.2


def test_truncation_is_refused(encrypted):
    for length in range(len(MAGIC), 47 + 16):
        with pytest.raises(KeyFileError, match="truncated"):
            decrypt(encrypted[:length], b"correct horse")
    for length in (47 + 16, len(encrypted) - 1):
        with pytest.raises(KeyFileError, match="altered"):
            decrypt(encrypted[:length], b"correct horse")


def test_trailing_data_is_refused(encrypted):
    with pytest.raises(KeyFileError, match="altered"):
        decrypt(encrypted + b"\x00", b"correct horse")


def test_only_the_magic_makes_a_file_encrypted(encrypted):
    assert not is_encrypted(b"")
    assert not is_encrypted(encrypted[:15])
    assert not is_encrypted(b" " + encrypted)
    with pytest.raises(KeyFileError):
        decrypt(b"x" * 100, b"correct horse")


def test_empty_passphrase_is_no_encryption():
    with pytest.raises(KeyFileError, match="empty"):
        encrypt(b"content", b"")
