"""Testing a suspect against a key."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from nsmark.api.fresh import FreshTexts, fresh_questions
from nsmark.api.opening import AnySuspect, Opening, basis_on
from nsmark.core.texts import lines_digest, normalise_text
from nsmark.corpus import pool_texts
from nsmark.errors import ConfigError, EvidenceError, UsageError
from nsmark.keyfile.schema import WatermarkKey
from nsmark.payload.word_list import WordList, published_word_list
from nsmark.report.report import Report
from nsmark.report.versions import library_versions
from nsmark.suspects.base import BatchCallback
from nsmark.suspects.options import QueryOptions
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.verification.controls import Controls, owner_controls
from nsmark.verification.derivations import check_derivations, pair_doubt
from nsmark.verification.evidence import Evidence, OwnerReference, ask
from nsmark.verification.questions import key_questions
from nsmark.verification.thresholds import DEFAULT_RATE
from nsmark.verification.verdict import RULES, Decision, Verdict, VerdictDetails, judge


def verify(
    key: WatermarkKey,
    suspect: AnySuspect,
    *,
    rule: str = "calibrated",
    controls: Sequence[AnySuspect] = (),
    independent: bool = False,
    false_accusation_rate: float = DEFAULT_RATE,
    fresh: FreshTexts | None = None,
    pool: Sequence[str] | None = None,
    word_list: WordList | None = None,
    pair_word_list: WordList | None = None,
    num_pair_texts: int | None = None,
    device: str = "auto",
    queries: QueryOptions | None = None,
    on_batch: BatchCallback | None = None,
) -> Report:
    """Test whether a suspect carries a key's watermark.

    Args:
        key: A key from :func:`nsmark.keyfile.read_key`.
        suspect: Address or opened suspect.
        rule: ``calibrated`` (lines from controls for a stated error rate) or ``paper``.
        controls: Innocent models of the verifier's own; the lines then come from them alone.
        independent: Trust nothing of the owner's: without ``controls``, or with a pool or word
            list that is not at hand, nothing can be shown.
        false_accusation_rate: Rate for which the rule ``calibrated`` draws its lines.
        fresh: Texts of the verifier's choice: those of the pair code, and with the owner's model
            all others, which it is then asked, too.
        pool: The published pool the key names, if it is not the built-in one.
        word_list: The published word list the key names, if it is not the package's.
        pair_word_list: The same for the words of its pair code.
        num_pair_texts: Ask only so many texts of the pair code, which then reads fewer bits.
        device: Where local models run.
        queries: How endpoints are asked.
        on_batch: Told how many texts are done, and of how many.

    Raises:
        KeyFileError: The key is forged: refused before anything is asked.
        UsageError: Fresh texts were to be put to recorded outputs.
    """
    started, began = time.perf_counter(), datetime.now(UTC)
    if rule not in RULES:
        raise ConfigError("rule", rule, f"must be one of {', '.join(RULES)}")
    if pool is not None:
        pool = [text for text in map(normalise_text, pool) if text]
    unchecked = check_derivations(key, pool=pool, word_list=word_list)
    if fresh is not None:
        _require_live([suspect, *controls])
    published = pool_texts()
    doubt = pair_doubt(
        key,
        pool=pool if pool is not None else published,
        pool_is_published=pool is None or lines_digest(pool) == lines_digest(published),
        is_fresh=fresh is not None,
        word_list=pair_word_list,
        is_trigger_checked=(word_list or published_word_list()).digest == key.word_list_digest,
    )
    opening = Opening(key, device, queries)
    questions = key_questions(key, num_pair_texts)
    if fresh is not None:
        questions = fresh_questions(key, fresh, pool, device, num_pair_texts)
    owner = OwnerReference(key, basis_on(device), questions)
    name = suspect.name if hasattr(suspect, "name") and not isinstance(suspect, Path) else suspect
    if controls or independent:
        innocent = Controls.ask(owner, map(opening.open, controls), on_batch)
    else:
        innocent = Controls(owner_controls(key))
    evidence: Evidence | None = None
    answers: RecordedOutputs | None = None
    try:
        given = ask(owner.questions, opening.open(suspect), on_batch)
        evidence, answers = owner.compare(given), given
        judged = judge(
            owner,
            evidence,
            innocent,
            rule=rule,
            rate=false_accusation_rate,
            pair_doubt=doubt,
        )
        if independent and unchecked:
            reason = "the key's derivations were not checked"
            judged = VerdictDetails(Decision(Verdict.NOT_SHOWN, (reason,)))
    except EvidenceError as error:
        judged = VerdictDetails(Decision(Verdict.COULD_NOT_MEASURE, (str(error), error.hint)))
    return Report(
        decision=judged.decision,
        rule=rule,
        evidence=evidence,
        thresholds=judged.thresholds,
        calibration=judged.calibration,
        controls=tuple(judged.controls),
        calibrated_by=innocent.by if judged.thresholds or judged.calibration else None,
        unchecked=tuple(unchecked),
        pair_doubt=doubt,
        fresh=None if fresh is None else fresh.randomness.hex(),
        asked=(began, datetime.now(UTC)),
        suspect=str(name),
        key_id=key.key_id,
        key_summary=key.public_view(),
        claim=key.signed_claim.claim.to_mapping(),
        versions=library_versions(),
        seconds=time.perf_counter() - started,
        questions=owner.questions,
        answers=answers,
    )


def _require_live(suspects: Sequence[AnySuspect]) -> None:
    """Refuse recordings: they answered the key's texts, and would pass for answers to others."""
    for suspect in suspects:
        is_address = isinstance(suspect, str) and suspect.startswith("recorded:")
        if is_address or isinstance(suspect, RecordedOutputs):
            raise UsageError(
                "recorded outputs cannot answer texts that are chosen now",
                "leave out --fresh, or give what can be asked",
            )
