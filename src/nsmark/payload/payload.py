"""WatermarkPayload: everything that follows from a signature, frozen in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nsmark.core.bits import SignVector
from nsmark.core.derive import select_indices, watermark_vector
from nsmark.core.texts import lines_digest, normalise_text, text_words
from nsmark.payload.config import PayloadConfig
from nsmark.payload.pairs import PairConfig, PairPayload, derive_pairs
from nsmark.payload.trigger import choose_trigger, trigger_text
from nsmark.payload.word_list import WordList, ordinary_word_list


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkPayload:
    """What is embedded and what will be asked at verification."""

    signature: bytes = field(repr=False)  # secrets stay out of logs
    config: PayloadConfig
    trigger: str = field(repr=False)
    skipped_words: tuple[str, ...]
    """Words of the walk before the trigger that the tokenizer could not represent."""
    verification_texts: tuple[str, ...] = field(repr=False)
    """Ordered, untriggered, at most 64 words each (paper: D_V)."""
    word_list_digest: str
    pool_digest: str
    pairs: PairPayload | None = None

    @property
    def watermark_vector(self) -> SignVector:
        """The spread-spectrum coded signature (paper: sig_sm)."""
        return watermark_vector(self.signature, self.config.num_bits, self.config.spread_factor)

    def pair_texts(self) -> list[str]:
        """Return the texts of the pair code with their words, in order; none without one."""
        return [] if self.pairs is None else self.pairs.pair_texts(self.signature)

    def triggered_texts(self) -> list[str]:
        """Return the triggered copies of the verification texts, in order."""
        return [
            trigger_text(text, index, self.trigger, self.signature, self.config)
            for index, text in enumerate(self.verification_texts)
        ]


def derive_texts(signature: bytes, pool: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the ordered verification texts that a signature selects from a normalised pool."""
    return tuple(
        " ".join(text_words(pool[index])) for index in select_indices(signature, pool, count)
    )


def derive_payload(
    signature: bytes,
    *,
    config: PayloadConfig,
    word_list: WordList,
    pool: Sequence[str],
    num_texts: int,
    is_representable: Callable[[str], bool] = lambda word: True,
    pair_config: PairConfig | None = None,
    pair_word_list: WordList | None = None,
) -> WatermarkPayload:
    """Derive everything from a signature (paper: Algorithm 1).

    Args:
        signature: The owner's signature of the claim.
        config: Bits, spreading and trigger insertion.
        word_list: The published list.
        pool: Candidate texts (paper: D_NS), one per entry.
        num_texts: Verification texts to select (paper: q).
        is_representable: Whether the model's tokenizer can represent a word.
        pair_config: Sizes of the pair code; without it there is none.
        pair_word_list: Ordinary words for it; by default the package's.
    """
    texts = [text for text in map(normalise_text, pool) if text]
    trigger, skipped = choose_trigger(signature, word_list.words, is_representable)
    pairs = None
    if pair_config is not None:
        pairs = derive_pairs(
            signature,
            config=pair_config,
            word_list=pair_word_list or ordinary_word_list(),
            pool=texts,
            trigger=trigger,
            is_representable=is_representable,
        )
    return WatermarkPayload(
        signature=signature,
        config=config,
        trigger=trigger,
        skipped_words=skipped,
        verification_texts=derive_texts(signature, texts, num_texts),
        word_list_digest=word_list.digest,
        pool_digest=lines_digest(texts),
        pairs=pairs,
    )
