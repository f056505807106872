"""A paraphraser that is a model of its own."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the torch extra")

import torch
from transformers import T5Config, T5ForConditionalGeneration

from attack_runs import attack
from nsmark.attacks.paraphraser import open_rewriter
from nsmark.corpus import training_texts
from nsmark.errors import ConfigError, ModelError
from tiny_models import build_tokenizer

TEXT = training_texts()[3]


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    """A real encoder-decoder with random weights: it says nothing sensible, but it says it."""
    folder = tmp_path_factory.mktemp("t5")
    tokenizer = build_tokenizer(folder, "masked")
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=tokenizer.pad_token_id,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.sep_token_id,
    )
    T5ForConditionalGeneration(config).save_pretrained(folder)
    return folder


def opened(folder, **changes):
    return open_rewriter(folder, torch.device("cpu"), **{"words": 40, "order": 100} | changes)


def test_versions_differ_and_are_the_same_for_the_same_seed(t5):
    rewriter = opened(t5)
    before = torch.random.get_rng_state()
    first = rewriter.paraphrases(TEXT, 3, seed=1)
    assert first == rewriter.paraphrases(TEXT, 3, seed=1)
    assert len(first) == 3
    assert all(first)
    assert first != rewriter.paraphrases(TEXT, 3, seed=2)
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_model_is_told_how_much_to_keep(t5, monkeypatch):
    rewriter, asked = opened(t5, words=20, order=60), []
    real = type(rewriter.tokenizer).__call__
    monkeypatch.setattr(
        type(rewriter.tokenizer),
        "__call__",
        lambda self, text, **more: asked.append(text) or real(self, text, **more),
    )
    rewriter.paraphrases(TEXT, 1, seed=0)
    assert asked == [f"lexical = 20, order = 60 <sent> {TEXT} </sent>"]


def test_a_folder_without_such_a_model_is_told(t5, tiny_st, tmp_path):
    for folder in (tmp_path / "missing", tmp_path, tiny_st):
        with pytest.raises(ModelError) as caught:
            opened(folder)
        assert caught.value.hint


def test_the_attack_takes_it(tiny_marked, t5, tmp_path):
    settings = {"paraphraser": str(t5), "num_texts": "8", "steps": "2", "paraphrases": "2"}
    found = attack(tiny_marked.model_folder, tmp_path / "out", "paraphrasing", settings)
    assert found["queries"] == 16
    assert found["words_with_synonyms"] is None
    with pytest.raises(ConfigError, match="kept_words"):
        attack(tiny_marked.model_folder, tmp_path / "no", "paraphrasing", {"kept_words": "101"})
