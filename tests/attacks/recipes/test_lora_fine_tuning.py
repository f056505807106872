from __future__ import annotations

import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the torch extra")

from attack_runs import attack, small_material
from easy_task import easy_task, weights_of
from nsmark.api import verify
from nsmark.errors import ConfigError, MissingExtraError, UsageError
from nsmark.models.folder import model_digest
from nsmark.models.loading import open_encoder

TASK = easy_task()


@pytest.fixture(autouse=True)
def _needs_peft(request):
    if "without_peft" not in request.node.name:
        pytest.importorskip("peft", reason="needs the lora extra")


def run(model, out, settings, expression="lora-fine-tuning"):
    return attack(model, out, expression, settings, material=small_material(task=TASK))


def test_every_linear_layer_changes_by_a_matrix_of_that_rank_and_nothing_else_does(
    tiny_marked, tmp_path
):
    settings = {"rank": "2", "steps": "40", "learning_rate": "5e-3"}
    found = run(tiny_marked.model_folder, tmp_path / "out", settings)
    before, after = weights_of(tiny_marked.model_folder), weights_of(tmp_path / "out")
    assert before.keys() == after.keys()
    layers = [name for name in before if ".layer." in name and before[name].ndim == 2]
    assert len(layers) == 2 * 6
    for name in before:
        if name in layers:
            sizes = np.linalg.svd(after[name] - before[name], compute_uv=False)
            assert sizes[1] > 1e-4
            assert sizes[2] < 1e-5
        else:
            np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    # Two factors of rank 2 beside each of them.
    assert found["trained_weights"] == sum(2 * sum(before[name].shape) for name in layers)
    assert found["accuracy_of_head"] > 0.9


def test_the_merged_model_is_an_ordinary_folder_that_can_be_attacked_again(tiny_st, tmp_path):
    run(tiny_st, tmp_path / "out", None, "lora-fine-tuning[steps=2] + lora-fine-tuning[steps=2]")
    assert not [path.name for path in (tmp_path / "out").iterdir() if "adapter" in path.name]
    found = open_encoder(tmp_path / "out", device="cpu").encode(TASK.test_texts)
    usual = open_encoder(tiny_st, device="cpu").encode(TASK.test_texts)
    assert np.isfinite(found).all()
    assert 0 < np.abs(found - usual).max() < 0.5


def test_a_little_of_it_leaves_the_mark(tiny_marked, tmp_path):
    run(tiny_marked.model_folder, tmp_path / "out", {"steps": "3"})
    assert verify(tiny_marked.key, tmp_path / "out").verdict == "owned"


def test_the_same_seed_gives_the_same_model(tiny_st, tmp_path):
    for name, seed in (("one", "3"), ("again", "3"), ("other", "4")):
        run(tiny_st, tmp_path / name, {"steps": "3", "seed": seed})
    assert model_digest(tmp_path / "one") == model_digest(tmp_path / "again")
    assert model_digest(tmp_path / "one") != model_digest(tmp_path / "other")


def test_without_peft_the_extra_is_named(tiny_st, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "peft"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtraError, match="peft") as caught:
        run(tiny_st, tmp_path / "out", {})
    assert "nsmark[lora]" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"rank": "0"},
        {"rank": "9999"},
        {"epochs": "-1"},
        {"steps": "many"},
        {"learning_rate": "nan"},
        {"batch_size": "0"},
        {"seed": "-1"},
        {"alpha": "8"},
    ],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        run(tiny_st, tmp_path / "out", wrong)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
