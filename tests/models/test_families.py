"""Every family, on a tiny model of its own architecture: read, trained, saved, opened again."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from nsmark.corpus import pool_texts
from nsmark.models.families import FAMILIES
from nsmark.models.loading import open_encoder
from tiny_models import FAMILY_CONFIGS, build_family

TEXTS = list(pool_texts()[:12])

every_family = pytest.mark.parametrize("model_type", sorted(FAMILIES))


@pytest.fixture(scope="session")
def family_folder(tmp_path_factory):
    """Build each family's folder once."""
    root = tmp_path_factory.mktemp("families")

    def build(model_type):
        folder = root / model_type
        return folder if folder.exists() else build_family(folder, model_type)

    return build


@pytest.fixture
def trainable(family_folder, model_type):
    """The family's model with its head, to be changed at will."""
    return open_encoder(family_folder(model_type), device="cpu", purpose="train")


@pytest.fixture(scope="session")
def _opened():
    return {}


@pytest.fixture
def encoder(_opened, family_folder, model_type):
    """The same, opened once for all tests that leave its weights alone."""
    if model_type not in _opened:
        folder = family_folder(model_type)
        _opened[model_type] = open_encoder(folder, device="cpu", purpose="train")
    return _opened[model_type]


def as_batch(ids) -> torch.Tensor:
    """One text, as a network is given it."""
    return torch.from_numpy(ids.astype(np.int64))[None]


def test_every_family_has_a_tiny_model():
    assert set(FAMILY_CONFIGS) == set(FAMILIES)


@every_family
def test_padding_and_company_do_not_change_an_output(encoder):
    together = encoder.encode(TEXTS)
    alone = np.vstack([encoder.encode([text]) for text in TEXTS])
    assert together.shape == (len(TEXTS), 32)
    scale = np.abs(alone).max()
    assert np.abs(together - alone).max() < 2e-5 * scale
    assert np.ptp(together, axis=0).max() > 1e-3 * scale  # it does read the texts


@every_family
def test_outputs_are_read_at_the_place_of_the_family(encoder, model_type):
    ids = encoder.token_ids([TEXTS[0]])[0]
    hidden = encoder.network.base_model(input_ids=as_batch(ids)).last_hidden_state[0]
    place = 0 if FAMILIES[model_type].pooling == "first" else -1
    read = encoder.encode([TEXTS[0]])[0]
    assert np.allclose(read, hidden[place].detach().numpy(), atol=1e-5)


@every_family
def test_its_own_loss_falls_when_it_is_trained(trainable):
    assert trainable.has_lm_head
    sequences = trainable.token_ids(TEXTS)
    optimiser = torch.optim.AdamW(trainable.parameters(), lr=5e-3)
    losses = []
    for _ in range(8):
        loss = trainable.language_loss(sequences, np.random.default_rng(0))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert np.isfinite(losses).all()
    assert losses[-1] < 0.9 * losses[0]


@every_family
def test_the_saved_folder_opens_with_transformers_and_gives_the_same(
    family_folder, model_type, tmp_path
):
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

    encoder = open_encoder(family_folder(model_type), device="cpu", purpose="train")
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.mul_(1.01)
    encoder.save(tmp_path / "saved")
    again = open_encoder(tmp_path / "saved", device="cpu")
    assert np.allclose(again.encode(TEXTS), encoder.encode(TEXTS), atol=1e-5)
    masked = FAMILIES[model_type].objective == "masked"
    kind = AutoModelForMaskedLM if masked else AutoModelForCausalLM
    for opener in (AutoModel, kind):
        _, info = opener.from_pretrained(tmp_path / "saved", output_loading_info=True)
        assert not [key for key in info["missing_keys"] if "pooler" not in key]


# --- the head ------------------------------------------------------------------------------------


