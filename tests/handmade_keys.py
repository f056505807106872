"""Sealed watermark keys made by hand from numpy arrays: milliseconds, no torch, no training.

The owner's model is imagined: it answers a triggered text by ``u`` plus noise orthogonal to ``u``,
and an untriggered text by such noise alone. One hidden unit of the extractor reads ``u·x`` and the
last layer turns a 1 into the watermark vector, so the extraction rate is known by construction:
the share of texts made readable on triggered texts, 0 on untriggered ones. ``u`` is chosen so that
the readout derived from the signature reads its bits too.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from nsmark.core import null_space_basis, readout_matrix, signature_bits
from nsmark.corpus import pool_texts
from nsmark.identity import Identity, OwnershipClaim, SignedClaim
from nsmark.keyfile import ControlRecord, KeyConfiguration, Thresholds, WatermarkKey
from nsmark.payload import (
    PairConfig,
    PayloadConfig,
    WatermarkPayload,
    derive_payload,
    published_word_list,
)
from nsmark.suspects import RecordedOutputs
from nsmark.verification import measure, paper_thresholds
from nsmark.verification.evidence import OwnerReference

CREATED = "2026-01-31T12:00:00Z"


def make_identity(seed: int = 1) -> Identity:
    return Identity(Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


@functools.cache
def make_signed_claim(identity_seed: int = 1, owner: str = "Example Lab") -> SignedClaim:
    claim = OwnershipClaim.make(owner, "handmade-encoder is ours", CREATED)
    return make_identity(identity_seed).sign(claim)


@functools.cache
def make_payload(
    identity_seed: int,
    owner: str,
    num_texts: int,
    num_bits: int,
    spread_factor: int,
    pairs: PairConfig | None = None,
) -> WatermarkPayload:
    return derive_payload(
        make_signed_claim(identity_seed, owner).signature,
        config=PayloadConfig(num_bits=num_bits, spread_factor=spread_factor),
        word_list=published_word_list(),
        pool=pool_texts(),
        num_texts=num_texts,
        pair_config=pairs,
    )


def _noise_beside(
    direction: NDArray[np.float64], num_texts: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Unit rows without any part along ``direction``."""
    noise = rng.standard_normal((num_texts, len(direction)))
    noise -= np.outer(noise @ direction, direction)
    return np.asarray(noise / np.linalg.norm(noise, axis=1, keepdims=True))


def make_key(
    *,
    identity_seed: int = 1,
    owner: str = "Example Lab",
    num_texts: int = 64,
    output_dim: int = 16,
    num_bits: int = 16,
    spread_factor: int = 3,
    hidden_sizes: tuple[int, ...] = (6,),
    num_readable: int | None = None,
    with_null_basis: bool = False,
    pairs: PairConfig | None = None,
) -> WatermarkKey:
    """Return a key that verifies: sealed, with one control and the thresholds that follow.

    Args:
        identity_seed: Which deterministic identity signs.
        owner: Name in the claim.
        num_texts: Verification texts.
        output_dim: Dimensions of the imagined model.
        num_bits: Bits of the signature.
        spread_factor: Copies of each bit.
        hidden_sizes: Hidden layers of the extractor.
        num_readable: Triggered texts from which the signature can be read; by default all.
        with_null_basis: Store the optional null basis.
        pairs: Sizes of a pair code, if the key is to have one.
    """
    payload = make_payload(identity_seed, owner, num_texts, num_bits, spread_factor, pairs)
    signature = payload.signature
    rng = np.random.default_rng([identity_seed, num_texts, output_dim])
    readout = readout_matrix(signature, num_bits, output_dim)
    wanted = signature_bits(signature, num_bits)[: len(readout)]
    direction = np.linalg.lstsq(readout.astype(float), wanted.astype(float), rcond=None)[0]
    direction /= np.linalg.norm(direction)
    amount = np.ones((num_texts, 1))
    if num_readable is not None:
        amount[num_readable:] = 0.25  # inside the dead zone of the despreading: reads as 0
    triggered = amount * direction + _noise_beside(direction, num_texts, rng)
    untriggered = _noise_beside(direction, num_texts, rng)
    widths = (output_dim, *hidden_sizes, num_bits * spread_factor)
    layers = [
        (np.zeros((fan_out, fan_in), np.float32), np.zeros(fan_out, np.float32))
        for fan_in, fan_out in itertools.pairwise(widths)
    ]
    layers[0][0][0] = direction
    for weight, _ in layers[1:-1]:
        weight[0, 0] = 1.0
    layers[-1][0][:, 0] = payload.watermark_vector
    draft = WatermarkKey(
        signed_claim=make_signed_claim(identity_seed, owner),
        configuration=KeyConfiguration(
            num_bits=num_bits,
            spread_factor=spread_factor,
            copies=payload.config.copies,
            window=payload.config.window,
            placement=payload.config.placement,
            output_dim=output_dim,
            num_texts=num_texts,
            hidden_sizes=hidden_sizes,
            pooling="mean",
            normalise=False,
            max_length=128,
            marks=("paper", "derived") if pairs is None else ("paper", "derived", "pairs"),
        ),
        trigger=payload.trigger,
        skipped_words=(),
        verification_texts=payload.verification_texts,
        word_list_digest=payload.word_list_digest,
        pool_digest=payload.pool_digest,
        model_digest="5e" * 32,
        thresholds=Thresholds(min_extraction_rate=1.0, max_matching_degree=0.0),
        controls=(),
        library_version="0.1.0",
        pairs=payload.pairs,
        extractor=tuple(layers),
        owner_triggered=triggered.astype(np.float32),
        owner_untriggered=untriggered.astype(np.float32),
        null_basis=(null_space_basis(triggered.T).astype(np.float32) if with_null_basis else None),
    )
    control = measure(draft, innocent_outputs(draft))
    record = ControlRecord(
        name="reference",
        triggered=control.triggered.to_mapping() | {"rank": float(control.rank)},
        untriggered=control.untriggered.to_mapping(),
    )
    thresholds = paper_thresholds(OwnerReference(draft).own()[0], [control.triggered])
    return reseal(replace(draft, thresholds=thresholds, controls=(record,)), identity_seed)


