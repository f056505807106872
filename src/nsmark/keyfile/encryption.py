"""Optional encryption of a whole key file: scrypt and AES-256-GCM.

Layout: 16 bytes magic, log2(N), r, p (one byte each), 16 bytes salt, 12 bytes nonce, ciphertext
with its 16-byte tag. Everything before the ciphertext is authenticated with it.
"""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from nsmark.errors import KeyFileError

MAGIC = b"nsmark/sealed/1\x00"
_SALT_BYTES, _NONCE_BYTES = 16, 12
_HEAD_BYTES = len(MAGIC) + 3 + _SALT_BYTES + _NONCE_BYTES
_LOG_N, _R, _P = 15, 8, 1
# A hostile file must not make us spend gigabytes or minutes: N·r·p bounds the time, and N·r·128
# bytes is the memory, so at most 1 GiB and a few seconds.
_MAX_WORK = 2**20 * 8
MAX_ENCRYPTED_BYTES = 2**31 - 1


def is_encrypted(content: bytes) -> bool:
    """Return whether bytes begin like an encrypted key file."""
    return content.startswith(MAGIC)


def encrypt(content: bytes, passphrase: bytes) -> bytes:
    """Encrypt a key file under a passphrase."""
    if not passphrase:
        raise KeyFileError("the passphrase is empty", "give one, or leave the key unencrypted")
    if len(content) + _HEAD_BYTES + 16 > MAX_ENCRYPTED_BYTES:
        raise KeyFileError("the key is too large to encrypt as a whole", "encrypt the disk instead")
    salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
    head = MAGIC + bytes([_LOG_N, _R, _P]) + salt + nonce
    secret = _derive(passphrase, salt, _LOG_N, _R, _P)
    return head + AESGCM(secret).encrypt(nonce, content, head)


def decrypt(content: bytes, passphrase: bytes) -> bytes:
    """Undo :func:`encrypt`.

    Raises:
        KeyFileError: Wrong passphrase, or the file was altered.
    """
    head, body = content[:_HEAD_BYTES], content[_HEAD_BYTES:]
    if len(head) < _HEAD_BYTES or len(body) < 16 or not is_encrypted(content):
        raise KeyFileError("the encrypted key file is truncated", "get the original file")
    log_n, r, p = head[len(MAGIC) : len(MAGIC) + 3]
    # scrypt itself is not defined for N ≥ 2^(16 r).
    if not (1 <= log_n < 16 * r and p >= 1 and 2**log_n * r * p <= _MAX_WORK):
        raise KeyFileError(
            "the encrypted key file asks for unreasonable work", "nsmark did not write it"
        )
    salt = head[len(MAGIC) + 3 : len(MAGIC) + 3 + _SALT_BYTES]
    nonce = head[-_NONCE_BYTES:]
    try:
        return AESGCM(_derive(passphrase, salt, log_n, r, p)).decrypt(nonce, body, head)
    except InvalidTag as error:
        raise KeyFileError(
            "the passphrase is wrong or the encrypted key file was altered",
            "check the passphrase, or get the original file",
        ) from error


def _derive(passphrase: bytes, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    return Scrypt(salt=salt, length=32, n=2**log_n, r=r, p=p).derive(passphrase)
