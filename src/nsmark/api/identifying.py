"""Which of many keys' signatures does a suspect carry?

An owner who licensed a thousand marked copies, each with a signature of its own, wants to know
whose copy leaked. The suspect is asked once for all keys whose models are read in the same way.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nsmark.api.opening import AnySuspect
from nsmark.core.pair_code import MIN_PAIRS, PairReading
from nsmark.core.texts import normalise_text
from nsmark.corpus import pool_texts
from nsmark.errors import ConfigError, EvidenceError, NsmarkError, UsageError
from nsmark.keyfile.schema import WatermarkKey
from nsmark.keyfile.store import read_key
from nsmark.payload.word_list import WordList
from nsmark.report.identified import Finding, Identification, IdentificationPlan
from nsmark.suspects.base import Suspect, open_suspect
from nsmark.suspects.options import QueryOptions, QueryPlan
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.verification.derivations import pair_doubt
from nsmark.verification.identification import (
    PairChoice,
    PairCode,
    PairReader,
    choice_texts,
    choose_pairs,
    identification_seed,
    least_pairs,
)
from nsmark.verification.side_by_side import run_all
from nsmark.verification.verdict import is_identified

DEFAULT_REPEATS = 6
MOST_REMOTE_QUERIES = 20_000
"""Asked of an endpoint, unless more are allowed: somebody pays for them, and may watch."""
MOST_LOCAL_QUERIES = 100_000
"""Asked of a model on this machine, unless more are allowed: about an hour for a small one."""
_MOST_REPEATS = 64
_KEYS_AT_A_TIME = 64
_ENDPOINTS = ("openai:", "completions:")

Progress = Callable[[int, int, str], None]


class ModelReading(NamedTuple):
    """How a key's model is read; of an endpoint or an opened suspect nobody can choose it."""

    pooling: str
    normalise: bool
    max_length: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A key that can be tested: what is needed of it."""

    finding: Finding
    code: PairCode = field(repr=False)
    reading: ModelReading


@dataclass(frozen=True, slots=True)
class Candidates:
    """All keys that were given."""

    usable: tuple[Candidate, ...]
    refused: tuple[Finding, ...]
    num_repeated: int
    """Files that held a key given before: it counts once."""


def gather_candidates(
    keys: Iterable[Path | WatermarkKey],
    *,
    read: Callable[[Path], WatermarkKey] = read_key,
    pool: Sequence[str] | None = None,
    word_list: WordList | None = None,
    on_progress: Progress | None = None,
) -> Candidates:
    """Read keys and keep of each what a test needs; one that cannot be tested stops no other.

    Args:
        keys: Key files, or keys.
        read: How a file is read.
        pool: Texts of the verifier's, if not the built-in ones.
        word_list: The published list of ordinary words, if not the package's.
        on_progress: Told how many are done, of how many, and what.
    """
    keys = list(keys)
    texts = _normalised(pool)
    usable: dict[str | None, Candidate] = {}
    refused: list[Finding] = []
    num_repeated = 0
    for done, each in enumerate(keys, 1):
        finding = Finding(file=str(each) if isinstance(each, Path) else "")
        try:
            key = read(each) if isinstance(each, Path) else each
            finding = replace(finding, key_id=key.key_id, owner=key.signed_claim.claim.owner)
            code = PairCode.of(key)
            doubt = pair_doubt(
                key,
                pool=texts,
                pool_is_published=pool is None,
                is_fresh=True,
                word_list=word_list,
            )
        except NsmarkError as error:
            refused.append(replace(finding, error=str(error)))
        else:
            if code is None:
                refused.append(replace(finding, error="the key has no pair code"))
            elif finding.key_id in usable:
                num_repeated += 1
            else:
                config = key.configuration
                reading = ModelReading(config.pooling, config.normalise, config.max_length)
                usable[finding.key_id] = Candidate(replace(finding, doubt=doubt), code, reading)
        if on_progress is not None:
            on_progress(done, len(keys), "keys read")
    return Candidates(tuple(usable.values()), tuple(refused), num_repeated)


class IdentificationRun:
    """The texts for many keys: planned, asked, compared."""

    def __init__(
        self,
        candidates: Candidates,
        suspect: AnySuspect,
        *,
        randomness: bytes | None = None,
        pool: Sequence[str] | None = None,
        pairs_per_key: int | None = None,
        pair_repeats: int = DEFAULT_REPEATS,
        device: str = "auto",
        queries: QueryOptions | None = None,
    ) -> None:
        """Choose what to ask; nothing is asked or opened yet, but for an endpoint's address.

        Args:
            candidates: The keys, at least one of them usable.
            suspect: Address or opened suspect.
            randomness: Of the verifier; by default drawn here.
            pool: Texts of the verifier's, if not the built-in ones.
            pairs_per_key: Ask only so many pairs of each key: fewer queries, fewer bits.
            pair_repeats: Texts for each pair.
            device: Where a local model runs.
            queries: How an endpoint is asked; its limit holds for local models, too.

        Raises:
            UsageError: The suspect is recorded, or the numbers are out of their range.
        """
        if pairs_per_key is not None and pairs_per_key < MIN_PAIRS:
            raise ConfigError("pairs", pairs_per_key, f"must be {MIN_PAIRS} or more")
        if not 1 <= pair_repeats <= _MOST_REPEATS:
            rule = f"must lie between 1 and {_MOST_REPEATS}"
            raise ConfigError("pair repeats", pair_repeats, rule)
        if isinstance(suspect, RecordedOutputs) or str(suspect).startswith("recorded:"):
            raise _recorded()
        self.randomness = os.urandom(32) if randomness is None else randomness
        self.candidates = candidates.usable
        self._seed = identification_seed(self.randomness)
        self._pool = _normalised(pool)
        self._repeats = pair_repeats
        self._device = device
        self._queries = queries or QueryOptions()
        self._is_endpoint = str(suspect).startswith(_ENDPOINTS)
        self._suspect = self._open(suspect, None) if self._is_endpoint else suspect
        self._groups = self._grouped()
        self._choices = [
            choose_pairs([self.candidates[n].code for n in group], self._seed, pairs_per_key)
            for group in self._groups
        ]

    @property
    def name(self) -> str:
        """How the suspect is called."""
        return _name(self._suspect)

    @functools.cached_property
    def plan(self) -> IdentificationPlan:
        """Say what :meth:`ask` would ask."""
        num_pairs = sum(len(choice.pairs) for choice in self._choices)
        most = MOST_REMOTE_QUERIES if self._is_endpoint else MOST_LOCAL_QUERIES
        plan = IdentificationPlan(
            num_keys=len(self.candidates),
            num_pairs=num_pairs,
            num_queries=self._repeats * num_pairs,
            most_queries=self._queries.max_queries or most,
            pairs_per_key=max(len(own) for c in self._choices for own in c.entries),
            pair_repeats=self._repeats,
            least_pairs=least_pairs(len(self.candidates)),
            randomness=self.randomness.hex(),
        )
        # A number that is too large already is not worth making the texts.
        if not self._is_endpoint or plan.is_too_much:
            return plan
        sent: QueryPlan = self._suspect.plan(self._texts(self._choices[0]))  # type: ignore[union-attr]
        return replace(plan, num_queries=sent.num_queries, endpoint=sent.to_text())

    def ask(self, on_progress: Progress | None = None) -> list[Finding]:
        """Ask the suspect and test every key.

        Raises:
            UsageError: More would be asked than is allowed; nothing was.
            EvidenceError: The answers cannot be measured.
        """
        plan = self.plan
        if plan.is_too_much:
            raise UsageError(
                f"{plan.num_queries} queries are needed, the limit is {plan.most_queries}",
                "; ".join([*plan.advice(), "or allow more (--max-queries); nothing was asked"]),
            )
        findings: list[Finding] = []
        for group, choice in zip(self._groups, self._choices, strict=True):
            outputs = self._answers(group[0], choice, on_progress)
            reader = PairReader(outputs, len(choice.pairs), self._seed)
            readings = self._read_all(reader, group, choice, len(findings), on_progress)
            findings += [
                _judged(self.candidates[number].finding, reading, len(self.candidates))
                for number, reading in zip(group, readings, strict=True)
            ]
        return sorted(findings, key=lambda each: (each.p_value or 0.0, each.file))

    def _grouped(self) -> list[list[int]]:
        """Return the keys whose models are read in the same way, by number."""
        if self._is_endpoint or not isinstance(self._suspect, str | Path):
            return [list(range(len(self.candidates)))]
        groups: dict[ModelReading, list[int]] = {}
        for number, candidate in enumerate(self.candidates):
            groups.setdefault(candidate.reading, []).append(number)
        return list(groups.values())

    def _texts(self, choice: PairChoice) -> list[str]:
        return choice_texts(choice, self._seed, self._pool, self._repeats)

    def _open(self, suspect: AnySuspect, reading: ModelReading | None) -> Suspect:
        opened = suspect
        if isinstance(suspect, str | Path):
            way = {} if reading is None else reading._asdict()
            opened = open_suspect(suspect, device=self._device, queries=self._queries, **way)
        if isinstance(opened, RecordedOutputs):
            raise _recorded()
        assert not isinstance(opened, str | Path)  # noqa: S101 - it was opened
        return opened

    def _answers(
        self, number: int, choice: PairChoice, on_progress: Progress | None
    ) -> NDArray[np.float32]:
        model = self._open(self._suspect, self.candidates[number].reading)
        texts = self._texts(choice)

        def on_batch(done: int, total: int) -> None:
            if on_progress is not None:
                on_progress(done, total, "texts asked")

        outputs = model.outputs(texts, on_batch)
        if len(outputs) != len(texts):
            raise EvidenceError(
                f"{len(outputs)} outputs for {len(texts)} texts", "give one output per text"
            )
        return outputs

    def _read_all(
        self,
        reader: PairReader,
        group: Sequence[int],
        choice: PairChoice,
        done: int,
        on_progress: Progress | None,
    ) -> list[PairReading]:
        calls = [
            functools.partial(reader.read, numbers, self.candidates[number].code.signs[entries])
            for number, numbers, entries in zip(group, choice.numbers, choice.entries, strict=True)
        ]
        readings: list[PairReading] = []
        for start in range(0, len(calls), _KEYS_AT_A_TIME):
            readings += run_all(calls[start : start + _KEYS_AT_A_TIME])
            if on_progress is not None:
                on_progress(done + len(readings), len(self.candidates), "keys tested")
        return readings


def identify(
    suspect: AnySuspect,
    keys: Iterable[Path | WatermarkKey],
    *,
    read: Callable[[Path], WatermarkKey] = read_key,
    randomness: bytes | None = None,
    pool: Sequence[str] | None = None,
    word_list: WordList | None = None,
    pairs_per_key: int | None = None,
    pair_repeats: int = DEFAULT_REPEATS,
    device: str = "auto",
    queries: QueryOptions | None = None,
    plan_only: bool = False,
    on_plan: Callable[[IdentificationPlan], None] | None = None,
    on_progress: Progress | None = None,
) -> Identification:
    """Find which of many keys' signatures a suspect carries.

    For each key by itself the p-value is exact under the hypothesis that the suspect was not
    trained with its signature, because neither texts nor pairs depend on any signs: the verifier's
    randomness chooses them. A key is found if its p-value times the number of keys is at most
    ``MAX_PAIR_P_VALUE`` and its words follow from its signature and the published list.

    Args:
        suspect: Address or opened suspect; recorded outputs answer other texts.
        keys: Key files, or keys.
        read: How a file is read.
        randomness: Of the verifier, 16 bytes or more; by default drawn here. The same again asks
            the same texts.
        pool: Texts of the verifier's, if not the built-in ones.
        word_list: The published list of ordinary words, if not the package's.
        pairs_per_key: Ask only so many pairs of each key: fewer queries, fewer bits.
        pair_repeats: Texts for each pair.
        device: Where a local model runs.
        queries: How an endpoint is asked; its limit holds for local models, too.
        plan_only: Ask nothing: only the plan is new in what is returned.
        on_plan: Told what is going to be asked before it is; an exception stops it.
        on_progress: Told how much is done, of how much, and what.

    Raises:
        UsageError: More would be asked than is allowed, or the suspect is recorded.
        EvidenceError: The answers cannot be measured.
    """
    started = time.perf_counter()
    candidates = gather_candidates(
        keys, read=read, pool=pool, word_list=word_list, on_progress=on_progress
    )
    plan, name = None, _name(suspect)
    tested = [candidate.finding for candidate in candidates.usable]
    if candidates.usable:
        run = IdentificationRun(
            candidates,
            suspect,
            randomness=randomness,
            pool=pool,
            pairs_per_key=pairs_per_key,
            pair_repeats=pair_repeats,
            device=device,
            queries=queries,
        )
        plan, name = run.plan, run.name
        if on_plan is not None:
            on_plan(plan)
        if not plan_only:
            tested = run.ask(on_progress)
    return Identification(
        suspect=name,
        plan=plan,
        keys=(*tested, *candidates.refused),
        num_repeated=candidates.num_repeated,
        seconds=time.perf_counter() - started,
    )


def _judged(finding: Finding, reading: PairReading, num_keys: int) -> Finding:
    return replace(
        finding,
        pairs=len(reading.scores),
        rate=reading.rate,
        p_value=reading.p_value,
        corrected_p_value=min(1.0, reading.p_value * num_keys),
        found=is_identified(reading, num_keys, finding.doubt),
    )


def _name(suspect: AnySuspect) -> str:
    return str(suspect) if isinstance(suspect, str | Path) else suspect.name


def _normalised(pool: Sequence[str] | None) -> Sequence[str]:
    if pool is None:
        return pool_texts()
    return [text for text in map(normalise_text, pool) if text]


def _recorded() -> UsageError:
    return UsageError(
        "recorded outputs answer the texts of one key, not those that find one among many",
        "give the model itself: hf:DIR, st:DIR, onnx:FILE, openai:URL#model or "
        "completions:URL#model",
    )
