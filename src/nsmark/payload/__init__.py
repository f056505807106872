"""Everything derived from the signature: code, trigger, verification texts."""

from nsmark.payload.config import PayloadConfig
from nsmark.payload.pairs import PairConfig, PairPayload, derive_pairs
from nsmark.payload.payload import WatermarkPayload, derive_payload
from nsmark.payload.text_files import map_texts, read_texts
from nsmark.payload.trigger import choose_trigger, trigger_text
from nsmark.payload.word_list import (
    WordList,
    ordinary_word_list,
    published_word_list,
    read_pair_words,
    read_word_list,
)

__all__ = [
    "PairConfig",
    "PairPayload",
    "PayloadConfig",
    "WatermarkPayload",
    "WordList",
    "choose_trigger",
    "derive_pairs",
    "derive_payload",
    "map_texts",
    "ordinary_word_list",
    "published_word_list",
    "read_pair_words",
    "read_texts",
    "read_word_list",
    "trigger_text",
]
