"""From a saved, marked model to its key and report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nsmark.embedding.config import EmbeddingConfig
from nsmark.errors import EmbeddingError
from nsmark.identity.signing import SignedClaim
from nsmark.keyfile.document import KeyConfiguration, Thresholds
from nsmark.keyfile.schema import WatermarkKey
from nsmark.models.model_card import ModelProvenance
from nsmark.payload.payload import WatermarkPayload
from nsmark.report.versions import library_versions
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.verification.controls import Control, Controls
from nsmark.verification.evidence import Evidence, OwnerReference, key_flaw, read_pairs
from nsmark.verification.questions import key_questions
from nsmark.verification.statistics import EXTRACTION
from nsmark.verification.thresholds import paper_thresholds
from nsmark.verification.verdict import Verdict, judge, unshown_marks

if TYPE_CHECKING:
    from nsmark.embedding.extractor import Extractor
    from nsmark.embedding.progress import TrainingResult
    from nsmark.embedding.trainer import Trainer
    from nsmark.models.encoder import Encoder


_NOT_YET_SAVED = "0" * 64


def enroll(
    payload: WatermarkPayload,
    signed_claim: SignedClaim,
    saved: Encoder,
    reference: Encoder,
    training: TrainingResult,
    config: EmbeddingConfig,
    digest: str,
) -> tuple[WatermarkKey, Evidence, Evidence]:
    """Build the key from the saved model's outputs, and refuse one that does not show it."""
    answers = _answers("owner", payload, saved.encode)
    draft = _draft_key(payload, signed_claim, saved, training.extractor, config, digest, answers)
    owner = OwnerReference(draft)
    own = owner.compare(answers)
    evidence = owner.compare(_answers("reference", payload, reference.encode))
    control = Control("reference", evidence.triggered, evidence.rank, evidence.untriggered)
    thresholds = paper_thresholds(own.triggered, [control.triggered])
    key = replace(draft, thresholds=thresholds, controls=(control.record(),))
    missing = _not_shown(owner, own, control)
    if missing:
        raise EmbeddingError(
            f"the saved model does not verify: {'; '.join(missing)}",
            "train longer (--max-steps), with a more varied corpus or a larger model; nothing was "
            "written",
        )
    return key, own, evidence


def own_check(
    payload: WatermarkPayload, signed_claim: SignedClaim, model: Encoder, config: EmbeddingConfig
) -> Callable[[Trainer], Sequence[str]]:
    """Return what tells, while a model trains, which marks the verification texts do not show."""

    def unshown(trainer: Trainer) -> Sequence[str]:
        answers = _answers("owner", payload, trainer.outputs)
        key = _draft_key(
            payload, signed_claim, model, trainer.extractor, config, _NOT_YET_SAVED, answers
        )
        questions = key_questions(key)
        flaw, read = key_flaw(key, questions), read_pairs(key, questions, answers, [])
        return unshown_marks(key, flaw, read)

    return unshown


def _not_shown(owner: OwnerReference, own: Evidence, control: Control) -> Sequence[str]:
    """Return what keeps a verifier from reading every mark that was asked for."""
    read = (own.pairs, own.wager) if own.pairs and own.wager else None
    found = unshown_marks(owner.key, owner.flaw, read)
    if found:
        return found
    judged = judge(owner, own, Controls([control]))
    if judged.decision.verdict is not Verdict.OWNED:
        return judged.decision.reasons
    line = judged.calibration.threshold(EXTRACTION.name) if judged.calibration else None
    if line is None or not line.can_be_reached or EXTRACTION.name in judged.decision.passed:
        return ()
    return (f"extraction {own.counted.extraction_rate:.3f} does not exceed {line.value:.3f}",)


def _draft_key(
    payload: WatermarkPayload,
    signed_claim: SignedClaim,
    model: Encoder,
    extractor: Extractor,
    config: EmbeddingConfig,
    digest: str,
    answers: RecordedOutputs,
) -> WatermarkKey:
    """Return a key without thresholds and controls, which are measured with it."""
    return WatermarkKey(
        signed_claim=signed_claim,
        configuration=KeyConfiguration.model_validate(
            asdict(payload.config)
            | {
                "output_dim": model.output_dim,
                "num_texts": len(payload.verification_texts),
                "hidden_sizes": config.hidden_sizes,
                "pooling": model.pooling,
                "normalise": model.normalise,
                "max_length": model.max_length,
                "marks": config.marks,
            }
        ),
        trigger=payload.trigger,
        skipped_words=payload.skipped_words,
        verification_texts=payload.verification_texts,
        word_list_digest=payload.word_list_digest,
        pool_digest=payload.pool_digest,
        model_digest=digest,
        thresholds=Thresholds(min_extraction_rate=1.0, max_matching_degree=0.0),
        controls=(),
        library_version=library_versions()["nsmark"] or "unknown",
        pairs=payload.pairs,
        extractor=tuple(extractor.to_layers()),
        owner_triggered=answers.triggered.astype(np.float32),
        owner_untriggered=answers.untriggered.astype(np.float32),
    )


def _answers(
    name: str,
    payload: WatermarkPayload,
    encode: Callable[[Sequence[str]], NDArray[np.float32]],
) -> RecordedOutputs:
    """Ask as a verifier does, in the same batches: so the same model gives the same numbers."""
    texts = payload.verification_texts
    outputs = encode([*payload.triggered_texts(), *texts, *payload.pair_texts()])
    triggered, untriggered, pairs = np.split(
        outputs.astype(np.float64), [len(texts), 2 * len(texts)]
    )
    return RecordedOutputs(name, triggered, untriggered, pairs if len(pairs) else None)


def embedding_report(
    key: WatermarkKey,
    own: Evidence,
    control: Evidence,
    results: Sequence[TrainingResult],
    config: EmbeddingConfig,
    device: str,
    processes: int,
    started: float,
) -> dict[str, Any]:
    """Return what ``report.json`` says; of several stages, the last one's memory and history."""
    training = results[-1]
    return {
        "claim": key.signed_claim.public_form(),
        "key_id": key.key_id,
        "model_sha256": key.model_digest,
        "configuration": key.configuration.model_dump(mode="json"),
        "training": {
            "settings": asdict(config),
            "steps": sum(stage.steps for stage in results),
            "seconds": round(sum(stage.seconds for stage in results), 3),
            "stages": [
                {
                    "steps": stage.steps,
                    "seconds": round(stage.seconds, 3),
                    "held_out": asdict(stage.last),
                }
                for stage in results
            ],
            "device": device,
            "processes": processes,
            "peak_memory_bytes": training.peak_memory,
            "memory_plan": asdict(training.plan),
            "held_out": asdict(training.last),
            "history": training.history,
        },
        "watermarked": {
            "triggered": own.triggered.to_mapping(),
            "untriggered": own.untriggered.to_mapping(),
        },
        "reference": {
            "triggered": control.triggered.to_mapping(),
            "untriggered": control.untriggered.to_mapping(),
        },
        "thresholds": key.thresholds.model_dump(mode="json"),
        "versions": library_versions(),
        "seconds": round(time.perf_counter() - started, 3),
    }


def provenance_of(key: WatermarkKey) -> ModelProvenance:
    """Return what the model's card may say of its mark: nothing of it is secret."""
    signed = key.signed_claim
    return ModelProvenance(
        owner=signed.claim.owner,
        message=signed.claim.message,
        created=signed.claim.created,
        public_key=signed.public_key.to_pem(),
        signature_sha256=signed.signature_digest,
        model_sha256=key.model_digest,
        library_version=key.library_version,
    )
