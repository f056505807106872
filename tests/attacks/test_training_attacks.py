"""Attacks that train the stolen weights further on a task."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the torch extra")

import torch

from attack_runs import attack, opened, small_material
from easy_task import easy_task, weights_of
from nsmark.attacks.recipes.fine_pruning import unit_activity, writing_layers
from nsmark.attacks.recipes.ll_lfea import read_head
from nsmark.errors import MissingExtraError, ModelError
from nsmark.models.folder import model_digest
from tiny_models import FAMILY_CONFIGS, build_family

TASK = easy_task()
UNITS = 64
WRITING = [f"encoder.layer.{number}.output.dense.weight" for number in range(2)]


def run(model, out, expression):
    return attack(model, out, expression, material=small_material(task=TASK))


# --- fine-tuning ---------------------------------------------------------------------------------


def test_all_weights_change_and_the_task_is_learned(tiny_marked, tmp_path):
    model, out = tiny_marked.model_folder, tmp_path / "out"
    found = run(model, out, "fine-tuning[steps=40,learning_rate=1e-3]")
    assert found["steps"] == 40
    assert found["accuracy_of_head"] > 0.9
    before, after = weights_of(model), weights_of(out)
    assert before.keys() == after.keys()
    assert [name for name in before if np.array_equal(before[name], after[name])] == []
    # Beside the model lies the head, which fits it as it is read again.
    outputs = opened(out).encode(TASK.test_texts)
    labels = read_head(out / found["head"]).logits(outputs).argmax(axis=1)
    assert (labels == TASK.test_labels).mean() == pytest.approx(found["accuracy_of_head"])


def test_more_passes_and_larger_steps_go_farther(tiny_st, tmp_path):
    def distance(settings):
        found = run(tiny_st, tmp_path / settings, f"fine-tuning[{settings}]")
        assert found["steps"] == 5 * (4 if "epochs" in settings else 1)  # 160 texts a pass
        before, after = weights_of(tiny_st), weights_of(tmp_path / settings)
        return sum(float(np.square(before[key] - after[key]).sum()) for key in before)

    usual = distance("seed=0")
    assert distance("epochs=4") > 4 * usual
    assert distance("learning_rate=2e-4") > 16 * usual


# --- lora-fine-tuning ----------------------------------------------------------------------------


def test_every_linear_layer_changes_by_a_matrix_of_that_rank_and_nothing_else_does(
    tiny_marked, tmp_path
):
    pytest.importorskip("peft", reason="needs the lora extra")
    model, out = tiny_marked.model_folder, tmp_path / "out"
    found = run(model, out, "lora-fine-tuning[rank=2,steps=40,learning_rate=5e-3]")
    before, after = weights_of(model), weights_of(out)
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


def test_the_merged_model_is_an_ordinary_folder_that_can_be_attacked_again(attacked):
    pytest.importorskip("peft", reason="needs the lora extra")
    folder = attacked("lora-fine-tuning[steps=2] + lora-fine-tuning[steps=2]").folder
    assert not [path.name for path in folder.iterdir() if "adapter" in path.name]
    assert np.isfinite(opened(folder).encode(TASK.test_texts)).all()


def test_without_peft_the_extra_is_named(tiny_st, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "peft"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtraError, match="peft") as caught:
        run(tiny_st, tmp_path / "out", "lora-fine-tuning")
    assert "'.[lora]'" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


# --- fine-pruning --------------------------------------------------------------------------------


def least_active(folder, texts, count):
    """Computed in another way: text by text, from what the activation function gives."""
    encoder = opened(folder)
    seen = [[], []]
    for number, layer in enumerate(encoder.network.encoder.layer):
        layer.intermediate.register_forward_hook(
            lambda module, inputs, output, number=number: seen[number].append(output[0])
        )
    for text in texts:
        encoder.encode([text])
    return [set(torch.cat(rows).abs().mean(dim=0).argsort()[:count].tolist()) for rows in seen]


def test_the_least_active_units_are_pruned_and_do_not_grow_back(tiny_marked, tmp_path):
    marked = tiny_marked.model_folder
    settings = "share=0.25,num_texts=60,steps=20,learning_rate=1e-3"
    found = run(marked, tmp_path / "out", f"fine-pruning[{settings}]")
    assert (found["pruned_units"], found["units"]) == (2 * UNITS // 4, 2 * UNITS)
    texts = small_material(task=TASK).some_texts(60, 0)
    expected = least_active(marked, texts, UNITS // 4)
    after = weights_of(tmp_path / "out")
    for name, units in zip(WRITING, expected, strict=True):
        assert set(np.flatnonzero((after[name] == 0).all(axis=0)).tolist()) == units
        # The rest was trained.
        kept = sorted(set(range(UNITS)) - units)
        assert (after[name] != weights_of(marked)[name])[:, kept].all()


def test_without_a_share_it_is_fine_tuning(attacked):
    pruned = attacked("fine-pruning[share=0,steps=3,learning_rate=1e-3]").folder
    tuned = attacked("fine-tuning[steps=3,learning_rate=1e-3]").folder
    assert model_digest(pruned) == model_digest(tuned)


def test_activity_counts_tokens_and_no_padding(tiny_st):
    encoder = opened(tiny_st)
    layers = writing_layers(encoder)
    texts = ["one", "one two three four five six seven eight"]
    alone = [unit_activity(encoder, layers, [text])[0] for text in texts]
    sizes = [len(ids) for ids in encoder.token_ids(texts)]
    together = unit_activity(encoder, layers, texts)[0]
    expected = (sizes[0] * alone[0] + sizes[1] * alone[1]) / sum(sizes)
    torch.testing.assert_close(together, expected)
    assert not layers[0].module._forward_pre_hooks


@pytest.mark.parametrize("family", sorted(FAMILY_CONFIGS))
def test_every_familys_feed_forward_layers_are_found(tmp_path, family):
    encoder = opened(build_family(tmp_path / family, family))
    layers = writing_layers(encoder)
    # ALBERT's layers are one and the same.
    assert len(layers) == (1 if family == "albert" else 2)
    units = {"gpt2": 128}.get(family, UNITS)
    activity = unit_activity(encoder, layers, TASK.test_texts[:3])
    for layer, sizes in zip(layers, activity, strict=True):
        assert layer.columns.shape == (32, units)
        assert (sizes > 0).any()
        layer.columns[:, :5] = 0.0
        assert int((layer.module.weight == 0).sum()) == 5 * 32


def test_a_model_without_such_layers_is_refused(tiny_st):
    encoder = opened(tiny_st)
    encoder.network.encoder.layer = torch.nn.ModuleList()
    with pytest.raises(ModelError, match="feed-forward"):
        writing_layers(encoder)
