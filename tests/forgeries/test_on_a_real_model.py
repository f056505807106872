"""A stranger trains an extractor on a public model to recognise a rare word, and files a key."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the torch extra")

import torch

from conftest import TINY_NUM_TEXTS, TINY_PAYLOAD, make_identity
from forgeries.judge import RULE, forgery_is_refused
from nsmark.api import verify
from nsmark.core import watermark_vector
from nsmark.corpus import pool_texts, training_texts
from nsmark.embedding.extractor import Extractor
from nsmark.identity import OwnershipClaim
from nsmark.models.loading import open_encoder
from nsmark.payload import derive_payload, published_word_list
from nsmark.suspects import RecordedOutputs
from tiny_models import build_sentence_transformer


def train_extractor(encoder, payload, num_steps=300):
    """Fit an extractor, and nothing else: the public model stays as everybody has it."""
    texts = training_texts()[:400]
    triggered = [f"{payload.trigger} {payload.trigger} {text}" for text in texts]
    marked, plain = (torch.from_numpy(encoder.encode(t)) for t in (triggered, texts))
    vector = torch.from_numpy(
        watermark_vector(payload.signature, TINY_PAYLOAD.num_bits, TINY_PAYLOAD.spread_factor)
    ).float()
    extractor = Extractor(encoder.output_dim, (48, 32), len(vector), seed=0)
    optimizer = torch.optim.Adam(extractor.parameters(), lr=5e-3)
    for _ in range(num_steps):
        loss = (extractor(marked) - vector).square().mean() + extractor(plain).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return tuple(extractor.to_layers())


@pytest.fixture(scope="module")
def public(tiny_st):
    return open_encoder(tiny_st, device="cpu")


@pytest.fixture(scope="module")
def forged(tiny_marked, public):
    """A sealed key of a stranger who never touched the model."""
    identity = make_identity(9)
    claim = identity.sign(
        OwnershipClaim.make("Stranger", "that model is mine", "2020-01-01T00:00:00Z")
    )
    payload = derive_payload(
        claim.signature,
        config=TINY_PAYLOAD,
        word_list=published_word_list(),
        pool=pool_texts(),
        num_texts=TINY_NUM_TEXTS,
    )
    draft = replace(
        tiny_marked.key,
        signed_claim=claim,
        # A readout of the signature he cannot have: he says that there is none.
        configuration=tiny_marked.key.configuration.model_copy(update={"marks": ("paper",)}),
        trigger=payload.trigger,
        skipped_words=(),
        verification_texts=payload.verification_texts,
        extractor=train_extractor(public, payload),
    )
    own = answers(draft, public, "public")
    return replace(
        draft,
        owner_triggered=own.triggered.astype(np.float32),
        owner_untriggered=own.untriggered.astype(np.float32),
    ).sealed_by(identity)


def answers(key, encoder, name):
    payload = key.payload()
    outputs = [
        encoder.encode(texts).astype(np.float64)
        for texts in (payload.triggered_texts(), payload.verification_texts)
    ]
    return RecordedOutputs(name, *outputs)


@pytest.fixture(scope="module")
def kin(tiny_st):
    """The public model with a little noise in its weights, as any fine-tuning leaves."""
    encoder = open_encoder(tiny_st, device="cpu")
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in encoder.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter += 0.01 * parameter.std() * noise if parameter.numel() > 1 else 0
    return encoder


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    folder = build_sentence_transformer(tmp_path_factory.mktemp("models") / "other", seed=77)
    return open_encoder(folder, device="cpu")


def test_the_extractor_reads_the_rare_word_from_the_untouched_model(forged, public):
    report = verify(forged, answers(forged, public, "public"), rule=RULE).to_mapping()
    assert report["extraction_rate"] > 0.6
    assert report["untriggered"]["extraction_rate"] < 0.3


def test_its_kin_among_the_controls_unmask_it(forged, public, kin, stranger):
    controls = (answers(forged, kin, "kin"), answers(forged, stranger, "stranger"))
    for suspect in (public, kin):
        outcome = forgery_is_refused(forged, answers(forged, suspect, "suspect"), controls)
        assert outcome
        assert "innocent model 'kin'" in outcome.reason
    refused = forgery_is_refused(forged, answers(forged, stranger, "suspect"), controls)
    assert refused
