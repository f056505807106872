"""Embeddings endpoints: every answer to its text, every wrong answer refused."""

import base64
import json
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endpoint_server import EndpointServer, embeddings_document, simple_vectors
from nsmark.errors import EvidenceError, SuspectError, UsageError
from nsmark.suspects import QueryOptions, QueryPlan, open_suspect
from processes import PATIENCE, running, wait_for

TEXTS = [f"text number {number}" for number in range(40)]


@pytest.fixture
def server():
    with EndpointServer(simple_vectors) as server:
        yield server


def opened(server, **options):
    settings = {"decoys": 0, "backoff_seconds": 0.01, "retries": 1, "timeout_seconds": PATIENCE}
    return open_suspect(f"openai:{server.url}#m", queries=QueryOptions(**(settings | options)))


def answering(change):
    """Return a fault that changes the answer before it is sent."""

    def fault(handler, payload):
        encoding = payload.get("encoding_format", "float")
        document = embeddings_document(handler.vectors(payload), encoding)
        handler.send_json(change(document) or document)
        return True

    return fault


@settings(max_examples=40, deadline=None)
@given(
    numbers=st.lists(st.integers(0, 30), min_size=1, max_size=40),
    batch_size=st.integers(1, 12),
    concurrency=st.integers(1, 4),
    repeats=st.integers(1, 3),
    decoys=st.floats(0, 1),
)
def test_order_is_restored_whatever_the_sizes(numbers, batch_size, concurrency, repeats, decoys):
    texts = [f"text {number}" for number in numbers]
    with EndpointServer(simple_vectors) as server:
        suspect = opened(
            server,
            batch_size=batch_size,
            concurrency=concurrency,
            repeats=repeats,
            decoys=decoys,
        )

        outputs = suspect.outputs(texts)

        np.testing.assert_array_equal(outputs, simple_vectors(texts).astype(np.float32))
        assert outputs.dtype == np.float32
        for text in set(texts):
            assert server.texts.count(text) == repeats
        assert all(len(set(batch)) == len(batch) <= batch_size for batch in server.batches)


def test_request_is_what_the_interface_asks_for(server):
    opened(server).outputs(["one"])

    headers, payload = server.requests[0]
    assert payload == {"model": "m", "input": ["one"], "encoding_format": "base64"}
    assert headers["Content-Type"] == "application/json"


def test_answers_out_of_order_find_their_texts(server):
    server.faults.append(answering(lambda document: document["data"].reverse()))

    np.testing.assert_array_equal(opened(server).outputs(TEXTS[:9]), simple_vectors(TEXTS[:9]))


def test_answers_without_numbers_are_in_order(server):
    def without(document):
        for entry in document["data"]:
            del entry["index"]

    server.faults.append(answering(without))

    np.testing.assert_array_equal(opened(server).outputs(TEXTS[:9]), simple_vectors(TEXTS[:9]))


def test_floats_are_taken_where_base64_was_asked_for(server):
    def floats(handler, payload):
        handler.send_json(embeddings_document(handler.vectors(payload), "float"))
        return True

    server.faults.append(floats)

    np.testing.assert_array_equal(opened(server).outputs(TEXTS[:9]), simple_vectors(TEXTS[:9]))


def test_server_that_refuses_the_encoding_is_asked_without_once_and_for_all(server):
    server.encodings = ()

    outputs = opened(server, batch_size=4).outputs(TEXTS)

    np.testing.assert_array_equal(outputs, simple_vectors(TEXTS))
    asked = ["encoding_format" in payload for _, payload in server.requests]
    assert asked == [True] + [False] * 10


def test_refusal_of_any_request_is_told(server):
    def refuse(handler, payload):
        handler.send_json({"error": {"message": "no such model"}}, 400)
        return True

    server.faults.extend([refuse] * 3)

    with pytest.raises(SuspectError, match="no such model"):
        opened(server).outputs(TEXTS)
    assert len(server.requests) == 2


def entry(document, **values):
    document["data"][2].update(values)


