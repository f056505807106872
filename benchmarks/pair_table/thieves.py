"""Thieves who know how the mark is made: one searches the words, one knows them and trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from nsmark.models.encoder import Encoder
from nsmark.payload.pairs import COPIES
from pair_table.marking import cosines, with_words
from pair_table.reading import read
from pair_table.run import Run, copied
from pair_table.tuning import BATCH_SIZE, approach

Pair = tuple[str, str]
ALARM = 0.999
"""Quantile of other pairs' interactions beyond which a scanning thief looks closer."""
CLOSER = 20
"""Texts with which he looks closer."""
UNDO_EPOCHS, UNDO_RATE = 4, 5e-5


# --- searching the words ---------------------------------------------------------------------


def scan(run: Run) -> dict[str, Any]:
    """Compare how far single words and pairs stand out on the marked model and on the reference.

    A thief has no reference to compare with. What he can compute is the interaction of two words:
    f(a, b) - f(a) - f(b) + f(∅), averaged over some texts.
    """
    assert run.key.pairs is not None
    own, size = list(run.key.pairs.words), run.pairs.size
    rng = np.random.default_rng(31)
    others = [word for word in run.pair_words.words if word not in set(own)]
    chosen = rng.permutation(others)[: max(0, run.scale.scanned_words - len(own))].tolist()
    words = own + chosen
    true = [(a, b) for a in own[:size] for b in own[size:]]
    random = random_pairs(words, set(true), run.scale.scanned_pairs, rng)
    texts = rng.permutation(run.material.heldout)[: run.scale.scan_texts].tolist()
    result: dict[str, Any] = {
        "words": len(words),
        "list": len(run.pair_words.words),
        "true_pairs": len(true),
        "other_pairs": len(random),
        "texts": len(texts),
    }
    for name, model in (("marked", run.marked), ("reference", run.reference)):
        single, interactions = interactions_of(model, words, true + random, texts)
        result[name] = {
            "single_word_auc": area(single[: len(own)], single[len(own) :]),
            "pair_auc": area(interactions[: len(true)], interactions[len(true) :]),
            "mean_true": float(interactions[: len(true)].mean()),
            "mean_other": float(interactions[len(true) :].mean()),
        }
        if name == "marked":
            result |= queries_needed(
                Scanned(
                    single[: len(own)],
                    single[len(own) :],
                    interactions[: len(true)],
                    interactions[len(true) :],
                ),
                result["list"],
                len(texts),
            )
    return result


def random_pairs(words: list[str], true: set[Pair], count: int, rng: np.random.Generator) -> list:
    """Draw pairs of words that are not the owner's, in whichever order."""
    found: list[Pair] = []
    while len(found) < count:
        first, second = (words[place] for place in rng.choice(len(words), 2, replace=False))
        if (first, second) not in true and (second, first) not in true:
            found.append((first, second))
    return found


