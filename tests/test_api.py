from __future__ import annotations

import dataclasses
import errno
import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import TINY_CORPUS, TINY_NUM_TEXTS, TINY_PAYLOAD, TINY_TRAINING, make_identity
from nsmark.api import embed, verify
from nsmark.core.texts import lines_digest, normalise_text
from nsmark.corpus import pool_texts, training_texts
from nsmark.errors import (
    ClaimError,
    ConfigError,
    EmbeddingError,
    EmptyNullSpaceError,
    FileAccessError,
    KeyFileError,
    ModelError,
    TextPoolError,
)
from nsmark.keyfile import Thresholds, WatermarkKey, read_key
from nsmark.models.folder import model_digest
from nsmark.payload import derive_payload, published_word_list
from nsmark.suspects import RecordedOutputs, open_suspect
from nsmark.verification.verdict import RULES

# Two steps suffice where any result counts as trained; the saved model then cannot verify.
ANYTHING_GOES = dataclasses.replace(
    TINY_TRAINING,
    max_steps=2,
    min_triggered=0.0,
    max_clean=1.0,
    evaluate_every=1,
    cooldown_steps=1,
)


@pytest.fixture
def embed_tiny(tiny_st, identity, signed_claim, tmp_path):
    """Embed into ``tmp_path/out`` with the settings of the shared model, changed as asked."""

    def call(**changes: Any):
        settings: dict[str, Any] = {
            "corpus": TINY_CORPUS,
            "num_texts": TINY_NUM_TEXTS,
            "config": TINY_TRAINING,
            "payload_config": TINY_PAYLOAD,
            "device": "cpu",
        }
        return embed(tiny_st, identity, signed_claim, tmp_path / "out", **(settings | changes))

    return call


def recorded(key: WatermarkKey, name: str = "answers") -> RecordedOutputs:
    """The owner's own outputs, as a suspect would answer who is the owner's model."""
    return RecordedOutputs(
        name, key.owner_triggered.astype(np.float64), key.owner_untriggered.astype(np.float64)
    )


def forge(key: WatermarkKey, **changes: Any) -> WatermarkKey:
    """The owner himself writes something else into his key and seals it."""
    return dataclasses.replace(key, **changes).sealed_by(make_identity(1))


# --- embedding -----------------------------------------------------------------------------------


def test_embedding_writes_model_key_and_report_that_belong_together(tiny_marked):
    key = read_key(tiny_marked.key_file)
    report = json.loads(tiny_marked.report_file.read_text(encoding="utf-8"))
    assert key.key_id == tiny_marked.key.key_id == report["key_id"]
    assert key.model_digest == report["model_sha256"] == model_digest(tiny_marked.model_folder)
    assert stat.S_IMODE(tiny_marked.key_file.stat().st_mode) == 0o600
    config = key.configuration
    assert (config.num_bits, config.spread_factor) == (16, 3)
    assert (config.num_texts, config.output_dim) == (TINY_NUM_TEXTS, 32)
    assert (config.pooling, config.normalise, config.max_length) == ("mean", True, 128)
    assert config.marks == ("paper", "derived")
    assert [control.name for control in key.controls] == ["reference"]
    out = tiny_marked.key_file.parent
    assert sorted(entry.name for entry in out.iterdir()) == ["model", "owner.nsmark", "report.json"]
    assert [entry.name for entry in out.parent.iterdir()] == ["out"]  # no staging folder is left


def test_the_stored_outputs_are_those_of_the_saved_model(tiny_marked):
    key, payload = tiny_marked.key, tiny_marked.key.payload()
    suspect = open_suspect(tiny_marked.model_folder, device="cpu")
    for texts, stored in (
        (payload.triggered_texts(), key.owner_triggered),
        (payload.verification_texts, key.owner_untriggered),
    ):
        np.testing.assert_allclose(suspect.outputs(texts), stored, atol=1e-5)


def test_the_report_holds_no_secret(tiny_marked):
    text = tiny_marked.report_file.read_text(encoding="utf-8")
    key = tiny_marked.key
    assert key.signature.hex() not in text
    assert key.trigger not in text
    assert not any(line in text for line in key.verification_texts)
    assert key.signed_claim.signature_digest in text


@pytest.mark.parametrize("num_texts", [0, 1, 31, 32])
def test_too_few_texts_are_refused_before_the_training(embed_tiny, tmp_path, num_texts):
    told: list[Any] = []
    with pytest.raises(EmptyNullSpaceError) as caught:
        embed_tiny(num_texts=num_texts, on_progress=told.append)
    assert caught.value.needed == 33
    assert "33" in caught.value.hint
    assert told == []
    assert list(tmp_path.iterdir()) == []