def nan_vector(document):
    vector = np.array([1, 2, np.nan, 4, 5], "<f4")
    entry(document, embedding=base64.b64encode(vector.tobytes()).decode())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda d: entry(d, index=1), id="number twice"),
        pytest.param(lambda d: entry(d, index=99), id="number too large"),
        pytest.param(lambda d: entry(d, index=-1), id="negative number"),
        pytest.param(lambda d: entry(d, index="2"), id="number as text"),
        pytest.param(lambda d: entry(d, index=True), id="number as truth"),
        pytest.param(lambda d: entry(d, index=[]), id="number as list"),
        pytest.param(lambda d: d["data"].pop(), id="too few"),
        pytest.param(lambda d: d["data"].append(d["data"][0]), id="too many"),
        pytest.param(lambda d: entry(d, embedding="AAAA"), id="three bytes"),
        pytest.param(lambda d: entry(d, embedding="AAAAAAA"), id="truncated base64"),
        pytest.param(lambda d: entry(d, embedding="§§§§"), id="no base64"),
        pytest.param(lambda d: entry(d, embedding=""), id="empty base64"),
        pytest.param(lambda d: entry(d, embedding=[]), id="empty list"),
        pytest.param(nan_vector, id="NaN in base64"),
        pytest.param(lambda d: entry(d, embedding=[1, 2, float("nan"), 4, 5]), id="NaN"),
        pytest.param(lambda d: entry(d, embedding=[1, 2, float("inf"), 4, 5]), id="infinity"),
        pytest.param(lambda d: entry(d, embedding=[1, 2, None, 4, 5]), id="null"),
        pytest.param(lambda d: entry(d, embedding=[1, 2, "3", 4, 5]), id="text"),
        pytest.param(lambda d: entry(d, embedding=[1, 2, True, 4, 5]), id="truth"),
        pytest.param(lambda d: entry(d, embedding=[1, 2, [3], 4, 5]), id="nested"),
        pytest.param(lambda d: entry(d, embedding=[10**400, 2, 3, 4, 5]), id="huge number"),
        pytest.param(lambda d: entry(d, embedding=[1, 2, 3, 4]), id="another dimension"),
        pytest.param(lambda d: entry(d, embedding={"0": 1}), id="mapping"),
        pytest.param(lambda d: d["data"][2].pop("embedding") and None, id="no vector"),
        pytest.param(lambda d: d["data"].__setitem__(2, 7), id="entry is a number"),
        pytest.param(lambda d: d.update(data={}), id="data is a mapping"),
        pytest.param(lambda d: d.pop("data") and None, id="no data"),
        pytest.param(lambda d: [d], id="list"),
        pytest.param(lambda d: "text", id="text document"),
        pytest.param(lambda d: {"error": {"message": "busy"}}, id="error with status 200"),
    ],
)
def test_malformed_answers_are_errors_with_a_hint(server, change):
    server.faults.append(answering(change))

    with pytest.raises(SuspectError) as caught:
        opened(server).outputs(TEXTS[:5])

    assert caught.value.hint
    assert str(caught.value).startswith(server.url)
    assert len(server.requests) == 1


def test_dimension_that_changes_between_requests_is_an_error(server):
    server.faults.extend([lambda handler, payload: False, answering(lambda d: short_vectors(d))])

    with pytest.raises(SuspectError, match="different dimensions: 4 and 5"):
        opened(server, batch_size=20).outputs(TEXTS)


def short_vectors(document):
    for one in document["data"]:
        one["embedding"] = [1.0, 2.0, 3.0, 4.0]


def test_budget_is_checked_before_anything_is_sent(server):
    with pytest.raises(UsageError, match="132 texts would be sent, the limit is 131"):
        opened(server, max_queries=131, repeats=3, decoys=0.1).outputs(TEXTS)
    assert not server.requests

    opened(server, max_queries=132, repeats=3, decoys=0.1).outputs(TEXTS)
    assert len(server.texts) == 132


def test_budget_is_for_all_calls_together(server):
    suspect = opened(server, max_queries=50)
    suspect.outputs(TEXTS)

    with pytest.raises(UsageError, match="80 texts would be sent, the limit is 50"):
        suspect.outputs(TEXTS)
    suspect.outputs(TEXTS[:10])
    assert len(server.texts) == 50