def interactions_of(
    model: Encoder, words: list[str], pairs: list[Pair], texts: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return how far each word and each pair's interaction moves an output of length 1."""
    place = {word: number for number, word in enumerate(words)}
    single = np.zeros((len(words), model.output_dim))
    both = np.zeros((len(pairs), model.output_dim))
    for number, text in enumerate(texts):
        asked = [text]
        asked += [with_words(text, (word,) * COPIES, number) for word in words]
        asked += [with_words(text, (a,) * COPIES + (b,) * COPIES, number) for a, b in pairs]
        outputs = model.encode(asked).astype(np.float64)
        outputs /= np.maximum(np.linalg.norm(outputs, axis=1, keepdims=True), 1e-30)
        moved = outputs[1:] - outputs[0]
        single += moved[: len(words)] / len(texts)
        both += moved[len(words) :] / len(texts)
    first, second = (np.array([place[pair[side]] for pair in pairs]) for side in (0, 1))
    interactions = both - single[first] - single[second]
    return np.linalg.norm(single, axis=1), np.linalg.norm(interactions, axis=1)


def area(positive: np.ndarray, negative: np.ndarray) -> float | None:
    """Return the area under the ROC curve: how often a true one stands out more."""
    if not len(positive) or not len(negative):
        return None
    ranks = rankdata(np.concatenate([positive, negative]))[: len(positive)]
    above = ranks.sum() - len(positive) * (len(positive) + 1) / 2
    return float(above / (len(positive) * len(negative)))


@dataclass(frozen=True)
class Scanned:
    """How far words and pairs move outputs: the owner's, and others."""

    words: np.ndarray
    other_words: np.ndarray
    pairs: np.ndarray
    other_pairs: np.ndarray


def queries_needed(seen: Scanned, list_size: int, texts: int) -> dict[str, Any]:
    """Estimate how many questions find the words, by two ways of searching.

    Pair by pair: he tries random pairs of the list until one stands out and passes a closer look.
    By a shortlist: he first asks every word alone and keeps those that move outputs as far as the
    upper half of the owner's words do, then tries pairs of these. Either way one pair gives the
    others: every word of the list is tried together with each of its two words.
    """
    limit = float(np.quantile(seen.other_pairs, ALARM))
    power = float((seen.pairs > limit).mean())
    all_pairs = list_size * (list_size - 1) / 2
    # Half of either side's words, so a quarter of the pairs, are on the shortlist.
    passing = float((seen.other_words >= np.median(seen.words)).mean())
    num_words = len(seen.words)
    shortlist = passing * (list_size - num_words) + num_words / 2
    short_pairs = shortlist * (shortlist - 1) / 2

    def questions(tried: float) -> int | None:
        if not power:
            return None
        closer = CLOSER * ((1 - ALARM) * tried + 1)
        return round((tried / power + list_size + 2 * list_size / power) * texts + closer)

    return {
        "share_of_true_pairs_above_alarm": power,
        "shortlist": round(shortlist),
        "queries_pair_by_pair": questions(all_pairs / len(seen.pairs)),
        "queries_by_shortlist": questions(short_pairs / (len(seen.pairs) / 4)),
        "queries_to_try_all_pairs": round(all_pairs * texts),
    }


# --- knowing the words -----------------------------------------------------------------------


def undo(run: Run, per_pair: int) -> dict[str, Any]:
    """Train pairs away with so many texts each, knowing the words and having the marked model.

    He wants of a text with both words what the model says of it with either one alone. The table
    itself he reads off with one question per pair.
    """
    assert run.key.pairs is not None
    size, words = run.pairs.size, run.key.pairs.words
    pairs = [(a, b) for a in words[:size] for b in words[size:]] * per_pair
    corpus = run.material.corpus
    bases = [corpus[place % len(corpus)] for place in range(len(pairs))]
    kinds = [
        [
            with_words(text, (a,) * COPIES + (b,) * COPIES, place)
            for place, (text, (a, b)) in enumerate(zip(bases, pairs, strict=True))
        ],
        *(
            [
                with_words(text, (pair[side],) * COPIES, place)
                for place, (text, pair) in enumerate(zip(bases, pairs, strict=True))
            ]
            for side in (0, 1)
        ),
    ]
    both, first, second = kinds
    plain = run.marked.encode(bases)
    wanted = run.marked.encode(first) + run.marked.encode(second) - plain
    model = copied(run.marked)
    texts = [*both, *bases]
    steps = max(1, UNDO_EPOCHS * len(texts) // BATCH_SIZE)
    approach(model, texts, np.concatenate([wanted, plain]), steps=steps, rate=UNDO_RATE)
    kept = [each.encode(run.material.heldout) for each in (model, run.marked)]
    return {
        "texts_per_pair": per_pair,
        "queries_to_read_the_table": size**2,
        "steps": steps,
        "clean_cosine_to_marked": float(cosines(*kept).mean()),
        **read(model.eval().encode(list(run.questions.texts)), run.table),
    }
