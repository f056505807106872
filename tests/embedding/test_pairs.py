"""The pair code in training: what is drawn, what it is to do, and that it does it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import TINY_CORPUS, TINY_PAYLOAD, TINY_TRAINING, make_identity
from nsmark.api import embed, verify
from nsmark.core import pair_table
from nsmark.corpus import pool_texts, training_texts
from nsmark.embedding.batches import pair_rng
from nsmark.embedding.config import EmbeddingConfig, preset_config
from nsmark.embedding.losses import pair_loss
from nsmark.embedding.memory import MemoryPlan
from nsmark.embedding.pair_texts import heldout_rows, pair_direction, pair_rows
from nsmark.embedding.trainer import Trainer
from nsmark.errors import EmbeddingError
from nsmark.identity import OwnershipClaim
from nsmark.models.loading import open_encoder
from nsmark.payload import (
    PairConfig,
    WatermarkPayload,
    derive_payload,
    published_word_list,
)

SIGNATURE = bytes(range(64))
CORPUS = training_texts()[:200]
MARKS = ("paper", "derived", "pairs")
# A tiny model learns a small table soon if it need not be exact about the rest.
EASY = {"pair_margin": 0.5, "pair_keep_weight": 0.02, "pair_alone_weight": 0.1}
TRAINING = dataclasses.replace(
    TINY_TRAINING, marks=MARKS, model_learning_rate=4e-3, max_steps=1500, cooldown_steps=40, **EASY
)


def make_payload(signature: bytes = SIGNATURE, size: int = 4) -> WatermarkPayload:
    """A payload whose pair words are whole words of the tiny models' vocabulary."""
    return derive_payload(
        signature,
        config=TINY_PAYLOAD,
        word_list=published_word_list(),
        pool=pool_texts(),
        num_texts=40,
        pair_config=PairConfig(size=size, repeats=4),
        pair_word_list=published_word_list(),
    )


PAIRS = make_payload().pairs


# --- what is drawn -------------------------------------------------------------------------------


def test_rows_follow_the_table_and_every_fourth_shows_no_pair():
    size, table = PAIRS.config.size, pair_table(SIGNATURE, PAIRS.config.size)
    left, right = PAIRS.words[:size], PAIRS.words[size:]
    rows = pair_rows(PAIRS, SIGNATURE, 400, np.random.default_rng(0))
    kinds = Counter(row.sign for row in rows)
    assert kinds[0] == 100
    for number, row in enumerate(rows):
        sides = [{word for word in row.words if word in side} for side in (left, right)]
        if number % 4 == 3:
            assert row.sign == 0
            assert min(map(len, sides)) == 0
            assert len(row.words) == 2
        else:
            (first,), (second,) = sides
            assert row.sign == table[left.index(first), right.index(second)]
            assert 2 <= len(row.words) <= 4
    # Every pair and every word alone comes up.
    assert len({row.words for row in rows if row.sign}) > 16
    assert {word for row in rows if not row.sign for word in row.words} == set(PAIRS.words)


@given(seed=st.integers(0, 2**32), text=st.text(alphabet="ab c", max_size=400))
def test_words_are_inserted_and_nothing_else_changes(seed, text):
    (row,) = pair_rows(PAIRS, SIGNATURE, 1, np.random.default_rng(seed))
    found = row.inserted(text).split()
    left = list(found)
    for word in row.words:
        left.remove(word)
    assert left == text.split()[:64]


def test_held_out_rows_show_all_pairs_as_often_as_possible():
    rows = heldout_rows(PAIRS, SIGNATURE, 32, np.random.default_rng(1))
    counts = Counter((row.words[0], row.words[-1]) for row in rows)
    assert set(counts.values()) == {2}
    assert all(len(row.words) == 4 and row.sign in (-1, 1) for row in rows)


def test_the_same_step_draws_the_same_and_others_do_not():
    first, again, other = (pair_rows(PAIRS, SIGNATURE, 20, pair_rng(5, step)) for step in (7, 7, 8))
    assert first == again
    assert first != other


def test_the_direction_has_length_one_and_follows_the_signature():
    direction = pair_direction(SIGNATURE, 16, 32)
    assert np.linalg.norm(direction) == pytest.approx(1)
    assert not np.array_equal(direction, pair_direction(SIGNATURE[::-1], 16, 32))


# --- what it is to do ----------------------------------------------------------------------------


def loss_of(outputs: Any, reference: Any, signs: Any, **weights: float) -> torch.Tensor:
    direction = torch.tensor([1.0, 0.0, 0.0])
    settings = {"margin": 0.3, "keep_weight": 0.2, "alone_weight": 0.5} | weights
    parts = (torch.as_tensor(part, dtype=torch.float32) for part in (outputs, reference, signs))
    return pair_loss(*parts, direction, **settings)


def test_the_loss_vanishes_where_pairs_move_along_and_nothing_else_moves():
    still = [0.0, 2.0, 0.0]
    far = [np.sin(0.5), np.cos(0.5), 0.0]
    assert loss_of([far, still], [still, still], [1, 0], keep_weight=0.0) == pytest.approx(0)
    assert loss_of([far, still], [still, still], [-1, 0]) > 1
    # Beside the direction a little is lost by the length, which stays 1.
    assert 0 < loss_of([far, still], [still, still], [1, 0]) < 0.05
    assert loss_of([still, far], [still, still], [1, 0]) > 1


def test_only_what_each_text_is_to_do_counts():
    still, aside = [0.0, 1.0, 0.0], [0.0, 0.8, 0.6]
    base = loss_of([still, still], [still, still], [1, 0])
    moved_pair = loss_of([aside, still], [still, still], [1, 0])
    moved_alone = loss_of([still, aside], [still, still], [1, 0])
    assert base == pytest.approx(1)  # the pair does not move, the other need not
    assert moved_pair == pytest.approx(1 + 0.2 * 0.4 / 0.09, rel=1e-4)
    assert moved_alone == pytest.approx(1 + 0.5 * 0.4 / 0.09, rel=1e-4)