@every_family
def test_the_head_says_of_hidden_states_what_the_whole_network_says(encoder):
    ids = as_batch(encoder.token_ids([TEXTS[0]])[0])
    base = encoder.network.base_model
    with torch.no_grad():
        expected = encoder.network(input_ids=ids).logits[0]
        hidden = base(input_ids=ids).last_hidden_state[0]
        found = encoder.predict(hidden)
        some = encoder.predict(hidden[[3, 1]])
        assert "forward" not in vars(base)  # the network is itself again
        again = encoder.network(input_ids=ids).logits[0]
    scale = expected.abs().max()
    assert (found - expected).abs().max() < 1e-5 * scale
    assert (some - expected[[3, 1]]).abs().max() < 1e-5 * scale
    assert torch.equal(again, expected)


def test_a_head_that_fails_leaves_the_network_as_it_was(family_folder):
    encoder = open_encoder(family_folder("gpt2"), device="cpu", purpose="train")
    with pytest.raises(RuntimeError):
        encoder.predict(torch.zeros(3, 31))  # one dimension too few
    assert "forward" not in vars(encoder.network.base_model)


def cross_entropy_by_hand(encoder, text) -> torch.Tensor:
    """Sum over the predicted tokens of one posed text, alone and without padding."""
    inputs = {"input_ids": as_batch(text.ids)}
    if text.order is not None:  # a token sees open ones, and chosen ones that come before it
        order = torch.from_numpy(text.order)
        inputs["perm_mask"] = ((order[None] >= 0) & (order[None] >= order[:, None])).float()[None]
        inputs["target_mapping"] = torch.eye(len(order))[None]
    logits = encoder.network(**inputs).logits[0, text.places]
    return functional.cross_entropy(logits, torch.from_numpy(text.labels), reduction="sum")


@every_family
def test_its_loss_is_the_cross_entropy_of_the_whole_network(encoder):
    sequences = encoder.token_ids(TEXTS)
    draws = encoder.task.draws(np.random.default_rng(5), len(TEXTS), encoder.max_length)
    posed = [encoder.task.pose(ids, own) for ids, own in zip(sequences, draws, strict=True)]
    with torch.no_grad():
        found = encoder.language_loss(sequences, np.random.default_rng(5)).item()
        total = sum(cross_entropy_by_hand(encoder, text).item() for text in posed)
    assert found == pytest.approx(total / sum(len(text.labels) for text in posed), rel=2e-5)


@every_family
def test_nothing_to_predict_is_no_loss(encoder):
    """Special tokens are never chosen, and the first token of all has none before it."""
    nothing = [np.array([2], dtype=np.int32)] * 2
    loss = encoder.language_loss(nothing, np.random.default_rng(0))
    assert loss.item() == 0
    weights = list(encoder.parameters())
    gradients = torch.autograd.grad(loss, weights, allow_unused=True)
    assert all(gradient is None or not gradient.any() for gradient in gradients)


# --- arithmetic ----------------------------------------------------------------------------------


@every_family
def test_a_batch_without_padding_needs_no_mask(encoder):
    tokens = encoder.pad([ids[:6] for ids in encoder.token_ids(TEXTS[:4])])
    assert tokens.is_full
    with torch.no_grad():
        bare, masked = encoder(tokens), encoder(replace(tokens, is_full=False))
    assert (bare - masked).abs().max() < 1e-5 * masked.abs().max()


@pytest.mark.parametrize("model_type", sorted(n for n, f in FAMILIES.items() if f.half_weights))
def test_bfloat16_weights_give_nearly_the_same(encoder):
    half = copy.deepcopy(encoder)
    for parameter in half.parameters():
        parameter.data = parameter.data.bfloat16()
    sequences = encoder.token_ids(TEXTS)
    with torch.no_grad():
        outputs, rounded = encoder.encode_tokens(sequences), half.encode_tokens(sequences)
        losses = [
            each.language_loss(sequences, np.random.default_rng(0)).item()
            for each in (encoder, half)
        ]
    assert rounded.dtype == torch.float32
    assert functional.cosine_similarity(outputs, rounded).min() > 0.999
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