def test_a_budget_too_small_leaves_nothing_behind(embed_tiny, tmp_path):
    with pytest.raises(EmbeddingError, match="did not converge in 2 steps") as caught:
        embed_tiny(config=dataclasses.replace(TINY_TRAINING, max_steps=2))
    assert "--max-steps" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_saved_model_that_does_not_verify_is_not_left_behind(embed_tiny, tmp_path):
    with pytest.raises(EmbeddingError, match="does not verify"):
        embed_tiny(config=ANYTHING_GOES)
    assert list(tmp_path.iterdir()) == []


def test_embedding_goes_on_until_the_key_shows_its_own_model(embed_tiny):
    """Targets on the corpus that are met too early leave a key that refuses its own model."""
    early = dataclasses.replace(
        TINY_TRAINING, min_triggered=0.8, evaluate_every=2, cooldown_steps=2
    )
    marked = embed_tiny(config=early)
    report = verify(read_key(marked.key_file), str(marked.model_folder), device="cpu")
    assert report.verdict == "owned", report.decision.reasons
    assert {"extraction_rate", "aligned_subspace_overlap"} <= set(report.decision.passed)


def test_what_the_budget_leaves_unread_is_named(embed_tiny, tmp_path):
    """The extractor reads the verification texts by then, the readout does not yet."""
    early = dataclasses.replace(
        TINY_TRAINING, min_triggered=0.8, evaluate_every=2, cooldown_steps=2, max_steps=126
    )
    with pytest.raises(EmbeddingError, match=r"does not verify: .*readout of the signature"):
        embed_tiny(config=early)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("stage", ["opening", "training", "saving", "measuring"])
def test_an_interruption_at_any_stage_leaves_nothing_behind(embed_tiny, tmp_path, stage):
    with pytest.raises(KeyboardInterrupt):
        embed_tiny(config=ANYTHING_GOES, on_stage=interrupt_at(stage))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"corpus": training_texts()[:20]}, TextPoolError),
        ({"corpus": []}, TextPoolError),
        ({"pool": pool_texts()[:95]}, TextPoolError),
        ({"pool": ["the same text"] * 500}, TextPoolError),
        ({"device": "gpu"}, ConfigError),
        ({"pooling": "median"}, ConfigError),
        ({"max_length": 0}, ConfigError),
    ],
)
def test_what_cannot_be_used_is_refused_and_nothing_written(embed_tiny, tmp_path, changes, error):
    with pytest.raises(error):
        embed_tiny(**changes)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_refused_untouched(embed_tiny, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("x", encoding="utf-8")
    stages: list[str] = []
    with pytest.raises(FileAccessError, match="exists already"):
        embed_tiny(on_stage=stages.append)
    assert stages == []  # before any long work
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "precious"]


def test_a_file_in_the_way_is_refused_untouched(embed_tiny, tmp_path):
    (tmp_path / "out").write_text("precious", encoding="utf-8")
    with pytest.raises(FileAccessError, match="exists already"):
        embed_tiny()
    assert (tmp_path / "out").read_text(encoding="utf-8") == "precious"


