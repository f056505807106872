"""Classifiers and reward models: their logits are what a suspect answers."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the torch extra")

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from conftest import TINY_CORPUS, TINY_NUM_TEXTS, TINY_PAYLOAD, TINY_TRAINING
from nsmark.api import embed, verify
from nsmark.errors import ModelError
from nsmark.models.classifier import open_classifier
from nsmark.models.folder import describe_folder, has_classifier_head
from nsmark.models.loading import open_encoder
from nsmark.suspects import open_suspect
from nsmark.verification import measure
from tiny_models import build_family

TEXTS = ["the quick fox", "a much longer text that comes second", "one", "the quick fox"]


def add_head(model, folder, num_labels, *, seed=5, pad_token_id=0, nearly_linear=True):
    """Save a classifier around the weights of a model folder."""
    config = AutoConfig.from_pretrained(model, num_labels=num_labels, pad_token_id=pad_token_id)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = AutoModelForSequenceClassification.from_config(config)
    base = open_encoder(model, ignore_modules=True, device="cpu").network.base_model
    network.base_model.load_state_dict(base.state_dict(), strict=False)
    head = network.score if hasattr(network, "score") else network.classifier
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        head.weight.normal_(0, 1, generator=generator)
        if head.bias is not None:
            head.bias.normal_(0, 1e-2, generator=generator)
        pooler = getattr(network.base_model, "pooler", None)
        if pooler is not None and nearly_linear:
            # So small that its tanh does not bend: then this head is linear like a decoder's.
            pooler.dense.weight.copy_(0.01 * torch.eye(len(pooler.dense.weight)))
            pooler.dense.bias.zero_()
    network.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def marked_bert(tiny_marked, identity):
    """The marked tiny BERT with a key that reads it where its classifiers do."""
    folder = tiny_marked.model_folder
    reading = {"pooling": "first", "normalise": False, "device": "cpu"}
    payload, suspect = tiny_marked.key.payload(), open_suspect(f"hf:{folder}", **reading)
    configuration = tiny_marked.key.configuration.model_copy(
        update={"pooling": "first", "normalise": False}
    )
    key = dataclasses.replace(
        tiny_marked.key,
        configuration=configuration,
        owner_triggered=suspect.outputs(payload.triggered_texts()),
        owner_untriggered=suspect.outputs(payload.verification_texts),
    )
    return folder, key.sealed_by(identity)


@pytest.fixture(scope="module")
def plain_llama(tmp_path_factory):
    return build_family(tmp_path_factory.mktemp("models") / "llama", "llama")


@pytest.fixture(scope="module")
def marked_llama(plain_llama, identity, signed_claim, tmp_path_factory):
    result = embed(
        plain_llama,
        identity,
        signed_claim,
        tmp_path_factory.mktemp("marked") / "llama",
        corpus=TINY_CORPUS,
        num_texts=TINY_NUM_TEXTS,
        config=TINY_TRAINING,
        payload_config=TINY_PAYLOAD,
        device="cpu",
    )
    return result.model_folder, result.key


# --- what is read ---


@pytest.mark.parametrize("num_labels", [1, 3])
def test_logits_are_the_outputs(tiny_bert, tmp_path, num_labels):
    folder = add_head(tiny_bert, tmp_path / "head", num_labels)
    suspect = open_suspect(f"hf:{folder}", pooling="mean", normalise=True, device="cpu")

    outputs = suspect.outputs(TEXTS)

    assert suspect.name == f"hf:{folder}"
    assert outputs.shape == (4, num_labels)
    assert outputs.dtype == np.float32
    network = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        expected = [network(**tokenizer(text, return_tensors="pt")).logits[0] for text in TEXTS]
    np.testing.assert_allclose(outputs, np.array(expected), atol=1e-5)
    np.testing.assert_array_equal(open_suspect(folder, device="cpu").outputs(TEXTS), outputs)


@pytest.mark.parametrize("pad_token_id", [0, 7, None])
def test_rows_answer_their_texts_whatever_stands_beside_them(plain_llama, tmp_path, pad_token_id):
    # 7: another token than the tokenizer fills up with; None: the head was trained without one.
    folder = add_head(plain_llama, tmp_path / "head", 2, pad_token_id=pad_token_id)
    suspect = open_classifier(folder, device="cpu")

    together = suspect.encode(TEXTS)

    assert np.abs(together[0] - together[1]).max() > 0.01
    np.testing.assert_allclose(suspect.encode(TEXTS[::-1]), together[::-1], atol=1e-5)
    for row, text in zip(together, TEXTS, strict=True):
        np.testing.assert_allclose(suspect.encode([text])[0], row, atol=1e-5)


def test_progress_is_told_up_to_the_last_text(tiny_bert, tmp_path):
    told = []
    suspect = open_suspect(add_head(tiny_bert, tmp_path / "head", 2), device="cpu")
    suspect.outputs(TEXTS * 100, lambda *counts: told.append(counts))
    assert told[-1] == (400, 400)
    assert len(told) > 1


def test_base_model_stays_as_it_is(tiny_bert, tiny_st, tiny_mlm):
    for folder in (tiny_bert, tiny_st, tiny_mlm):
        assert not has_classifier_head(describe_folder(folder, ignore_modules=True))
        reading = {"pooling": "mean", "normalise": False, "device": "cpu"}
        outputs = open_suspect(f"hf:{folder}", **reading).outputs(TEXTS)
        expected = open_encoder(folder, ignore_modules=True, **reading).encode(TEXTS)
        np.testing.assert_array_equal(outputs, expected)


def test_encoder_reads_a_classifier_checkpoint_as_before(tiny_bert, tmp_path):
    """Embedding into one is embedding into its transformer."""
    folder = add_head(tiny_bert, tmp_path / "head", 2)
    reading = {"pooling": "mean", "normalise": False, "device": "cpu"}
    outputs = open_encoder(folder, **reading).encode(TEXTS)
    np.testing.assert_allclose(outputs, open_encoder(tiny_bert, **reading).encode(TEXTS), atol=1e-6)


def change_config(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_head_that_was_never_trained_is_refused(tiny_bert, tmp_path):
    folder = shutil.copytree(tiny_bert, tmp_path / "head")
    change_config(folder, architectures=["BertForSequenceClassification"])
    with pytest.raises(ModelError, match="lacks") as caught:
        open_suspect(folder, device="cpu")
    assert "head" in caught.value.hint


def test_damaged_classifier_is_refused(tiny_bert, tmp_path):
    folder = add_head(tiny_bert, tmp_path / "head", 2)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:1000])
    with pytest.raises(ModelError, match="cannot be opened"):
        open_suspect(folder, device="cpu")


@pytest.mark.parametrize("architectures", [None, [], "BertForSequenceClassification", [3]])
def test_only_a_list_of_architectures_says_so(tiny_bert, tmp_path, architectures):
    folder = shutil.copytree(tiny_bert, tmp_path / "odd")
    change_config(folder, architectures=architectures)
    assert not has_classifier_head(describe_folder(folder))


# --- the evidence ---


@pytest.mark.parametrize("num_labels", [2, 4])
def test_logits_of_a_stolen_decoder_lie_in_the_owners_row_space(
    marked_llama, plain_llama, tmp_path, num_labels
):
    folder, key = marked_llama
    stolen = add_head(folder, tmp_path / "stolen", num_labels)
    innocent = add_head(plain_llama, tmp_path / "innocent", num_labels)

    report = verify(key, f"hf:{stolen}", rule="paper", device="cpu")
    found, other = (
        report.evidence,
        verify(key, f"hf:{innocent}", rule="paper", device="cpu").evidence,
    )

    assert report.verdict == "owned"
    assert found.output_dim == num_labels
    assert found.triggered.extraction_rate is None
    assert any(f"{num_labels} dimensions" in note for note in found.notes)
    for name in ("matching_degree", "invariant_matching_degree", "centred_matching_degree"):
        assert getattr(found.triggered, name) < 0.1
        assert getattr(other.triggered, name) > 8
    assert found.triggered.subspace_overlap > 0.999
    assert other.triggered.subspace_overlap < 0.7


def test_logits_of_a_stolen_encoder_lie_in_the_owners_row_space(marked_bert, tiny_st, tmp_path):
    folder, key = marked_bert
    stolen = add_head(folder, tmp_path / "stolen", 3)
    innocent = add_head(tiny_st, tmp_path / "innocent", 3)

    found = measure(key, open_suspect(f"hf:{stolen}", device="cpu")).triggered
    other = measure(key, open_suspect(f"hf:{innocent}", device="cpu")).triggered

    # The head adds a constant per class: the centred degree does not see it.
    assert found.centred_matching_degree < 0.35
    assert other.centred_matching_degree > 8
    assert found.subspace_overlap > 0.999


@pytest.mark.parametrize("kind", ["marked_llama", "marked_bert"])
def test_reward_model_is_measured_as_far_as_it_can_be(kind, request, tmp_path):
    folder, key = request.getfixturevalue(kind)
    reward = add_head(folder, tmp_path / "reward", 1)

    report = verify(key, f"hf:{reward}", rule="paper", device="cpu")

    found = report.evidence.triggered
    assert report.evidence.output_dim == 1
    assert report.verdict in ("owned", "not_shown")
    assert found.extraction_rate is found.derived_extraction_rate is found.derived_p_value is None
    assert any("1 dimensions" in note for note in report.evidence.notes)
    assert found.centred_matching_degree < 0.35
