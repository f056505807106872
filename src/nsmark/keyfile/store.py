"""Key files on disk: read with bounds, written atomically for their owner's eyes only."""

from __future__ import annotations

import io
import os
from pathlib import Path

from nsmark.errors import FileAccessError, KeyFileError
from nsmark.files import write_atomic
from nsmark.keyfile.codec import decode_key, encode_key
from nsmark.keyfile.encryption import MAGIC, MAX_ENCRYPTED_BYTES, decrypt, encrypt, is_encrypted
from nsmark.keyfile.schema import WatermarkKey


def read_key(path: str | Path, passphrase: bytes | None = None) -> WatermarkKey:
    """Read, check and if need be decrypt a key file.

    Raises:
        KeyFileError: Truncated, altered, forged, of another format, or the passphrase is wrong.
        FileAccessError: The file cannot be read.
    """
    try:
        with Path(path).open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            begin = stream.read(len(MAGIC))
            stream.seek(0)
            if not is_encrypted(begin):
                return decode_key(stream, size)
            if size > MAX_ENCRYPTED_BYTES:
                raise KeyFileError(
                    f"the encrypted key file {path} is too large", "nsmark did not write it"
                )
            if passphrase is None:
                raise KeyFileError(
                    f"the key file {path} is encrypted",
                    "give its passphrase (--key-passphrase-file, or NSMARK_KEY_PASSPHRASE)",
                )
            content = stream.read(MAX_ENCRYPTED_BYTES)
    except OSError as error:
        raise FileAccessError(
            f"cannot read key file {path}: {error.strerror or error}", "check the path"
        ) from error
    plain = decrypt(content, passphrase)
    return decode_key(io.BytesIO(plain), len(plain))


def write_key(key: WatermarkKey, path: str | Path, passphrase: bytes | None = None) -> None:
    """Write a sealed key, mode 0600; an existing file is not replaced."""
    content = encode_key(key)
    if passphrase is not None:
        content = encrypt(content, passphrase)
    write_atomic(Path(path), content, 0o600, overwrite=False)
