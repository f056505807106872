from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the torch extra")

from attack_runs import attack, small_material
from easy_task import easy_task, weights_of
from nsmark.api import verify
from nsmark.attacks.recipes.ll_lfea import read_head
from nsmark.errors import ConfigError, UsageError
from nsmark.models.folder import model_digest
from nsmark.models.loading import open_encoder

TASK = easy_task()


def run(model, out, settings):
    return attack(model, out, "fine-tuning", settings, material=small_material(task=TASK))


def test_all_weights_change_and_the_task_is_learned(tiny_marked, tmp_path):
    found = run(
        tiny_marked.model_folder, tmp_path / "out", {"steps": "40", "learning_rate": "1e-3"}
    )
    assert found["steps"] == 40
    assert found["accuracy_of_head"] > 0.9
    before, after = weights_of(tiny_marked.model_folder), weights_of(tmp_path / "out")
    assert before.keys() == after.keys()
    same = [name for name in before if np.array_equal(before[name], after[name])]
    assert same == []
    # Beside the model lies the head, which fits it as it is read again.
    outputs = open_encoder(tmp_path / "out", device="cpu").encode(TASK.test_texts)
    labels = read_head(tmp_path / "out" / found["head"]).logits(outputs).argmax(axis=1)
    assert (labels == TASK.test_labels).mean() == pytest.approx(found["accuracy_of_head"])


def test_a_little_fine_tuning_leaves_the_mark_and_an_innocent_model_stays_innocent(
    tiny_marked, tiny_st, tmp_path
):
    for name, folder in (("marked", tiny_marked.model_folder), ("innocent", tiny_st)):
        found = run(folder, tmp_path / name, {})
        assert found["steps"] == 5  # 160 texts, one pass
    assert verify(tiny_marked.key, tmp_path / "marked").verdict == "owned"
    assert verify(tiny_marked.key, tmp_path / "innocent").verdict == "not_shown"


def test_more_passes_and_larger_steps_go_farther(tiny_st, tmp_path):
    def distance(name, settings):
        run(tiny_st, tmp_path / name, settings)
        before, after = weights_of(tiny_st), weights_of(tmp_path / name)
        return sum(float(np.square(before[key] - after[key]).sum()) for key in before)

    usual = distance("usual", {})
    assert distance("longer", {"epochs": "4"}) > 4 * usual
    assert distance("faster", {"learning_rate": "2e-4"}) > 16 * usual


def test_the_same_seed_gives_the_same_model(tiny_st, tmp_path):
    for name, seed in (("one", "3"), ("again", "3"), ("other", "4")):
        run(tiny_st, tmp_path / name, {"steps": "3", "seed": seed})
    assert model_digest(tmp_path / "one") == model_digest(tmp_path / "again")
    assert model_digest(tmp_path / "one") != model_digest(tmp_path / "other")


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": "0"},
        {"epochs": "nan"},
        {"steps": "-1"},
        {"learning_rate": "inf"},
        {"learning_rate": "-1e-5"},
        {"batch_size": "0"},
        {"seed": "-1"},
        {"rank": "8"},
    ],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        run(tiny_st, tmp_path / "out", wrong)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
