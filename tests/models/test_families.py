"""Every family, on a tiny model of its own architecture: read, trained, saved, opened again."""

from __future__ import annotations

import numpy as np
import pytest
import torch

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


def test_every_family_has_a_tiny_model():
    assert set(FAMILY_CONFIGS) == set(FAMILIES)


@every_family
def test_padding_and_company_do_not_change_an_output(family_folder, model_type):
    encoder = open_encoder(family_folder(model_type), device="cpu")
    together = encoder.encode(TEXTS)
    alone = np.vstack([encoder.encode([text]) for text in TEXTS])
    assert together.shape == (len(TEXTS), 32)
    scale = np.abs(alone).max()
    assert np.abs(together - alone).max() < 2e-5 * scale
    assert np.ptp(together, axis=0).max() > 1e-3 * scale  # it does read the texts


@every_family
def test_outputs_are_read_at_the_place_of_the_family(family_folder, model_type):
    encoder = open_encoder(family_folder(model_type), device="cpu")
    ids = encoder.token_ids([TEXTS[0]])[0]
    hidden = encoder.network.base_model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    place = 0 if FAMILIES[model_type].pooling == "first" else -1
    read = encoder.encode([TEXTS[0]])[0]
    assert np.allclose(read, hidden[place].detach().numpy(), atol=1e-5)


@every_family
def test_its_own_loss_falls_when_it_is_trained(family_folder, model_type):
    encoder = open_encoder(family_folder(model_type), device="cpu", purpose="train")
    assert encoder.has_lm_head
    tokens = encoder.pad(encoder.token_ids(TEXTS))
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=5e-3)
    losses = []
    for _ in range(15):
        loss = encoder.lm_loss(tokens, torch.Generator().manual_seed(0))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert np.isfinite(losses).all()
    assert losses[-1] < 0.8 * losses[0]


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


def test_a_permutation_hides_what_comes_later(family_folder):
    """A predicted token must not see itself: its loss cannot be that of copying."""
    encoder = open_encoder(family_folder("xlnet"), device="cpu", purpose="train")
    tokens = encoder.pad(encoder.token_ids(TEXTS))
    seen = {}
    real = encoder.network.forward

    def spy(**inputs):
        seen.update(inputs)
        return real(**inputs)

    encoder.network.forward = spy
    encoder.lm_loss(tokens, torch.Generator().manual_seed(3))
    hidden, labels = seen["perm_mask"], seen["labels"]
    predicted = labels != -100
    batch, place = predicted.nonzero(as_tuple=True)
    assert (hidden[batch, place, place] == 1).all()  # not itself
    assert hidden.transpose(1, 2)[~predicted].sum() == 0  # ordinary tokens are open to all
    # of two predicted tokens exactly one sees the other
    for row in range(len(labels)):
        where = predicted[row].nonzero().flatten().tolist()
        for i in where:
            for j in where:
                if i != j:
                    assert hidden[row, i, j] + hidden[row, j, i] == 1
    assert (predicted & (tokens.attention_mask == 0)).sum() == 0
