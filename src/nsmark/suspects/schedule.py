"""What is sent, in which order: shuffled, among decoys, never a text twice in one request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nsmark.corpus import pool_texts
from nsmark.suspects.options import QueryOptions, QueryPlan


@dataclass(frozen=True, slots=True)
class Query:
    """One text of one request."""

    text: str
    repetition: int
    is_decoy: bool = False


def make_batches(
    missing: Sequence[Sequence[str]], options: QueryOptions
) -> tuple[list[list[Query]], int]:
    """Arrange the texts that are still to be asked into requests.

    Each repetition is a round of its own, so that no request holds a text twice. A decoy comes
    back in every round, as the other texts do: otherwise it could be told by coming once.

    Args:
        missing: For each repetition the different texts without an answer.
        options: Batch size, share of decoys, seed.

    Returns:
        The requests in their order, and the number of decoys in them.
    """
    rng = np.random.default_rng(options.seed)
    decoys = _choose_decoys(missing, options.decoys, rng)
    batches: list[list[Query]] = []
    num_decoys = 0
    for repetition, texts in enumerate(missing):
        if not texts:
            continue
        # A round that is nearly done needs few decoys, or they would be most of it.
        few = decoys[: math.ceil(options.decoys * len(texts))]
        num_decoys += len(few)
        queries = [Query(text, repetition) for text in texts]
        queries += [Query(text, repetition, is_decoy=True) for text in few]
        queries = [queries[number] for number in rng.permutation(len(queries))]
        size = options.batch_size
        batches += [queries[start : start + size] for start in range(0, len(queries), size)]
    return batches, num_decoys


def make_plan(
    batches: Sequence[Sequence[Query]],
    num_decoys: int,
    *,
    num_texts: int,
    num_cached: int,
    options: QueryOptions,
) -> QueryPlan:
    """Say what requests amount to."""
    queries = [query for batch in batches for query in batch]
    tokens = sum(estimated_tokens(query.text) for query in queries)
    price = options.price_per_million_tokens
    return QueryPlan(
        num_texts=num_texts,
        repeats=options.repeats,
        num_cached=num_cached,
        num_decoys=num_decoys,
        num_queries=len(queries),
        num_requests=len(batches),
        estimated_tokens=tokens,
        estimated_price=None if price is None else price * tokens / 1e6,
    )


def estimated_tokens(text: str) -> int:
    """Estimate a text's tokens: one for four bytes, and the two marks around it."""
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / 4) + 2


def _choose_decoys(
    missing: Sequence[Sequence[str]], share: float, rng: np.random.Generator
) -> list[str]:
    wanted = math.ceil(share * max(map(len, missing), default=0))
    if not wanted:
        return []  # the corpus takes a moment to make
    asked = {text for texts in missing for text in texts}
    pool = [text for text in pool_texts() if text not in asked]
    chosen = rng.choice(len(pool), size=min(wanted, len(pool)), replace=False)
    return [pool[number] for number in chosen]
