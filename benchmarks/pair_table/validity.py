"""Part ``validity``: keys that no model was trained with, on models innocent and marked."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from scipy import stats

from nsmark.core.texts import normalise_text
from nsmark.corpus import pool_texts
from nsmark.models.batching import TokenIds
from nsmark.models.encoder import Encoder
from nsmark.models.layers import blocks
from nsmark.payload import choose_trigger, derive_pairs, published_word_list
from nsmark.transforms.weights import leave_out_layers, prune, reinitialise
from pair_table.changes import PLAIN
from pair_table.pieces import Finish, Piece
from pair_table.reading import Table, read_changes
from pair_table.run import Run, copied
from pair_table.tuning import tune

CHANGES = (PLAIN, "linear map", "whitened")
LEVELS = (0.5, 0.1, 0.05, 0.01, 0.001)
CONFIDENCE = 0.99
LEAST_EXPECTED = 5
MARKED = "marked, other keys"


def validity_pieces(run: Run) -> list[Piece]:
    """Return blocks of random keys: on innocent models, then on the marked one."""
    size = run.scale.block
    ranges = [range(start, min(start + size, run.keys)) for start in range(0, run.keys, size)]
    models = cache(lambda: innocents(run))
    pieces = [
        Piece(
            f"innocents, {run.pairs.size} by {run.pairs.size}, {run.pairs.repeats} times, "
            f"keys {keys[0]} to {keys[-1]}",
            partial(ask, run, models, keys),
            False,
        )
        for keys in ranges
    ]
    return pieces + [
        Piece(
            f"marked, keys {keys[0]} to {keys[-1]}",
            partial(ask, run, lambda: {MARKED: run.marked}, keys),
        )
        for keys in ranges
    ]


def gather_validity(run: Run, found: dict[str, Any]) -> dict[str, Any]:
    """Put all blocks together."""
    rows = [row for block in found.values() for row in block["rows"]]
    queries = sum(block["queries"] for block in found.values())
    seconds = sum(block["query_seconds"] for block in found.values())
    return {
        "model_sha256": run.key.model_digest,
        "keys": run.keys,
        "queries": queries,
        "queries_per_second": round(queries / max(seconds, 1e-9)),
        **summarise(rows),
    }


def innocents(run: Run) -> dict[str, Encoder]:
    """Return five models that nobody marked."""
    reference = run.reference
    tuned = copied(reference)
    tune(tuned, next(iter(run.material.tasks.values())))
    last = min(1, len(blocks(reference.network)) - 1)
    return {
        "reference": reference,
        f"reference, fine-tuned on {next(iter(run.material.tasks))}": tuned.eval(),
        "reference, pruned 40%": copied(reference, prune(0.4)),
        "all weights drawn anew": copied(reference, reinitialise(None, 101)),
        "reference without its last layer": copied(reference, leave_out_layers(last)),
    }


def ask(run: Run, models: Callable[[], dict[str, Encoder]], keys: Sequence[int]) -> Finish:
    """Ask models the texts of some keys; return what waits for the readings."""
    waiting, seconds, queries = [], 0.0, 0
    for number in keys:
        signature = hashlib.sha512(f"pair code, random key {number}".encode()).digest()
        texts, table = random_key(run, signature)
        sequences = run.reference.token_ids(texts)  # one tokenizer: all come from the reference
        for place, (name, model) in enumerate(models().items()):
            started = time.perf_counter()
            outputs = answers(model, sequences)
            seconds, queries = seconds + time.perf_counter() - started, queries + len(texts)
            changes = (PLAIN,) if name == MARKED else CHANGES
            seed = 100_000 + 100 * number + 10 * place
            job = run.readers.submit(read_changes, outputs, table, changes, seed)
            waiting.append((number, name, job))

    def finish() -> dict[str, Any]:
        rows = [
            {"key": number, "model": name, **row}
            for number, name, job in waiting
            for row in job.result()
        ]
        return {"rows": rows, "query_seconds": seconds, "queries": queries}

    return finish


def answers(model: Encoder, sequences: Sequence[TokenIds]) -> np.ndarray:
    """Return a model's outputs; on a GPU in bfloat16, which is as innocent and much faster."""
    kind = model.device.type
    with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
        return model.encode_tokens(sequences).cpu().numpy()


