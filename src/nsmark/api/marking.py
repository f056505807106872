"""Watermarking a model: from a claim and a folder to a marked folder, a key and a report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsmark.api.enrolment import embedding_report, enroll, own_check, provenance_of
from nsmark.corpus import pool_texts, training_texts
from nsmark.embedding.checkpoint_folder import CheckpointFolder
from nsmark.embedding.config import EmbeddingConfig, Preset, preset_config
from nsmark.errors import ClaimError, ConfigError, EmptyNullSpaceError, MissingExtraError
from nsmark.files import ensure_new_folder, new_folder, write_errors, write_json
from nsmark.identity.keys import Identity
from nsmark.identity.signing import SignedClaim
from nsmark.keyfile.schema import WatermarkKey
from nsmark.keyfile.store import read_key, write_key
from nsmark.models.folder import model_digest
from nsmark.models.model_card import write_model_card
from nsmark.models.tokenizer import require_known_words
from nsmark.payload.config import PayloadConfig, default_num_texts
from nsmark.payload.pairs import PairConfig
from nsmark.payload.payload import derive_payload
from nsmark.payload.word_list import WordList, published_word_list
from nsmark.report.versions import library_versions

if TYPE_CHECKING:
    from nsmark.embedding.parallel import Group
    from nsmark.embedding.progress import ProgressCallback

StageCallback = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedResult:
    """Where the files are and what they showed."""

    model_folder: Path
    key_file: Path
    report_file: Path
    key: WatermarkKey
    report: dict[str, Any]


def usual_preset(device: str) -> Preset:
    """Return the preset to use where none is asked for: the best that takes minutes there."""
    try:
        from nsmark.models.loading import resolve_device
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "torch") from error
    return "strong" if resolve_device(device).type == "cuda" else "fast"


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
    pair_config: PairConfig | None = None,
    word_list: WordList | None = None,
    pair_word_list: WordList | None = None,
    device: str = "auto",
    passphrase: bytes | None = None,
    group: Group | None = None,
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
        config: Training settings; by default those of :func:`usual_preset`.
        payload_config: Bits, spreading and trigger insertion.
        pair_config: Sizes of the pair code, where the settings' marks ask for one.
        word_list: Published words; by default the package's.
        pair_word_list: Published ordinary words, for the pair code; by default the package's.
        device: ``auto``, ``cpu``, ``cuda`` …
        passphrase: Encrypt the key file with it.
        group: The processes that train together (:mod:`nsmark.embedding.parallel`); all call this
            alike, the first one writes, all return the same.
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
    config = config or preset_config(usual_preset(device))
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
        from nsmark.embedding.parallel import Group
        from nsmark.embedding.stages import MARKS, train
        from nsmark.models.loading import open_encoder, resolve_device
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "torch") from error
    group = group or Group()
    tell("opening the model")
    encoder = open_encoder(
        model,
        pooling=pooling,
        max_length=max_length,
        # What is to be divided among devices need not fit one of them.
        device="cpu" if group.shards else device,
        dtype="stored" if config.method == "lora" else "float32",
        purpose="train",
    )
    corpus = corpus if corpus is not None else training_texts()
    require_known_words(corpus, encoder.is_representable)
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
        pair_config=(pair_config or PairConfig()) if "pairs" in config.marks else None,
        pair_word_list=pair_word_list,
    )
    checkpoints = Checkpoints(
        folder=checkpoint_folder,
        fingerprint=run_fingerprint(
            encoder, payload, corpus, config, library_versions(), processes=group.size
        ),
        claim=signed_claim.claim.to_mapping(),
        resume=resume,
    )
    trained = train(
        encoder,
        payload,
        corpus,
        config,
        group=group,
        device=resolve_device(device),
        checkpoints=checkpoints,
        max_seconds=max_seconds,
        unshown=own_check(payload, signed_claim, encoder, config),
        on_progress=on_progress,
        on_stage=lambda stage: tell("training" if stage == MARKS else "training the pair code"),
    )
    marked = trained.model
    if not group.is_first:
        group.wait()
        return _read_back(out, passphrase)
    hint = checkpoint_folder.write_hint()
    with new_folder(out) as staging:
        tell("saving and reading back the model")
        with write_errors(out, hint):
            marked.save(staging / "model")
        digest = model_digest(staging / "model")
        # What the key describes is what anyone will load, not what was in memory.
        read = partial(open_encoder, pooling=marked.pooling, max_length=max_length, device=device)
        tell("measuring the owner's model and the reference")
        saved, reference = read(staging / "model"), read(model)
        key, own, control = enroll(
            payload, signed_claim, saved, reference, trained.last, config, digest
        )
        key = key.sealed_by(identity)
        report = embedding_report(
            key, own, control, trained.results, config, saved.device.type, group.size, started
        )
        with write_errors(out, hint):
            write_model_card(staging / "model", marked.folder.path, provenance_of(key))
            write_key(key, staging / "owner.nsmark", passphrase)
            write_json(staging / "report.json", report)
    checkpoint_folder.clean(keep=None)  # only now is there nothing left that could fail
    group.wait()
    return _result(out, key, report)


def _result(out: Path, key: WatermarkKey, report: dict[str, Any]) -> EmbedResult:
    return EmbedResult(
        model_folder=out / "model",
        key_file=out / "owner.nsmark",
        report_file=out / "report.json",
        key=key,
        report=report,
    )


def _read_back(out: Path, passphrase: bytes | None) -> EmbedResult:
    """Return what the first process wrote."""
    report = json.loads((out / "report.json").read_bytes())
    return _result(out, read_key(out / "owner.nsmark", passphrase), report)
