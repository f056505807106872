from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from conftest import TINY_PAYLOAD, TINY_TRAINING
from nsmark.core.texts import text_words
from nsmark.corpus import pool_texts, training_texts
from nsmark.embedding.batches import BatchOrder, insert_at_random, step_rng
from nsmark.embedding.inputs import InputMaker, Piece, StepInputs
from nsmark.embedding.parallel import Group
from nsmark.models.loading import open_encoder
from nsmark.models.tokens import Tokens
from nsmark.payload import derive_payload, published_word_list
from tiny_models import build_family, build_sentence_transformer

TEXTS = training_texts()[:150]
NUM_TRAIN = 120
BATCH = [7, 3, 100, 41, 8, 64, 2, 119, 0, 77, 5, 31, 90, 12, 63, 50]
KINDS = ("headless", "masked", "causal", "permutation")


@pytest.fixture(scope="module")
def payload(signed_claim):
    return derive_payload(
        signed_claim.signature,
        config=TINY_PAYLOAD,
        word_list=published_word_list(),
        pool=pool_texts(),
        num_texts=40,
    )


@pytest.fixture(scope="module")
def encoders(tmp_path_factory) -> dict[str, Any]:
    """One model of each kind of loss; the first has no head."""
    root = tmp_path_factory.mktemp("inputs")
    folders = {
        "headless": build_sentence_transformer(root / "st"),
        "masked": build_family(root / "bert", "bert"),
        "causal": build_family(root / "gpt2", "gpt2"),
        "permutation": build_family(root / "xlnet", "xlnet"),
    }
    return {
        kind: open_encoder(folder, device="cpu", purpose="train")
        for kind, folder in folders.items()
    }


@pytest.fixture
def make_inputs(encoders, payload):
    def make(kind: str, group: Group | None = None, pieces: int = 1, **changes: Any) -> InputMaker:
        config = dataclasses.replace(TINY_TRAINING, **changes)
        maker = InputMaker(encoders[kind], payload, TEXTS, NUM_TRAIN, config, group or Group())
        maker.pieces = pieces
        return maker

    return make


def rows_of(tokens: Tokens) -> list[list[int]]:
    pairs = zip(tokens.input_ids, tokens.attention_mask, strict=True)
    return [ids[mask == 1].tolist() for ids, mask in pairs]


def content(pieces: list[Piece]) -> dict[str, list[Any]]:
    """All that pieces hold, kind by kind and without padding."""
    found: dict[str, list[Any]] = {
        name: [] for name in ("numbers", "clean", "triggered", "posed", "labels")
    }
    for piece in pieces:
        rows, read = rows_of(piece.tokens), piece.num_clean + piece.num_triggered
        assert len(piece.read) == read
        found["numbers"] += piece.clean
        found["clean"] += rows[: piece.num_clean]
        found["triggered"] += rows[piece.num_clean : read]
        found["posed"] += rows[read:]
        if piece.language is not None:
            assert piece.language.num_read == read
            found["labels"] += piece.language.labels.tolist()
            if piece.language.permutation is not None:
                found["posed"] += rows_of(piece.language.permutation.tokens)
    return found


def same(first: StepInputs, second: StepInputs) -> bool:
    return first.clean == second.clean and content(first.pieces) == content(second.pieces)


# --- one process ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_seed_and_step_say_everything(make_inputs, kind):
    first = make_inputs(kind).make(5, BATCH)
    maker = make_inputs(kind)
    for step in (1, 9):
        maker.make(step, BATCH)  # what came before does not matter
    assert same(maker.make(5, BATCH), first)
    for other in (maker.make(6, BATCH), make_inputs(kind, seed=1).make(5, BATCH)):
        assert other.clean == first.clean
        assert content(other.pieces)["triggered"] != content(first.pieces)["triggered"]
        if kind in ("masked", "permutation"):
            assert content(other.pieces)["labels"] != content(first.pieces)["labels"]


@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_those_asked_for_with_their_triggered_copies(make_inputs, payload, kind):
    maker = make_inputs(kind, min_copies=2, language_texts="all")
    model = maker._model
    found = content(maker.make(3, BATCH).pieces)
    plain = [" ".join(text_words(TEXTS[number])) for number in BATCH]
    assert found["numbers"] == BATCH
    assert found["clean"] == [ids.tolist() for ids in model.token_ids(plain)]
    draws = step_rng(maker._config.seed, 3).random((len(BATCH), payload.config.copies + 1))
    triggered = [
        insert_at_random(TEXTS[number], payload.trigger, payload.config, 2, own)
        for number, own in zip(BATCH, draws, strict=True)
    ]
    assert found["triggered"] == [ids.tolist() for ids in model.token_ids(triggered)]


def test_every_training_text_is_tokenised_once_and_no_other(make_inputs):
    maker = make_inputs("headless")
    assert len(maker.tokens) == NUM_TRAIN
    last = " ".join(text_words(TEXTS[NUM_TRAIN - 1]))
    assert maker.tokens[-1].tolist() == maker._model.token_ids([last])[0].tolist()


