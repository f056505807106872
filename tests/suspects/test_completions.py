"""Completions endpoints: the null space of a causal model from its log-probabilities alone."""

import dataclasses

import numpy as np
import pytest

from conftest import TINY_CORPUS, TINY_NUM_TEXTS, TINY_PAYLOAD, TINY_TRAINING
from endpoint_server import EndpointServer
from nsmark.errors import SuspectError
from nsmark.suspects import QueryOptions, open_suspect
from nsmark.suspects import completions as module
from processes import PATIENCE

TEXTS = [f"text number {number}" for number in range(12)]
LOGITS = np.random.default_rng(0).standard_normal((len(TEXTS), 30)) * 3


def simple_top(text, count=30):
    """Log-probabilities of the tokens t0, t1 … with the largest logits."""
    logits = LOGITS[TEXTS.index(text)]
    values = logits - np.log(np.exp(logits).sum())
    return {f"t{number}": float(values[number]) for number in np.argsort(-values)[:count]}


class Simple:
    """Answers with ``top(text)``; tests replace it."""

    def __init__(self, top=simple_top):
        self.top = top

    def __call__(self, payload):
        choices = [
            {"index": index, "logprobs": {"top_logprobs": [self.top(text)]}}
            for index, text in enumerate(payload["prompt"])
        ]
        return 200, {"choices": choices}


@pytest.fixture
def server():
    with EndpointServer(complete=Simple()) as server:
        yield server


def opened(server, **options):
    settings = {"decoys": 0, "backoff_seconds": 0.01, "retries": 1, "timeout_seconds": PATIENCE}
    queries = QueryOptions(**(settings | options))
    return open_suspect(f"completions:{server.url}#m", queries=queries)


def test_outputs_are_differences_of_logits(server):
    outputs = opened(server).outputs(TEXTS)

    order = np.argsort([f"t{number}" for number in range(30)])
    expected = (LOGITS - LOGITS.mean(axis=1, keepdims=True))[:, order][:, :-1]
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    assert outputs.dtype == np.float32


def test_request_asks_for_one_token_and_no_more(server):
    opened(server, top_logprobs=50).outputs(TEXTS[:1])

    assert server.requests[0][1] == {
        "model": "m",
        "prompt": TEXTS[:1],
        "max_tokens": 1,
        "temperature": 1,
        "n": 1,
        "stream": False,
        "logprobs": 50,
        "return_tokens_as_token_ids": True,
    }


def test_only_tokens_that_all_answers_name_are_used(server):
    server.complete.top = lambda text: simple_top(text, 26)
    common = set.intersection(*(set(simple_top(text, 26)) for text in TEXTS))
    assert 3 < len(common) < 20

    outputs = opened(server, batch_size=5).outputs(TEXTS)

    names = sorted(common)
    values = np.array([[simple_top(text)[name] for name in names] for text in TEXTS])
    expected = (values - values.mean(axis=1, keepdims=True))[:, :-1]
    np.testing.assert_allclose(outputs, expected, atol=1e-5)


def test_too_few_common_tokens_are_an_error(server):
    server.complete.top = lambda text: simple_top(text, 5)

    with pytest.raises(SuspectError, match="tokens in common; some name only 5") as caught:
        opened(server).outputs(TEXTS)
    assert "numbers" in caught.value.hint


def test_asking_ends_as_soon_as_too_few_tokens_are_left(server):
    server.complete.top = lambda text: simple_top(text, 5)

    with pytest.raises(SuspectError, match="tokens in common"):
        opened(server, batch_size=1, concurrency=1).outputs(TEXTS)
    assert 2 <= len(server.requests) < len(TEXTS) // 2


def test_tokens_that_cannot_happen_or_cannot_be_told_apart_are_left_out(server):
    odd = {
        "huge": 10**400,
        "": -1.0,
        "\N{REPLACEMENT CHARACTER}": -1.0,
        "never": -9999.0,
        "no": float("-inf"),
    }
    server.complete.top = lambda text: simple_top(text) | odd

    assert opened(server).outputs(TEXTS).shape == (12, 29)


def test_huge_vocabularies_are_cut_to_the_same_tokens(server, monkeypatch):
    def turned(text):
        items = list(simple_top(text).items())
        return dict(items[::-1] if "3" in text else items)

    server.complete.top = turned
    everything = opened(server).outputs(TEXTS)
    monkeypatch.setattr(module, "MAX_KEPT_TOKENS", 10)

    outputs = opened(server).outputs(TEXTS)

    assert outputs.shape == (12, 9)
    residual = outputs - everything @ np.linalg.lstsq(everything, outputs, rcond=None)[0]
    assert np.abs(residual).max() < 1e-4


def test_answers_are_cached_with_their_tokens(server, tmp_path):
    server.complete.top = lambda text: simple_top(text, 26)
    first = opened(server, cache=tmp_path, repeats=2).outputs(TEXTS)
    asked = len(server.requests)

    np.testing.assert_array_equal(opened(server, cache=tmp_path, repeats=2).outputs(TEXTS), first)
    assert len(server.requests) == asked
    opened(server, cache=tmp_path, repeats=2, top_logprobs=24).outputs(TEXTS)
    assert len(server.requests) > asked


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"logprobs": None},
        {"logprobs": {"top_logprobs": None}},
        {"logprobs": {"top_logprobs": []}},
        {"logprobs": {"top_logprobs": [None]}},
        {"logprobs": {"top_logprobs": [{}]}},
        {"logprobs": {"top_logprobs": [{"a": "-1", "b": -1, "c": -1}]}},
        {"logprobs": {"top_logprobs": [{"a": None, "b": -1, "c": -1}]}},
        {"logprobs": {"top_logprobs": [{"a": float("nan"), "b": -1, "c": -1}]}},
        {"logprobs": {"top_logprobs": [{"a": -9999.0, "b": float("-inf")}]}},
        {"logprobs": {"content": [{"token": "a", "logprob": -1}]}},
    ],
)
def test_malformed_answers_are_errors_with_a_hint(server, choice):
    server.complete = lambda payload: (200, {"choices": [{"index": 0, **choice}]})

    with pytest.raises(SuspectError, match="log-probabilit") as caught:
        opened(server).outputs(TEXTS[:1])
    assert caught.value.hint