def test_plan_is_told_before_anything_is_sent_and_holds(server):
    told = []

    def on_plan(plan):
        assert not server.requests
        told.append(plan)

    suspect = opened(server, on_plan=on_plan, price_per_million_tokens=10, repeats=2, decoys=0.25)
    expected = suspect.plan(TEXTS)
    suspect.outputs(TEXTS)

    (plan,) = told
    assert isinstance(plan, QueryPlan)
    assert (plan.num_texts, plan.num_queries, plan.num_requests) == (40, 100, 4)
    assert plan.num_queries == expected.num_queries == len(server.texts)
    assert plan.num_requests == len(server.requests)
    assert plan.estimated_price == pytest.approx(plan.estimated_tokens / 1e5)


def test_caller_may_stop_at_the_plan(server):
    def refuse(plan):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opened(server, on_plan=refuse).outputs(TEXTS)
    assert not server.requests


def test_repeated_answers_are_averaged(server):
    def noisy(texts):
        noise = np.random.default_rng().standard_normal((len(texts), 5))
        return simple_vectors(texts) + noise

    server.embed = noisy
    once = opened(server).outputs(TEXTS) - simple_vectors(TEXTS)
    often = opened(server, repeats=25).outputs(TEXTS) - simple_vectors(TEXTS)

    assert 0.7 < once.std() < 1.3
    assert 0.14 < often.std() < 0.26


def test_no_more_requests_at_once_than_allowed(server):
    def slow(handler, payload):
        wait_for(lambda: server.most_under_way >= 3, "as many as are allowed")
        time.sleep(0.05)  # for one too many
        return False

    server.faults.extend([lambda handler, payload: False, *[slow] * 40])  # the first is alone

    opened(server, batch_size=2, concurrency=3).outputs(TEXTS)

    assert server.most_under_way == 3


def test_progress_is_told_up_to_the_last_text(server):
    told = []

    opened(server, batch_size=7, decoys=0.3).outputs(
        TEXTS, lambda done, total: told.append((done, total))
    )

    assert told[-1] == (40, 40)
    assert [done for done, _ in told] == sorted({done for done, _ in told})


def test_no_text_at_all_is_no_question(server):
    with pytest.raises(EvidenceError, match="no text"):
        opened(server).outputs([])


def test_odd_texts_arrive_as_they_are(server):
    texts = ["", "语言\n模型", "a\x00b", '"}', "🙂", "\ud800"]

    np.testing.assert_array_equal(opened(server).outputs(texts), simple_vectors(texts))
    assert sorted(server.texts) == sorted(texts)


def test_answered_texts_are_not_asked_again(server, tmp_path):
    first = opened(server, cache=tmp_path, repeats=2).outputs(TEXTS[:30])
    server.requests.clear()

    suspect = opened(server, cache=tmp_path, repeats=3, max_queries=60)
    assert suspect.plan(TEXTS).num_cached == 60
    outputs = suspect.outputs(TEXTS)

    np.testing.assert_array_equal(outputs[:30], first)
    assert len(server.texts) == 40 * 3 - 60
    server.requests.clear()
    np.testing.assert_array_equal(suspect.outputs(TEXTS[::-1]), outputs[::-1])
    assert not server.requests


def test_decoys_are_not_kept_and_nothing_is_sent_for_a_full_cache(server, tmp_path):
    opened(server, cache=tmp_path, decoys=1).outputs(TEXTS)
    (file,) = tmp_path.iterdir()

    assert len(server.texts) == 80
    assert len(file.read_text().splitlines()) == 41
    opened(server, cache=tmp_path, decoys=1).outputs(TEXTS)
    assert len(server.texts) == 80


def test_failure_keeps_what_was_answered_and_says_so(server, tmp_path):
    def refuse(handler, payload):
        handler.send_json({"error": "out of credit"}, 402)
        return True

    server.faults.extend([lambda handler, payload: False] * 2 + [refuse])

    with pytest.raises(SuspectError, match="out of credit") as caught:
        opened(server, cache=tmp_path, batch_size=10, concurrency=1).outputs(TEXTS)
    assert "20 of 40 answers are in the cache" in caught.value.hint
    server.requests.clear()
    opened(server, cache=tmp_path).outputs(TEXTS)
    assert len(server.texts) == 20