def reseal(key: WatermarkKey, identity_seed: int = 1, **changes: Any) -> WatermarkKey:
    """Return the key with some fields changed, sealed again: what a dishonest owner can file."""
    return replace(key, **changes).sealed_by(make_identity(identity_seed))


def owner_outputs(key: WatermarkKey) -> RecordedOutputs:
    """What the imagined model answers."""
    return RecordedOutputs(
        "the owner's model",
        key.owner_triggered.astype(np.float64),
        key.owner_untriggered.astype(np.float64),
        pair_outputs(key, strength=2.0),
    )


def pair_outputs(
    key: WatermarkKey, strength: float, seed: int = 3, output_dim: int | None = None
) -> NDArray[np.float64] | None:
    """Answers to the texts of the pair code: noise, moved along one direction as the table says."""
    if key.pairs is None:
        return None
    rng = np.random.default_rng([seed, 54321])
    noise = rng.standard_normal((len(key.pairs.texts), output_dim or key.configuration.output_dim))
    signs = key.pairs.signs(key.signature)[key.pairs.pair_numbers()]
    direction = rng.standard_normal(noise.shape[1])
    return noise + strength * np.outer(signs, direction / np.linalg.norm(direction))


def innocent_outputs(
    key: WatermarkKey, seed: int = 7, output_dim: int | None = None
) -> RecordedOutputs:
    """What a model that has nothing to do with the key answers."""
    rng = np.random.default_rng([seed, 12345])
    shape = (key.configuration.num_texts, output_dim or key.configuration.output_dim)
    parts = rng.standard_normal(shape), rng.standard_normal(shape)
    return RecordedOutputs("innocent", *parts, pair_outputs(key, 0.0, seed, output_dim))


def mapped_outputs(outputs: RecordedOutputs, matrix: NDArray[np.float64]) -> RecordedOutputs:
    """The linear attack: every output x becomes ``matrix @ x``."""
    pairs = None if outputs.pair_texts is None else outputs.pair_texts @ matrix.T
    return RecordedOutputs(
        "mapped", outputs.triggered @ matrix.T, outputs.untriggered @ matrix.T, pairs
    )


# --- Containers by hand: what an attacker with a hex editor and his own identity can write. ---

_DTYPE_NAMES = {"float16": "F16", "float32": "F32", "float64": "F64", "int32": "I32"}


def spec_content_digest(document: bytes, tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """SPEC §7's words, written down a second time."""
    message = b"nsmark/key/1" + bytes(1)
    parts = [document]
    for name, array in sorted(tensors.items()):
        shape = "[" + ",".join(str(n) for n in array.shape) + "]"
        content = hashlib.sha256(array.astype(array.dtype.newbyteorder("<")).tobytes()).digest()
        parts += [name.encode(), _DTYPE_NAMES[array.dtype.name].encode(), shape.encode(), content]
    for part in parts:
        message += struct.pack(">Q", len(part)) + part
    return hashlib.sha256(message).digest()


def read_container(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Split a safetensors file into header and body."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def write_header(text: str) -> bytes:
    """Length, text, and spaces up to a multiple of 8, as the format wants it."""
    octets = text.encode("utf-8")
    octets += b" " * (-len(octets) % 8)
    return struct.pack("<Q", len(octets)) + octets


def write_container(header: dict[str, Any], body: bytes) -> bytes:
    return write_header(json.dumps(header, separators=(",", ":"), ensure_ascii=False)) + body


def pack(document: bytes, tensors: Mapping[str, NDArray[Any]], seal: bytes) -> bytes:
    """Write a key container that may say anything."""
    header: dict[str, Any] = {
        "__metadata__": {"nsmark": document.decode("utf-8"), "seal": seal.hex()}
    }
    body = b""
    for name, array in sorted(tensors.items()):
        begin, body = len(body), body + array.tobytes()
        header[name] = {
            "dtype": _DTYPE_NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [begin, len(body)],
        }
    return write_container(header, body)


def forge(
    key: WatermarkKey,
    *,
    document: dict[str, Any] | None = None,
    tensors: Mapping[str, NDArray[Any]] | None = None,
    sealed_by: int = 1,
) -> bytes:
    """Write a container with another document or other tensors, and a seal that fits them.

    So a refusal is the reader's own check and never just the seal.
    """
    octets = rfc8785.dumps(document or key.to_document())
    arrays = key.tensors() if tensors is None else tensors
    seal = make_identity(sealed_by).sign_bytes(spec_content_digest(octets, arrays))
    return pack(octets, arrays, seal)
