"""The two calls most users need, composed from the layers below."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsmark.core.null_space import null_space_basis
from nsmark.core.texts import normalise_text
from nsmark.corpus import pool_texts, training_texts
from nsmark.embedding.checkpoint_folder import CheckpointFolder
from nsmark.embedding.config import EmbeddingConfig
from nsmark.errors import (
    ClaimError,
    ConfigError,
    EmbeddingError,
    EmptyNullSpaceError,
    EvidenceError,
    MissingExtraError,
)
from nsmark.files import ensure_new_folder, new_folder, write_errors, write_json
from nsmark.identity.keys import Identity
from nsmark.identity.signing import SignedClaim
from nsmark.keyfile.schema import ControlRecord, KeyConfiguration, Thresholds, WatermarkKey
from nsmark.keyfile.store import write_key
from nsmark.models.folder import model_digest
from nsmark.payload.config import PayloadConfig, default_num_texts
from nsmark.payload.payload import WatermarkPayload, derive_payload
from nsmark.payload.word_list import WordList, published_word_list
from nsmark.report.report import Report
from nsmark.report.versions import library_versions
from nsmark.suspects.base import Suspect, open_suspect
from nsmark.suspects.recorded import RecordedOutputs
from nsmark.verification.controls import owner_controls
from nsmark.verification.decide import Decision, Verdict, decide, paper_thresholds
from nsmark.verification.derivations import check_derivations
from nsmark.verification.measure import (
    BasisFunction,
    Evidence,
    MeasureCallback,
    Statistics,
    measure,
    owner_statistics,
)

if TYPE_CHECKING:
    from nsmark.embedding.progress import ProgressCallback, TrainingResult
    from nsmark.models.encoder import Encoder

StageCallback = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedResult:
    """Where the files are and what they showed."""

    model_folder: Path
    key_file: Path
    report_file: Path
    key: WatermarkKey
    report: dict[str, Any]


def embed(
    model: str | Path,
    identity: Identity,
    signed_claim: SignedClaim,
    out: str | Path,
    *,
    corpus: Sequence[str] | None = None,
    pool: Sequence[str] | None = None,
    num_texts: int | None = None,
    pooling: str | None = None,
    max_length: int = 128,
    config: EmbeddingConfig | None = None,
    payload_config: PayloadConfig | None = None,
    word_list: WordList | None = None,
    device: str = "auto",
    passphrase: bytes | None = None,
    resume: bool = False,
    max_seconds: float | None = None,
    on_progress: ProgressCallback | None = None,
    on_stage: StageCallback | None = None,
) -> EmbedResult:
    """Watermark a model and write model, key and report into a new folder.

    Nothing appears under ``out`` unless the watermark verifies on the model as saved. While it
    trains, checkpoints are kept in ``<out>.checkpoint``; they go when the output is complete. A
    resumed run gives what an uninterrupted one would have given, on the same machine.

    Args:
        model: Folder of the model to mark.
        identity: The private key that signed the claim; it seals the key file.
        signed_claim: Who claims what.
        out: New folder for ``model/``, ``owner.nsmark`` and ``report.json``.
        corpus: Training texts; by default the built-in ones.
        pool: Published candidate texts; by default the built-in ones, disjoint from the corpus.
        num_texts: Verification texts; by default max(1500, 2 · output_dim).
        pooling: Where the model is read; by default the model's own way.
        max_length: Tokens of a text.
        config: Training settings.
        payload_config: Bits, spreading and trigger insertion.
        word_list: Published words; by default the package's.
        device: ``auto``, ``cpu``, ``cuda`` …
        passphrase: Encrypt the key file with it.
        resume: Continue an interrupted run from its checkpoint. The rest of the call must be as
            before, but for learning rates, ``max_steps`` and ``checkpoint_every``.
        max_seconds: After so much time of training write a checkpoint and stop with an error.
        on_progress: Told after every training step.
        on_stage: Told the name of each stage.

    Raises:
        EmptyNullSpaceError: ``num_texts`` does not exceed the model's output dimension.
        EmbeddingError: The targets were not reached, the time is over, or the saved model does
            not verify.
        FileAccessError: There is a checkpoint and ``resume`` is not asked for, or the reverse; or
            something could not be written.
        InputError: The checkpoint is damaged, or of another run.
    """
    started = time.perf_counter()
    config = config or EmbeddingConfig()
    out = Path(out)
    if identity.public_key != signed_claim.public_key:
        raise ClaimError(
            "the claim was signed by another identity", "give the identity that signed the claim"
        )
    if max_seconds is not None and not max_seconds > 0:
        raise ConfigError("max_seconds", max_seconds, "must be positive")
    ensure_new_folder(out)
    checkpoint_folder = CheckpointFolder(out)
    if resume:
        checkpoint_folder.require()
    else:
        checkpoint_folder.refuse_unfinished()
    tell = on_stage or (lambda stage: None)
    try:
        from nsmark.embedding.checkpoint import Checkpoints
        from nsmark.embedding.fingerprint import run_fingerprint
        from nsmark.embedding.trainer import Trainer
        from nsmark.models.loading import open_encoder
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "torch") from error
    tell("opening the model")
    encoder = open_encoder(
        model, pooling=pooling, max_length=max_length, device=device, purpose="train"
    )
    num_texts = default_num_texts(encoder.output_dim) if num_texts is None else num_texts
    if num_texts <= encoder.output_dim:  # said now, not after the training
        raise EmptyNullSpaceError(num_texts=num_texts, output_dim=encoder.output_dim)
    payload = derive_payload(
        signed_claim.signature,
        config=payload_config or PayloadConfig(),
        word_list=word_list or published_word_list(),
        pool=pool if pool is not None else pool_texts(),
        num_texts=num_texts,
        is_representable=encoder.is_representable,
    )
    tell("training")
    corpus = corpus if corpus is not None else training_texts()
    trainer = Trainer(encoder, payload, corpus, config)
    checkpoints = Checkpoints(
        folder=checkpoint_folder,
        fingerprint=run_fingerprint(encoder, payload, corpus, config, library_versions()),
        claim=signed_claim.claim.to_mapping(),
        resume=resume,
    )
    training = trainer.run(on_progress, checkpoints=checkpoints, max_seconds=max_seconds)
    hint = checkpoint_folder.write_hint()
    with new_folder(out) as staging:
        tell("saving and reading back the model")
        with write_errors(out, hint):
            encoder.save(staging / "model")
        # What the key describes is what anyone will load, not what was in memory.
        saved = open_encoder(
            staging / "model", pooling=encoder.pooling, max_length=max_length, device=device
        )
        tell("measuring the owner's model and the reference")
        key, own, control = _enroll(
            payload,
            signed_claim,
            saved,
            trainer.reference,
            training,
            config,
            model_digest(staging / "model"),
        )
        key = key.sealed_by(identity)
        report = _embedding_report(key, own, control, training, config, saved.device.type, started)
        with write_errors(out, hint):
            write_key(key, staging / "owner.nsmark", passphrase)
            write_json(staging / "report.json", report)
    checkpoint_folder.clean(keep=None)  # only now is there nothing left that could fail
    return EmbedResult(
        model_folder=out / "model",
        key_file=out / "owner.nsmark",
        report_file=out / "report.json",
        key=key,
        report=report,
    )


def _enroll(
    payload: WatermarkPayload,
    signed_claim: SignedClaim,
    saved: Encoder,
    reference: Encoder,
    training: TrainingResult,
    config: EmbeddingConfig,
    digest: str,
) -> tuple[WatermarkKey, Evidence, Evidence]:
    """Build the key from the saved model's outputs, and refuse one that does not verify."""
    triggered_texts, texts = payload.triggered_texts(), payload.verification_texts
    own_outputs = (saved.encode(triggered_texts), saved.encode(texts))
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
        extractor=tuple(training.extractor.to_layers()),
        owner_triggered=own_outputs[0],
        owner_untriggered=own_outputs[1],
    )
    own = measure(draft, RecordedOutputs("owner", *(o.astype("float64") for o in own_outputs)))
    control = measure(
        draft,
        RecordedOutputs(
            "reference",
            reference.encode(triggered_texts).astype("float64"),
            reference.encode(texts).astype("float64"),
        ),
    )
    thresholds = paper_thresholds(own.triggered, [control.triggered])
    decision = decide(own, thresholds, [("reference", control.triggered)])
    extracted = own.triggered.extraction_rate or 0.0
    if decision.verdict is not Verdict.OWNED or extracted <= thresholds.min_extraction_rate:
        raise EmbeddingError(
            f"the saved model does not verify: {'; '.join(decision.reasons)}",
            "train longer (--max-steps) or with a more varied corpus; nothing was written",
        )
    record = ControlRecord(
        name="reference",
        triggered=control.triggered.to_mapping(),
        untriggered=control.untriggered.to_mapping(),
    )
    return replace(draft, thresholds=thresholds, controls=(record,)), own, control