def test_the_claim_of_another_identity_is_refused(tiny_st, signed_claim, tmp_path):
    with pytest.raises(ClaimError, match="another identity"):
        embed(tiny_st, make_identity(2), signed_claim, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_is_not_there_is_refused(identity, signed_claim, tmp_path):
    with pytest.raises(ModelError):
        embed(tmp_path / "none", identity, signed_claim, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


# --- interrupted and resumed ---------------------------------------------------------------------


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_the_same_claim_and_seed_give_the_same_bytes_though_interrupted_in_three_ways(
    tiny_marked, embed_tiny, tmp_path
):
    config = dataclasses.replace(TINY_TRAINING, checkpoint_every=20)

    def interrupt(progress: Any) -> None:
        if progress.step == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_tiny(config=config, on_progress=interrupt)
    assert names(tmp_path) == ["out.checkpoint"]
    stages: list[str] = []
    with pytest.raises(FileAccessError, match="unfinished run") as refused:
        embed_tiny(config=config, on_stage=stages.append)
    assert "--resume, or remove" in refused.value.hint
    assert stages == []  # before any long work
    with pytest.raises(EmbeddingError, match="the time is over") as late:
        embed_tiny(config=config, resume=True, max_seconds=0.2)
    assert "--resume" in late.value.hint
    with pytest.raises(KeyboardInterrupt):
        embed_tiny(config=config, resume=True, on_stage=interrupt_at("saving"))
    assert names(tmp_path) == ["out.checkpoint"]
    with torch.random.fork_rng():
        torch.manual_seed(12345)  # nothing may hang on the global seed
        again = embed_tiny(resume=True)
    assert again.key_file.read_bytes() == tiny_marked.key_file.read_bytes()
    assert model_digest(again.model_folder) == model_digest(tiny_marked.model_folder)
    assert again.report["training"]["history"] == tiny_marked.report["training"]["history"]
    assert names(tmp_path) == ["out"]  # the checkpoint went with success


def interrupt_at(stage: str):
    def interrupt(name: str) -> None:
        if name.startswith(stage):
            raise KeyboardInterrupt

    return interrupt


def test_resuming_what_was_not_begun_is_refused(embed_tiny, tmp_path):
    stages: list[str] = []
    with pytest.raises(FileAccessError, match="there is no checkpoint"):
        embed_tiny(resume=True, on_stage=stages.append)
    assert stages == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_time_limit_must_be_positive(embed_tiny, seconds):
    with pytest.raises(ConfigError, match="max_seconds"):
        embed_tiny(max_seconds=seconds)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        Exception("No space left on device (os error 28)"),  # what tokenizers raises
    ],
)
@pytest.mark.parametrize(
    "where", ["nsmark.models.encoder.Encoder.save", "nsmark.api.marking.write_key"]
)
def test_a_disk_full_at_the_output_keeps_the_checkpoint(
    embed_tiny, tmp_path, monkeypatch, where, error
):
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(where, fail)
    # Nothing is measured: the training is too short for a model that verifies.
    monkeypatch.setattr("nsmark.api.marking.enroll", lambda *_: (Sealable(), None, None))
    monkeypatch.setattr("nsmark.api.marking.embedding_report", lambda *_: {})
    monkeypatch.setattr("nsmark.api.marking.write_model_card", lambda *_: None)
    monkeypatch.setattr("nsmark.api.marking.provenance_of", lambda _: None)
    with pytest.raises(FileAccessError, match="No space left on device") as caught:
        embed_tiny(config=dataclasses.replace(ANYTHING_GOES, checkpoint_every=1))
    assert (
        "the checkpoint of step 1 is kept: continue with the same command and --resume"
        in caught.value.hint
    )
    assert names(tmp_path) == ["out.checkpoint"]


class Sealable:
    def sealed_by(self, _: Any) -> Sealable:
        return self


# --- verification --------------------------------------------------------------------------------


def test_a_suspect_may_be_a_path_an_address_an_open_model_or_recorded(tiny_marked):
    folder, key = tiny_marked.model_folder, tiny_marked.key
    suspects = [folder, str(folder), f"st:{folder}", f"hf:{folder}", open_suspect(folder)]
    for suspect in (*suspects, recorded(key)):
        report = verify(key, suspect, device="cpu")
        assert report.verdict == "owned"
        assert report.to_mapping()["extraction_rate"] == 1.0
        assert report.to_mapping()["invariant_matching_degree"] < 1e-3


def test_an_innocent_model_is_not_accused(tiny_marked, tiny_st, tiny_bert):
    for folder in (tiny_st, tiny_bert):
        report = verify(tiny_marked.key, folder)
        assert report.verdict == "not_shown"
        assert (report.calibrated_by, report.rule) == ("owner", "calibrated")


def test_the_thresholds_are_six_tenths_of_the_gap_to_the_controls(tiny_marked, tiny_st):
    key = tiny_marked.key
    report = verify(key, tiny_marked.model_folder, rule="paper", controls=[tiny_st])
    control = verify(key, tiny_st).to_mapping()
    assert report.calibrated_by == "verifier"
    found = report.thresholds
    assert found.min_extraction_rate == pytest.approx(0.6 * (1 - control["extraction_rate"]))
    # The owner's own degree is zero up to rounding.
    assert found.max_matching_degree == pytest.approx(
        0.6 * control["invariant_matching_degree"], rel=1e-4
    )


def test_an_independent_verifier_without_controls_shows_nothing(tiny_marked, tiny_st):
    report = verify(tiny_marked.key, tiny_marked.model_folder, independent=True)
    assert report.verdict == "not_shown"
    assert report.decision.reasons == ("not calibrated by the verifier",)
    assert report.thresholds is None
    assert report.calibrated_by is None
    assert report.evidence is not None  # measured all the same
    own = verify(tiny_marked.key, tiny_marked.model_folder, independent=True, controls=[tiny_st])
    assert (own.verdict, own.calibrated_by) == ("owned", "verifier")