MEASURE = """
import sys
from pathlib import Path
from nsmark.suspects import QueryOptions, open_suspect
texts = [f"text number {number}" for number in range(40)]
options = QueryOptions(cache=Path(sys.argv[2]), decoys=0, batch_size=4, concurrency=2)
open_suspect(sys.argv[1], queries=options).outputs(texts)
assert "torch" not in sys.modules
"""


def test_killed_measurement_goes_on_where_it_was(server, tmp_path):
    reached, let_go = threading.Event(), threading.Event()

    def hang(handler, payload):
        reached.set()
        let_go.wait(PATIENCE)
        handler.close_connection = True
        return True

    # Five requests are answered; the sixth and seventh are under way when the process dies.
    server.faults.extend([lambda handler, payload: False] * 5 + [hang, hang])
    command = [sys.executable, "-c", MEASURE, f"openai:{server.url}#m", str(tmp_path / "cache")]
    try:
        with running(command):
            assert reached.wait(PATIENCE)
            wait_for(lambda: answered(tmp_path) >= 20, "five answers to be kept")
    finally:
        let_go.set()
    known = answered(tmp_path)
    assert known == 20
    server.faults.clear()  # the seventh request may not have come
    server.requests.clear()

    outputs = opened(server, cache=tmp_path / "cache").outputs(TEXTS)

    np.testing.assert_array_equal(outputs, simple_vectors(TEXTS))
    assert len(server.texts) == 40 - known
    assert answered(tmp_path) == 40


def test_interrupted_measurement_ends_at_once(server, tmp_path):
    reached, let_go = threading.Event(), threading.Event()

    def hang(handler, payload):
        reached.set()
        let_go.wait(PATIENCE)
        handler.close_connection = True
        return True

    server.faults.extend([lambda handler, payload: False] * 2 + [hang, hang])
    command = [sys.executable, "-c", MEASURE, f"openai:{server.url}#m", str(tmp_path / "cache")]
    try:
        with running(command, stderr=subprocess.PIPE) as process:
            assert reached.wait(PATIENCE)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate()
    finally:
        let_go.set()
    assert errors.rstrip().endswith(b"KeyboardInterrupt")
    assert answered(tmp_path) >= 4


def answered(folder):
    files = list((folder / "cache").glob("*.jsonl"))
    lines = [line for file in files for line in file.read_bytes().splitlines(keepends=True)]
    return sum(b'"values"' in line and line.endswith(b"\n") for line in lines)


def test_tiny_model_behind_a_server_is_the_model_in_its_folder(tiny_marked, tiny_st, tmp_path):
    from nsmark.api import verify
    from nsmark.suspects.local import LocalModel

    key = tiny_marked.key
    for folder, verdict in ((tiny_marked.model_folder, "owned"), (tiny_st, "not_shown")):
        model = LocalModel(str(folder), device="cpu")
        with EndpointServer(model.outputs) as server:
            suspect = opened(server, decoys=0.1, cache=tmp_path / verdict, timeout_seconds=PATIENCE)

            report = verify(key, suspect, rule="paper")

            served = report.evidence
            local = verify(key, model, rule="paper").evidence
            assert report.verdict == verdict
            assert report.suspect == f"openai:{server.url}#m"
            for name, expected in local.triggered.to_mapping().items():
                found = served.triggered.to_mapping()[name]
                if expected is None:
                    assert found is None
                else:
                    # The thief's degree is rounding itself: beside the innocents' 5 it is nothing.
                    assert found == pytest.approx(expected, rel=1e-3, abs=2e-2), name
            assert len(server.texts) == 212  # 96 with the trigger, 96 without, 20 decoys
            kinds = [text in set(key.payload().triggered_texts()) for text in server.texts]
            assert 20 < sum(kinds[:106]) < 80  # both kinds come mixed
            (file,) = (tmp_path / verdict).iterdir()
            assert json.loads(file.read_text().splitlines()[0])["model"] == "m"


def test_endpoint_that_does_not_answer_is_a_report_without_a_verdict(tiny_marked, server):
    from nsmark.api import verify

    server.faults.append(answering(nan_vector))

    report = verify(tiny_marked.key, opened(server), rule="paper")

    assert report.verdict == "could_not_measure"
    assert report.exit_code == 3
    assert "NaN" in report.decision.reasons[0]