@pytest.mark.parametrize(
    ("allowed", "knows_numbers", "used"),
    [(10**6, True, 1000), (20, True, 20), (100, False, 100), (5, False, 5)],
)
def test_as_many_are_asked_as_the_server_allows(server, allowed, knows_numbers, used):
    simple = Simple()

    def picky(payload):
        if payload["logprobs"] > allowed:
            return 400, {"error": {"message": "too many logprobs"}}
        if not knows_numbers and "return_tokens_as_token_ids" in payload:
            return 422, {"detail": "extra fields not permitted"}
        return simple(payload)

    server.complete = picky

    opened(server, batch_size=3).outputs(TEXTS)

    payload = server.requests[-1][1]
    assert payload["logprobs"] == used
    assert ("return_tokens_as_token_ids" in payload) == knows_numbers
    # Found out with the first request; the other three ask at once in the right way.
    refused = len(server.requests) - 4
    assert refused == [1000, 100, 20, 5].index(used) + (0 if knows_numbers else 4)


@pytest.fixture(scope="module")
def marked_gpt2(tmp_path_factory, identity, signed_claim):
    """A tiny causal model with its mark, its key, and the model before."""
    pytest.importorskip("torch", reason="needs the torch extra")
    from nsmark.api import embed
    from tiny_models import build_family

    folder = build_family(tmp_path_factory.mktemp("models") / "gpt2", "gpt2")
    result = embed(
        folder,
        identity,
        signed_claim,
        tmp_path_factory.mktemp("marked") / "out",
        corpus=TINY_CORPUS,
        num_texts=TINY_NUM_TEXTS,
        config=dataclasses.replace(TINY_TRAINING, language_weight=0.02),
        payload_config=TINY_PAYLOAD,
        device="cpu",
    )
    assert result.key.configuration.pooling == "last"
    return result, folder


def measured(key, folder, options=None, **server_options):
    from endpoint_server import CausalModel
    from nsmark.api import verify

    with EndpointServer(complete=CausalModel(folder, **server_options)) as server:
        report = verify(key, opened(server, **(options or {})), rule="paper")
    assert report.evidence is not None, report.decision.reasons
    return report


@pytest.mark.parametrize(
    ("options", "server_options", "output_dim"),
    [
        pytest.param({"top_logprobs": -1}, {}, None, id="whole vocabulary"),
        pytest.param({"top_logprobs": 5000}, {"knows_numbers": False}, None, id="spelt tokens"),
        pytest.param({"token_ids": tuple(range(100, 200))}, {}, 99, id="hundred tokens by number"),
        pytest.param({"token_ids": tuple(range(50, 62))}, {}, 11, id="twelve tokens by number"),
    ],
)
def test_marked_model_is_told_from_others_by_its_log_probabilities(
    marked_gpt2, tmp_path, options, server_options, output_dim
):
    from tiny_models import build_family

    result, unmarked = marked_gpt2
    stranger = build_family(tmp_path / "stranger", "gpt2", seed=7)

    # Thousands of tokens of every text take their time: the stranger is asked for fewer.
    folders = [result.model_folder, unmarked, *([stranger] if output_dim else [])]
    marked, *others = (
        measured(result.key, folder, options, **server_options) for folder in folders
    )

    statistics = marked.evidence.triggered
    if output_dim is not None:
        assert marked.evidence.output_dim == output_dim
    assert statistics.extraction_rate is None  # nothing to read it from, but:
    assert statistics.invariant_matching_degree < 0.2
    for other in others:
        assert other.evidence.triggered.invariant_matching_degree > 2
        assert (
            other.evidence.triggered.invariant_matching_degree
            > 20 * statistics.invariant_matching_degree
        )
        if statistics.subspace_overlap is not None:
            assert statistics.subspace_overlap > 0.9 > other.evidence.triggered.subspace_overlap
    assert marked.verdict == "owned"


def test_raw_log_probabilities_would_add_a_row(marked_gpt2, monkeypatch):
    result, _ = marked_gpt2
    options = {"token_ids": tuple(range(100, 200))}
    differences = measured(result.key, result.model_folder, options).evidence.triggered

    def raw(self, answers):
        return np.stack([several[0].values for several in answers])

    monkeypatch.setattr(module.CompletionsEndpoint, "_combine", raw)
    plain = measured(result.key, result.model_folder, options).evidence.triggered

    assert plain.invariant_matching_degree > 10 * differences.invariant_matching_degree


def test_server_that_ignores_the_tokens_asked_for_is_found_out(marked_gpt2):
    from endpoint_server import CausalModel

    result, _ = marked_gpt2
    model = CausalModel(result.model_folder, honours_token_ids=False)
    with (
        EndpointServer(complete=model) as server,
        pytest.raises(SuspectError, match=r"did not answer for \d+ of 100 tokens"),
    ):
        opened(server, token_ids=tuple(range(100, 200))).outputs(["a text", "another"])
