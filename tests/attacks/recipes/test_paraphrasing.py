from __future__ import annotations

import numpy as np
import pytest

from attack_runs import attack, small_material
from nsmark.api import verify
from nsmark.attacks.material import Material
from nsmark.attacks.paraphraser import build_paraphraser
from nsmark.attacks.recipes import paraphrasing
from nsmark.attacks.stolen import Stolen
from nsmark.corpus import pool_texts
from nsmark.errors import ConfigError, ModelError, UsageError
from nsmark.models.folder import model_digest
from nsmark.models.loading import open_encoder

MATERIAL = small_material()
QUICK = {"num_texts": "96", "steps": "40", "learning_rate": "2e-3", "paraphrases": "3"}


@pytest.fixture(scope="module")
def learned(tiny_marked, tmp_path_factory):
    out = tmp_path_factory.mktemp("student") / "model"
    seen = []
    material = Material(
        texts=MATERIAL.texts,
        task=MATERIAL.task,
        device="cpu",
        on_step=lambda done, total: seen.append((done, total)),
    )
    return (
        out,
        attack(tiny_marked.model_folder, out, "paraphrasing", QUICK, material=material),
        seen,
    )


def test_the_student_answers_more_like_the_stolen_model_than_before(tiny_marked, learned):
    out, result, seen = learned
    assert result["queries"] == 3 * 96
    assert result["different_queries"] > 200
    assert 0.5 < result["agreement_of_paraphrases"] < 1
    assert result["distance_after"] < 0.5 * result["distance_before"]
    assert seen == [(step, 40) for step in range(1, 41)]
    texts = pool_texts()[:40]  # none that it learned from
    stolen = open_encoder(tiny_marked.model_folder, device="cpu").encode(texts)
    student = open_encoder(out, device="cpu").encode(texts)
    assert float(((student - stolen) ** 2).sum(axis=1).mean()) < 0.5 * result["distance_before"]


def test_what_is_learned_are_averages_over_paraphrases(tiny_marked, tmp_path, monkeypatch):
    taught = {}
    learn = paraphrasing.learn_answers

    def noted(student, texts, answers, **options):
        taught["texts"], taught["answers"] = texts, answers
        return learn(student, texts, answers, **options)

    monkeypatch.setattr(paraphrasing, "learn_answers", noted)
    attack(
        tiny_marked.model_folder,
        tmp_path / "out",
        "paraphrasing",
        QUICK | {"steps": "1"},
        material=MATERIAL,
    )
    stolen = Stolen.open(tiny_marked.model_folder, device="cpu")
    paraphraser = build_paraphraser(stolen.encoder, MATERIAL.texts)
    assert taught["texts"] == MATERIAL.some_texts(96, 0)
    for text, answer in list(zip(taught["texts"], taught["answers"], strict=True))[:5]:
        versions = paraphraser.paraphrases(text, 3, 0)
        np.testing.assert_allclose(stolen.outputs(versions).mean(axis=0), answer, atol=1e-5)


def test_a_student_from_nothing_that_never_saw_a_trigger_carries_no_mark(tiny_marked, learned):
    trigger = tiny_marked.key.payload().trigger
    assert not any(trigger in text.split() for text in MATERIAL.texts)
    report = verify(tiny_marked.key, learned[0])
    assert report.verdict == "not_shown"
    assert report.to_mapping()["extraction_rate"] < 0.5


def test_answers_through_a_filter_and_a_cut_are_learned_and_served_without_them(
    tiny_marked, tmp_path
):
    attack(
        tiny_marked.model_folder,
        tmp_path / "out",
        "repeated-word-filter + dimension-cut[dimensions=8] + paraphrasing"
        "[num_texts=40,steps=2,paraphrases=1]",
        material=MATERIAL,
    )
    found = Stolen.open(tmp_path / "out", device="cpu")
    assert found.serving.filters == []
    answers = found.outputs(MATERIAL.texts[:6])
    assert answers.shape == (6, 8)
    np.testing.assert_allclose(np.linalg.norm(answers, axis=1), 1, atol=1e-5)


def test_a_student_of_ones_own_is_where_learning_starts(tiny_marked, tiny_bert, tmp_path):
    attack(
        tiny_marked.model_folder,
        tmp_path / "out",
        "paraphrasing",
        QUICK | {"student": str(tiny_bert), "steps": "1", "learning_rate": "1e-12"},
        material=MATERIAL,
    )
    options = {"pooling": "mean", "normalise": True, "device": "cpu"}
    texts = MATERIAL.texts[:10]
    np.testing.assert_allclose(
        open_encoder(tmp_path / "out", **options).encode(texts),
        open_encoder(tiny_bert, **options).encode(texts),
        atol=1e-5,
    )


def test_the_same_seed_gives_the_same_student(tiny_st, tmp_path):
    short = QUICK | {"steps": "3", "num_texts": "32"}
    for name, seed in (("one", "1"), ("two", "1"), ("other", "2")):
        attack(tiny_st, tmp_path / name, "paraphrasing", short | {"seed": seed}, material=MATERIAL)
    assert model_digest(tmp_path / "one") == model_digest(tmp_path / "two")
    assert model_digest(tmp_path / "one") != model_digest(tmp_path / "other")


@pytest.mark.parametrize(
    "wrong",
    [
        {"paraphrases": "0"},
        {"paraphrases": "65"},
        {"num_texts": "7"},
        {"steps": "0"},
        {"learning_rate": "0"},
        {"learning_rate": "nan"},
        {"learning_rate": "inf"},
        {"seed": "-1"},
        {"teacher": "x"},
    ],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        attack(tiny_st, tmp_path / "out", "paraphrasing", wrong, material=MATERIAL)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_student_that_is_no_model_is_refused_before_any_query(tiny_st, tmp_path, monkeypatch):
    monkeypatch.setattr(Stolen, "outputs", None)  # would fail if it were asked
    settings = {"student": str(tmp_path / "missing")}
    with pytest.raises(ModelError):
        attack(tiny_st, tmp_path / "out", "paraphrasing", settings, material=MATERIAL)
    assert list(tmp_path.iterdir()) == []
