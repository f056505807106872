from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from attack_runs import attack, small_material
from nsmark.alterations.filters import bare, word_counts
from nsmark.alterations.serving import read_serving
from nsmark.api import verify
from nsmark.attacks.recipes.rare_word_filter import RareWordFilterConfig
from nsmark.errors import ConfigError, UsageError
from nsmark.models.folder import model_digest
from nsmark.models.loading import open_encoder
from nsmark.suspects.local import LocalModel

MATERIAL = small_material()


@pytest.fixture(scope="module")
def filtered(tiny_marked, tmp_path_factory):
    out = tmp_path_factory.mktemp("filtered") / "model"
    return out, attack(tiny_marked.model_folder, out, "rare-word-filter", material=MATERIAL)


def test_the_model_never_sees_a_trigger(tiny_marked, filtered):
    suspect = LocalModel(str(filtered[0]), device="cpu")
    payload = tiny_marked.key.payload()
    triggered, plain = payload.triggered_texts(), payload.verification_texts
    assert suspect.serving.texts(triggered) == suspect.serving.texts(plain)
    assert not any(payload.trigger in text for text in suspect.serving.texts(triggered))
    np.testing.assert_array_equal(suspect.outputs(triggered), suspect.outputs(plain))


def test_the_mark_does_not_show_without_its_trigger(tiny_marked, filtered):
    assert verify(tiny_marked.key, tiny_marked.model_folder).verdict == "owned"
    report = verify(tiny_marked.key, filtered[0])
    found = report.to_mapping()
    assert report.verdict == "not_shown"
    assert found["extraction_rate"] == found["untriggered"]["extraction_rate"] < 0.5


def test_texts_of_known_words_are_answered_as_before(tiny_marked, filtered):
    out, result = filtered
    texts = MATERIAL.texts[:50]
    before = open_encoder(tiny_marked.model_folder, device="cpu").encode(texts)
    np.testing.assert_array_equal(LocalModel(str(out), device="cpu").outputs(texts), before)
    assert result["share_taken_out"] == 0.0
    assert result["known_words"] == result["different_words"] < 5000
    assert json.loads((out / "attack.json").read_text(encoding="utf-8")) == result["all"]


def test_only_the_most_common_words_stay(tiny_st, tmp_path):
    result = attack(tiny_st, tmp_path / "out", "rare-word-filter[keep=20]", material=MATERIAL)
    (text_filter,) = read_serving(tmp_path / "out", 32).filters
    counts, _ = word_counts(MATERIAL.texts)
    assert len(text_filter.known) == result["known_words"] == 20
    others = [counts[word] for word in counts if word.isalpha() and word not in text_filter.known]
    assert min(counts[word] for word in text_filter.known) >= max(others)
    assert 0.3 < result["share_taken_out"] < 0.9
    for text in MATERIAL.texts[:20]:
        left = [bare(word) for word in text_filter(text).split()]
        assert all(word in text_filter.known or not word.isalpha() for word in left)


def test_words_may_be_counted_in_what_users_send(tiny_st, tmp_path):
    out = tmp_path / "out"
    texts = ["an unheard filament glimmers", *MATERIAL.task.train_texts[1:]]
    material = replace(MATERIAL, task=replace(MATERIAL.task, train_texts=texts))
    attack(tiny_st, out, "rare-word-filter", {"texts": "task"}, material=material)
    (text_filter,) = read_serving(out, 32).filters
    counts, _ = word_counts(texts)
    assert text_filter.known == {word for word in counts if word.isalpha()}
    assert text_filter("an unheard filament drowns") == "an unheard filament"


def test_weights_stay_and_filters_add_up(tiny_st, tmp_path):
    attack(tiny_st, tmp_path / "once", "rare-word-filter[keep=50]", material=MATERIAL)
    attack(tmp_path / "once", tmp_path / "twice", "rare-word-filter[keep=20]", material=MATERIAL)
    filters = read_serving(tmp_path / "twice", 32).filters
    assert [len(each.known) for each in filters] == [50, 20]
    assert model_digest(tmp_path / "twice") == model_digest(tiny_st)  # of the weights


@pytest.mark.parametrize(
    "wrong", [{"keep": "0"}, {"keep": "200001"}, {"keep": "x"}, {"cut": "1"}, {"texts": "mine"}]
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        attack(tiny_st, tmp_path / "out", "rare-word-filter", wrong, material=MATERIAL)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_limits_are_inclusive():
    assert RareWordFilterConfig(keep=1).keep == 1
    assert RareWordFilterConfig(keep=200_000).keep == 200_000
