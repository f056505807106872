"""A wrong key: somebody else's claim around the owner's extractor and outputs.

It passes every check of the file itself: the stranger signs his own claim, trigger and texts
follow from his signature, and he seals the whole. Only measuring unmasks it.
"""

from __future__ import annotations

from dataclasses import replace

from nsmark.corpus import pool_texts
from nsmark.identity.claim import OwnershipClaim
from nsmark.identity.keys import Identity
from nsmark.keyfile.schema import WatermarkKey
from nsmark.payload.payload import derive_payload
from nsmark.payload.word_list import published_word_list


def steal_key(key: WatermarkKey, stranger: Identity, claim: OwnershipClaim) -> WatermarkKey:
    """Return the stranger's key, sealed by him."""
    signed = stranger.sign(claim)
    payload = derive_payload(
        signed.signature,
        config=key.configuration.payload_config(),
        word_list=published_word_list(),
        pool=pool_texts(),
        num_texts=key.configuration.num_texts,
    )
    return replace(
        key,
        signed_claim=signed,
        trigger=payload.trigger,
        skipped_words=payload.skipped_words,
        verification_texts=payload.verification_texts,
    ).sealed_by(stranger)
