from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.corpus import training_texts
from nsmark.errors import ConfigError
from nsmark.models.encoder import Encoder, length_batches, pool
from nsmark.models.folder import POOLINGS
from nsmark.models.loading import open_encoder

TEXTS = [*training_texts()[:40], "short", "", "word " * 300, "Ünïcode ☃ text"]


@pytest.fixture(scope="module")
def encoder(tiny_st) -> Encoder:
    return open_encoder(tiny_st, device="cpu")


@pytest.fixture(scope="module")
def alone(encoder) -> np.ndarray:
    """Each text's output when it is the only one in its batch, so nothing is padded."""
    return np.concatenate([encoder.encode([text]) for text in TEXTS])


# --- batches do not matter -----------------------------------------------------------------------


@given(rows=st.lists(st.integers(0, len(TEXTS) - 1), min_size=1, max_size=60))
@settings(max_examples=20, deadline=None)
def test_an_output_does_not_depend_on_the_company_of_other_texts(encoder, alone, rows):
    outputs = encoder.encode([TEXTS[row] for row in rows])
    assert np.abs(outputs - alone[rows]).max() < 1e-5


@pytest.mark.parametrize("pooling", POOLINGS)
def test_padding_does_not_change_an_output(tiny_st, pooling):
    encoder = open_encoder(tiny_st, pooling=pooling, device="cpu")
    sequences = encoder.token_ids(TEXTS[:12])
    with torch.inference_mode():
        wide = encoder.pad([*sequences, list(range(10, 130))])
        # What stands in the padding is nobody's business either.
        wide.input_ids[wide.attention_mask == 0] = 77
        padded = encoder(wide)[:-1]
        bare = torch.cat([encoder(encoder.pad([sequence])) for sequence in sequences])
    assert (padded - bare).abs().max() < 1e-5


# --- pooling -------------------------------------------------------------------------------------


def pooled_by_hand(hidden: np.ndarray, length: int, pooling: str) -> np.ndarray:
    rows = [hidden[position] for position in range(length)]
    return {
        "first": lambda: rows[0],
        "last": lambda: rows[-1],
        "mean": lambda: sum(rows) / length,
        "max": lambda: np.array([max(row[k] for row in rows) for k in range(len(rows[0]))]),
    }[pooling]()


@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    pooling=st.sampled_from(POOLINGS),
)
@settings(max_examples=40, deadline=None)
def test_pooling_equals_the_computation_by_hand(seed, lengths, pooling):
    rng = np.random.default_rng(seed)
    # All below zero: a maximum that saw the padding's zeros would be found out.
    hidden = -1 - rng.random((len(lengths), 7, 3))
    mask = np.array([[1] * length + [0] * (7 - length) for length in lengths])
    found = pool(torch.tensor(hidden), torch.tensor(mask), pooling).numpy()
    for row, length in enumerate(lengths):
        expected = pooled_by_hand(hidden[row], length, pooling)
        np.testing.assert_allclose(found[row], expected, rtol=1e-6)  # means are float32


def test_an_unknown_pooling_is_refused():
    with pytest.raises(ConfigError, match="pooling"):
        pool(torch.zeros(1, 2, 3), torch.ones(1, 2), "median")


