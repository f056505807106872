"""The model in training, in every arithmetic: it learns, and its reference stays as it was."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from typing import Any

import pytest
import torch

from conftest import TINY_PAYLOAD, TINY_TRAINING
from nsmark.corpus import pool_texts, training_texts
from nsmark.embedding.checkpoint import restore_tensors, training_tensors
from nsmark.embedding.trainer import Trainer
from nsmark.models.encoder import Encoder
from nsmark.models.loading import open_encoder
from nsmark.payload import derive_payload, published_word_list
from nsmark.transforms.weights import linear_weights, prune_feed_forward
from tiny_models import build_family

CORPUS = training_texts()[:100]
MODES = {
    "float32": {"precision": "float32"},
    "bfloat16": {"precision": "bfloat16"},
    "lora": {"method": "lora"},
    "lora-bfloat16": {"method": "lora", "precision": "bfloat16"},
}
every_mode = pytest.mark.parametrize("mode", ["float32", "bfloat16", "lora"])


@pytest.fixture(scope="module")
def payload(signed_claim):
    return derive_payload(
        signed_claim.signature,
        config=TINY_PAYLOAD,
        word_list=published_word_list(),
        pool=pool_texts(),
        num_texts=40,
    )


@pytest.fixture(scope="module")
def folders(tiny_st, tiny_mlm, tmp_path_factory):
    root = tmp_path_factory.mktemp("player")
    return {
        "st": tiny_st,
        "mlm": tiny_mlm,
        "llama": build_family(root / "llama", "llama"),
        "xlnet": build_family(root / "xlnet", "xlnet"),
    }


@pytest.fixture
def make_trainer(folders, payload):
    def make(model: str, mode: str, **changes: Any) -> Trainer:
        if mode.startswith("lora"):
            pytest.importorskip("peft", reason="needs the lora extra")
        encoder = open_encoder(folders[model], device="cpu", purpose="train", max_length=48)
        config = dataclasses.replace(TINY_TRAINING, **MODES[mode], **changes)
        return Trainer(encoder, payload, CORPUS, config)

    return make


def train(trainer: Trainer, steps: int) -> list[dict[str, float]]:
    """Take steps on the same texts with the same triggers."""
    inputs = trainer.inputs.make(1, range(8))
    return [trainer.take_step(inputs).read() for _ in range(steps)]


def weights(encoder: Encoder) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in encoder.named_parameters()}


# --- learning ------------------------------------------------------------------------------------


@every_mode
@pytest.mark.parametrize("model", ["st", "mlm", "llama"])
def test_a_few_steps_lower_the_loss(make_trainer, model, mode):
    rates = {"model_learning_rate": 2e-4, "extractor_learning_rate": 2e-4}
    # A model without a head begins with nothing to make good but the mark.
    weight = 0.0 if model == "st" else 1.0
    losses = train(make_trainer(model, mode, fidelity_weight=weight, **rates), 5)
    assert losses[-1]["model"] < losses[2]["model"] < losses[0]["model"]


@every_mode
@pytest.mark.parametrize("model", ["st", "mlm"])
def test_the_reference_does_not_change_while_the_model_does(make_trainer, model, mode):
    trainer = make_trainer(model, mode)
    sequences = trainer.model.token_ids(CORPUS[:8])
    tokens = trainer.model.pad(sequences)
    before = trainer.player.encode(sequences, as_reference=True)
    passed = trainer.player.reference_outputs(tokens)
    own = trainer.player.encode(sequences)
    assert torch.equal(before, own)  # they begin as one
    assert torch.equal(before.cpu(), torch.from_numpy(trainer.reference_outputs(CORPUS[:8])))
    train(trainer, 3)
    assert torch.equal(trainer.player.encode(sequences, as_reference=True), before)
    assert torch.equal(trainer.player.reference_outputs(tokens), passed)
    assert not torch.allclose(trainer.player.encode(sequences), own, rtol=1e-3)


@every_mode
def test_no_gradient_is_left_and_no_graph_kept_by_the_reference(make_trainer, mode):
    trainer = make_trainer("mlm", mode)
    tokens = trainer.model.pad(trainer.model.token_ids(CORPUS[:4]))
    assert not trainer.player.reference_outputs(tokens).requires_grad
    passed = trainer.player.outputs(tokens)
    assert passed.outputs.requires_grad
    assert passed.language.item() == passed.positions.item() == 0
    train(trainer, 1)
    trainer.player.clear_gradients()
    assert all(p.grad is None for p in trainer.model.parameters())


# --- pruned --------------------------------------------------------------------------------------


def matrices(trainer: Trainer) -> list[torch.Tensor]:
    """Return the weights that compute."""
    return [weight.detach().clone() for weight in linear_weights(trainer.player._working)]


def sums(trainer: Trainer) -> list[torch.Tensor]:
    """Return the weights that compute, with what adapters add to them."""
    adapters = trainer.player.adapters
    if adapters is None:
        return matrices(trainer)
    found = [(w.detach(), adapters.added_to(w)) for w in linear_weights(trainer.model)]
    return [weight.clone() if added is None else weight + added for weight, added in found]


def zeros(weights: list[torch.Tensor]) -> list[int]:
    return [int((weight == 0).sum()) for weight in weights]


def same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, two) for one, two in zip(first, second, strict=True))


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("model", ["st", "llama", "xlnet"])
def test_a_pruned_model_is_without_the_smallest_weights_of_every_matrix(make_trainer, model, share):
    trainer = make_trainer(model, "float32")
    before = matrices(trainer)
    others = {
        name: weight
        for name, weight in weights(trainer.model).items()
        if not any(torch.equal(weight, matrix) for matrix in before)
    }
    assert sum(zeros(before)) == 0
    with trainer.player.pruned(share):
        inside, now = matrices(trainer), weights(trainer.model)
    assert zeros(inside) == [int(share * weight.numel()) for weight in before]
    for whole, pruned in zip(before, inside, strict=True):
        left = pruned != 0
        assert torch.equal(pruned[left], whole[left])
        if 0 < share < 1:
            assert whole[~left].abs().max() < whole[left].abs().min()
    assert others
    assert all(torch.equal(now[name], weight) for name, weight in others.items())
    assert same(matrices(trainer), before)


@pytest.mark.parametrize("model", ["st", "llama"])
def test_the_last_matrix_of_every_layer_can_be_pruned_alone(make_trainer, model):
    trainer = make_trainer(model, "float32")
    before = matrices(trainer)
    stolen = copy.deepcopy(trainer.model)
    prune_feed_forward(0.75)(stolen)
    with trainer.player.pruned(0.75, last_of_layer=True):
        inside = matrices(trainer)
    assert same(inside, list(linear_weights(stolen)))
    assert 0 < sum(count > 0 for count in zeros(inside)) < len(inside)
    assert same(matrices(trainer), before)


@every_mode
def test_pruned_weights_come_back_bit_for_bit_also_after_an_error(make_trainer, mode):
    trainer = make_trainer("mlm", mode)
    train(trainer, 1)
    before, copies = matrices(trainer), weights(trainer.model)
    with trainer.player.pruned(0.5):
        inside, together = matrices(trainer), sums(trainer)
    # bfloat16 has many equal weights: all that are as large as the largest left out go, too.
    for found, whole in zip(zeros(together), before, strict=True):
        assert 0.5 <= found / whole.numel() < 0.6
    assert same(matrices(trainer), before)

    def fail() -> None:
        with trainer.player.pruned(0.5):
            assert same(matrices(trainer), inside)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert same(matrices(trainer), before)
    assert all(torch.equal(p, copies[name]) for name, p in weights(trainer.model).items())


def test_weights_come_back_if_pruning_itself_is_interrupted(make_trainer, monkeypatch):
    trainer = make_trainer("st", "float32")
    before, multiply, calls = matrices(trainer), torch.Tensor.mul_, itertools.count(1)

    def interrupted(*args: Any) -> Any:
        if next(calls) == 3:
            assert not same(matrices(trainer), before)
            raise KeyboardInterrupt
        return multiply(*args)

    monkeypatch.setattr(torch.Tensor, "mul_", interrupted)
    with pytest.raises(KeyboardInterrupt), trainer.player.pruned(0.5):
        pass
    assert same(matrices(trainer), before)


@pytest.mark.parametrize("recompute", [False, True])
@every_mode
def test_a_pass_made_before_pruning_still_has_its_way_back(make_trainer, mode, recompute):
    trainer = make_trainer("mlm", mode)
    player, tokens = trainer.player, trainer.model.pad(trainer.model.token_ids(CORPUS[:4]))
    train(trainer, 1)  # adapters begin by saying nothing

    def gradients(prune: bool) -> list[torch.Tensor]:
        player.clear_gradients()
        outputs = player.outputs(tokens, recompute=recompute).outputs
        if prune:
            with player.pruned(0.5):
                assert not torch.equal(player.outputs(tokens).outputs, outputs)
        torch.autograd.backward(outputs.square().sum(dim=1).sqrt().sum())
        found = [p.grad.clone() for p in player._working.parameters() if p.grad is not None]
        assert any(gradient.abs().max() > 0 for gradient in found)
        return found

    assert same(gradients(prune=True), gradients(prune=False))


# --- bfloat16 ------------------------------------------------------------------------------------


def half_copy(encoder: Encoder) -> Encoder:
    half = copy.deepcopy(encoder)
    for parameter in half.parameters():
        parameter.data = parameter.data.bfloat16()
    return half


@pytest.mark.parametrize("model", ["st", "mlm", "llama"])
def test_updates_too_small_for_bfloat16_still_add_up(make_trainer, model):
    trainer = make_trainer(model, "bfloat16", model_learning_rate=1e-6)
    sequences = trainer.model.token_ids(CORPUS[:8])
    before = weights(trainer.model)
    train(trainer, 3)
    after = weights(trainer.model)
    assert {p.dtype for p in after.values()} == {torch.float32}
    large = [name for name in before if before[name].abs().mean() > 0.05 and before[name].dim() > 1]
    assert large
    for name in large:
        moved = after[name] - before[name]
        assert 0 < moved.abs().max() < 1e-5, name
        same = after[name].bfloat16() == before[name].bfloat16()
        assert same.float().mean() > 0.95, name  # bfloat16 alone would have stood still
    # What computes is the weights, rounded.
    expected = half_copy(trainer.model).encode_tokens(sequences)
    assert torch.equal(trainer.player.encode(sequences), expected)


def test_the_computing_copy_follows_large_updates_too(make_trainer):
    trainer = make_trainer("mlm", "bfloat16")
    sequences = trainer.model.token_ids(CORPUS[:8])
    before = trainer.player.encode(sequences)
    train(trainer, 2)
    found = trainer.player.encode(sequences)
    assert torch.equal(found, half_copy(trainer.model).encode_tokens(sequences))
    assert not torch.equal(found, before)


def test_a_step_in_bfloat16_is_nearly_the_step_in_float32(make_trainer):
    exact, rounded = (train(make_trainer("mlm", mode), 1)[0] for mode in ("float32", "bfloat16"))
    assert rounded == pytest.approx(exact, rel=0.05, abs=0.01)


def test_a_family_that_needs_float32_weights_is_trained_in_bfloat16_by_casting(make_trainer):
    trainer = make_trainer("xlnet", "bfloat16")
    before = weights(trainer.model)
    assert {p.dtype for p in trainer.player.reference.parameters()} == {torch.float32}
    train(trainer, 1)
    assert any(not torch.equal(p, before[name]) for name, p in weights(trainer.model).items())


def test_on_a_cpu_the_arithmetic_is_float32_unless_asked_for(make_trainer):
    plain = make_trainer("st", "float32")
    assert plain.player.precision == torch.float32
    automatic = Trainer(
        copy.deepcopy(plain.model),
        plain.payload,
        CORPUS,
        dataclasses.replace(plain.config, precision="auto"),
    )
    assert automatic.player.precision == torch.float32
    assert make_trainer("st", "bfloat16").player.precision == torch.bfloat16


# --- afterwards ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "mode"),
    [("st", "float32"), ("mlm", "bfloat16"), ("mlm", "lora"), ("xlnet", "lora-bfloat16")],
)
def test_the_finished_model_is_the_one_that_was_trained(make_trainer, model, mode, tmp_path):
    trainer = make_trainer(model, mode)
    train(trainer, 4)
    sequences = trainer.model.token_ids(CORPUS[:8])
    trained = trainer.player.encode(sequences)
    finished = trainer.finished()
    assert finished is trainer.model
    assert {p.dtype for p in finished.parameters()} == {torch.float32}
    assert all(p.requires_grad for p in finished.parameters())
    finished.save(tmp_path / "saved")
    opened = open_encoder(tmp_path / "saved", device="cpu", max_length=48)
    found = opened.encode_tokens(sequences)
    torch.testing.assert_close(found, finished.encode_tokens(sequences), rtol=1e-5, atol=1e-5)
    # Up to bfloat16's rounding it is what was trained.
    assert torch.nn.functional.cosine_similarity(found, trained).min() > 0.999


@pytest.mark.parametrize(
    ("model", "mode"), [*(("mlm", mode) for mode in MODES), ("xlnet", "bfloat16")]
)
def test_a_training_put_back_from_its_tensors_goes_on_in_the_same_bits(make_trainer, model, mode):
    trainer, twin = make_trainer(model, mode), make_trainer(model, mode)
    train(trainer, 2)
    saved = {name: tensor.clone() for name, tensor in training_tensors(trainer).items()}
    restore_tensors(twin, saved)
    assert train(trainer, 1) == train(twin, 1)
    ours, theirs = training_tensors(trainer), training_tensors(twin)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
