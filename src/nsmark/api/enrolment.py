"""From a saved, marked model to its key and report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nsmark.embedding.config import EmbeddingConfig
from nsmark.errors import EmbeddingError
from nsmark.identity.signing import SignedClaim
from nsmark.keyfile.document import ControlRecord, KeyConfiguration, Thresholds
from nsmark.keyfile.schema import WatermarkKey
from nsmark.models.model_card import ModelProvenance
from nsmark.payload.payload import WatermarkPayload
from nsmark.report.versions import library_versions
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.verification.control import Control
from nsmark.verification.controls import RANK
from nsmark.verification.decide import Verdict, decide, paper_thresholds
from nsmark.verification.measure import Evidence, measure

if TYPE_CHECKING:
    from nsmark.embedding.progress import TrainingResult
    from nsmark.models.encoder import Encoder


# Of a small table little is read even from a model that carries all of it.
_LEAST_OWN_PAIRS = 0.8


def enroll(
    payload: WatermarkPayload,
    signed_claim: SignedClaim,
    saved: Encoder,
    reference: Encoder,
    training: TrainingResult,
    config: EmbeddingConfig,
    digest: str,
) -> tuple[WatermarkKey, Evidence, Evidence]:
    """Build the key from the saved model's outputs, and refuse one that does not verify."""
    texts = payload.verification_texts
    asked = [*payload.triggered_texts(), *texts, *payload.pair_texts()]
    own_outputs = _answers(saved, payload, asked)
    draft = WatermarkKey(
        signed_claim=signed_claim,
        configuration=KeyConfiguration.model_validate(
            asdict(payload.config)
            | {
                "output_dim": saved.output_dim,
                "num_texts": len(texts),
                "hidden_sizes": config.hidden_sizes,
                "pooling": saved.pooling,
                "normalise": saved.normalise,
                "max_length": saved.max_length,
                "marks": config.marks,
            }
        ),
        trigger=payload.trigger,
        skipped_words=payload.skipped_words,
        verification_texts=texts,
        word_list_digest=payload.word_list_digest,
        pool_digest=payload.pool_digest,
        model_digest=digest,
        thresholds=Thresholds(min_extraction_rate=1.0, max_matching_degree=0.0),
        controls=(),
        library_version=library_versions()["nsmark"] or "unknown",
        pairs=payload.pairs,
        extractor=tuple(training.extractor.to_layers()),
        owner_triggered=own_outputs[0],
        owner_untriggered=own_outputs[1],
    )
    own = measure(draft, _recorded("owner", own_outputs))
    control = measure(draft, _recorded("reference", _answers(reference, payload, asked)))
    thresholds = paper_thresholds(own.triggered, [control.triggered])
    decision = decide(own, thresholds, [Control("reference", control.triggered)])
    extracted = own.triggered.extraction_rate or 0.0
    if decision.verdict is not Verdict.OWNED or extracted <= thresholds.min_extraction_rate:
        raise EmbeddingError(
            f"the saved model does not verify: {'; '.join(decision.reasons)}",
            "train longer (--max-steps) or with a more varied corpus; nothing was written",
        )
    if own.pairs is not None and own.pairs.rate < _LEAST_OWN_PAIRS:
        raise EmbeddingError(
            f"the saved model does not carry the pair code: {own.pairs.rate:.2f} of it is read",
            "train longer (--max-steps) or with a larger model; nothing was written",
        )
    record = ControlRecord(
        name="reference",
        triggered=control.triggered.to_mapping() | {RANK: float(control.rank)},
        untriggered=control.untriggered.to_mapping(),
    )
    return replace(draft, thresholds=thresholds, controls=(record,)), own, control


def _answers(
    model: Encoder, payload: WatermarkPayload, asked: Sequence[str]
) -> list[NDArray[np.float32]]:
    """Ask as a verifier does, in the same batches: so the same model gives the same numbers."""
    count = len(payload.verification_texts)
    return np.split(model.encode(asked), [count, 2 * count])


def _recorded(name: str, answers: Sequence[NDArray[np.float32]]) -> RecordedOutputs:
    triggered, untriggered, pairs = (part.astype(np.float64) for part in answers)
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
