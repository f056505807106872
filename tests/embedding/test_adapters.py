from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np
import pytest
import torch

from conftest import TINY_PAYLOAD, TINY_TRAINING
from nsmark.corpus import pool_texts, training_texts
from nsmark.embedding.adapters import Adapters
from nsmark.embedding.parallel import Group
from nsmark.embedding.player import ModelPlayer
from nsmark.embedding.trainer import Trainer
from nsmark.errors import ConfigError, EmbeddingError, MissingExtraError
from nsmark.models.loading import open_encoder
from nsmark.payload import derive_payload, published_word_list
from tiny_models import build_family

CORPUS = training_texts()[:100]
FAMILIES = ("gpt2", "qwen3", "xlnet")
# peft finds out by itself how GPT-2 stores its weights, and says so.
pytestmark = pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False")


@pytest.fixture(autouse=True)
def _needs_peft(request):
    if "without_peft" not in request.node.name:
        pytest.importorskip("peft", reason="needs the lora extra")


@pytest.fixture(scope="module")
def folders(tiny_st, tiny_mlm, tmp_path_factory):
    root = tmp_path_factory.mktemp("adapters")
    families = {name: build_family(root / name, name) for name in (*FAMILIES, "mamba")}
    return {"st": tiny_st, "mlm": tiny_mlm, **families}


@pytest.fixture
def open_model(folders):
    return lambda name: open_encoder(folders[name], device="cpu", purpose="train")


def move(encoder: Any) -> None:
    """Make the adapters say something; at first they say nothing."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in encoder.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


@pytest.mark.parametrize("name", ["st", "mlm", *FAMILIES])
def test_adapters_change_nothing_at_first_and_nothing_switched_off(open_model, name):
    encoder = open_model(name)
    plain = encoder.encode(CORPUS[:6])
    adapters = Adapters(encoder, 4, 0)
    np.testing.assert_array_equal(encoder.encode(CORPUS[:6]), plain)
    move(encoder)
    moved = encoder.encode(CORPUS[:6])
    assert np.abs(moved - plain).max() > 1e-3
    with adapters.switched_off():
        np.testing.assert_array_equal(encoder.encode(CORPUS[:6]), plain)
    np.testing.assert_array_equal(encoder.encode(CORPUS[:6]), moved)
    trained = [name for name, p in encoder.named_parameters() if p.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)


@pytest.mark.parametrize("name", ["st", "mlm", *FAMILIES])
def test_a_merged_model_is_an_ordinary_one(open_model, name, tmp_path):
    plain, encoder = open_model(name), open_model(name)
    adapters = Adapters(encoder, 4, 0)
    move(encoder)
    expected = encoder.encode(CORPUS[:6])
    adapters.merge()
    assert list(encoder.state_dict()) == list(plain.state_dict())
    assert [type(m) for m in encoder.modules()] == [type(m) for m in plain.modules()]
    assert type(encoder.network) is type(plain.network)
    assert all(p.requires_grad for p in encoder.parameters())
    assert not [name for name in vars(encoder.network) if "peft" in name or "adapter" in name]
    np.testing.assert_allclose(encoder.encode(CORPUS[:6]), expected, atol=1e-5)
    encoder.save(tmp_path / "saved")
    names = {path.name for path in (tmp_path / "saved").iterdir()}
    assert not [name for name in names if "adapter" in name]
    plain.save(tmp_path / "plain")
    assert names == {path.name for path in (tmp_path / "plain").iterdir()}
    opened = open_encoder(tmp_path / "saved", device="cpu", purpose="train")
    assert opened.has_lm_head == plain.has_lm_head
    np.testing.assert_allclose(opened.encode(CORPUS[:6]), expected, atol=1e-5)


def test_adapters_repeat_with_their_seed_and_leave_the_global_one_alone(open_model):
    def first_factor(seed: int, global_seed: int) -> torch.Tensor:
        encoder = open_model("st")
        with torch.random.fork_rng():
            torch.manual_seed(global_seed)
            before = torch.get_rng_state()
            Adapters(encoder, 4, seed)
            assert torch.equal(torch.get_rng_state(), before)
        return next(p.detach() for p in encoder.parameters() if p.requires_grad)

    first = first_factor(0, 5)
    assert torch.equal(first_factor(0, 6), first)
    assert not torch.equal(first_factor(1, 5), first)


def test_the_rank_says_how_much_is_trained(open_model):
    def trained(rank: int) -> int:
        encoder = open_model("st")
        Adapters(encoder, rank, 0)
        return sum(p.numel() for p in encoder.parameters() if p.requires_grad)

    assert trained(8) == 2 * trained(4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_adapters_are_float32_whatever_they_stand_beside(open_model, dtype):
    """Half precision would swallow their small updates, and AdamW's squares of small gradients."""
    encoder = open_model("qwen3")
    encoder.network.to(dtype)
    adapters = Adapters(encoder, 4, 0)
    trained = {p.dtype for p in encoder.parameters() if p.requires_grad}
    assert trained == {torch.float32}
    move(encoder)
    expected = encoder.encode(CORPUS[:6])
    adapters.merge()
    assert {p.dtype for p in encoder.parameters()} == {dtype}
    merged = torch.from_numpy(encoder.encode(CORPUS[:6]))
    assert torch.cosine_similarity(merged, torch.from_numpy(expected)).min() > 0.999


def test_only_adapters_move_in_a_training(open_model, signed_claim):
    payload = derive_payload(
        signed_claim.signature,
        config=TINY_PAYLOAD,
        word_list=published_word_list(),
        pool=pool_texts(),
        num_texts=40,
    )
    config = dataclasses.replace(TINY_TRAINING, method="lora", lora_rank=4, recompute=True)
    trainer = Trainer(open_model("mlm"), payload, CORPUS, config)
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    for step in (1, 2):
        trainer.take_step(trainer.inputs.make(step, range(16)))
    for name, parameter in trainer.model.named_parameters():
        assert torch.equal(parameter, before[name]) is ("lora_" not in name), name
    own = {id(p) for group in trainer.optimisers[0].param_groups for p in group["params"]}
    assert own == {id(p) for name, p in trainer.model.named_parameters() if "lora_" in name}


# --- what does not go ----------------------------------------------------------------------------


def test_a_model_that_adapters_do_not_fit_is_refused_with_advice(open_model):
    with pytest.raises(EmbeddingError, match="do not fit this model") as caught:
        Adapters(open_model("mamba"), 4, 0)
    assert "--method full" in caught.value.hint


def test_without_peft_the_extra_is_named(open_model, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "peft"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtraError, match="peft") as caught:
        Adapters(open_model("st"), 4, 0)
    assert "'.[lora]'" in caught.value.hint


def test_adapters_of_a_divided_model_are_refused(open_model):
    config = dataclasses.replace(TINY_TRAINING, method="lora")
    with pytest.raises(ConfigError, match="fsdp"):
        ModelPlayer(open_model("st"), config, Group(0, 2, "fsdp"), torch.device("cpu"))
