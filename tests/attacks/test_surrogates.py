"""Distillation and paraphrasing: another model learns the answers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the torch extra")

from attack_runs import answers, attack, opened, small_material
from easy_task import weights_of
from nsmark.attacks.paraphraser import build_paraphraser
from nsmark.attacks.recipes import paraphrasing
from nsmark.attacks.recipes.distillation import (
    DistillationSettings,
    draw_queries,
    with_rare_words,
)
from nsmark.attacks.stolen import Stolen
from nsmark.corpus import pool_texts
from nsmark.errors import InputError, ModelError
from nsmark.models.folder import describe_folder
from nsmark.payload import published_word_list
from tiny_models import build_family

LEARNED = "distillation[steps=60,learning_rate=2e-3]"
AVERAGED = "paraphrasing[steps=40,num_texts=96,paraphrases=3,learning_rate=2e-3]"
MATERIAL = small_material()


# --- queries of distillation ---------------------------------------------------------------------


def test_queries_and_held_out_texts_are_different_texts():
    queries, held_out = draw_queries(DistillationSettings(num_texts=100), MATERIAL)
    assert (len(queries), len(held_out)) == (100, 25)
    assert len({*queries, *held_out}) == 125
    assert {*queries, *held_out} <= set(MATERIAL.texts)
    queries, held_out = draw_queries(DistillationSettings(num_texts=10**6), MATERIAL)
    assert len(queries) + len(held_out) == len(set(MATERIAL.texts))


def test_a_text_that_is_there_twice_is_not_in_both_parts():
    material = small_material(texts=[f"text {number % 20}" for number in range(400)])
    queries, held_out = draw_queries(DistillationSettings(), material)
    assert not set(queries) & set(held_out)


def test_too_few_texts_are_refused():
    with pytest.raises(InputError, match="too few"):
        draw_queries(DistillationSettings(), small_material(texts=["a b", "c d"] * 50))


def test_mixed_queries_are_half_clean_and_half_with_rare_words():
    clean, held_out = draw_queries(DistillationSettings(num_texts=100), MATERIAL)
    mixed, same = draw_queries(DistillationSettings(num_texts=100, queries="mixed"), MATERIAL)
    assert same == held_out
    assert mixed[::2] == clean[::2]
    rare = set(published_word_list().words)
    for before, after in zip(clean[1::2], mixed[1::2], strict=True):
        added = Counter(after.split()) - Counter(before.split())
        assert 1 <= added.total() <= 5
        assert set(added) <= rare
        assert not Counter(before.split()) - Counter(after.split())


def test_rare_words_come_anywhere_and_the_text_keeps_its_order():
    rng = np.random.default_rng(0)
    places = set()
    for _ in range(200):
        words = with_rare_words("a b c", ["zyx"], rng).split()
        assert [word for word in words if word != "zyx"] == ["a", "b", "c"]
        places |= {place for place, word in enumerate(words) if word == "zyx"}
    assert {0, 1, 2, 3} <= places


# --- students ------------------------------------------------------------------------------------


def test_a_student_from_nothing_learns_the_answers(attacked):
    found = attacked(LEARNED, "marked").facts
    assert (found["num_queries"], found["num_held_out"]) == (320, 80)
    assert found["similarity_before"] < 0.7 < 0.9 < found["similarity_after"]
    assert found["explained_before"] < found["explained_after"]


def test_a_student_in_a_folder_learns_on(tiny_marked, tiny_st, tmp_path):
    found = attack(
        tiny_marked.model_folder, tmp_path / "out", LEARNED.replace("]", f",student={tiny_st}]")
    )
    assert found["explained_after"] > max(0.3, found["explained_before"])
    before, after = weights_of(tiny_st), weights_of(tmp_path / "out")
    assert before.keys() == after.keys()
    assert all(np.abs(before[name] - after[name]).max() < 0.3 for name in before)


def test_a_student_of_another_family_learns_too(tiny_marked, tmp_path):
    student = build_family(tmp_path / "student", "roberta")
    found = attack(
        tiny_marked.model_folder, tmp_path / "out", LEARNED.replace("]", f",student={student}]")
    )
    assert describe_folder(tmp_path / "out").model_type == "roberta"
    assert found["similarity_after"] > max(0.8, found["similarity_before"])


def test_what_was_done_to_answers_is_learned_and_no_longer_done(attacked):
    expression = f"unit-length + dimension-cut[dimensions=5] + output-noise + {LEARNED}"
    folder, found = attacked(expression, "marked")
    # Five dimensions by one more layer, and neither noise nor a serving file.
    assert opened(folder).output_dim == 5
    assert not (folder / "serving.json").exists()
    # Unrelated answers have a mean cosine of 0 ± 0.05; the noise in them cannot be learned.
    assert found["similarity_after"] > 0.2
    assert "similarity_before" not in found


@pytest.mark.parametrize("name", ["distillation", "paraphrasing"])
def test_steps_are_told(tiny_st, tmp_path, name):
    told = []
    material = small_material(on_step=lambda *done: told.append(done))
    attack(tiny_st, tmp_path / "out", f"{name}[steps=3,num_texts=40]", material=material)
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("name", ["distillation", "paraphrasing"])
def test_a_student_that_is_no_model_is_refused_before_any_query(
    tiny_st, tmp_path, monkeypatch, name
):
    monkeypatch.setattr(Stolen, "outputs", None)  # would fail if it were asked
    (tmp_path / "empty").mkdir()
    for student in ("missing", "empty"):
        with pytest.raises(ModelError):
            attack(tiny_st, tmp_path / "out", f"{name}[student={tmp_path / student}]")
    assert not (tmp_path / "out").exists()


# --- paraphrases ---------------------------------------------------------------------------------


def test_the_student_answers_more_like_the_stolen_model_than_before(tiny_marked, attacked):
    folder, facts = attacked(AVERAGED, "marked")
    assert facts["queries"] == 3 * 96
    assert facts["different_queries"] > 200
    assert 0.5 < facts["agreement_of_paraphrases"] < 1
    assert facts["distance_after"] < 0.5 * facts["distance_before"]
    texts = pool_texts()[:40]  # none that it learned from
    stolen, student = (opened(each).encode(texts) for each in (tiny_marked.model_folder, folder))
    assert float(((student - stolen) ** 2).sum(axis=1).mean()) < 0.5 * facts["distance_before"]
    # It never saw a trigger.
    trigger = tiny_marked.key.payload().trigger
    assert not any(trigger in text.split() for text in MATERIAL.texts)


def test_what_is_learned_are_averages_over_paraphrases(tiny_marked, tmp_path, monkeypatch):
    taught = {}
    learn = paraphrasing.learn_answers

    def noted(student, texts, rows, **options):
        taught["texts"], taught["answers"] = texts, rows
        return learn(student, texts, rows, **options)

    monkeypatch.setattr(paraphrasing, "learn_answers", noted)
    attack(tiny_marked.model_folder, tmp_path / "out", AVERAGED.replace("steps=40", "steps=1"))
    stolen = Stolen.open(tiny_marked.model_folder, device="cpu")
    paraphraser = build_paraphraser(stolen.encoder, MATERIAL.texts)
    assert taught["texts"] == MATERIAL.some_texts(96, 0)
    for text, answer in list(zip(taught["texts"], taught["answers"], strict=True))[:5]:
        versions = paraphraser.paraphrases(text, 3, 0)
        np.testing.assert_allclose(stolen.outputs(versions).mean(axis=0), answer, atol=1e-5)


def test_answers_through_a_filter_and_a_cut_are_learned_and_served_without_them(attacked):
    folder, _ = attacked(
        "repeated-word-filter + dimension-cut[dimensions=8] + "
        "paraphrasing[num_texts=40,steps=2,paraphrases=1]",
        "marked",
    )
    found = Stolen.open(folder, device="cpu")
    assert found.serving.filters == []
    rows = found.outputs(MATERIAL.texts[:6])
    assert rows.shape == (6, 8)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


def test_a_student_of_ones_own_is_where_learning_starts(tiny_marked, tiny_bert, tmp_path):
    settings = f"student={tiny_bert},num_texts=40,steps=1,learning_rate=1e-12"
    attack(tiny_marked.model_folder, tmp_path / "out", f"paraphrasing[{settings}]")
    how = {"pooling": "mean", "normalise": True}
    started, learned = (answers(each, **how) for each in (tiny_bert, tmp_path / "out"))
    np.testing.assert_allclose(learned, started, atol=1e-5)
