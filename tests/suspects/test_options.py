"""How an endpoint is asked: settings out of range are refused at the door."""

import math

import pytest

from nsmark.errors import ConfigError
from nsmark.suspects import QueryOptions, QueryPlan

PLAN = QueryPlan(
    num_texts=200,
    repeats=1,
    num_cached=0,
    num_decoys=20,
    num_queries=220,
    num_requests=7,
    estimated_tokens=4400,
    estimated_price=None,
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0),
        ("batch_size", 10**6),
        ("concurrency", 0),
        ("concurrency", 1000),
        ("timeout_seconds", 0),
        ("timeout_seconds", math.nan),
        ("timeout_seconds", math.inf),
        ("retries", -1),
        ("backoff_seconds", -1),
        ("max_wait_seconds", math.nan),
        ("max_queries", 0),
        ("price_per_million_tokens", -1),
        ("repeats", 0),
        ("decoys", -0.1),
        ("decoys", math.nan),
        ("seed", -1),
        ("top_logprobs", 1),
        ("top_logprobs", -2),
        ("token_ids", (1, 2)),
        ("token_ids", (1, 2, 2)),
        ("token_ids", (1, 2, -3)),
        ("token_ids", tuple(range(10_000))),
        ("api_key_variable", ""),
    ],
)
def test_settings_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=name):
        QueryOptions(**{name: value})


def test_key_given_for_its_variable_is_not_shown():
    with pytest.raises(ConfigError, match="not a key") as caught:
        QueryOptions(api_key_variable="sk-this-is-the-key-itself")

    assert "this-is-the-key" not in str(caught.value) + caught.value.hint


def test_plan_is_one_line_for_people():
    assert PLAN.to_text() == "220 texts in 7 requests, 20 of them decoys, about 4400 tokens"
