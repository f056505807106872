"""Order of the texts: everything asked once, nothing recognisable, no request with a text twice."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.corpus import pool_texts
from nsmark.suspects import QueryOptions
from nsmark.suspects.schedule import estimated_tokens, make_batches, make_plan

rounds = st.lists(
    st.lists(st.integers(0, 60), unique=True, max_size=30), min_size=1, max_size=4
).map(lambda several: [[f"text {number}" for number in one] for one in several])


@settings(deadline=None)  # the first example makes the corpus
@given(
    missing=rounds,
    batch_size=st.integers(1, 40),
    decoys=st.floats(0, 2),
    seed=st.integers(0, 2**32),
)
def test_all_that_is_missing_is_asked_once_whatever_the_sizes(missing, batch_size, decoys, seed):
    options = QueryOptions(batch_size=batch_size, decoys=decoys, seed=seed)

    batches, num_decoys = make_batches(missing, options)

    queries = [query for batch in batches for query in batch]
    real = sorted((q.repetition, q.text) for q in queries if not q.is_decoy)
    assert real == sorted((i, text) for i, texts in enumerate(missing) for text in texts)
    assert num_decoys == sum(query.is_decoy for query in queries)
    assert num_decoys == sum(math.ceil(decoys * len(texts)) for texts in missing if texts)
    for batch in batches:
        assert 1 <= len(batch) <= batch_size
        assert len({query.text for query in batch}) == len(batch)


def test_order_says_nothing_about_the_texts():
    texts = [f"{number:03}" for number in range(200)]

    batches, _ = make_batches([texts], QueryOptions(decoys=0.1, seed=3, batch_size=16))

    order = [query.text for batch in batches for query in batch if not query.is_decoy]
    assert order != texts
    displaced = [abs(texts.index(text) - place) for place, text in enumerate(order)]
    assert 50 < sum(displaced) / len(displaced) < 80  # a third of 200 on average
    places = [n for n, q in enumerate(q for batch in batches for q in batch) if q.is_decoy]
    assert len(places) == 20
    assert places[0] < 60
    assert places[-1] > 160


def test_seed_repeats_an_order_and_no_seed_does_not():
    texts = [[f"{number}" for number in range(100)]]

    first, second = (make_batches(texts, QueryOptions(seed=5))[0] for _ in range(2))
    third, fourth = (make_batches(texts, QueryOptions())[0] for _ in range(2))

    assert first == second
    assert third != fourth


def test_decoys_come_back_as_often_as_the_texts_and_are_none_of_them():
    texts = list(pool_texts()[:300])

    batches, _ = make_batches([texts, texts], QueryOptions(decoys=0.5, seed=1))

    decoys = [query.text for batch in batches for query in batch if query.is_decoy]
    assert len(decoys) == 300
    assert len(set(decoys)) == 150
    assert not set(decoys) & set(texts)


def test_plan_counts_what_is_sent_and_what_it_costs():
    options = QueryOptions(decoys=0, batch_size=4, price_per_million_tokens=2.0, repeats=2)
    batches, num_decoys = make_batches([["abcd" * 10] * 1 + ["x"], ["x"]], options)

    plan = make_plan(batches, num_decoys, num_texts=2, num_cached=1, options=options)

    assert (plan.num_queries, plan.num_requests, plan.num_decoys) == (3, 2, 0)
    assert plan.estimated_tokens == 12 + 3 + 3
    assert plan.estimated_price == 2.0 * 18 / 1e6
    assert "price about 3.6e-05" in plan.to_text()
    assert "1 answers from the cache" in plan.to_text()


def test_tokens_of_any_text_can_be_estimated():
    assert estimated_tokens("") == 2
    assert estimated_tokens("\ud800") == 3
    assert estimated_tokens("语言模型") == 5