def _embedding_report(
    key: WatermarkKey,
    own: Evidence,
    control: Evidence,
    training: TrainingResult,
    config: EmbeddingConfig,
    device: str,
    started: float,
) -> dict[str, Any]:
    return {
        "claim": key.signed_claim.public_form(),
        "key_id": key.key_id,
        "model_sha256": key.model_digest,
        "configuration": key.configuration.model_dump(mode="json"),
        "training": {
            "settings": asdict(config),
            "steps": training.steps,
            "seconds": round(training.seconds, 3),
            "device": device,
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


def verify(
    key: WatermarkKey,
    suspect: str | Path | Suspect | RecordedOutputs,
    *,
    controls: Sequence[str | Path | Suspect | RecordedOutputs] = (),
    independent: bool = False,
    pool: Sequence[str] | None = None,
    word_list: WordList | None = None,
    device: str = "auto",
    on_batch: MeasureCallback | None = None,
) -> Report:
    """Test whether a suspect carries a key's watermark, by the paper's rule.

    Args:
        key: A key from :func:`nsmark.keyfile.read_key`.
        suspect: Address or opened suspect.
        controls: Innocent models of the verifier's own; the thresholds then come from them.
        independent: Trust nothing of the owner's: without ``controls``, or with a pool or word
            list that is not at hand, nothing can be shown.
        pool: The published pool the key names, if it is not the built-in one.
        word_list: The published word list the key names, if it is not the package's.
        device: Where local models run.
        on_batch: Told what is being asked, how many texts are done, and of how many.

    Raises:
        KeyFileError: The key is forged: refused before anything is asked.
    """
    started = time.perf_counter()
    if pool is not None:
        pool = [text for text in map(normalise_text, pool) if text]
    unchecked = check_derivations(key, pool=pool, word_list=word_list)
    thresholds, measured = _calibration(key, controls, independent, device, on_batch)
    name = suspect.name if hasattr(suspect, "name") and not isinstance(suspect, Path) else suspect
    evidence = None
    try:
        evidence = measure(key, _opened(key, suspect, device), on_batch, basis_on(device))
        decision = decide(evidence, thresholds, measured)
        if independent and unchecked:
            decision = Decision(Verdict.NOT_SHOWN, ("the key's derivations were not checked",))
    except EvidenceError as error:
        decision = Decision(Verdict.COULD_NOT_MEASURE, (str(error), error.hint))
    return Report(
        decision=decision,
        rule="paper",
        evidence=evidence,
        thresholds=thresholds,
        calibrated_by=None if thresholds is None else "verifier" if controls else "owner",
        unchecked=tuple(unchecked),
        suspect=str(name),
        key_id=key.key_id,
        claim=key.signed_claim.claim.to_mapping(),
        versions=library_versions(),
        seconds=time.perf_counter() - started,
    )


def basis_on(device: str) -> BasisFunction:
    """Return the null-basis computation for a device; plain ``auto`` and ``cpu`` need no torch."""
    if not device.startswith("cuda"):
        return null_space_basis
    try:
        from nsmark.models.loading import resolve_device
        from nsmark.models.null_space import null_space_basis_on_device
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "torch") from error
    resolve_device(device)
    return lambda matrix: null_space_basis_on_device(matrix, device)


def _opened(
    key: WatermarkKey, suspect: str | Path | Suspect | RecordedOutputs, device: str
) -> Suspect | RecordedOutputs:
    if not isinstance(suspect, str | Path):
        return suspect
    config = key.configuration
    return open_suspect(
        suspect,
        pooling=config.pooling,
        normalise=config.normalise,
        max_length=config.max_length,
        device=device,
    )


def _calibration(
    key: WatermarkKey,
    controls: Sequence[str | Path | Suspect | RecordedOutputs],
    independent: bool,
    device: str,
    on_batch: MeasureCallback | None,
) -> tuple[Thresholds | None, list[tuple[str, Statistics]]]:
    """Return thresholds and the controls behind them: the verifier's, else the owner's."""
    owner = owner_statistics(key)
    if controls:
        measured = [measure(key, _opened(key, control, device), on_batch) for control in controls]
        named = [(evidence.suspect, evidence.triggered) for evidence in measured]
    elif independent:
        return None, []
    else:
        named = owner_controls(key)
    # Never the numbers written in the key: they follow from its outputs and its controls, and a
    # key that says otherwise was made to accuse.
    return paper_thresholds(owner, [statistics for _, statistics in named]), named
