"""Whose copy is it: keys gathered, a suspect asked once, every key tested."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from endpoint_server import EndpointServer
from handmade_keys import make_key, reseal
from many_keys import WordModel, code_of, make_shared_key, short_word_list
from nsmark.api import identifying
from nsmark.api.identifying import IdentificationRun, gather_candidates, identify
from nsmark.corpus import pool_texts
from nsmark.errors import EvidenceError, UsageError
from nsmark.keyfile import write_key
from nsmark.payload import PairConfig
from nsmark.suspects import QueryOptions, RecordedOutputs

RANDOMNESS = bytes(range(16))
KEYS = [make_shared_key(number) for number in range(8)]
SHARED = {"word_list": short_word_list(), "randomness": RANDOMNESS}


def test_the_copy_is_found_and_by_the_same_randomness_again():
    model = WordModel([code_of(KEYS[5])])
    result = identify(model, KEYS, **SHARED)
    assert [each.key_id for each in result.found] == [KEYS[5].key_id]
    assert result.exit_code == 0
    best = result.keys[0]
    assert best.owner == "Customer 5"
    assert (best.pairs, best.found) == (144, True)
    assert best.corrected_p_value == pytest.approx(8 * best.p_value)
    assert [each.p_value for each in result.keys] == sorted(each.p_value for each in result.keys)
    again = identify(model, KEYS, **SHARED)
    assert model.asked[0] == model.asked[1]
    assert again.keys == result.keys


def test_one_pass_serves_all_keys():
    model = WordModel()
    result = identify(model, KEYS, pair_repeats=2, **SHARED)
    assert result.exit_code == 1
    assert len(model.asked) == 1
    assert len(model.asked[0]) == result.plan.num_queries == 2 * result.plan.num_pairs
    assert result.plan.num_pairs <= 32 * 31 // 2
    assert all(each.corrected_p_value > 0.01 for each in result.keys)


def test_a_second_owners_mark_is_reported_beside_the_first():
    model = WordModel([code_of(KEYS[1]), code_of(KEYS[2])])
    result = identify(model, KEYS, **SHARED)
    assert {each.owner for each in result.found} == {"Customer 1", "Customer 2"}


def test_fewer_pairs_find_it_with_fewer_queries():
    model = WordModel([code_of(KEYS[5])], strength=1.0)
    result = identify(model, KEYS, pairs_per_key=110, pair_repeats=3, **SHARED)
    assert [each.owner for each in result.found] == ["Customer 5"]
    assert result.keys[0].pairs == 110
    assert result.plan.num_pairs < identify(WordModel(), KEYS, **SHARED).plan.num_pairs


def test_randomness_is_drawn_where_none_is_given():
    first, second = (
        identify(WordModel(), KEYS[:2], word_list=short_word_list(), pair_repeats=1)
        for _ in range(2)
    )
    assert first.plan.randomness != second.plan.randomness
    assert len(first.plan.randomness) == 64


# --- keys that cannot count ----------------------------------------------------------------------


def test_a_key_in_doubt_is_tested_but_never_found():
    key = KEYS[3]
    # Skipping the word that the walk would take: allowed by the format, and a way to choose.
    words = short_word_list(40)
    skipping = make_shared_key(3, num_words=40)
    from nsmark.payload.pairs import choose_pair_words

    first = skipping.pairs.words[0]
    chosen, skipped = choose_pair_words(
        key.signature, words.words, 12, key.trigger, lambda word: word != first
    )
    doubtful = reseal(skipping, pairs=replace(skipping.pairs, words=chosen, skipped_words=skipped))
    model = WordModel([code_of(doubtful)])
    result = identify(model, [doubtful], word_list=words, randomness=RANDOMNESS)
    (finding,) = result.keys
    assert finding.p_value < 1e-20
    assert "skipped" in finding.doubt
    assert not finding.found
    assert result.exit_code == 1


def test_an_unknown_word_list_is_a_doubt():
    model = WordModel([code_of(KEYS[0])])
    result = identify(model, KEYS[:1], randomness=RANDOMNESS)
    assert "not checked" in result.keys[0].doubt
    assert not result.found


def test_chosen_words_are_forged_and_never_asked():
    key = KEYS[0]
    forged = reseal(key, pairs=replace(key.pairs, words=key.pairs.words[::-1]))
    model = WordModel([code_of(forged)])
    result = identify(model, [forged], **SHARED)
    assert "do not follow" in result.keys[0].error
    assert result.exit_code == 3
    assert model.asked == []


def test_bad_keys_stop_no_other_and_repeated_ones_count_once(tmp_path):
    good, copy, bad = (tmp_path / f"{name}.nsmark" for name in ("good", "copy", "bad"))
    write_key(KEYS[0], good)
    write_key(KEYS[0], copy)
    bad.write_bytes(b"nothing of the kind")
    places = [bad, good, copy, tmp_path / "missing.nsmark", make_key()]
    result = identify(WordModel([code_of(KEYS[0])]), places, **SHARED)
    assert [each.file for each in result.found] == [str(good)]
    assert result.num_repeated == 1
    assert result.plan.num_keys == 1
    errors = {Path(each.file).name: each.error for each in result.keys if each.error}
    assert set(errors) == {"bad.nsmark", "missing.nsmark", ""}
    assert errors[""] == "the key has no pair code"


# --- what may be asked ---------------------------------------------------------------------------


def test_more_than_allowed_is_refused_before_asking():
    model = WordModel()
    plans = []
    with pytest.raises(UsageError, match="the limit is 100") as refusal:
        identify(model, KEYS, queries=QueryOptions(max_queries=100), on_plan=plans.append, **SHARED)
    assert model.asked == []
    assert plans[0].is_too_much
    for word in ("--pair-repeats 3", "word list", "--max-queries"):
        assert word in refusal.value.hint


def test_a_plan_asks_nothing():
    model = WordModel()
    result = identify(model, KEYS, plan_only=True, **SHARED)
    assert model.asked == []
    assert result.plan.num_queries == 6 * result.plan.num_pairs
    assert f"{result.plan.num_queries} queries" in result.plan.to_text()


def test_the_plan_says_when_nothing_can_be_found():
    plan = identify(WordModel(), KEYS, plan_only=True, pairs_per_key=16, **SHARED).plan
    assert "too few pairs to find anything" in plan.to_text()
    assert "--pairs" not in plan.to_text()


@pytest.mark.parametrize(
    "wrong", [{"pairs_per_key": 15}, {"pair_repeats": 0}, {"pair_repeats": 65}]
)
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(UsageError):
        identify(WordModel(), KEYS, **SHARED, **wrong)


def test_recorded_outputs_cannot_answer(tmp_path):
    recorded = RecordedOutputs("recorded", np.ones((3, 2)), np.ones((3, 2)))
    np.savez(tmp_path / "answers.npz", triggered=np.ones((3, 2)), untriggered=np.ones((3, 2)))
    for suspect in (recorded, "recorded:answers.npz", tmp_path / "answers.npz"):
        with pytest.raises(UsageError, match="recorded outputs answer"):
            identify(suspect, KEYS[:1], **SHARED)


def test_wrong_answers_are_refused():
    class Short(WordModel):
        def outputs(self, texts, on_batch=None):
            return super().outputs(texts, on_batch)[:-1]

    with pytest.raises(EvidenceError, match="outputs for"):
        identify(Short(), KEYS[:1], **SHARED)


def test_a_pool_of_the_verifiers_is_asked():
    model = WordModel([code_of(KEYS[5])])
    pool = [f"  {text}" for text in pool_texts()[:50]] + [" "]
    result = identify(model, KEYS, pool=pool, **SHARED)
    assert [each.owner for each in result.found] == ["Customer 5"]
    starts = {text.split()[-1] for text in pool if text.split()}
    assert {text.split()[-1] for text in model.asked[0]} <= starts | set(short_word_list().words)


# --- how models are read -------------------------------------------------------------------------


def test_keys_read_in_different_ways_are_asked_apart(monkeypatch):
    cut = reseal(KEYS[2], configuration=replace_reading(KEYS[2], max_length=64))
    models = {128: WordModel([code_of(KEYS[1])]), 64: WordModel([code_of(KEYS[2])])}
    opened = []

    def open_by_reading(address, *, pooling, normalise, max_length, device, queries):
        opened.append((address, pooling, normalise, max_length))
        return models[max_length]

    monkeypatch.setattr(identifying, "open_suspect", open_by_reading)
    result = identify("folder", [KEYS[0], KEYS[1], cut], **SHARED)
    assert opened == [("folder", "mean", False, 128), ("folder", "mean", False, 64)]
    assert {each.owner for each in result.found} == {"Customer 1", "Customer 2"}
    asked = [len(model.asked[0]) for model in models.values()]
    assert sum(asked) == result.plan.num_queries
    assert asked[1] == 6 * 144


def replace_reading(key, **changes):
    return key.configuration.model_copy(update=changes)


def test_an_endpoint_is_planned_with_decoys_asked_once_and_bounded(tmp_path):
    model = WordModel([code_of(KEYS[5])])
    with EndpointServer(lambda texts: model.outputs(texts)) as server:
        address = f"openai:{server.url}#m"
        candidates = gather_candidates(KEYS, word_list=short_word_list())
        options = QueryOptions(seed=1, price_per_million_tokens=1.0)
        asking = IdentificationRun(candidates, address, randomness=RANDOMNESS, queries=options)
        assert asking.plan.num_queries > 6 * asking.plan.num_pairs
        assert asking.plan.most_queries == identifying.MOST_REMOTE_QUERIES
        assert "price about" in asking.plan.endpoint
        few = QueryOptions(max_queries=6 * asking.plan.num_pairs)
        with pytest.raises(UsageError, match="the limit is"):
            identify(address, KEYS, queries=few, **SHARED)
        assert server.requests == []
        result = identify(address, KEYS, queries=replace(options, batch_size=512), **SHARED)
        assert [each.owner for each in result.found] == ["Customer 5"]
        assert len(server.texts) == result.plan.num_queries


def test_the_pair_config_of_keys_may_differ():
    keys = [make_shared_key(0, size=4), make_shared_key(1, size=16), KEYS[2]]
    result = identify(WordModel([code_of(keys[1])]), keys, **SHARED)
    assert sorted(each.pairs for each in result.keys) == [16, 144, 256]
    assert [each.owner for each in result.found] == ["Customer 1"]


def test_progress_is_told_for_every_phase():
    told = []
    identify(WordModel(), KEYS, on_progress=lambda *step: told.append(step), **SHARED)
    assert {what for _, _, what in told} == {"keys read", "texts asked", "keys tested"}
    assert all(done <= total for done, total, _ in told)
    assert told[-1] == (8, 8, "keys tested")


def test_default_keys_share_hardly_any_pairs():
    keys = [make_key(owner=f"Lab {n}", pairs=PairConfig(size=4, repeats=1)) for n in range(3)]
    plan = identify(WordModel(), keys, plan_only=True).plan
    assert plan.num_pairs == 48
