from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from nsmark.corpus import pool_texts
from nsmark.models.families import FAMILIES
from nsmark.models.layers import blocks, recomputing
from nsmark.models.loading import open_encoder
from tiny_models import build_family

TEXTS = list(pool_texts()[:5])


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def encoder(request, tmp_path_factory):
    folder = build_family(tmp_path_factory.mktemp("layers") / request.param, request.param)
    return open_encoder(folder, device="cpu", purpose="train")


def gradients(encoder, recompute: bool) -> dict[str, torch.Tensor]:
    """Of outputs and language-model loss together."""
    encoder.zero_grad(set_to_none=True)
    sequences = encoder.token_ids(TEXTS)
    with recomputing(encoder.network, recompute):
        loss = encoder.language_loss(sequences, np.random.default_rng(1))
        outputs = encoder(encoder.pad(sequences))
    # Backward after the context, as in training: recomputation must not depend on it.
    torch.autograd.backward(loss + outputs.square().sum())
    return {name: p.grad for name, p in encoder.named_parameters() if p.grad is not None}


def test_as_many_layers_are_found_as_the_configuration_names(encoder):
    config = encoder.network.config
    # ALBERT's layers share one set of weights.
    expected = 1 if config.model_type == "albert" else config.num_hidden_layers
    layers = blocks(encoder.network)
    assert len(layers) == expected
    assert len({type(layer) for layer in layers}) == 1
    inside = {id(p) for layer in layers for p in layer.parameters()}
    assert id(encoder.network.get_input_embeddings().weight) not in inside
    linear = [m for m in encoder.network.base_model.modules() if "in_features" in vars(m)]
    wide = [m for m in linear if m.in_features >= 32]  # not what widens narrow embeddings
    assert all(id(m.weight) in inside for m in wide)


def test_recomputing_changes_no_gradient_and_is_over_afterwards(encoder):
    kept = gradients(encoder, recompute=False)
    again = gradients(encoder, recompute=True)
    assert kept.keys() == again.keys()
    scale = max(gradient.abs().max() for gradient in kept.values())
    for name, gradient in kept.items():
        assert (gradient - again[name]).abs().max() < 1e-5 * scale, name
    assert not any("forward" in vars(layer) for layer in blocks(encoder.network))


def count_calls(layer: nn.Module) -> list[int]:
    """Count calls of a layer's first part, the recomputed ones included."""
    calls: list[int] = []
    next(layer.children()).register_forward_hook(lambda *_: calls.append(1))
    return calls


@pytest.mark.parametrize(
    ("wanted", "expected"), [(False, 1), (True, 2)], ids=["kept", "recomputed"]
)
def test_recomputing_runs_a_layer_twice_only_where_wanted(tiny_mlm, wanted, expected):
    encoder = open_encoder(tiny_mlm, device="cpu", purpose="train")
    calls = count_calls(blocks(encoder.network)[1])
    with recomputing(encoder.network, wanted):
        outputs = encoder(encoder.pad(encoder.token_ids(TEXTS)))
    torch.autograd.backward(outputs.sum())
    assert len(calls) == expected


def test_an_error_inside_ends_the_recomputing_too(tiny_mlm):
    encoder = open_encoder(tiny_mlm, device="cpu", purpose="train")
    tokens = encoder.pad([np.array([10**6])])  # no such word
    with pytest.raises(IndexError), recomputing(encoder.network, True):
        encoder(tokens)
    assert not any("forward" in vars(layer) for layer in blocks(encoder.network))


def test_without_a_list_of_layers_there_are_none():
    plain = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    assert blocks(plain) == []
    with recomputing(plain, True):
        assert plain(torch.zeros(1, 3)).shape == (1, 3)


def test_of_several_lists_the_heaviest_of_one_kind_is_taken():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mixed = nn.ModuleList([nn.Linear(90, 90), nn.LayerNorm(90)])
            self.light = nn.ModuleList(nn.Linear(2, 2) for _ in range(5))
            self.heavy = nn.ModuleList(nn.Linear(30, 30) for _ in range(3))
            self.empty = nn.ModuleList()

    model = Model()
    assert blocks(model) == list(model.heavy)
