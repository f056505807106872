"""The digest that names a key, against SPEC §7 written down a second time."""

import hashlib

import numpy as np
import pytest

from handmade_keys import make_key, spec_content_digest
from nsmark.keyfile.digest import content_digest, tensor_bytes


@pytest.fixture(scope="module")
def key():
    return make_key(with_null_basis=True)


def test_digest_of_a_small_key_follows_the_specification_byte_by_byte():
    tensors = {"b": np.array([[1, -2]], np.float32), "a": np.array([0.5], np.float32)}
    # Spelled out, so that no helper can share a mistake with the code: 1.0 is 0000803f, −2.0 is
    # 000000c0 and 0.5 is 0000003f in little-endian float32.
    spelled = (
        b"nsmark/key/1\x00"
        + b"\x00\x00\x00\x00\x00\x00\x00\x02{}"
        + b"\x00\x00\x00\x00\x00\x00\x00\x01a"
        + b"\x00\x00\x00\x00\x00\x00\x00\x03F32"
        + b"\x00\x00\x00\x00\x00\x00\x00\x03[1]"
        + b"\x00\x00\x00\x00\x00\x00\x00\x20"
        + hashlib.sha256(bytes.fromhex("0000003f")).digest()
        + b"\x00\x00\x00\x00\x00\x00\x00\x01b"
        + b"\x00\x00\x00\x00\x00\x00\x00\x03F32"
        + b"\x00\x00\x00\x00\x00\x00\x00\x05[1,2]"
        + b"\x00\x00\x00\x00\x00\x00\x00\x20"
        + hashlib.sha256(bytes.fromhex("0000803f000000c0")).digest()
    )

    digest = content_digest(b"{}", tensors)

    assert digest == hashlib.sha256(spelled).digest()
    assert digest.hex() == "1b9d1a548896d898bd318b1f21790c522b4f42470dc6086b11c4ece877b69bf5"


def test_digest_of_a_whole_key_follows_the_specification(key):
    assert key.content_digest == spec_content_digest(key.document_bytes(), key.tensors())
    assert key.key_id == key.content_digest.hex()


def test_seal_is_the_claim_keys_signature_of_the_digest(key):
    assert len(key.seal) == 64
    assert key.signed_claim.public_key.verifies(key.seal, key.content_digest)


def test_digest_does_not_depend_on_the_order_or_memory_layout_of_tensors(key):
    tensors = key.tensors()
    shuffled = {name: np.asfortranarray(tensors[name]) for name in reversed(sorted(tensors))}

    assert content_digest(key.document_bytes(), shuffled) == key.content_digest


def test_digest_changes_with_every_part():
    base = {"a": np.zeros((2, 3), np.float32)}
    variants = [
        content_digest(b"{}", base),
        content_digest(b"{ }", base),
        content_digest(b"{}", {"b": base["a"]}),
        content_digest(b"{}", {"a": base["a"].reshape(3, 2)}),
        content_digest(b"{}", {"a": base["a"].reshape(6)}),
        content_digest(b"{}", {"a": -base["a"]}),  # −0.0: other bytes, so another key
        content_digest(b"{}", {}),
        content_digest(b"{}", {"a": base["a"], "b": np.zeros(0, np.float32)}),
    ]

    assert len(set(variants)) == len(variants)


def test_bytes_moved_from_one_part_to_the_next_change_the_digest():
    zeros = np.zeros(1, np.float32)

    assert content_digest(b"{}a", {"b": zeros}) != content_digest(b"{}", {"ab": zeros})


def test_tensors_are_little_endian():
    assert tensor_bytes(np.array([1.0], np.float32)) == bytes.fromhex("0000803f")
    assert tensor_bytes(np.array([1.0], ">f4")) == bytes.fromhex("0000803f")
