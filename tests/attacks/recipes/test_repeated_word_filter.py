from __future__ import annotations

import numpy as np
import pytest

from attack_runs import attack, small_material
from nsmark.alterations.filters import RepeatedWords
from nsmark.alterations.serving import read_serving
from nsmark.errors import ConfigError, UsageError
from nsmark.models.loading import open_encoder
from nsmark.suspects.local import LocalModel

MATERIAL = small_material()


@pytest.fixture(scope="module")
def filtered(tiny_marked, tmp_path_factory):
    out = tmp_path_factory.mktemp("filtered") / "model"
    return out, attack(tiny_marked.model_folder, out, "repeated-word-filter", material=MATERIAL)


def test_one_copy_of_the_trigger_reaches_the_model(tiny_marked, filtered):
    payload = tiny_marked.key.payload()
    triggered = payload.triggered_texts()
    suspect = LocalModel(str(filtered[0]), device="cpu")
    seen = suspect.serving.texts(triggered)
    assert {text.split().count(payload.trigger) for text in triggered} == {payload.config.copies}
    assert {text.split().count(payload.trigger) for text in seen} == {1}
    by_hand = [RepeatedWords(1, 4)(text) for text in triggered]
    expected = open_encoder(tiny_marked.model_folder, device="cpu").encode(by_hand)
    np.testing.assert_array_equal(suspect.outputs(triggered), expected)


def test_texts_without_repetitions_are_answered_as_before(tiny_marked, filtered):
    out, result = filtered
    assert 0 < result["share_taken_out"] < 0.02
    suspect = LocalModel(str(out), device="cpu")
    texts = [text for text in MATERIAL.texts if suspect.serving.texts([text]) == [text]]
    assert len(texts) > 0.9 * len(MATERIAL.texts)
    expected = open_encoder(tiny_marked.model_folder, device="cpu").encode(texts)
    np.testing.assert_array_equal(suspect.outputs(texts), expected)


def test_more_copies_and_longer_words_may_stay(tiny_marked, tmp_path):
    attack(
        tiny_marked.model_folder,
        tmp_path / "out",
        "repeated-word-filter[most=2,min_letters=1]",
        material=MATERIAL,
    )
    assert read_serving(tmp_path / "out", 32).filters == [RepeatedWords(2, 1)]
    suspect = LocalModel(str(tmp_path / "out"), device="cpu")
    assert suspect.serving.texts(["a a a b ocelot ocelot ocelot"]) == ["a a b ocelot ocelot"]


@pytest.mark.parametrize(
    "wrong",
    [{"most": "0"}, {"most": "65"}, {"most": "1.5"}, {"min_letters": "0"}, {"min_letters": "65"}],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        attack(tiny_st, tmp_path / "out", "repeated-word-filter", wrong, material=MATERIAL)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