def test_a_key_that_accepts_a_control_is_refused(tiny_marked, tiny_st):
    key = tiny_marked.key
    controls = [recorded(key, "innocent twin"), tiny_st]
    report = verify(key, tiny_marked.model_folder, controls=controls)
    assert report.verdict == "not_shown"
    assert "innocent twin" in report.decision.reasons[0]


def test_thresholds_written_into_a_key_are_not_believed(tiny_marked, tiny_st):
    lenient = Thresholds(min_extraction_rate=-1.0, max_matching_degree=1e9)
    report = verify(forge(tiny_marked.key, thresholds=lenient), tiny_st, rule="paper")
    assert report.verdict == "not_shown"
    assert report.thresholds.max_matching_degree < 10


def test_a_key_without_controls_cannot_be_used_without_the_verifiers(tiny_marked, tiny_st):
    key = forge(tiny_marked.key, controls=())
    for rule in RULES:
        report = verify(key, tiny_marked.model_folder, rule=rule)
        assert report.verdict == "not_shown"
        assert report.decision.reasons == (
            "the key holds no controls: give your own with --controls",
        )
    assert verify(key, tiny_marked.model_folder, controls=[tiny_st]).verdict == "owned"


@pytest.mark.parametrize("change", ["trigger", "texts"])
def test_a_trigger_or_texts_of_the_owners_choice_are_refused(tiny_marked, change):
    key = tiny_marked.key
    texts = key.verification_texts
    changes = {"trigger": {"trigger": "zebra"}, "texts": {"verification_texts": texts[::-1]}}
    asked: list[Any] = []
    with pytest.raises(KeyFileError, match="follow"):
        verify(
            forge(key, **changes[change]), recorded(key), on_batch=lambda *args: asked.append(args)
        )
    assert asked == []


def test_a_pool_of_ones_own_is_checked_in_whatever_spelling(tiny_marked):
    raw = [f"  published\ttext number {i}  of many " for i in range(150)] + ["", "   "]
    key = tiny_marked.key
    payload = derive_payload(
        key.signature,
        config=TINY_PAYLOAD,
        word_list=published_word_list(),
        pool=raw,
        num_texts=TINY_NUM_TEXTS,
    )
    assert payload.pool_digest == lines_digest([normalise_text(text) for text in raw[:150]])
    own = forge(key, pool_digest=payload.pool_digest, verification_texts=payload.verification_texts)
    assert verify(own, recorded(own), pool=raw).unchecked == ()
    assert any("pool" in sentence for sentence in verify(own, recorded(own)).unchecked)
    with pytest.raises(KeyFileError, match="another pool"):
        verify(own, recorded(own), pool=raw[:149])


def test_answers_that_cannot_be_measured_are_no_verdict(tiny_marked):
    key = tiny_marked.key
    good = recorded(key)
    for triggered in (
        np.full_like(good.triggered, np.nan),
        good.triggered[:-1],
        np.ones_like(good.triggered),
        np.zeros_like(good.triggered),
    ):
        report = verify(key, RecordedOutputs("broken", triggered, good.untriggered))
        assert report.verdict == "could_not_measure"
        assert report.exit_code == 3
        assert report.evidence is None
        assert len(report.decision.reasons) == 2


def test_progress_counts_triggered_and_untriggered_texts(tiny_marked):
    seen: list[tuple[int, int]] = []
    verify(tiny_marked.key, tiny_marked.model_folder, on_batch=lambda *args: seen.append(args))
    assert {total for _, total in seen} == {2 * TINY_NUM_TEXTS}
    assert seen[-1] == (2 * TINY_NUM_TEXTS, 2 * TINY_NUM_TEXTS)
    assert seen == sorted(seen)


@pytest.mark.skipif(torch.cuda.is_available(), reason="only where there is no CUDA device")
def test_an_accelerator_that_is_not_there_is_wrong_usage(tiny_marked):
    with pytest.raises(ConfigError, match="device"):
        verify(tiny_marked.key, recorded(tiny_marked.key), device="cuda")


def test_stages_are_told_in_their_order(tiny_bert, identity, signed_claim, tmp_path):
    stages: list[str] = []

    def stop(name: str) -> None:
        stages.append(name)
        if name.startswith("measuring"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed(
            Path(tiny_bert),
            identity,
            signed_claim,
            tmp_path / "out",
            corpus=TINY_CORPUS,
            num_texts=40,
            config=ANYTHING_GOES,
            payload_config=TINY_PAYLOAD,
            on_stage=stop,
        )
    assert [name.split()[0] for name in stages] == ["opening", "training", "saving", "measuring"]
