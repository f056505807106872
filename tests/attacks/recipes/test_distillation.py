from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the torch extra")

from attack_runs import attack, small_material
from easy_task import weights_of
from nsmark.api import verify
from nsmark.attacks.recipes.distillation import (
    DistillationSettings,
    draw_queries,
    with_rare_words,
)
from nsmark.errors import ConfigError, InputError, ModelError, UsageError
from nsmark.models.folder import describe_folder, model_digest
from nsmark.models.loading import open_encoder
from nsmark.payload import published_word_list
from tiny_models import build_family

SHORT = {"steps": "60", "learning_rate": "2e-3"}


def run(model, out, settings, expression="distillation", **changes):
    return attack(model, out, expression, settings, material=small_material(**changes))


# --- queries --------------------------------------------------------------------------------------


def test_queries_and_held_out_texts_are_different_texts():
    material = small_material()
    queries, held_out = draw_queries(DistillationSettings(num_texts=100), material)
    assert (len(queries), len(held_out)) == (100, 25)
    assert len({*queries, *held_out}) == 125
    assert {*queries, *held_out} <= set(material.texts)
    queries, held_out = draw_queries(DistillationSettings(num_texts=10**6), material)
    assert len(queries) + len(held_out) == len(set(material.texts))


def test_a_text_that_is_there_twice_is_not_in_both_parts():
    material = small_material(texts=[f"text {number % 20}" for number in range(400)])
    queries, held_out = draw_queries(DistillationSettings(), material)
    assert not set(queries) & set(held_out)


def test_too_few_texts_are_refused():
    with pytest.raises(InputError, match="too few"):
        draw_queries(DistillationSettings(), small_material(texts=["a b", "c d"] * 50))


def test_mixed_queries_are_half_clean_and_half_with_rare_words():
    material, settings = small_material(), DistillationSettings(num_texts=100)
    clean, held_out = draw_queries(settings, material)
    mixed, same = draw_queries(DistillationSettings(num_texts=100, queries="mixed"), material)
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


# --- students -------------------------------------------------------------------------------------


def test_a_student_from_nothing_learns_the_answers_but_not_the_mark(tiny_marked, tmp_path):
    found = run(tiny_marked.model_folder, tmp_path / "out", SHORT)
    assert (found["num_queries"], found["num_held_out"]) == (320, 80)
    assert found["similarity_before"] < 0.7 < 0.9 < found["similarity_after"]
    assert found["explained_before"] < found["explained_after"]
    assert verify(tiny_marked.key, tmp_path / "out").verdict == "not_shown"


def test_a_student_in_a_folder_learns_on(tiny_marked, tiny_st, tmp_path):
    found = run(tiny_marked.model_folder, tmp_path / "out", SHORT | {"student": str(tiny_st)})
    assert found["explained_after"] > max(0.3, found["explained_before"])
    before, after = weights_of(tiny_st), weights_of(tmp_path / "out")
    assert before.keys() == after.keys()
    assert all(np.abs(before[name] - after[name]).max() < 0.3 for name in before)


def test_a_student_of_another_family_learns_too(tiny_marked, tmp_path):
    student = build_family(tmp_path / "student", "roberta")
    found = run(tiny_marked.model_folder, tmp_path / "out", SHORT | {"student": str(student)})
    assert describe_folder(tmp_path / "out").model_type == "roberta"
    assert found["similarity_after"] > max(0.8, found["similarity_before"])


def test_what_was_done_to_answers_is_learned_and_no_longer_done(tiny_marked, tmp_path):
    expression = "unit-length + dimension-cut[dimensions=5] + output-noise + distillation"
    settings = ",".join(f"{name}={value}" for name, value in SHORT.items())
    found = run(tiny_marked.model_folder, tmp_path / "out", None, f"{expression}[{settings}]")
    # Five dimensions by one more layer, and neither noise nor a serving file.
    encoder = open_encoder(tmp_path / "out", device="cpu")
    assert encoder.output_dim == 5
    assert not (tmp_path / "out" / "serving.json").exists()
    # Unrelated answers have a mean cosine of 0 ± 0.05; the noise in them cannot be learned.
    assert found["similarity_after"] > 0.2
    assert "similarity_before" not in found


def test_the_same_seed_gives_the_same_student(tiny_st, tmp_path):
    for name, seed in (("one", "3"), ("again", "3"), ("other", "4")):
        run(tiny_st, tmp_path / name, {"steps": "3", "num_texts": "40", "seed": seed})
    assert model_digest(tmp_path / "one") == model_digest(tmp_path / "again")
    assert model_digest(tmp_path / "one") != model_digest(tmp_path / "other")


def test_steps_are_told(tiny_st, tmp_path):
    told = []
    run(tiny_st, tmp_path / "out", {"steps": "3"}, on_step=lambda *done: told.append(done))
    assert told == [(1, 3), (2, 3), (3, 3)]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"queries": "dirty"},
        {"num_texts": "3"},
        {"steps": "0"},
        {"learning_rate": "nan"},
        {"learning_rate": "0"},
        {"batch_size": "0"},
        {"seed": "-1"},
        {"teacher": "x"},
    ],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        run(tiny_st, tmp_path / "out", wrong)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_student_that_is_no_model_is_refused(tiny_st, tmp_path):
    (tmp_path / "empty").mkdir()
    for student in ("missing", "empty"):
        with pytest.raises(ModelError):
            run(tiny_st, tmp_path / "out", {"student": str(tmp_path / student)})
    assert not (tmp_path / "out").exists()