def random_key(run: Run, signature: bytes) -> tuple[list[str], Table]:
    """Return texts and table of a key with its own words and texts; nothing is trained."""
    usable = _representable(run.reference, run.pair_words.words)
    trigger, _ = choose_trigger(signature, published_word_list().words)
    pairs = derive_pairs(
        signature,
        config=run.pairs,
        word_list=run.pair_words,
        pool=_pool(),
        trigger=trigger,
        is_representable=usable.__contains__,
    )
    return pairs.pair_texts(signature), Table(pairs.pair_numbers(), pairs.signs(signature))


@cache
def _pool() -> tuple[str, ...]:
    return tuple(text for text in map(normalise_text, pool_texts()) if text)


@cache
def _representable(encoder: Encoder, words: tuple[str, ...]) -> frozenset[str]:
    return frozenset(word for word in words if encoder.is_representable(word))


# --- statistics ----------------------------------------------------------------------------------


def summarise(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what the p-values of each model behind each change look like."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    failed = [row for row in rows if row["rate"] is None]
    for row in rows:
        if row["rate"] is not None:
            groups.setdefault((row["model"], row["change"]), []).append(row)
    checks = len(groups) * len(LEVELS)
    cells = [
        {"model": model, "change": change, **cell(members, checks)}
        for (model, change), members in groups.items()
    ]
    tests = [each["p"] for one in cells for each in one["halves"]]
    return {
        "cells": cells,
        "unreadable": len(failed),
        "checks": checks,
        "beyond_single_allowance": sum(
            not level["within"] for one in cells for level in one["levels"]
        ),
        "beyond_joint_allowance": sum(
            not level["within_jointly"] for one in cells for level in one["levels"]
        ),
        "chi_square_tests": len(tests),
        "smallest_chi_square_p": min(tests, default=None),
        "smallest_p": min((one["smallest_p"] for one in cells), default=None),
    }


def cell(rows: Sequence[dict[str, Any]], checks: int) -> dict[str, Any]:
    """Return shares, rates and tests of one model behind one change."""
    values = np.array([row["p"] for row in rows])
    rates = np.array([row["rate"] for row in rows])
    sizes = rows[0]["halves"]
    right = [[row["right"][half] for row in rows] for half in (0, 1)]
    return {
        "count": len(rows),
        "levels": [level_share(values, alpha, checks) for alpha in LEVELS],
        "mean_rate": float(rates.mean()),
        "sd_rate": float(rates.std(ddof=1)) if len(rates) > 1 else None,
        "binomial_sd": 0.5 / float(np.sqrt(sum(sizes))),
        "smallest_p": float(values.min()),
        "halves": [
            {"size": size, **binomial_test(counts, size), "right": counts}
            for size, counts in zip(sizes, right, strict=True)
        ],
    }


def level_share(values: np.ndarray, alpha: float, checks: int) -> dict[str, Any]:
    """Return how many p-values lie at or below a level, and how many may.

    With many shares some exceed an allowance made for one: the joint one is for all together.
    """
    count = len(values)
    below = int((values <= alpha).sum())
    single = int(stats.binom.ppf(CONFIDENCE, count, alpha))
    joint = int(stats.binom.ppf(1 - (1 - CONFIDENCE) / checks, count, alpha))
    return {
        "alpha": alpha,
        "share": below / count,
        "allowed": single / count,
        "allowed_jointly": joint / count,
        "within": below <= single,
        "within_jointly": below <= joint,
    }


def binomial_test(counts: Sequence[int], size: int) -> dict[str, Any]:
    """Compare counts of right signs with Binomial(size, ½) by χ², rare counts put together."""
    expected = len(counts) * stats.binom.pmf(np.arange(size + 1), size, 0.5)
    observed = np.bincount(counts, minlength=size + 1)
    bins: list[list[float]] = []
    open_bin = [0.0, 0.0]
    for found, wanted in zip(observed, expected, strict=True):
        open_bin = [open_bin[0] + found, open_bin[1] + wanted]
        if open_bin[1] >= LEAST_EXPECTED:
            bins.append(open_bin)
            open_bin = [0.0, 0.0]
    if bins:
        bins[-1] = [bins[-1][0] + open_bin[0], bins[-1][1] + open_bin[1]]
    if len(bins) < 2:
        return {"bins": len(bins), "chi_square": 0.0, "p": 1.0}
    statistic = sum((found - wanted) ** 2 / wanted for found, wanted in bins)
    p_value = float(stats.chi2.sf(statistic, len(bins) - 1))
    return {"bins": len(bins), "chi_square": float(statistic), "p": p_value}