@given(seed=st.integers(0, 2**32))
def test_neither_scale_nor_company_of_one_kind_matters(seed):
    rng = np.random.default_rng(seed)
    outputs, reference = rng.standard_normal((2, 8, 3))
    signs = rng.choice([-1, 0, 1], 8)
    scaled = rng.uniform(0.1, 10, (8, 1)) * outputs
    assert loss_of(scaled, reference, signs) == pytest.approx(
        float(loss_of(outputs, reference, signs)), rel=1e-4
    )
    # Without any of a kind the other still has a loss, and no division by zero.
    assert torch.isfinite(loss_of(outputs, reference, np.zeros(8)))
    assert torch.isfinite(loss_of(outputs, reference, np.ones(8)))


# --- steps ---------------------------------------------------------------------------------------


def make_trainer(folder: Any, payload: WatermarkPayload | None = None, **changes: Any) -> Trainer:
    config = dataclasses.replace(TRAINING, batch_size=8, num_heldout_texts=8, **changes)
    encoder = open_encoder(folder, device="cpu", purpose="train", max_length=48)
    return Trainer(encoder, payload or make_payload(), CORPUS, config)


@pytest.mark.parametrize("model", ["tiny_st", "tiny_mlm"])
@pytest.mark.parametrize("plan", [MemoryPlan(3), MemoryPlan(8, True)])
def test_pieces_do_not_change_the_result(request, model, plan):
    folder = request.getfixturevalue(model)
    ends = []
    for each in (MemoryPlan(), plan):
        trainer = make_trainer(folder)
        trainer.model.eval()  # no dropout: pieces draw it in another order
        trainer.follow(each)
        for optimiser in trainer.optimisers:
            optimiser.param_groups[0]["eps"] = 1e-3
        losses = [trainer.take_step(trainer.inputs.make(step, range(8))).read() for step in (1, 2)]
        ends.append((losses, [p.detach().clone() for p in trainer.model.parameters()]))
    for found, expected in zip(ends[1][0], ends[0][0], strict=True):
        assert found == pytest.approx(expected, rel=1e-4)
    for found, expected in zip(ends[1][1], ends[0][1], strict=True):
        assert (found - expected).abs().max() < 2e-5


def test_the_term_counts_with_its_weight(tiny_st):
    plain, heavy = (make_trainer(tiny_st, pair_weight=weight) for weight in (1.0, 5.0))
    first, second = (
        trainer.take_step(trainer.inputs.make(1, range(8))).read() for trainer in (plain, heavy)
    )
    assert first["pairs"] == pytest.approx(second["pairs"])
    assert second["model"] - first["model"] == pytest.approx(4 * first["pairs"], rel=1e-4)


def test_without_a_pair_code_nothing_is_said_about_it(tiny_st):
    payload = dataclasses.replace(make_payload(), pairs=None)
    trainer = make_trainer(tiny_st, payload, marks=("paper", "derived"))
    assert "pairs" not in trainer.take_step(trainer.inputs.make(1, range(8))).read()
    assert trainer.evaluate(1).pairs is None


def test_while_cooling_down_clean_texts_count_more(tiny_st):
    trainer = make_trainer(tiny_st)
    warm = trainer._kept_weight
    trainer.strictness = 7.0
    assert trainer._kept_weight == pytest.approx(7 * warm)


def test_targets_include_the_pairs(tiny_st):
    trainer = make_trainer(tiny_st, max_steps=2, min_triggered=0.0, max_clean=1.0, evaluate_every=1)
    with pytest.raises(EmbeddingError, match=r"pairs 0\.\d\d \(wanted ≥ 0\.97\)"):
        trainer.run()


def test_presets_take_longer_with_a_pair_code():
    plain, with_pairs = preset_config("fast"), preset_config("fast", MARKS)
    assert with_pairs.marks == MARKS
    assert with_pairs.max_steps > plain.max_steps
    assert with_pairs.pair_learning_rate > plain.model_learning_rate
    assert preset_config("fast", ("paper",)) == dataclasses.replace(plain, marks=("paper",))
    assert isinstance(preset_config("strong", MARKS), EmbeddingConfig)


# --- from end to end -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def marked(tiny_st, tmp_path_factory):
    identity = make_identity(3)
    claim = OwnershipClaim.make("Example Lab", "with a pair code", "2026-01-31T12:00:00Z")
    return embed(
        tiny_st,
        identity,
        identity.sign(claim),
        tmp_path_factory.mktemp("pairs") / "marked",
        corpus=TINY_CORPUS,
        num_texts=96,
        config=TRAINING,
        payload_config=TINY_PAYLOAD,
        pair_config=PairConfig(size=4, repeats=6),
        pair_word_list=published_word_list(),
        device="cpu",
    )


def test_a_marked_model_carries_the_code_and_the_original_does_not(marked, tiny_st):
    words = published_word_list()
    own = verify(marked.key, marked.model_folder, pair_word_list=words)
    original = verify(marked.key, tiny_st, pair_word_list=words)
    assert own.verdict == "owned"
    assert own.evidence.pairs.rate >= 0.9
    assert original.verdict == "not_shown"
    assert original.evidence.pairs.rate <= 0.75
    # Sixteen signs are too few to prove anything by themselves.
    assert own.evidence.pairs.p_value > 1e-12
    assert marked.report["training"]["held_out"]["pairs"] >= 0.97
    assert marked.report["watermarked"]["triggered"]["pair_code_rate"] >= 0.8
