from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from nsmark.api import verify
from nsmark.attacks.recipes import layer_dropping
from nsmark.errors import ConfigError, ModelError, UsageError
from nsmark.models.families import FAMILIES
from nsmark.models.folder import describe_folder, model_digest
from nsmark.models.layers import blocks
from nsmark.models.loading import open_encoder
from tiny_models import FAMILY_CONFIGS, build_family
from weight_attacks import TEXTS, attack, opened

COUNT_NAMES = ("num_hidden_layers", "n_layers", "n_layer")


def config_of(folder) -> dict:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def deep_bert(folder):
    """A BERT of four layers."""
    from transformers import AutoModel

    build_family(folder, "bert")
    config = AutoModel.from_pretrained(folder).config
    config.num_hidden_layers = 4
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModel.from_config(config).save_pretrained(folder)
    return folder


# --- what is left --------------------------------------------------------------------------------


def test_what_stays_is_the_model_read_at_an_earlier_layer(tmp_path):
    model = deep_bert(tmp_path / "model")
    done = attack(model, tmp_path / "out", "layer-dropping", {"layers": "3"})
    assert (done["layers_before"], done["layers_after"]) == (4, 1)
    before, after = opened(model), opened(tmp_path / "out")
    kept = dict(after.network.named_parameters())
    for name, weight in before.network.named_parameters():
        dropped = any(name.startswith(f"encoder.layer.{number}.") for number in (1, 2, 3))
        assert dropped != (name in kept)
        if not dropped:
            assert torch.equal(kept[name], weight)
    # What transformers itself gives as the hidden states after the first layer.
    tokens = before.pad(before.token_ids(TEXTS[:8]))
    with torch.no_grad():
        states = before.network(
            input_ids=tokens.input_ids,
            attention_mask=tokens.attention_mask,
            output_hidden_states=True,
        ).hidden_states
    np.testing.assert_allclose(after.encode(TEXTS[:8]), states[1][:, 0].numpy(), atol=1e-5)


def test_dropping_one_by_one_is_dropping_at_once(tmp_path):
    model = deep_bert(tmp_path / "model")
    attack(model, tmp_path / "one", "layer-dropping")
    attack(tmp_path / "one", tmp_path / "two", "layer-dropping")
    attack(model, tmp_path / "at once", "layer-dropping", {"layers": "2"})
    assert model_digest(tmp_path / "two") == model_digest(tmp_path / "at once")


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "albert"])
def test_the_folder_of_every_family_says_how_many_layers_it_has(tmp_path, family):
    build_family(tmp_path / "model", family)
    before = opened(tmp_path / "model").encode(TEXTS[:4])
    attack(tmp_path / "model", tmp_path / "out", "layer-dropping")
    config = config_of(tmp_path / "out")
    assert {config[name] for name in COUNT_NAMES if name in config} == {1}
    after = opened(tmp_path / "out")
    assert len(blocks(after.network)) == 1
    assert after.output_dim == before.shape[1]
    assert np.abs(after.encode(TEXTS[:4]) - before).max() > 0.1


def test_lists_are_cut_only_where_they_have_an_entry_per_layer(tmp_path):
    for family in ("modernbert", "qwen3", "deberta-v2"):
        build_family(tmp_path / family, family)
        attack(tmp_path / family, tmp_path / f"{family} out", "layer-dropping")
    for family in ("modernbert", "qwen3"):
        before, after = (config_of(tmp_path / name) for name in (family, f"{family} out"))
        assert after["layer_types"] == before["layer_types"][:1]
    # Two entries, as many as there were layers, but of another meaning.
    wanted = FAMILY_CONFIGS["deberta-v2"]["pos_att_type"]
    assert config_of(tmp_path / "deberta-v2 out")["pos_att_type"] == wanted


def test_a_sentence_transformer_stays_one(tiny_marked, tmp_path):
    attack(tiny_marked.model_folder, tmp_path / "out", "layer-dropping")
    before, after = (describe_folder(f) for f in (tiny_marked.model_folder, tmp_path / "out"))
    assert (after.kind, after.pooling, after.steps) == ("st", before.pooling, before.steps)
    outputs = open_encoder(tmp_path / "out", device="cpu").encode(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(outputs, axis=1), 1, atol=1e-5)


def test_innocents_get_no_mark(tiny_marked, tiny_st, tmp_path):
    attack(tiny_st, tmp_path / "out", "layer-dropping")
    assert verify(tiny_marked.key, tmp_path / "out").verdict == "not_shown"


# --- what is refused -----------------------------------------------------------------------------


def test_models_that_share_one_layer_are_refused(tmp_path):
    build_family(tmp_path / "model", "albert")
    with pytest.raises(ModelError, match="family albert") as caught:
        attack(tmp_path / "model", tmp_path / "out", "layer-dropping")
    assert "one by one" in caught.value.hint
    assert not (tmp_path / "out").exists()


def test_a_model_that_would_not_open_again_is_refused(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setattr(layer_dropping, "_count_layers", lambda *_: None)
    with pytest.raises(ModelError, match=r"would lack 'encoder\.layer\.1\."):
        attack(tiny_bert, tmp_path / "out", "layer-dropping")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"layers": "0"},
        {"layers": "-1"},
        {"layers": "2"},  # all that it has
        {"layers": "99"},
        {"layers": "1.5"},
        {"layers": "nan"},
        {"depth": "1"},
    ],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        attack(tiny_st, tmp_path / "out", "layer-dropping", wrong)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
