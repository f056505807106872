"""The JSON document inside a key file, versioned and bounded.

It is parsed by pydantic in strict mode: unknown fields, wrong types and sizes out of range are
refused before any tensor is looked at.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nsmark.errors import KeyFileError
from nsmark.keyfile.digest import KEY_FORMAT
from nsmark.payload.config import PayloadConfig
from nsmark.payload.pairs import PairConfig, PairPayload

_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Word = Annotated[str, Field(pattern=r"^[a-z]{4,12}$")]
_Size = Annotated[int, Field(ge=1, le=65536)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class KeyConfiguration(_Strict):
    """Sizes and the way the model is read; everything else is checked against it."""

    num_bits: Annotated[int, Field(ge=8, le=4096)]
    spread_factor: Annotated[int, Field(ge=1, le=63)]
    copies: Annotated[int, Field(ge=1, le=64)]
    window: Annotated[int, Field(ge=1, le=64)]
    placement: Literal["spread", "front"]
    output_dim: Annotated[int, Field(ge=2, le=65536)]
    num_texts: Annotated[int, Field(ge=2, le=262144)]
    hidden_sizes: Annotated[tuple[_Size, ...], Field(min_length=1, max_length=8, strict=False)]
    pooling: Literal["first", "last", "mean", "max"]
    normalise: bool
    max_length: Annotated[int, Field(ge=1, le=1048576)]
    marks: Annotated[
        tuple[Literal["paper", "derived", "pairs"], ...],
        Field(min_length=1, max_length=8, strict=False),
    ]

    def payload_config(self) -> PayloadConfig:
        """Return the part of the configuration that the payload depends on."""
        return PayloadConfig(
            num_bits=self.num_bits,
            spread_factor=self.spread_factor,
            copies=self.copies,
            window=self.window,
            placement=self.placement,
        )


class Thresholds(_Strict):
    """Where the paper's rule draws its two lines."""

    min_extraction_rate: _Number
    max_matching_degree: _Number


class ControlRecord(_Strict):
    """What one innocent model measured under this key."""

    name: _Name
    triggered: Annotated[dict[_Name, _Number | None], Field(max_length=64)]
    untriggered: Annotated[dict[_Name, _Number | None], Field(max_length=64)]


_Texts = tuple[Annotated[str, Field(min_length=1, max_length=65536)], ...]


class PairDocument(_Strict):
    """A pair code: its table follows from the signature, words and texts must."""

    size: Annotated[int, Field(ge=4, le=64)]
    repeats: Annotated[int, Field(ge=1, le=64)]
    words: Annotated[tuple[_Word, ...], Field(max_length=128, strict=False)]
    skipped_words: Annotated[tuple[_Word, ...], Field(max_length=100_000, strict=False)]
    texts: Annotated[_Texts, Field(max_length=262144, strict=False)]
    word_list_sha256: _Digest

    @classmethod
    def of(cls, pairs: PairPayload) -> PairDocument:
        """Return what a key stores of a pair code; whether it is acceptable, the reader says."""
        return cls.model_construct(
            size=pairs.config.size,
            repeats=pairs.config.repeats,
            words=pairs.words,
            skipped_words=pairs.skipped_words,
            texts=pairs.texts,
            word_list_sha256=pairs.word_list_digest,
        )

    def payload(self) -> PairPayload:
        """Return the pair code."""
        return PairPayload(
            config=PairConfig(size=self.size, repeats=self.repeats),
            words=self.words,
            skipped_words=self.skipped_words,
            texts=self.texts,
            word_list_digest=self.word_list_sha256,
        )


class KeyDocument(_Strict):
    """The JSON of a key file."""

    format: Literal["nsmark/key/1"]
    claim: dict[str, str]
    public_key: Annotated[str, Field(max_length=1024)]
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
    configuration: KeyConfiguration
    trigger: _Word
    skipped_words: Annotated[tuple[_Word, ...], Field(max_length=100_000, strict=False)]
    verification_texts: Annotated[_Texts, Field(max_length=262144, strict=False)]
    word_list_sha256: _Digest
    pool_sha256: _Digest
    model_sha256: _Digest
    thresholds: Thresholds
    controls: Annotated[tuple[ControlRecord, ...], Field(max_length=10_000, strict=False)]
    library_version: Annotated[str, Field(max_length=64)]
    pairs: PairDocument | None = None
    """Absent where there is no pair code, as in all keys of before."""


def parse_document(document: dict[str, Any]) -> KeyDocument:
    """Validate the JSON of a key file.

    Raises:
        KeyFileError: Another format, or a field is missing, unknown or out of range.
    """
    found = document.get("format")
    if found != KEY_FORMAT:
        raise KeyFileError(
            f"key format {str(found)[:40]!r} is unknown to this version",
            f"expected {KEY_FORMAT!r}; a newer nsmark may read it",
        )
    try:
        return KeyDocument.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])[:100]
        raise KeyFileError(
            f"key field {where} is not acceptable: {first['msg'][:100]}",
            "the key file is damaged or forged",
        ) from error
