from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.core.texts import text_words
from nsmark.embedding.batches import BatchOrder, insert_at_random, make_batch, step_rng
from nsmark.payload import PayloadConfig

TRIGGER = "obelisk"
words = st.lists(st.sampled_from(["a", "bb", "ccc", "Dd", "é"]), max_size=90)


@given(
    words=words,
    copies=st.integers(1, 12),
    window=st.integers(1, 64),
    min_copies=st.integers(1, 64),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=150, deadline=None)
def test_taking_the_trigger_out_gives_the_text_back(words, copies, window, min_copies, seed):
    config = PayloadConfig(copies=copies, window=window)
    text = " ".join(words)
    draws = np.random.default_rng(seed).random(copies + 1)
    triggered = insert_at_random(text, TRIGGER, config, min_copies, draws).split()
    positions = [i for i, word in enumerate(triggered) if word == TRIGGER]
    assert [word for word in triggered if word != TRIGGER] == text_words(text)
    assert min(min_copies, copies) <= len(positions) <= copies
    # The i-th copy goes among the first ``window`` words and the i copies already there.
    assert max(positions) < window + len(positions)


def test_training_varies_number_and_places_of_the_copies():
    draws = np.random.default_rng(0).random((200, 6))
    texts = [
        insert_at_random("one two three four", TRIGGER, PayloadConfig(), 1, own) for own in draws
    ]
    counts = {text.split().count(TRIGGER) for text in texts}
    assert counts == {1, 2, 3, 4, 5}
    assert {text.split().index(TRIGGER) for text in texts} == {0, 1, 2, 3, 4}


def test_placement_front_puts_every_copy_first():
    config = PayloadConfig(placement="front")
    for draws in np.random.default_rng(0).random((20, 6)):
        found = insert_at_random("one two three", TRIGGER, config, 64, draws)
        assert found == f"{TRIGGER} {TRIGGER} {TRIGGER} {TRIGGER} {TRIGGER} one two three"


@pytest.mark.parametrize(
    ("draw", "expected"),
    [(0.0, "obelisk one two"), (np.nextafter(1, 0), "one two obelisk obelisk obelisk")],
    ids=["smallest", "largest"],
)
def test_the_smallest_and_the_largest_draws_stay_within_bounds(draw, expected):
    draws = np.full(4, draw)
    assert insert_at_random("one two", TRIGGER, PayloadConfig(copies=3), 1, draws) == expected


def test_a_batch_pairs_each_text_with_its_triggered_copy():
    texts = ["  one\ttwo  three ", "word " * 100]
    batch = make_batch(texts, TRIGGER, PayloadConfig(), 5, np.random.default_rng(0))
    assert batch.clean == ["one two three", " ".join(["word"] * 64)]
    for clean, triggered in zip(batch.clean, batch.triggered, strict=True):
        assert triggered.split().count(TRIGGER) == 5
        assert [word for word in triggered.split() if word != TRIGGER] == clean.split()


def test_batches_repeat_with_their_seed():
    def draw(seed: int) -> list[str]:
        rng = np.random.default_rng(seed)
        return make_batch(["one two three"] * 9, TRIGGER, PayloadConfig(), 1, rng).triggered

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


@given(
    lengths=st.lists(st.integers(0, 60), min_size=1, max_size=120),
    batch_size=st.integers(1, 12),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_an_epoch_uses_no_text_twice_and_drops_only_a_partial_batch(lengths, batch_size, seed):
    size = min(batch_size, len(lengths))
    per_epoch = len(lengths) // size
    order = BatchOrder(lengths, batch_size, seed)
    assert order.per_epoch == per_epoch
    for epoch in range(2):
        batches = [order.batch(epoch * per_epoch + step) for step in range(1, per_epoch + 1)]
        used = [index for batch in batches for index in batch]
        assert all(len(batch) == size for batch in batches)
        assert len(used) == len(set(used)) == per_epoch * size
        assert set(used) <= set(range(len(lengths)))


def test_texts_of_similar_length_share_a_batch():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 60, 16 * 16)
    order = BatchOrder(lengths, 16, 0)
    batches = [order.batch(step) for step in range(1, 17)]
    spread = np.mean([np.ptp(lengths[batch]) for batch in batches])
    assert spread < np.ptp(lengths) / 4
    # Yet not in the order of their length: the model would forget the short ones.
    means = [lengths[batch].mean() for batch in batches]
    assert means != sorted(means)
    assert means != sorted(means, reverse=True)


def test_each_epoch_has_a_new_order_that_repeats_with_the_seed():
    def draw(seed: int) -> list[list[int]]:
        order = BatchOrder([5] * 40, 4, seed)
        return [order.batch(step) for step in range(1, 21)]

    assert draw(0) == draw(0)
    assert draw(0) != draw(1)
    assert draw(0)[:10] != draw(0)[10:]


def test_what_a_step_draws_does_not_depend_on_the_steps_before_it():
    lengths = np.random.default_rng(0).integers(1, 60, 90)
    order = BatchOrder(lengths, 4, 7)
    in_order = {step: order.batch(step) for step in range(1, 70)}
    for step in (69, 1, 23, 22, 45):
        assert BatchOrder(lengths, 4, 7).batch(step) == order.batch(step) == in_order[step]
    draws = {
        (seed, step): step_rng(seed, step).integers(2**63) for seed in (0, 1) for step in (1, 2)
    }
    assert len(set(draws.values())) == 4
    assert step_rng(1, 2).integers(2**63) == draws[1, 2]


@pytest.mark.parametrize("length", [0, 1, 64, 65, 200])
def test_texts_of_any_length_can_be_triggered(length):
    draws = np.random.default_rng(0).random(6)
    found = insert_at_random("word " * length, TRIGGER, PayloadConfig(), 64, draws).split()
    assert len(found) == min(length, 64) + 5
