from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.attacks.material import Material, divided, gather_material
from nsmark.corpus import TOPICS, labelled_texts, training_texts
from nsmark.errors import FileAccessError, InputError

TASK = divided("small", [f"text {number}" for number in range(20)], ["a", "b"] * 10)


def write_task(path, count: int = 20, classes: int = 2):
    rows = [{"text": f"text {n}", "label": f"class {n % classes}"} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


# --- dividing a task ------------------------------------------------------------------------------


@given(count=st.integers(12, 200), classes=st.integers(2, 12), words=st.booleans())
@settings(max_examples=40, deadline=None)
def test_every_text_is_in_one_part_with_its_own_label(count, classes, words):
    texts = [f"text {number}" for number in range(count)]
    labels = [f"class {n % classes}" if words else n % classes for n in range(count)]
    task = divided("any", texts, labels)
    assert len(task.train_texts) == count * 4 // 5
    assert sorted([*task.train_texts, *task.test_texts]) == sorted(texts)
    both = [*zip(task.train_texts, task.train_labels, strict=True)]
    both += zip(task.test_texts, task.test_labels, strict=True)
    # One number per class, from 0 on, and the same in both parts.
    numbers = {(labels[int(text.split()[1])], number) for text, number in both}
    assert len(numbers) == min(classes, count)
    assert {number for _, number in numbers} == set(range(min(classes, count)))
    assert task.num_classes == min(classes, count)


def test_a_task_is_always_divided_alike_and_not_in_the_order_of_the_file():
    texts = [f"text {number}" for number in range(100)]
    labels = [number // 50 for number in range(100)]
    task = divided("sorted", texts, labels)
    assert task == divided("sorted", texts, labels)
    # A file sorted by label would otherwise be judged by one class alone.
    assert set(task.test_labels) == {0, 1}


def test_a_limit_leaves_texts_out_at_random():
    texts = [f"text {number}" for number in range(100)]
    task = divided("large", texts, [number // 50 for number in range(100)], limit=20)
    assert (len(task.train_texts), len(task.test_texts)) == (16, 4)
    assert set(task.train_labels) == {0, 1}


@pytest.mark.parametrize(
    ("count", "classes"), [(0, 2), (1, 2), (2, 2), (20, 1)], ids=lambda value: str(value)
)
def test_too_few_texts_or_classes_are_no_task(count, classes):
    texts = [f"text {number}" for number in range(count)]
    with pytest.raises(InputError, match="classes") as caught:
        divided("small", texts, [number % classes for number in range(count)])
    assert "two classes" in caught.value.hint


# --- texts ----------------------------------------------------------------------------------------


def test_texts_are_drawn_without_repetition_while_there_are_enough():
    material = Material(texts=[f"text {number}" for number in range(30)], task=TASK)
    some = material.some_texts(20, 0)
    assert len(set(some)) == 20
    assert set(some) <= set(material.texts)
    assert some == material.some_texts(20, 0)
    assert some != material.some_texts(20, 1)
    many = material.some_texts(75, 0)
    assert all(2 <= many.count(text) <= 3 for text in material.texts)


# --- gathering ------------------------------------------------------------------------------------


def test_without_files_the_built_in_corpus_is_used():
    material = gather_material(device="cpu", max_task_texts=500)
    assert len(material.texts) == len(training_texts())
    assert len(material.task.train_texts) == 400
    assert len(material.task.test_texts) == 100
    assert material.task.num_classes == len(TOPICS)
    topics = dict(zip(*labelled_texts(500), strict=True))
    pairs = zip(material.task.train_texts, material.task.train_labels, strict=True)
    assert len({(topics[text], number) for text, number in pairs}) == len(TOPICS)


def test_files_take_its_place(tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(f"own text {n} " + "word " * 60 for n in range(8)) + "\n\n")
    told = []
    material = gather_material(
        texts,
        write_task(tmp_path / "mine.jsonl", 30, 3),
        device="cpu",
        on_step=lambda *done: told.append(done),
        max_task_texts=20,
    )
    # Long texts are cut.
    assert [len(text.split()) for text in material.texts] == [48] * 8
    assert material.texts[3].startswith("own text 3 word")
    assert (material.task.name, material.task.num_classes) == ("mine", 3)
    assert len(material.task.train_texts) + len(material.task.test_texts) == 20
    assert material.on_step is not None
    material.on_step(1, 2)
    assert told == [(1, 2)]


def test_too_few_texts_are_refused(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("a\nb\nc\n")
    with pytest.raises(InputError, match="fewer than 8"):
        gather_material(path, device="cpu")


def test_a_task_of_one_class_is_refused(tmp_path):
    with pytest.raises(InputError, match="20 texts of 1 classes"):
        gather_material(task=write_task(tmp_path / "task.jsonl", 20, 1), device="cpu")


def test_files_that_are_not_there_are_refused(tmp_path):
    with pytest.raises(FileAccessError):
        gather_material(tmp_path / "texts.txt", device="cpu")
    with pytest.raises(FileAccessError):
        gather_material(task=tmp_path / "task.csv", device="cpu")
