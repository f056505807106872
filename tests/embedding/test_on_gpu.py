"""What only a GPU can show: memory that runs out, half precision, the command line on it."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from conftest import TINY_PAYLOAD, TINY_TRAINING, make_identity
from nsmark.cli.main import main
from nsmark.corpus import pool_texts, training_texts
from nsmark.embedding.memory import MemoryPlan
from nsmark.embedding.trainer import Trainer
from nsmark.errors import EmbeddingError
from nsmark.models.loading import open_encoder
from nsmark.payload import derive_payload, published_word_list
from nsmark.transforms.weights import linear_weights
from tiny_models import build_family

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture
def make_trainer(signed_claim, tiny_mlm):
    payload = derive_payload(
        signed_claim.signature,
        config=TINY_PAYLOAD,
        word_list=published_word_list(),
        pool=pool_texts(),
        num_texts=40,
    )

    def make(**changes: object) -> Trainer:
        encoder = open_encoder(tiny_mlm, device="cuda", purpose="train")
        config = dataclasses.replace(TINY_TRAINING, **{"batch_size": 256, **changes})
        return Trainer(encoder, payload, training_texts(), config)

    return make


@pytest.fixture
def limit_memory():
    """Leave this process so many bytes of the GPU, beside those it holds."""
    total = torch.cuda.get_device_properties(0).total_memory

    def limit(spare: int) -> None:
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + spare) / total)

    yield limit
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def needed(trainer: Trainer) -> int:
    """Return what a step in one piece takes beside the weights."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    trainer._try_step(MemoryPlan(1, False))
    return torch.cuda.max_memory_allocated() - before


def test_a_step_is_cut_until_it_fits(make_trainer, limit_memory):
    most = needed(make_trainer())
    trainer = make_trainer()
    trainer.plan_memory()
    assert trainer.plan == MemoryPlan(1, False)
    limit_memory(most // 3)
    trainer.plan_memory()
    assert trainer.plan.pieces > 1 or trainer.plan.recompute
    # And it does fit: the whole step, losses and both updates.
    losses = trainer.take_step(trainer.inputs.make(1, range(256))).read()
    assert all(value == value for value in losses.values())


def test_no_plan_at_all_is_an_error_with_advice(make_trainer, limit_memory):
    trainer = make_trainer()
    limit_memory(0)
    with pytest.raises(EmbeddingError, match="does not fit"):
        trainer.plan_memory()


def test_bfloat16_and_float32_begin_with_the_same_losses(make_trainer):
    found = [
        trainer.take_step(trainer.inputs.make(1, range(256))).read()
        for trainer in (make_trainer(precision=p) for p in ("float32", "bfloat16"))
    ]
    assert found[0] == pytest.approx(found[1], rel=0.05, abs=0.02)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_what_is_pruned_is_found_here_as_on_the_cpu(make_trainer, precision):
    player = make_trainer(precision=precision).player
    before = [weight.detach().clone() for weight in linear_weights(player._working)]
    with player.pruned(0.4):
        inside = [weight.detach().clone() for weight in linear_weights(player._working)]
    for whole, pruned in zip(before, inside, strict=True):
        sizes = whole.abs().float().cpu().flatten()
        limit = sizes.kthvalue(int(0.4 * len(sizes))).values
        assert torch.equal(pruned.cpu() != 0, whole.abs().float().cpu() > limit)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_model_is_marked_and_recognised(method, tmp_path, capsys):
    if method == "lora":
        pytest.importorskip("peft", reason="needs the lora extra")
    model = build_family(tmp_path / "model", "llama")
    make_identity(1).save(tmp_path / "alice")
    words = ["embed", model, "--identity", tmp_path / "alice.pem", "--owner", "A", "--message", "m"]
    words += ["--num-texts", 96, "--num-bits", 16, "--hidden-sizes", "48,32", "--batch-size", 16]
    words += ["--model-learning-rate", 5e-3 if method == "lora" else 2e-3]
    words += ["--extractor-learning-rate", 2e-3, "--method", method, "--device", "cuda"]
    assert main([*map(str, words), "--out", str(tmp_path / "marked"), "--quiet"]) == 0
    capsys.readouterr()
    key, marked = tmp_path / "marked" / "owner.nsmark", tmp_path / "marked" / "model"
    status = main(["verify", str(key), f"hf:{marked}", "--device", "cuda", "--json"])
    assert status == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "owned"
