"""Attacks on queries: words that never reach the model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the torch extra")

from attack_runs import answers, attack, opened, small_material
from nsmark.api import verify
from nsmark.attacks.recipes.rare_word_filter import RareWordFilterSettings
from nsmark.corpus import training_texts
from nsmark.models.folder import model_digest
from nsmark.suspects.local import LocalModel
from nsmark.transforms.filters import RepeatedWords, bare, word_counts
from nsmark.transforms.serving import SERVING_FILE, read_serving

MATERIAL = small_material()


def served(folder) -> LocalModel:
    return LocalModel(str(folder), device="cpu")


def the_filter(folder):
    (found,) = read_serving(folder, 32).filters
    return found


# --- rare words ----------------------------------------------------------------------------------


def test_the_model_never_sees_a_rare_trigger(tiny_marked, attacked):
    folder, facts = attacked("rare-word-filter[]", "marked")
    suspect, payload = served(folder), tiny_marked.key.payload()
    triggered, plain = payload.triggered_texts(), payload.verification_texts
    seen = suspect.serving.texts(triggered)
    assert seen == suspect.serving.texts(plain)
    assert not any(payload.trigger in text for text in seen)
    found = verify(tiny_marked.key, folder).to_mapping()
    assert found["extraction_rate"] == found["untriggered"]["extraction_rate"] < 0.5
    # Texts of known words are answered as before.
    texts = MATERIAL.texts[:50]
    before = opened(tiny_marked.model_folder).encode(texts)
    np.testing.assert_array_equal(suspect.outputs(texts), before)
    assert facts["share_taken_out"] == 0.0
    assert facts["known_words"] == facts["different_words"] < 5000


def test_only_the_most_common_words_stay(attacked):
    folder, facts = attacked("rare-word-filter[keep=20]")
    known = the_filter(folder).known
    counts, _ = word_counts(MATERIAL.texts)
    assert len(known) == facts["known_words"] == 20
    others = [counts[word] for word in counts if word.isalpha() and word not in known]
    assert min(counts[word] for word in known) >= max(others)
    assert 0.3 < facts["share_taken_out"] < 0.9
    for text in MATERIAL.texts[:20]:
        left = [bare(word) for word in the_filter(folder)(text).split()]
        assert all(word in known or not word.isalpha() for word in left)


def test_words_may_be_counted_in_what_users_send(tiny_st, tmp_path):
    texts = ["an unheard filament glimmers", *MATERIAL.task.train_texts[1:]]
    material = replace(MATERIAL, task=replace(MATERIAL.task, train_texts=texts))
    counts, _ = word_counts(texts)
    for name in ("rare", "surprising"):
        expression = f"{name}-word-filter[texts=task]"
        attack(tiny_st, tmp_path / name, expression, material=material)
    rare = the_filter(tmp_path / "rare")
    assert rare.known == {word for word in counts if word.isalpha()}
    assert rare("an unheard filament drowns") == "an unheard filament"
    assert dict(the_filter(tmp_path / "surprising").words) == dict(counts)


def test_weights_stay_and_filters_add_up(attacked, tiny_st):
    folder = attacked("rare-word-filter[keep=50] + rare-word-filter[keep=20]").folder
    assert [len(each.known) for each in read_serving(folder, 32).filters] == [50, 20]
    assert model_digest(folder) == model_digest(tiny_st)  # of the weights


def test_limits_are_inclusive():
    assert RareWordFilterSettings(keep=1).keep == 1
    assert RareWordFilterSettings(keep=200_000).keep == 200_000


# --- repetitions ---------------------------------------------------------------------------------


def test_one_copy_of_the_trigger_reaches_the_model(tiny_marked, attacked):
    folder, facts = attacked("repeated-word-filter[]", "marked")
    payload, suspect = tiny_marked.key.payload(), served(folder)
    triggered = payload.triggered_texts()
    seen = suspect.serving.texts(triggered)
    assert {text.split().count(payload.trigger) for text in triggered} == {payload.config.copies}
    assert {text.split().count(payload.trigger) for text in seen} == {1}
    encoder = opened(tiny_marked.model_folder)
    by_hand = [RepeatedWords(1, 4)(text) for text in triggered]
    np.testing.assert_array_equal(suspect.outputs(triggered), encoder.encode(by_hand))
    # Texts without repetitions are answered as before.
    assert 0 < facts["share_taken_out"] < 0.02
    texts = [text for text in MATERIAL.texts if suspect.serving.texts([text]) == [text]]
    assert len(texts) > 0.9 * len(MATERIAL.texts)
    np.testing.assert_array_equal(suspect.outputs(texts), encoder.encode(texts))


def test_more_copies_and_longer_words_may_stay(attacked):
    folder = attacked("repeated-word-filter[most=2,min_letters=1]").folder
    assert the_filter(folder) == RepeatedWords(2, 1)
    assert served(folder).serving.texts(["a a a b ocelot ocelot ocelot"]) == ["a a b ocelot ocelot"]


# --- surprising words ----------------------------------------------------------------------------


def test_no_trigger_reaches_the_model_and_most_of_a_text_does(tiny_marked, tmp_path):
    """The usual settings, with the whole built-in corpus."""
    material = small_material(texts=training_texts())
    model, out = tiny_marked.model_folder, tmp_path / "model"
    facts = attack(model, out, "surprising-word-filter", material=material)
    suspect, payload = served(out), tiny_marked.key.payload()
    triggered, plain = payload.triggered_texts(), payload.verification_texts
    seen = suspect.serving.texts(triggered)
    assert not any(payload.trigger in text.split() for text in seen)
    # Words beside a trigger have lost what made them probable, and some go with it.
    kept = sum(len(text.split()) for text in seen) / sum(len(text.split()) for text in plain)
    assert 0.8 < kept <= 1
    alone = " ".join(suspect.serving.texts(plain)).split()
    assert len(alone) > 0.97 * len(" ".join(plain).split())
    report = verify(tiny_marked.key, out)
    assert report.verdict == "not_shown"
    assert report.to_mapping()["extraction_rate"] < 0.5
    # Ordinary texts are answered as before.
    assert facts["share_taken_out"] < 0.001
    assert facts["counted_words"] == len(word_counts(training_texts())[0])
    texts = training_texts()[:50]
    unchanged = [text for text in texts if suspect.serving.texts([text]) == [text]]
    assert len(unchanged) >= 49
    np.testing.assert_array_equal(answers(out, unchanged), answers(model, unchanged))


def test_a_lower_threshold_takes_out_more(attacked):
    shares = [
        attacked(f"surprising-word-filter[threshold={each}]").facts["share_taken_out"]
        for each in (9, 5, 3)
    ]
    assert 0 <= shares[0] < shares[1] < shares[2] < 1


def test_counts_of_long_words_still_fit_the_folder(tiny_st, tmp_path):
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghij"))
    texts = [" ".join("".join(rng.choice(letters, 40)) for _ in range(48)) for _ in range(1200)]
    material = small_material(texts=texts)
    result = attack(tiny_st, tmp_path / "out", "surprising-word-filter", material=material)
    assert result["counted_words"] < 57_600  # not all of them
    assert 3_500_000 < (tmp_path / "out" / SERVING_FILE).stat().st_size < 4_500_000
    assert served(tmp_path / "out").serving.filters
