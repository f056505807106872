"""Key files on disk: bounded reading, atomic writing, for their owner's eyes only."""

import json
import os
import stat
import struct
import time
import tracemalloc
from contextlib import contextmanager

import pytest

from handmade_keys import make_key, read_container, write_container, write_header
from nsmark.errors import FileAccessError, KeyFileError
from nsmark.keyfile import is_encrypted, read_key, write_key
from nsmark.keyfile.codec import encode_key
from nsmark.keyfile.encryption import MAGIC

GIB = 2**30


@pytest.fixture(scope="module")
def key():
    return make_key()


@contextmanager
def quick_and_small(seconds=2.0, max_bytes=64 << 20):
    """Nothing that reads gigabytes fits into these bounds."""
    started = time.thread_time()
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < max_bytes
    assert time.thread_time() - started < seconds


def test_key_written_is_the_key_read(key, tmp_path):
    file = tmp_path / "owner.nsmark"

    write_key(key, file)

    assert file.read_bytes() == encode_key(key)
    assert read_key(file) == key
    assert read_key(str(file)) == key


def test_file_is_readable_by_its_owner_only(key, tmp_path):
    previous = os.umask(0)
    try:
        write_key(key, tmp_path / "plain.nsmark")
        write_key(key, tmp_path / "sealed.nsmark", b"pw")
    finally:
        os.umask(previous)

    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_existing_file_is_never_replaced(key, tmp_path):
    file = tmp_path / "owner.nsmark"
    file.write_bytes(b"precious")

    with pytest.raises(FileAccessError, match="exists"):
        write_key(key, file)

    assert file.read_bytes() == b"precious"
    assert list(tmp_path.iterdir()) == [file]


def test_dangling_link_is_not_followed(key, tmp_path):
    link = tmp_path / "owner.nsmark"
    link.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(FileAccessError, match="exists"):
        write_key(key, link)

    assert list(tmp_path.iterdir()) == [link]


def test_nothing_is_left_when_the_key_is_refused(key, tmp_path):
    from dataclasses import replace

    with pytest.raises(KeyFileError):
        write_key(replace(key, seal=b""), tmp_path / "owner.nsmark")

    assert list(tmp_path.iterdir()) == []


def test_missing_file_and_folder_are_named(tmp_path):
    for path in (tmp_path / "nothing.nsmark", tmp_path):
        with pytest.raises(FileAccessError, match=str(path)):
            read_key(path)


def test_encrypted_key_comes_back_with_its_passphrase(key, tmp_path):
    file = tmp_path / "owner.nsmark"
    write_key(key, file, b"correct horse")
    content = file.read_bytes()

    assert is_encrypted(content)
    assert key.verification_texts[0].encode() not in content
    assert read_key(file, b"correct horse") == key
    with pytest.raises(KeyFileError, match="passphrase is wrong"):
        read_key(file, b"battery staple")
    with pytest.raises(KeyFileError, match="is encrypted"):
        read_key(file)


def test_passphrase_is_not_needed_for_a_plain_key(key, tmp_path):
    write_key(key, tmp_path / "owner.nsmark")

    assert read_key(tmp_path / "owner.nsmark", b"unused") == key


def test_encrypted_rubbish_is_refused(tmp_path):
    from nsmark.keyfile.encryption import encrypt

    file = tmp_path / "owner.nsmark"
    for content in (b"", b"not a key", encrypt(b"once more", b"pw")):
        file.write_bytes(encrypt(content, b"pw"))
        with pytest.raises(KeyFileError):
            read_key(file, b"pw")


def sparse(path, content, size):
    path.write_bytes(content)
    os.truncate(path, size)
    return path


def test_huge_empty_file_is_refused_unread(tmp_path):
    for size in (3 * GIB, 5 * GIB):
        file = sparse(tmp_path / f"{size}.nsmark", b"", size)
        with quick_and_small(), pytest.raises(KeyFileError):
            read_key(file)


def test_huge_file_that_begins_like_a_key_is_refused_unread(key, tmp_path):
    file = sparse(tmp_path / "owner.nsmark", encode_key(key), 4 * GIB)

    with quick_and_small(), pytest.raises(KeyFileError, match="follows its last tensor"):
        read_key(file)


def test_huge_header_is_refused_unread(tmp_path):
    for length in (65 << 20, 3 * GIB):
        file = sparse(tmp_path / f"{length}.nsmark", struct.pack("<Q", length), 4 * GIB)
        with quick_and_small(), pytest.raises(KeyFileError):
            read_key(file)


def test_header_that_promises_huge_tensors_is_refused_unread(key, tmp_path):
    # The file is as large as its header says; only the configuration says it cannot be.
    header, body = read_container(encode_key(key))
    begin = len(body)
    for name, shape in (("null_basis", [64, 2**24]), ("extra", [2**30])):
        size = 4 * 2**30
        info = {"dtype": "F32", "shape": shape, "data_offsets": [begin, begin + size]}
        content = write_container(header | {name: info}, body)
        file = sparse(tmp_path / f"{name}.nsmark", content, len(content) + size)
        with quick_and_small(), pytest.raises(KeyFileError, match="tensor"):
            read_key(file)


def test_huge_encrypted_file_is_refused_unread(tmp_path):
    file = sparse(tmp_path / "large.nsmark", MAGIC + bytes([15, 8, 1]), 3 * GIB)
    with quick_and_small(), pytest.raises(KeyFileError, match="too large"):
        read_key(file, b"pw")
    # Below the limit, it is not read before there is a passphrase to try.
    file = sparse(tmp_path / "locked.nsmark", MAGIC + bytes([15, 8, 1]), GIB)
    with quick_and_small(), pytest.raises(KeyFileError, match="is encrypted"):
        read_key(file)


def test_endless_device_is_refused():
    with quick_and_small(), pytest.raises(KeyFileError):
        read_key("/dev/zero")


def test_json_file_is_refused(tmp_path):
    file = tmp_path / "owner.nsmark"
    file.write_text(json.dumps({"format": "nsmark/key/1"}))
    with pytest.raises(KeyFileError):
        read_key(file)
    file.write_bytes(write_header("{}"))
    with pytest.raises(KeyFileError, match="metadata"):
        read_key(file)