# --- who serves which loss -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["masked", "permutation"])
def test_every_other_text_is_predicted_in_and_the_rest_is_read(make_inputs, kind):
    inputs = make_inputs(kind).make(1, BATCH)
    found = content(inputs.pieces)
    assert found["numbers"] == list(inputs.clean) == BATCH[::2]
    assert len(found["triggered"]) == len(BATCH)
    tokens = make_inputs(kind).tokens
    assert [len(row) for row in found["posed"]] == [len(tokens[i]) for i in BATCH[1::2]]


@pytest.mark.parametrize("kind", ["masked", "permutation"])
def test_all_texts_serve_both_where_asked_for(make_inputs, kind):
    found = content(make_inputs(kind, language_texts="all").make(1, BATCH).pieces)
    assert found["numbers"] == BATCH
    assert len(found["posed"]) == len(found["triggered"]) == len(BATCH)


@pytest.mark.parametrize("language_texts", ["half", "all"])
def test_a_causal_model_predicts_in_the_texts_that_are_read(make_inputs, language_texts):
    maker = make_inputs("causal", language_texts=language_texts)
    found = content(maker.make(1, BATCH).pieces)
    assert found["numbers"] == BATCH
    assert found["posed"] == []
    # What is predicted is the clean texts' next tokens, and none of the triggered ones'.
    assert found["labels"] == [token for row in found["clean"] for token in row[1:]]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [("headless", {}), ("masked", {"language_weight": 0.0}), ("causal", {"language_weight": 0.0})],
    ids=["headless", "masked", "causal"],
)
def test_without_that_loss_all_texts_are_read(make_inputs, kind, changes):
    (piece,) = make_inputs(kind, **changes).make(1, BATCH).pieces
    assert piece.language is None
    assert piece.clean == tuple(BATCH)
    assert len(piece.tokens) == 2 * len(BATCH)


def test_a_single_text_serves_both(make_inputs):
    found = content(make_inputs("masked").make(1, [4]).pieces)
    assert found["numbers"] == [4]
    assert len(found["posed"]) == 1


# --- several processes, several pieces -----------------------------------------------------------


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_the_shares_of_all_processes_are_the_whole(make_inputs, kind, size):
    whole = make_inputs(kind).make(7, BATCH)
    shares = [make_inputs(kind, Group(rank, size)).make(7, BATCH) for rank in range(size)]
    assert content([piece for share in shares for piece in share.pieces]) == content(whole.pieces)
    assert {share.clean for share in shares} == {whole.clean}
    assert len({len(share.pieces[0].read) for share in shares}) == 1


@pytest.mark.parametrize("pieces", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_divide_the_batch_and_change_nothing(make_inputs, kind, pieces):
    whole, parts = (make_inputs(kind, pieces=count).make(7, BATCH) for count in (1, pieces))
    assert len(parts.pieces) == pieces
    assert same(parts, whole)
    sizes = [piece.num_triggered for piece in parts.pieces]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


def test_pieces_of_several_processes_are_the_whole_too(make_inputs):
    whole = make_inputs("masked").make(7, BATCH)
    shares = [make_inputs("masked", Group(rank, 2), pieces=3).make(7, BATCH) for rank in range(2)]
    assert content([piece for share in shares for piece in share.pieces]) == content(whole.pieces)


@pytest.mark.parametrize("kind", ["headless", "permutation"])
def test_a_piece_goes_to_a_device_with_all_it_has(make_inputs, kind):
    (piece,) = make_inputs(kind).make(1, BATCH).pieces
    moved = piece.to(torch.device("meta"))
    assert moved.tokens.input_ids.device.type == "meta"
    assert (moved.clean, moved.num_triggered) == (piece.clean, piece.num_triggered)
    if kind == "permutation":
        assert moved.language.permutation.hidden.device.type == "meta"
    else:
        assert moved.language is None


# --- the largest step there can be ---------------------------------------------------------------


def sizes(inputs: StepInputs) -> list[tuple[int, ...]]:
    """Rows and columns of each piece's passes."""
    found = []
    for piece in inputs.pieces:
        shapes = [tuple(piece.tokens.input_ids.shape)]
        if piece.language is not None and piece.language.permutation is not None:
            shapes.append(tuple(piece.language.permutation.hidden.shape))
        found.append(tuple(number for shape in shapes for number in shape))
    return found


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_longest_step_is_at_least_as_large_as_any(make_inputs, kind, pieces):
    maker = make_inputs(kind, pieces=pieces)
    longest = maker.longest(16)
    assert len(longest.pieces) == pieces
    order = BatchOrder(maker.tokens.lengths, 16, 0)
    for step in range(1, 9):
        for large, real in zip(
            sizes(longest), sizes(maker.make(step, order.batch(step))), strict=True
        ):
            assert (np.array(large) >= real).all()
    columns = {piece.tokens.input_ids.shape[1] for piece in longest.pieces}
    assert columns == {maker._model.max_length}
    assert all(piece.tokens.is_full for piece in longest.pieces)
