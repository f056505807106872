from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the torch extra")

import torch

from attack_runs import attack, small_material
from easy_task import easy_task, weights_of
from nsmark.api import verify
from nsmark.attacks.recipes.fine_pruning import unit_activity, writing_layers
from nsmark.errors import ConfigError, ModelError, UsageError
from nsmark.models.folder import model_digest
from nsmark.models.loading import open_encoder
from tiny_models import FAMILY_CONFIGS, build_family

TASK = easy_task()
UNITS = 64
WRITING = [f"encoder.layer.{number}.output.dense.weight" for number in range(2)]


def run(model, out, settings):
    return attack(model, out, "fine-pruning", settings, material=small_material(task=TASK))


def least_active(folder, texts, count):
    """Computed in another way: text by text, from what the activation function gives."""
    encoder = open_encoder(folder, device="cpu")
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
    settings = {"share": "0.25", "num_texts": "60", "steps": "20", "learning_rate": "1e-3"}
    found = run(marked, tmp_path / "out", settings)
    assert (found["pruned_units"], found["units"]) == (2 * UNITS // 4, 2 * UNITS)
    texts = small_material(task=TASK).some_texts(60, 0)
    expected = least_active(marked, texts, UNITS // 4)
    after = weights_of(tmp_path / "out")
    for name, units in zip(WRITING, expected, strict=True):
        assert set(np.flatnonzero((after[name] == 0).all(axis=0)).tolist()) == units
        # The rest was trained.
        kept = sorted(set(range(UNITS)) - units)
        assert (after[name] != weights_of(marked)[name])[:, kept].all()


def test_without_a_share_it_is_fine_tuning(tiny_st, tmp_path):
    material = small_material(task=TASK)
    run(tiny_st, tmp_path / "pruned", {"share": "0", "steps": "4"})
    attack(tiny_st, tmp_path / "tuned", "fine-tuning[steps=4]", material=material)
    assert model_digest(tmp_path / "pruned") == model_digest(tmp_path / "tuned")


def test_activity_counts_tokens_and_no_padding(tiny_st):
    encoder = open_encoder(tiny_st, device="cpu")
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
    encoder = open_encoder(build_family(tmp_path / family, family), device="cpu")
    layers = writing_layers(encoder)
    # ALBERT's layers are one and the same.
    assert len(layers) == (1 if family == "albert" else 2)
    units = {"gpt2": 128}.get(family, UNITS)
    activity = unit_activity(encoder, layers, TASK.test_texts[:3])
    for layer, own in zip(layers, activity, strict=True):
        assert layer.columns.shape == (32, units)
        assert (own > 0).any()
        layer.columns[:, :5] = 0.0
        assert int((layer.module.weight == 0).sum()) == 5 * 32


def test_a_model_without_such_layers_is_refused(tiny_st):
    encoder = open_encoder(tiny_st, device="cpu")
    encoder.network.encoder.layer = torch.nn.ModuleList()
    with pytest.raises(ModelError, match="feed-forward"):
        writing_layers(encoder)


def test_little_pruning_leaves_the_mark(tiny_marked, tmp_path):
    run(tiny_marked.model_folder, tmp_path / "out", {"share": "0.05", "steps": "2"})
    assert verify(tiny_marked.key, tmp_path / "out").verdict == "owned"


def test_the_same_seed_gives_the_same_model(tiny_st, tmp_path):
    for name, seed in (("one", "3"), ("again", "3"), ("other", "4")):
        run(tiny_st, tmp_path / name, {"steps": "2", "num_texts": "20", "seed": seed})
    assert model_digest(tmp_path / "one") == model_digest(tmp_path / "again")
    assert model_digest(tmp_path / "one") != model_digest(tmp_path / "other")


@pytest.mark.parametrize(
    "wrong",
    [
        {"share": "1"},
        {"share": "-0.1"},
        {"share": "nan"},
        {"num_texts": "0"},
        {"epochs": "0"},
        {"steps": "-1"},
        {"learning_rate": "0"},
        {"batch_size": "0"},
        {"seed": "-1"},
        {"layers": "1"},
    ],
)
def test_wrong_settings_are_wrong_usage_and_write_nothing(tiny_st, tmp_path, wrong):
    with pytest.raises((ConfigError, UsageError)) as caught:
        run(tiny_st, tmp_path / "out", wrong)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []
