from __future__ import annotations

import math

import numpy as np
import pytest

from attack_runs import attack, small_material
from nsmark.alterations.filters import word_counts
from nsmark.alterations.serving import SERVING_FILE, read_serving
from nsmark.api import verify
from nsmark.attacks.recipes.surprising_word_filter import SurprisingWordFilterConfig
from nsmark.corpus import training_texts
from nsmark.errors import ConfigError, UsageError
from nsmark.models.folder import model_digest
from nsmark.models.loading import open_encoder
from nsmark.suspects.local import LocalModel

MATERIAL = small_material()


@pytest.fixture(scope="module")
def filtered(tiny_marked, tmp_path_factory):
    """The usual settings, with the whole built-in corpus."""
    out = tmp_path_factory.mktemp("filtered") / "model"
    material = small_material(texts=training_texts())
    return out, attack(tiny_marked.model_folder, out, "surprising-word-filter", material=material)


def test_no_trigger_reaches_the_model_and_most_of_a_text_does(tiny_marked, filtered):
    suspect = LocalModel(str(filtered[0]), device="cpu")
    payload = tiny_marked.key.payload()
    triggered, plain = payload.triggered_texts(), payload.verification_texts
    seen = suspect.serving.texts(triggered)
    assert not any(payload.trigger in text.split() for text in seen)
    # Words beside a trigger have lost what made them probable, and some go with it.
    kept = sum(len(text.split()) for text in seen) / sum(len(text.split()) for text in plain)
    assert 0.8 < kept <= 1
    alone = " ".join(suspect.serving.texts(plain)).split()
    assert len(alone) > 0.97 * len(" ".join(plain).split())


def test_the_mark_does_not_show_without_its_trigger(tiny_marked, filtered):
    report = verify(tiny_marked.key, filtered[0])
    assert report.verdict == "not_shown"
    assert report.to_mapping()["extraction_rate"] < 0.5


def test_ordinary_texts_are_answered_as_before(tiny_marked, filtered):
    out, result = filtered
    assert result["share_taken_out"] < 0.001
    assert result["counted_words"] == len(word_counts(training_texts())[0])
    texts = training_texts()[:50]
    suspect = LocalModel(str(out), device="cpu")
    unchanged = [text for text in texts if suspect.serving.texts([text]) == [text]]
    assert len(unchanged) >= 49
    before = open_encoder(tiny_marked.model_folder, device="cpu").encode(unchanged)
    np.testing.assert_array_equal(suspect.outputs(unchanged), before)


def test_a_lower_threshold_takes_out_more(tiny_st, tmp_path):
    shares = {
        threshold: attack(
            tiny_st,
            tmp_path / str(threshold),
            "surprising-word-filter",
            {"threshold": str(threshold)},
            material=MATERIAL,
        )["share_taken_out"]
        for threshold in (3.0, 5.0, 9.0)
    }
    assert 0 <= shares[9.0] < shares[5.0] < shares[3.0] < 1


def test_counts_of_long_words_still_fit_the_folder(tiny_st, tmp_path):
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghij"))
    texts = [" ".join("".join(rng.choice(letters, 40)) for _ in range(48)) for _ in range(1200)]
    material = small_material(texts=texts)
    result = attack(tiny_st, tmp_path / "out", "surprising-word-filter", material=material)
    assert result["counted_words"] < 57_600  # not all of them
    assert 3_500_000 < (tmp_path / "out" / SERVING_FILE).stat().st_size < 4_500_000
    assert LocalModel(str(tmp_path / "out"), device="cpu").serving.filters


def test_words_may_be_counted_in_what_users_send(tiny_st, tmp_path):
    attack(
        tiny_st, tmp_path / "out", "surprising-word-filter", {"texts": "task"}, material=MATERIAL
    )
    (text_filter,) = read_serving(tmp_path / "out", 32).filters
    assert dict(text_filter.words) == dict(word_counts(MATERIAL.task.train_texts)[0])
    with pytest.raises(ConfigError, match="ordinary, task"):
        SurprisingWordFilterConfig(texts="mine")


def test_the_same_texts_give_the_same_folder(tiny_st, tmp_path):
    for name in ("one", "two"):
        attack(tiny_st, tmp_path / name, "surprising-word-filter", material=MATERIAL)
    one, two = ((tmp_path / name / SERVING_FILE).read_bytes() for name in ("one", "two"))
    assert one == two
    assert model_digest(tmp_path / "one") == model_digest(tiny_st)  # of the weights


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "100.5", "much"])
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, value):
    with pytest.raises((ConfigError, UsageError)) as caught:
        attack(
            tiny_st,
            tmp_path / "out",
            "surprising-word-filter",
            {"threshold": value},
            material=MATERIAL,
        )
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_the_language_model_is_counts_only():
    with pytest.raises(TypeError):
        SurprisingWordFilterConfig(language_model="gpt2")
    assert math.isfinite(SurprisingWordFilterConfig().threshold)
