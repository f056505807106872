"""Changes of weights: each does what its name says, and nothing else."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from nsmark.corpus import training_texts
from nsmark.errors import ModelError, TextPoolError
from nsmark.models.encoder import Encoder
from nsmark.models.layers import blocks
from nsmark.models.loading import open_encoder
from nsmark.transforms.finetuning import Finetuning, finetune, make_task
from nsmark.transforms.population import broken_alterations, kept_alterations
from nsmark.transforms.weights import (
    add_noise,
    last_weights,
    leave_out_layers,
    linear_weights,
    modules_of_last_weights,
    prune,
    prune_feed_forward,
    prune_globally,
    quantise,
    reinitialise,
)
from tiny_models import build_family

TEXTS = training_texts()[:300]


@pytest.fixture(scope="module")
def original(tiny_st) -> Encoder:
    return open_encoder(tiny_st, device="cpu")


@pytest.fixture
def encoder(original) -> Encoder:
    return copy.deepcopy(original)


def matrices(encoder: Encoder) -> list[torch.Tensor]:
    return [
        weight.detach()
        for layer in blocks(encoder.network)
        for weight in layer.parameters()
        if weight.dim() == 2
    ]


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    first, second = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (first, second))
    return float(np.sum(first * second, axis=1).mean())


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_pruning_takes_the_smallest_weights(original, encoder, share):
    prune(share)(encoder)
    for before, after in zip(matrices(original), matrices(encoder), strict=True):
        zero = after == 0
        assert zero.float().mean().item() == pytest.approx(share, abs=0.01)
        assert torch.equal(before[~zero], after[~zero])
        if zero.any():
            assert before[zero].abs().max() <= before[~zero].abs().min()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_one_limit_holds_for_all_matrices(original, encoder, share):
    for number, weight in enumerate(linear_weights(encoder)):
        weight.data *= 1 + number
    whole = torch.cat([weight.flatten() for weight in matrices(encoder)])
    prune_globally(share)(encoder)
    pruned = torch.cat([weight.flatten() for weight in matrices(encoder)])
    zero = pruned == 0
    assert int(zero.sum()) == int(share * len(whole))
    assert torch.equal(whole[~zero], pruned[~zero])
    if share:
        assert whole[zero].abs().max() <= whole[~zero].abs().min()
        shares = [(weight == 0).float().mean().item() for weight in matrices(encoder)]
        assert shares[0] > share > shares[-1]


@pytest.mark.parametrize("share", [0.0, 0.00001, 0.5, 0.9])
def test_only_the_end_of_the_feed_forward_part_is_pruned(original, encoder, share):
    prune_feed_forward(share)(encoder)
    for before, after in zip(blocks(original.network), blocks(encoder.network), strict=True):
        for name, weight in before.named_parameters():
            found = after.get_parameter(name)
            if name != "output.dense.weight" or share < 0.1:
                assert torch.equal(found, weight)
                continue
            limit = weight.abs().flatten().kthvalue(int(share * weight.numel())).values
            assert torch.equal(found, torch.where(weight.abs() <= limit, 0.0, weight))


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_the_modules_of_those_matrices_are_found_by_name(tmp_path, family):
    encoder = open_encoder(build_family(tmp_path / family, family), device="cpu")
    modules = dict(encoder.network.named_modules())
    names = modules_of_last_weights(encoder)
    assert len(names) == len(blocks(encoder.network))
    for name, weight in zip(names, last_weights(encoder), strict=True):
        assert modules[name].weight is weight


@pytest.mark.parametrize("how", [prune, prune_globally, prune_feed_forward])
def test_pruned_again_at_the_same_share_nothing_more_falls(encoder, how):
    how(0.4)(encoder)
    once = [weight.clone() for weight in matrices(encoder)]
    how(0.4)(encoder)
    assert all(torch.equal(*pair) for pair in zip(once, matrices(encoder), strict=True))
    how(0.6)(encoder)
    assert not all(torch.equal(*pair) for pair in zip(once, matrices(encoder), strict=True))


def test_a_model_without_layers_is_refused(encoder):
    encoder.network.encoder.layer = torch.nn.ModuleList()
    for change in (prune(0.5), prune_globally(0.5), add_noise(0.1, 0), quantise(8)):
        with pytest.raises(ModelError, match="no layers"):
            change(encoder)


def test_noise_has_the_size_it_says_and_its_own_seed(original, encoder):
    other = copy.deepcopy(encoder)
    add_noise(0.1, 3)(encoder)
    add_noise(0.1, 4)(other)
    changes = [
        torch.cat(
            [
                (a - b).flatten() / b.std()
                for a, b in zip(matrices(m), matrices(original), strict=True)
            ]
        )
        for m in (encoder, other)
    ]
    assert changes[0].std().item() == pytest.approx(0.1, rel=0.05)
    assert abs(torch.corrcoef(torch.stack(changes))[0, 1]) < 0.05


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_quantised_rows_have_few_values(encoder, bits):
    quantise(bits)(encoder)
    for weight in matrices(encoder):
        assert all(len(torch.unique(row)) < 2**bits for row in weight)


def test_new_weights_are_like_the_old_ones_in_size_alone(original, encoder):
    reinitialise(None, 0)(encoder)
    for before, after in zip(matrices(original), matrices(encoder), strict=True):
        assert after.std().item() == pytest.approx(before.std().item(), rel=0.1)
        assert abs(torch.corrcoef(torch.stack([before.flatten(), after.flatten()]))[0, 1]) < 0.15


def test_only_the_last_layers_are_drawn_anew(original, encoder):
    reinitialise(1, 0)(encoder)
    half = len(matrices(encoder)) // 2
    same = [torch.equal(*pair) for pair in zip(matrices(original), matrices(encoder), strict=True)]
    assert same == [True] * half + [False] * half


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "llama", "modernbert"])
def test_a_model_may_be_read_at_an_earlier_layer(model_type, tmp_path):
    encoder = open_encoder(build_family(tmp_path / "model", model_type), device="cpu")
    before = encoder.encode(TEXTS[:3])
    leave_out_layers(1)(encoder)
    assert len(blocks(encoder.network)) == 1
    after = encoder.encode(TEXTS[:3])
    assert after.shape == before.shape
    assert not np.allclose(before, after)


def test_tasks_divide_the_texts_and_differ_by_seed():
    labels = [make_task(TEXTS, seed) for seed in (0, 0, 1)]
    assert labels[0] == labels[1] != labels[2]
    assert all(0.35 <= np.mean(found) <= 0.65 for found in labels)
    with pytest.raises(TextPoolError):
        make_task(["the same"] * 50, 0)


def test_fine_tuning_learns_its_task_and_leaves_the_model_recognisable(original, encoder):
    finetune(TEXTS, Finetuning(steps=40, learning_rate=1e-3))(encoder)
    kin = cosine(original.encode(TEXTS[:50]), encoder.encode(TEXTS[:50]))
    assert 0.3 < kin < 0.9999
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    again = copy.deepcopy(original)
    finetune(TEXTS, Finetuning(steps=40, learning_rate=1e-3))(again)
    np.testing.assert_allclose(encoder.encode(TEXTS[:9]), again.encode(TEXTS[:9]), atol=1e-5)


def test_the_population_has_names_for_all_its_kinds():
    kept = kept_alterations(TEXTS, num_tasks=2, seed=0)
    assert {"as it is", "fine-tuned 1", "fine-tuned 2", "pruned 40%"} <= set(kept)
    assert "fine-tuned 1, pruned 30%" in kept
    assert not any("tuned" in name for name in kept_alterations(TEXTS, num_tasks=0, seed=0))
    assert "without its last 1 layers" in broken_alterations(2, seed=0)
    assert "last two layers drawn anew" not in broken_alterations(2, seed=0)
