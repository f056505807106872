"""WatermarkKey: everything a verifier needs, and how it becomes a document and tensors."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import rfc8785

from nsmark.core.mlp import Layer
from nsmark.core.texts import text_words
from nsmark.errors import InputError, KeyFileError
from nsmark.identity.claim import OwnershipClaim
from nsmark.identity.keys import Identity
from nsmark.identity.public_key import PublicKey
from nsmark.identity.signing import SignedClaim, parse_hex
from nsmark.keyfile.digest import KEY_FORMAT, Array, content_digest
from nsmark.keyfile.document import (
    ControlRecord,
    KeyConfiguration,
    KeyDocument,
    PairDocument,
    Thresholds,
)
from nsmark.payload.pairs import PairPayload
from nsmark.payload.payload import WatermarkPayload

NULL_BASIS = "null_basis"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class WatermarkKey:
    """Everything a verifier needs, consistent by construction.

    Keys are equal when their content and seal are; printing one does not show its secret.

    ``owner_triggered`` and ``owner_untriggered`` are the owner's own outputs on the verification
    texts, shape (num_texts, output_dim); the null space is always computed from them.
    """

    signed_claim: SignedClaim
    configuration: KeyConfiguration
    trigger: str
    skipped_words: tuple[str, ...]
    verification_texts: tuple[str, ...]
    word_list_digest: str
    pool_digest: str
    model_digest: str
    thresholds: Thresholds
    controls: tuple[ControlRecord, ...]
    library_version: str
    extractor: tuple[Layer, ...]
    owner_triggered: Array
    owner_untriggered: Array
    pairs: PairPayload | None = None
    null_basis: Array | None = None
    """Allowed by the format and covered by the seal, but never used for a verdict."""
    seal: bytes = b""
    """Signature of ``content_digest`` by the claim's key; empty until :meth:`sealed_by`."""

    def __post_init__(self) -> None:
        config = self.configuration
        if len(self.verification_texts) != config.num_texts:
            raise KeyFileError(
                f"the key says {config.num_texts} texts and holds {len(self.verification_texts)}",
                "the key file is damaged or forged",
            )
        for text in (*self.verification_texts, *self._checked_pair_texts()):
            if text != " ".join(text_words(text)):
                raise KeyFileError(
                    "a verification text is not in normal form", "the key file is forged"
                )
        tensors = self.tensors()
        check_shapes(config, {name: array.shape for name, array in tensors.items()})
        for name, array in tensors.items():
            if array.dtype != np.float32 or not np.isfinite(array).all():
                raise KeyFileError(
                    f"tensor {name} holds values that are not finite float32 numbers",
                    "the key file is damaged or forged",
                )

    def _checked_pair_texts(self) -> tuple[str, ...]:
        """Return the texts of the pair code, whose sizes must be those it states."""
        if (self.pairs is not None) != ("pairs" in self.configuration.marks):
            raise KeyFileError(
                "the key's marks and its pair code contradict each other", "the key file is forged"
            )
        if self.pairs is None:
            return ()
        config = self.pairs.config
        found = (len(self.pairs.words), len(set(self.pairs.words)), len(self.pairs.texts))
        if found != (2 * config.size, 2 * config.size, config.num_texts):
            raise KeyFileError(
                "the pair code holds other numbers of words or texts than it states",
                "the key file is damaged or forged",
            )
        return self.pairs.texts

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WatermarkKey):
            return NotImplemented
        return (self.content_digest, self.seal) == (other.content_digest, other.seal)

    def __hash__(self) -> int:
        return hash((self.content_digest, self.seal))

    def __repr__(self) -> str:
        return f"WatermarkKey(owner={self.signed_claim.claim.owner!r}, key_id={self.key_id!r})"

    @property
    def signature(self) -> bytes:
        """The 64-byte signature: the watermark's secret."""
        return self.signed_claim.signature

    def payload(self) -> WatermarkPayload:
        """Return the payload as the key holds it."""
        return WatermarkPayload(
            signature=self.signature,
            config=self.configuration.payload_config(),
            trigger=self.trigger,
            skipped_words=self.skipped_words,
            verification_texts=self.verification_texts,
            word_list_digest=self.word_list_digest,
            pool_digest=self.pool_digest,
            pairs=self.pairs,
        )

    def public_view(self) -> dict[str, Any]:
        """Return everything about the key that does not help to find or remove its mark."""
        return {
            "format": "nsmark/key/1",
            "key_id": self.key_id,
            **self.signed_claim.public_form(),
            "fingerprint": self.signed_claim.public_key.fingerprint,
            "configuration": self.configuration.model_dump(mode="json"),
            "word_list_sha256": self.word_list_digest,
            "pool_sha256": self.pool_digest,
            "model_sha256": self.model_digest,
            "thresholds": self.thresholds.model_dump(mode="json"),
            "controls": [control.model_dump(mode="json") for control in self.controls],
            "library_version": self.library_version,
            **self._public_pairs(),
        }

    def _public_pairs(self) -> dict[str, Any]:
        if self.pairs is None:
            return {}
        config = self.pairs.config
        return {
            "pairs": {
                "size": config.size,
                "repeats": config.repeats,
                "num_texts": config.num_texts,
                "word_list_sha256": self.pairs.word_list_digest,
            }
        }

    def tensors(self) -> dict[str, Array]:
        """Return all arrays by their name in the file."""
        named = {} if self.null_basis is None else {NULL_BASIS: self.null_basis}
        named |= {
            "owner_outputs.triggered": self.owner_triggered,
            "owner_outputs.untriggered": self.owner_untriggered,
        }
        for depth, (weight, bias) in enumerate(self.extractor):
            named[f"extractor.{depth}.weight"] = weight
            named[f"extractor.{depth}.bias"] = bias
        return named

    @property
    def content_digest(self) -> bytes:
        """SHA-256 over document and tensors: what the seal signs."""
        return content_digest(self.document_bytes(), self.tensors())

    @property
    def key_id(self) -> str:
        """The name of this key: its content digest in hex."""
        return self.content_digest.hex()

    def sealed_by(self, identity: Identity) -> WatermarkKey:
        """Return the key sealed with the private key that signed its claim.

        Raises:
            KeyFileError: The identity is not the claim's.
        """
        if identity.public_key != self.signed_claim.public_key:
            raise KeyFileError(
                "the identity is not the one that signed the claim", "seal with the claim's own key"
            )
        return replace(self, seal=identity.sign_bytes(self.content_digest))

    def has_valid_seal(self) -> bool:
        """Return whether the seal is the claim key's signature of this very content."""
        return self.signed_claim.public_key.verifies(self.seal, self.content_digest)

    def document_bytes(self) -> bytes:
        """Return the document in RFC 8785 form."""
        return rfc8785.dumps(self.to_document())

    def to_document(self) -> dict[str, Any]:
        """Return the JSON document of the file."""
        signed = self.signed_claim.to_mapping()
        pairs = {} if self.pairs is None else {"pairs": _pair_mapping(self.pairs)}
        return {
            "format": KEY_FORMAT,
            **signed,
            "configuration": self.configuration.model_dump(mode="json"),
            "trigger": self.trigger,
            "skipped_words": list(self.skipped_words),
            "verification_texts": list(self.verification_texts),
            "word_list_sha256": self.word_list_digest,
            "pool_sha256": self.pool_digest,
            "model_sha256": self.model_digest,
            "thresholds": self.thresholds.model_dump(mode="json"),
            "controls": [control.model_dump(mode="json") for control in self.controls],
            "library_version": self.library_version,
            **pairs,
        }


def _pair_mapping(pairs: PairPayload) -> dict[str, Any]:
    return PairDocument.of(pairs).model_dump(mode="json")


def expected_shapes(config: KeyConfiguration) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor a key of this configuration must hold."""
    widths = [config.output_dim, *config.hidden_sizes, config.num_bits * config.spread_factor]
    shapes: dict[str, tuple[int, ...]] = {
        "owner_outputs.triggered": (config.num_texts, config.output_dim),
        "owner_outputs.untriggered": (config.num_texts, config.output_dim),
    }
    for depth, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
        shapes[f"extractor.{depth}.weight"] = (fan_out, fan_in)
        shapes[f"extractor.{depth}.bias"] = (fan_out,)
    return shapes


def check_shapes(config: KeyConfiguration, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse tensors that are not exactly those of the configuration.

    The null basis is optional and has as many columns as its maker counted, but fewer than there
    are texts: without that bound a small key could ask a reader for any amount of memory.

    Raises:
        KeyFileError: A tensor is missing, unknown or of another shape.
    """
    expected = expected_shapes(config)
    if set(shapes) - {NULL_BASIS} != set(expected):
        raise KeyFileError(
            "the key holds other tensors than its configuration asks for",
            "the key file is damaged or forged",
        )
    for name, shape in shapes.items():
        columns = min(max(1, shape[-1] if shape else 1), config.num_texts - 1)
        wanted = expected.get(name, (config.num_texts, columns))
        if shape != wanted:
            raise KeyFileError(
                f"tensor {name} has shape {shape}, expected {wanted}",
                "the key file is damaged or forged",
            )


def check_claim(document: KeyDocument) -> SignedClaim:
    """Return the signed claim of a document.

    Raises:
        KeyFileError: Claim or public key is not valid, or the signature does not fit them.
    """
    try:
        return SignedClaim(
            claim=OwnershipClaim.from_mapping(document.claim),
            public_key=PublicKey.from_pem(document.public_key),
            signature=parse_hex(document.signature),
        )
    except InputError as error:
        raise KeyFileError(f"the key's claim is not valid: {error}", error.hint) from error


def assemble(
    document: KeyDocument, signed: SignedClaim, tensors: Mapping[str, Array], seal: bytes
) -> WatermarkKey:
    """Build the key from a validated document, its checked claim and its tensors."""
    depth = len(document.configuration.hidden_sizes) + 1
    return WatermarkKey(
        signed_claim=signed,
        configuration=document.configuration,
        trigger=document.trigger,
        skipped_words=document.skipped_words,
        verification_texts=document.verification_texts,
        word_list_digest=document.word_list_sha256,
        pool_digest=document.pool_sha256,
        model_digest=document.model_sha256,
        thresholds=document.thresholds,
        controls=document.controls,
        library_version=document.library_version,
        pairs=None if document.pairs is None else document.pairs.payload(),
        extractor=tuple(
            (tensors[f"extractor.{i}.weight"], tensors[f"extractor.{i}.bias"]) for i in range(depth)
        ),
        owner_triggered=tensors["owner_outputs.triggered"],
        owner_untriggered=tensors["owner_outputs.untriggered"],
        null_basis=tensors.get(NULL_BASIS),
        seal=seal,
    )