def test_outputs_are_those_of_the_transformer_itself(tiny_bert):
    from transformers import AutoTokenizer, BertModel

    network = BertModel.from_pretrained(tiny_bert, add_pooling_layer=False).eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    encoder = open_encoder(tiny_bert, pooling="mean", device="cpu")
    for text in TEXTS[:5]:
        with torch.inference_mode():
            hidden = network(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        np.testing.assert_allclose(encoder.encode([text])[0], hidden.mean(dim=0), atol=1e-5)


def test_unit_length_is_given_where_asked_for(tiny_bert):
    plain = open_encoder(tiny_bert, device="cpu").encode(TEXTS)
    unit = open_encoder(tiny_bert, normalise=True, device="cpu").encode(TEXTS)
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    assert np.abs(lengths - 1).max() > 0.1
    np.testing.assert_allclose(unit, plain / lengths, atol=1e-6)


# --- texts to tokens -----------------------------------------------------------------------------


def test_texts_are_cut_to_the_maximum_length(tiny_st):
    encoder = open_encoder(tiny_st, max_length=10, device="cpu")
    lengths = [len(ids) for ids in encoder.token_ids(TEXTS)]
    assert max(lengths) == 10
    whole, cut = "one two three four five six seven eight", "one two three four five six seven"
    first = encoder.encode([whole + " nine ten eleven twelve"])
    np.testing.assert_array_equal(first, encoder.encode([whole + " twelve eleven"]))
    assert np.abs(first - encoder.encode([cut])).max() > 1e-3


def test_no_texts_give_no_outputs(encoder):
    assert encoder.encode([]).shape == (0, 32)


def test_words_the_tokenizer_cannot_spell_are_not_representable(encoder):
    assert encoder.is_representable("obelisk")
    assert encoder.is_representable("zzqxj")  # spelt letter by letter
    assert not encoder.is_representable("☃")
    assert not encoder.is_representable("snow☃man")
    assert not encoder.is_representable("")


@given(lengths=st.lists(st.integers(0, 200), max_size=80), budget=st.integers(1, 500))
@settings(max_examples=100, deadline=None)
def test_length_batches_hold_every_text_once_within_the_budget(lengths, budget):
    batches = list(length_batches(lengths, budget))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = len(batch) * max(lengths[index] for index in batch)
        assert len(batch) == 1 or padded <= budget


def test_progress_counts_up_to_the_number_of_texts(encoder):
    seen: list[tuple[int, int]] = []
    encoder.encode(TEXTS * 4, lambda done, total: seen.append((done, total)))
    assert len(seen) > 1
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[-1] == (len(TEXTS) * 4,) * 2
    assert {total for _, total in seen} == {len(TEXTS) * 4}


# --- the model's own loss ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mlm(tiny_mlm) -> Encoder:
    return open_encoder(tiny_mlm, device="cpu", purpose="train")


def test_the_loss_is_the_cross_entropy_of_the_masked_tokens(mlm):
    """Recomputed by transformers itself, from the same masking."""
    sequences = mlm.token_ids(TEXTS[:8])
    draws = mlm.task.draws(np.random.default_rng(3), 8, mlm.max_length)
    posed = [mlm.task.pose(ids, own) for ids, own in zip(sequences, draws, strict=True)]
    tokens = mlm.pad([text.ids for text in posed])
    labels = torch.full_like(tokens.input_ids, -100)
    for row, text in enumerate(posed):
        labels[row, text.places] = torch.from_numpy(text.labels)
    with torch.no_grad():
        expected = mlm.network(
            input_ids=tokens.input_ids, attention_mask=tokens.attention_mask, labels=labels
        ).loss
        loss = mlm.language_loss(sequences, np.random.default_rng(3))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_loss_repeats_with_its_generator(mlm):
    sequences = mlm.token_ids(TEXTS[:8])
    with torch.no_grad():
        first, again, other = (
            mlm.language_loss(sequences, np.random.default_rng(seed)).item() for seed in (3, 3, 4)
        )
    assert first == again != other


def test_one_pass_gives_outputs_and_loss_as_two_would(mlm):
    read, told = mlm.token_ids(TEXTS[:3]), mlm.token_ids(TEXTS[3:8])
    draws = mlm.task.draws(np.random.default_rng(0), 5, mlm.max_length)
    posed = [mlm.task.pose(ids, own) for ids, own in zip(told, draws, strict=True)]
    with torch.no_grad():
        outputs, total, held = mlm(*mlm.task.batch(read, posed))
        alone = mlm.language_loss(told, np.random.default_rng(0))
        torch.testing.assert_close(outputs, mlm(mlm.pad(read)), rtol=1e-4, atol=1e-5)
    count = sum(len(text.labels) for text in posed)
    assert (total / count).item() == pytest.approx(alone.item(), rel=1e-5)
    assert held.item() == 0  # to nothing


def test_opening_a_model_leaves_the_tokenizers_their_threads(tiny_bert, monkeypatch):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    open_encoder(tiny_bert, device="cpu").encode(["a text"])
    assert "TOKENIZERS_PARALLELISM" not in os.environ
