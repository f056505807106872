from __future__ import annotations

import numpy as np
import pytest
import torch

from attack_runs import small_material
from nsmark.attacks.stolen import Stolen
from nsmark.attacks.student import learn_answers, new_weights, open_student, put_in_place
from nsmark.corpus import training_texts
from nsmark.errors import InputError, ModelError
from nsmark.models.loading import open_encoder
from nsmark.transforms.changes import Linear, UnitLength
from nsmark.transforms.filters import RepeatedWords

TEXTS = training_texts()[:64]
MATERIAL = small_material()


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def distance(found, expected) -> float:
    return float(((unit(found) - unit(expected)) ** 2).sum(axis=1).mean())


def learn(student, answers, **changes):
    usual = {"steps": 60, "learning_rate": 2e-3, "batch_size": 16, "seed": 1}
    return learn_answers(student, TEXTS, answers, **usual | changes)


@pytest.fixture
def stolen(tiny_st) -> Stolen:
    return Stolen.open(tiny_st, device="cpu")


def test_a_student_comes_closer_to_the_answers_and_says_how_close(stolen):
    answers = stolen.outputs(TEXTS)
    student = open_student(stolen, "", 5, MATERIAL)
    before = distance(student.encode(TEXTS), answers)
    seen = []
    learned = learn(student, answers, on_step=lambda done, total: seen.append((done, total)))
    assert learned.change is None
    assert learned.distance_before == pytest.approx(before, rel=1e-4)
    assert learned.distance_after == pytest.approx(
        distance(student.encode(TEXTS), answers), rel=1e-3
    )
    assert learned.distance_after < 0.5 * before
    assert seen == [(step, 60) for step in range(1, 61)]
    assert not any(weight.requires_grad for weight in student.parameters())
    # The teacher is left alone.
    np.testing.assert_array_equal(stolen.outputs(TEXTS), answers)


def test_lengths_of_answers_do_not_matter(stolen):
    answers = stolen.outputs(TEXTS)
    scaled = answers * np.random.default_rng(0).uniform(0.1, 9, (len(answers), 1))
    students = [open_student(stolen, "", 5, MATERIAL) for _ in range(2)]
    for student, rows in zip(students, (answers, scaled), strict=True):
        learn(student, rows, steps=3)
    np.testing.assert_allclose(
        students[0].encode(TEXTS[:8]), students[1].encode(TEXTS[:8]), atol=1e-3
    )


@pytest.mark.parametrize("dim", [5, 48])
def test_answers_of_another_dimension_are_learned_through_a_map(stolen, dim):
    rng = np.random.default_rng(2)
    answers = stolen.outputs(TEXTS) @ rng.standard_normal((32, dim)) + 0.1
    student = open_student(stolen, "", 5, MATERIAL)
    learned = learn(student, answers)
    assert isinstance(learned.change, Linear)
    assert learned.change.matrix.shape == (dim, 32)
    found = learned.change(student.encode(TEXTS).astype(np.float64))
    assert learned.distance_after == pytest.approx(distance(found, answers), rel=1e-3)
    assert learned.distance_after < 0.5 * learned.distance_before
    put_in_place(stolen, student, learned)
    assert stolen.output_dim == dim
    np.testing.assert_allclose(stolen.outputs(TEXTS), unit(found), atol=1e-6)


def test_in_place_of_the_stolen_model_it_answers_without_its_filters(stolen, tiny_st, tmp_path):
    stolen.serving.filters.append(RepeatedWords(1))
    stolen.add_change(UnitLength())
    student = open_student(stolen, "", 5, MATERIAL)
    put_in_place(stolen, student, learn(student, stolen.outputs(TEXTS), steps=1))
    assert stolen.serving.filters == stolen.serving.changes == []
    stolen.save(tmp_path / "saved")
    np.testing.assert_array_equal(
        open_encoder(tmp_path / "saved", device="cpu").encode(TEXTS), student.encode(TEXTS)
    )


def test_new_weights_owe_nothing_to_the_old_ones(tiny_st):
    encoder = open_encoder(tiny_st, device="cpu")
    drawn, again, other = (new_weights(encoder, seed) for seed in (0, 0, 1))
    old, new = dict(encoder.named_parameters()), dict(drawn.named_parameters())
    assert old.keys() == new.keys()
    for name, weight in new.items():
        assert weight.shape == old[name].shape
        assert torch.equal(weight, dict(again.named_parameters())[name])
        if weight.dim() > 1:
            assert not torch.equal(weight, old[name])
            assert not torch.equal(weight, dict(other.named_parameters())[name])
    assert not drawn.training
    assert (drawn.pooling, drawn.normalise) == (encoder.pooling, encoder.normalise)


def test_a_marked_models_biases_are_not_handed_on(tiny_marked, tiny_st):
    # Those of a model that was never trained are zero; a marked one's are not.
    marked = open_encoder(tiny_marked.model_folder, device="cpu")
    drawn = new_weights(marked, 0)
    biases = [name for name, weight in marked.named_parameters() if weight.dim() == 1]
    assert any(dict(marked.named_parameters())[name].abs().max() > 1e-3 for name in biases)
    fresh = dict(drawn.named_parameters())
    for name in biases:
        expected = 1.0 if name.endswith("LayerNorm.weight") else 0.0
        assert torch.equal(fresh[name], torch.full_like(fresh[name], expected))


def test_a_bare_student_is_read_as_the_stolen_model_is(stolen, tiny_bert, tiny_st):
    bare = open_student(stolen, str(tiny_bert), 0, MATERIAL)
    assert (bare.pooling, bare.normalise) == ("mean", True)
    expected = open_encoder(tiny_bert, pooling="mean", normalise=True, device="cpu")
    np.testing.assert_array_equal(bare.encode(TEXTS[:4]), expected.encode(TEXTS[:4]))
    own_way = open_student(stolen, str(tiny_st), 0, MATERIAL)
    np.testing.assert_array_equal(own_way.encode(TEXTS[:4]), stolen.outputs(TEXTS[:4]))


def test_the_same_seed_gives_the_same_student(stolen):
    answers = stolen.outputs(TEXTS)
    found = []
    for seed in (1, 1, 2):
        student = open_student(stolen, "", 5, MATERIAL)
        learn(student, answers, steps=5, seed=seed)
        found.append(student.encode(TEXTS[:4]))
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_every_text_is_seen_before_one_is_seen_again(stolen, monkeypatch):
    student = open_student(stolen, "", 5, MATERIAL)
    sequences, seen = student.token_ids(TEXTS), []
    numbers = {tuple(ids): place for place, ids in enumerate(sequences)}
    forward, pad = student.forward, student.pad

    def noted(batch):
        if torch.is_grad_enabled():
            seen.extend(numbers[tuple(ids)] for ids in batch)
        return pad(batch)

    monkeypatch.setattr(student, "pad", noted)
    learn(student, stolen.outputs(TEXTS), steps=4)
    assert sorted(seen) == list(range(64))
    assert student.forward == forward


def test_what_cannot_be_learned_is_refused(stolen, tmp_path):
    answers = stolen.outputs(TEXTS)
    answers[3, 0] = np.nan
    with pytest.raises(InputError, match="diverged"):
        learn(open_student(stolen, "", 5, MATERIAL), answers, steps=4)
    with pytest.raises(ModelError):
        open_student(stolen, str(tmp_path / "missing"), 0, MATERIAL)


def test_no_step_changes_nothing(stolen):
    student = open_student(stolen, "", 5, MATERIAL)
    before = student.encode(TEXTS)
    learned = learn(student, stolen.outputs(TEXTS), steps=0)
    np.testing.assert_array_equal(student.encode(TEXTS), before)
    assert learned.distance_before == learned.distance_after
