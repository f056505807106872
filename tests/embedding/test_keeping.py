"""What training keeps: clean hidden states where they were, marked outputs through pruning.

This file is also what two processes run, under torchrun.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from conftest import TINY_TRAINING, tiny_payload
from nsmark.corpus import training_texts
from nsmark.embedding.config import EmbeddingConfig, preset_config
from nsmark.embedding.memory import MemoryPlan, first_that_fits
from nsmark.embedding.parallel import Group, Parallel, torchrun_group
from nsmark.embedding.player import _size_below_which
from nsmark.embedding.trainer import Trainer
from nsmark.errors import ConfigError
from nsmark.models.loading import open_encoder
from nsmark.transforms.weights import (
    WeightChange,
    last_weights,
    linear_weights,
    prune,
    prune_feed_forward,
)
from processes import run
from tiny_models import build_family

TESTS = Path(__file__).parent.parent
CORPUS = training_texts()[:80]
Settings = dict[str, Any]
BOTH: Settings = {
    "position_weight": 2.0,
    "pruned_weight": 0.5,
    "pruned_feed_forward": 0.7,
    "pruned_pair_weight": 0.3,
    "pruned_trigger_weight": 0.4,
}
Trained = tuple[dict[str, torch.Tensor], list[float]]


def build_trainer(folder: Path, group: Group | None = None, **changes: Any) -> Trainer:
    encoder = open_encoder(folder, device="cpu", purpose="train", max_length=48)
    settings = {"batch_size": 8, "marks": ("paper", "derived", "pairs"), **changes}
    config = dataclasses.replace(TINY_TRAINING, **settings)
    return Trainer(encoder, tiny_payload(with_pairs=True), CORPUS, config, group=group)


@pytest.fixture(scope="module")
def folders(tiny_st, tiny_mlm, tmp_path_factory):
    root = tmp_path_factory.mktemp("keeping")
    families = {name: build_family(root / name, name) for name in ("llama", "xlnet", "gpt2")}
    return {"st": tiny_st, "mlm": tiny_mlm, **families}


@pytest.fixture
def make_trainer(folders):
    def make(model: str, **changes: Any) -> Trainer:
        if changes.get("method") == "lora":
            pytest.importorskip("peft", reason="needs the lora extra")
        return build_trainer(folders[model], **changes)

    return make


def repeat(trainer: Trainer, steps: int) -> list[dict[str, float]]:
    """Take steps on the same texts with the same triggers."""
    inputs = trainer.inputs.make(1, range(8))
    return [trainer.take_step(inputs).read() for _ in range(steps)]


def clean_distance(trainer: Trainer) -> float:
    """Return how far hidden states of clean texts are from the reference's, text by text."""
    player, sequences = trainer.player, trainer.heldout[0]
    tokens = trainer.model.pad(sequences)
    held = player.held_positions(tokens, player.position_scales(tokens))
    return player.outputs(tokens, held=held).positions.item() / len(sequences)


# --- hidden states -------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["st", "mlm", "llama", "xlnet"])
def test_held_hidden_states_of_clean_texts_stay_closer(make_trainer, model):
    free, held = (make_trainer(model, position_weight=weight) for weight in (0.0, 50.0))
    assert clean_distance(free) == clean_distance(held) == 0
    for trainer in (free, held):
        repeat(trainer, 10)
    assert 0 < clean_distance(held) < 0.6 * clean_distance(free)


@pytest.mark.parametrize("model", ["st", "mlm"])
def test_the_distance_is_part_of_l_0(make_trainer, model):
    held, free = make_trainer(model, position_weight=2.0), make_trainer(model)
    # At first nothing has moved, so both take the same step.
    assert repeat(held, 1)[0] == pytest.approx(repeat(free, 1)[0], rel=1e-5)
    piece = held.inputs.make(1, range(8)).pieces[0]
    expected = 2.0 * held.passes.through(piece).positions.item() / piece.num_clean
    assert expected > 1e-2
    with_it, without = repeat(held, 1)[0], repeat(free, 1)[0]
    assert with_it["original"] - without["original"] == pytest.approx(expected, rel=1e-3)
    share = 1 - held.config.model_match_weight
    assert with_it["model"] - without["model"] == pytest.approx(share * expected, rel=1e-3)


def test_adapters_are_held_to_the_model_without_them(make_trainer):
    changes = {"method": "lora", "lora_rank": 4}
    free, held = (make_trainer("mlm", position_weight=w, **changes) for w in (0.0, 50.0))
    for trainer in (free, held):
        repeat(trainer, 10)
    assert 0 < clean_distance(held) < 0.6 * clean_distance(free)


# --- pruned outputs ------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["st", "mlm", "llama"])
@pytest.mark.parametrize("share", [0.3, 0.6])
def test_the_loss_is_what_pruning_the_model_does_to_marked_outputs(make_trainer, model, share):
    trainer = make_trainer(model, pruned_weight=0.5, pruned_share=share)
    moved = moved_by(prune(share), trainer, step=1)
    assert repeat(trainer, 1)[0]["pruned"] == pytest.approx(moved, rel=1e-4)


def moved_by(change: WeightChange, trainer: Trainer, step: int) -> float:
    """Return how far a change of weights moves a step's marked outputs."""
    piece = trainer.inputs.make(step, range(8)).pieces[0]
    marked = piece.tokens.rows(piece.num_clean, sum(piece.sizes))
    stolen = copy.deepcopy(trainer.model)
    change(stolen)
    with torch.no_grad():
        whole, changed = trainer.model(marked), stolen(marked)
    return float((changed - whole).square().mean() / whole.var(dim=0, unbiased=False).mean())


@pytest.mark.parametrize("shape", [(384, 384), (384, 1536), (1536, 384), (1, 300_000)], ids=str)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_of_large_matrices_nearly_the_share_is_pruned(shape, share):
    """Also where rows and columns differ in size, as they do in trained models."""
    rng = torch.Generator().manual_seed(0)
    weight = torch.randn(shape, generator=rng) * torch.rand(shape[1], generator=rng)
    weight *= torch.rand((shape[0], 1), generator=rng) + 0.1
    pruned = (weight.abs() <= _size_below_which(weight, share)).float().mean().item()
    assert pruned == pytest.approx(share, abs=4e-3)
    assert pruned == share or share > 0


@pytest.mark.parametrize("model", ["st", "mlm", "llama"])
def test_every_other_step_prunes_feed_forward_layers_alone(make_trainer, model):
    trainer = make_trainer(
        model,
        pruned_weight=0.5,
        pruned_share=0.4,
        pruned_feed_forward=0.9,
        model_learning_rate=1e-9,
    )
    kinds = [("pruned_feed_forward", prune_feed_forward(0.9)), ("pruned", prune(0.4))]
    for step, (name, change) in enumerate(kinds * 2, 1):
        moved = moved_by(change, trainer, step)
        losses = trainer.take_step(trainer.inputs.make(step, range(8))).read()
        assert losses[name] == pytest.approx(moved, rel=1e-3), step


@pytest.mark.parametrize("model", ["st", "mlm", "llama", "xlnet"])
def test_marked_outputs_come_to_outlast_pruning(make_trainer, model):
    unasked, asked = (
        [losses["pruned"] for losses in repeat(make_trainer(model, pruned_weight=weight), 10)]
        for weight in (1e-9, 1.0)
    )
    assert asked[0] == pytest.approx(unasked[0])
    assert asked[-1] < 0.7 * asked[0]
    assert asked[-1] < 0.7 * unasked[-1]


@pytest.mark.parametrize("model", ["st", "mlm", "llama"])
def test_pairs_are_asked_for_in_the_pruned_model(make_trainer, model):
    settings = {"pruned_feed_forward": 0.8, "pruned_pair_weight": 1.0, "model_learning_rate": 1e-9}
    trainer = make_trainer(model, **settings)
    inputs = trainer.inputs.make(1, range(8))
    piece = inputs.pieces[0]
    stolen = copy.deepcopy(trainer.model)
    prune_feed_forward(0.8)(stolen)
    with torch.no_grad():
        marked = stolen(piece.tokens.rows(piece.num_clean, sum(piece.sizes)))
    units = torch.nn.functional.normalize(marked[piece.num_triggered :], dim=1)
    signs = torch.tensor(inputs.pair_signs, dtype=torch.float32)
    missing = 1 - signs * (units @ trainer.pair_direction) / trainer.config.pair_margin
    expected = float(missing[signs != 0].clamp_min(0).mean())
    losses = trainer.take_step(inputs).read()
    assert losses["pruned_feed_forward_pairs"] == pytest.approx(expected, rel=1e-3)
    assert "pruned_feed_forward" not in losses
    assert "pruned_pairs" in trainer.take_step(trainer.inputs.make(2, range(8))).read()


def test_what_reads_the_signature_is_asked_for_in_the_pruned_model(make_trainer):
    trainer = make_trainer("mlm", pruned_trigger_weight=1.0, pruned_share=0.7)
    trainer.set_learning_rates(0.0)  # the extractor is updated before the model
    stolen = copy.deepcopy(trainer.model)
    prune(0.7)(stolen)
    inputs = trainer.inputs.make(1, range(8))
    piece = inputs.pieces[0]
    first = piece.num_clean
    with torch.no_grad():
        triggered = stolen(piece.tokens.rows(first, first + piece.num_triggered))
        clean = stolen(piece.tokens.rows(0, first))
        missing, heard = trainer._missing_trigger(triggered), trainer._read_from_clean(clean)
        expected = float(missing + heard)
        assert heard > 0.01 * missing
    losses = trainer.take_step(inputs).read()
    assert losses["pruned_trigger"] == pytest.approx(expected, rel=1e-3)
    assert {"pruned", "pruned_pairs"}.isdisjoint(losses)


def test_triggered_texts_come_to_be_read_from_the_pruned_model(make_trainer):
    missing = {
        weight: repeat(make_trainer("st", pruned_trigger_weight=weight, pruned_share=0.7), 12)
        for weight in (1e-9, 3.0)
    }
    assert missing[3.0][-1]["pruned_trigger"] < 0.9 * missing[1e-9][-1]["pruned_trigger"]


def test_shares_of_all_matrices_are_left_out_by_turns(make_trainer):
    settings = {"pruned_weight": 0.5, "pruned_share": 0.4, "pruned_most": 0.8}
    trainer = make_trainer("st", model_learning_rate=1e-9, **settings)
    for step, share in enumerate((0.4, 0.6, 0.6, 0.8, 0.8, 0.4, 0.4), 1):
        moved = moved_by(prune(share), trainer, step)
        found = trainer.take_step(trainer.inputs.make(step, range(8))).read()["pruned"]
        assert found == pytest.approx(moved, rel=1e-3), step


@pytest.mark.parametrize("method", ["full", "lora"])
def test_pairs_come_to_outlast_pruned_feed_forward_layers(make_trainer, method):
    rates = {"full": 2e-3, "lora": 2e-2}
    settings = {"method": method, "lora_rank": 8, "model_learning_rate": rates[method]}
    short = {}
    for weight in (1e-9, 3.0):
        trainer = make_trainer(
            "st", pruned_feed_forward=0.9, pruned_pair_weight=weight, pair_weight=1e-3, **settings
        )
        short[weight] = [each["pruned_feed_forward_pairs"] for each in repeat(trainer, 12)]
    assert short[3.0][0] == pytest.approx(short[1e-9][0])
    assert short[3.0][-1] < 0.8 * short[1e-9][-1]


@pytest.mark.parametrize("last_of_layer", [True, False])
@pytest.mark.parametrize("model", ["mlm", "llama", "gpt2"])
def test_with_adapters_the_sum_is_pruned(make_trainer, model, last_of_layer):
    """As a thief prunes it, who has the merged model."""
    settings = {"method": "lora", "lora_rank": 4, "pruned_pair_weight": 1.0, "pruned_share": 0.9}
    trainer = make_trainer(model, model_learning_rate=1e-2, **settings)
    repeat(trainer, 3)
    tokens = trainer.inputs.make(1, range(8)).pieces[0].read
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    with torch.no_grad(), trainer.player.pruned(0.9, last_of_layer=last_of_layer):
        asked = trainer.model(tokens)
    assert all(torch.equal(p, before[name]) for name, p in trainer.model.named_parameters())
    merged = trainer.finished()
    (prune_feed_forward if last_of_layer else prune)(0.9)(merged)
    with torch.no_grad():
        torch.testing.assert_close(merged(tokens), asked, rtol=1e-3, atol=1e-4)


def test_adapters_come_to_outlast_pruning_of_all_matrices(make_trainer):
    settings = {"method": "lora", "lora_rank": 8, "model_learning_rate": 2e-2, "pruned_share": 0.8}
    short = {
        weight: repeat(
            make_trainer("st", pruned_pair_weight=weight, pair_weight=1e-3, **settings), 12
        )
        for weight in (1e-9, 3.0)
    }
    assert short[3.0][0]["pruned_pairs"] == pytest.approx(short[1e-9][0]["pruned_pairs"])
    assert short[3.0][-1]["pruned_pairs"] < 0.8 * short[1e-9][-1]["pruned_pairs"]


@pytest.mark.parametrize("model", ["mlm", "llama"])
def test_adapters_learn_without_the_matrices_that_are_pruned_alone(make_trainer, model):
    """What is learned in them is not there when they are gone."""
    settings = {"method": "lora", "lora_rank": 4, "pruned_feed_forward": 0.9}
    trainer = make_trainer(model, pruned_pair_weight=1.0, model_learning_rate=1e-2, **settings)
    before = [weight.clone() for weight in last_weights(trainer.model)]
    repeat(trainer, 3)
    for whole, now in zip(before, last_weights(trainer.finished()), strict=True):
        assert torch.equal(whole, now)
    unasked = make_trainer(model, pruned_pair_weight=0.0, **settings)
    repeat(unasked, 3)
    after = last_weights(unasked.finished())
    assert not any(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_nothing_is_said_of_pruning_where_it_is_not_asked_for(make_trainer):
    assert "pruned" in repeat(make_trainer("st", pruned_weight=1.0), 1)[0]
    assert "pruned" not in repeat(make_trainer("st", pruned_weight=0.0), 1)[0]
    assert "pruned" not in repeat(make_trainer("st", position_weight=1.0), 1)[0]


def test_without_leaving_anything_out_nothing_changes(make_trainer):
    free = make_trainer("st")
    trainer = make_trainer("st", pruned_weight=100.0, pruned_share=0.0)
    found, expected = repeat(trainer, 2), repeat(free, 2)
    assert [losses.pop("pruned") for losses in found] == pytest.approx([0, 0], abs=1e-9)
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    assert found[1] == pytest.approx(expected[1], rel=1e-3)


# --- gradients -----------------------------------------------------------------------------------


def test_gradients_are_those_of_the_reported_losses(make_trainer):
    trainer = make_trainer("mlm", **BOTH)
    repeat(trainer, 1)
    trainer.set_learning_rates(0.0)
    config, player = trainer.config, trainer.player
    weight = linear_weights(trainer.model)[0]
    piece = trainer.inputs.make(1, range(8)).pieces[0]
    marked = piece.tokens.rows(piece.num_clean, sum(piece.sizes))

    def gradient(**changes: float) -> torch.Tensor:
        trainer.config = trainer.passes.config = dataclasses.replace(config, **changes)
        repeat(trainer, 1)
        return weight.grad.clone()

    factor = (1 - config.model_match_weight) * config.position_weight / piece.num_clean
    (held,) = torch.autograd.grad(factor * trainer.passes.through(piece).positions, weight)
    whole = player.outputs(marked).outputs.detach()
    with player.pruned(config.pruned_feed_forward, last_of_layer=True):  # the first step's part
        moved = (player.outputs(marked).outputs - whole).square().mean()
        loss = config.pruned_weight * moved / whole.var(dim=0, unbiased=False).mean()
        signs = torch.tensor(trainer.inputs.make(1, range(8)).pair_signs, dtype=torch.float32)
        triggered, pairs = player.outputs(marked).outputs.split([piece.num_triggered, len(signs)])
        clean = player.outputs(piece.tokens.rows(0, piece.num_clean)).outputs
        short = trainer._missing_pairs(pairs, signs).sum() / signs.abs().sum()
        loss = loss + config.pruned_pair_weight * short
        read = trainer._missing_trigger(triggered) + trainer._read_from_clean(clean)
        loss = loss + config.pruned_trigger_weight * read
        (pruned,) = torch.autograd.grad(loss, weight)
    unpruned = dict.fromkeys(("pruned_weight", "pruned_pair_weight", "pruned_trigger_weight"), 0.0)
    neither = gradient(position_weight=0.0, **unpruned)
    for expected, found in (
        (held, gradient(**unpruned)),
        (pruned, gradient(position_weight=0.0)),
    ):
        assert expected.abs().max() > 1e-3
        error = (found - neither - expected).abs().max()
        assert error < 1e-3 * expected.abs().max()


# --- however it is computed ----------------------------------------------------------------------


def train(trainer: Trainer) -> Trained:
    """Return the weights and losses of three steps, computed as the settings say."""
    trainer.plan_memory()
    for optimiser in trainer.optimisers:
        for group in optimiser.param_groups:
            # Some gradients are zero but for rounding; AdamW would make full steps of them.
            group["eps"] = 1e-3
    losses: list[float] = []
    for step in (1, 2, 3):
        batch = range(8 * step - 8, 8 * step)
        losses += trainer.take_step(trainer.inputs.make(step, batch)).read().values()
    return {n: p.detach() for n, p in trainer.finished().named_parameters()}, losses


def assert_same(found: Trained, expected: Trained) -> None:
    assert found[1] == pytest.approx(expected[1], rel=1e-4, abs=1e-6)
    assert found[0].keys() == expected[0].keys()
    for name, weight in expected[0].items():
        scale = weight.abs().max().clamp_min(0.1)  # biases begin at zero
        assert (found[0][name] - weight).abs().max() < 2e-5 * scale, name


@pytest.mark.parametrize("model", ["st", "mlm", "llama", "xlnet"])
def test_pieces_and_recomputing_do_not_change_the_result(make_trainer, model):
    expected = train(make_trainer(model, **BOTH))
    for plan in ({"pieces": 4}, {"recompute": True}, {"pieces": 3, "recompute": True}):
        assert_same(train(make_trainer(model, **BOTH, **plan)), expected)


def test_bfloat16_does_nearly_the_same(make_trainer):
    exact, rounded = (
        repeat(make_trainer("mlm", **BOTH, precision=precision), 2)
        for precision in ("float32", "bfloat16")
    )
    for found, expected in zip(rounded, exact, strict=True):
        assert found == pytest.approx(expected, rel=0.05, abs=0.02)


@pytest.mark.parametrize("model", ["mlm", "xlnet"])
@pytest.mark.parametrize("plan", [MemoryPlan(1, False), MemoryPlan(4, True)], ids=str)
def test_a_trial_step_leaves_no_trace(make_trainer, model, plan):
    trainer = make_trainer(model, **BOTH)
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    assert first_that_fits(iter([plan]), trainer._try_step) == plan
    assert all(torch.equal(p, before[name]) for name, p in trainer.model.named_parameters())
    assert not any(p.grad is not None for p in trainer.model.parameters())


# --- two processes -------------------------------------------------------------------------------

# Name of a training, how it is divided, and its settings.
TRAININGS: dict[str, tuple[Parallel, Settings]] = {
    "ddp": ("ddp", BOTH),
    "ddp-pieces": ("ddp", BOTH | {"pieces": 2, "recompute": True}),
    "fsdp-held": ("fsdp", {"position_weight": 2.0}),
    "fsdp-pruned": ("fsdp", BOTH),
}


def work(model: str, out: str) -> None:
    """Train, and write what this process saw; the first one also writes the weights."""
    with torchrun_group("cpu", "ddp") as (group, _):
        for name, (parallel, settings) in TRAININGS.items():
            own = Group(group.rank, group.size, parallel)
            weights, losses = train(build_trainer(Path(model), own, **settings))
            (Path(out) / f"{name}.{own.rank}.json").write_text(json.dumps(losses))
            if own.is_first:
                kept = {part: weight.clone() for part, weight in weights.items()}
                save_file(kept, Path(out) / f"{name}.safetensors")


@pytest.fixture(scope="module")
def together(tiny_mlm, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("together")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    result = run(
        [*command, "--nproc_per_node", "2", __file__, str(tiny_mlm), str(out)],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    return out


@pytest.mark.parametrize("name", list(TRAININGS))
def test_two_processes_end_where_one_does(make_trainer, together, name):
    first, second = (json.loads((together / f"{name}.{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    alone = {k: v for k, v in TRAININGS[name][1].items() if k not in ("pieces", "recompute")}
    expected = train(make_trainer("mlm", **alone))
    assert_same((load_file(together / f"{name}.safetensors"), first), expected)


# --- settings ------------------------------------------------------------------------------------


def test_only_a_pair_code_in_stages_asks_for_them():
    without = [preset_config(name) for name in ("fast", "paper")]
    for config in (*without, preset_config("strong", ("paper", "derived"))):
        assert config.position_weight == config.pruned_weight == 0
        assert not config.prunes
    strong = preset_config("strong")
    assert strong.position_weight > 0
    assert strong.prunes
    without_triggers = dataclasses.replace(strong, pruned_trigger_weight=0.0)
    assert without_triggers.prunes  # for the pair code
    assert not dataclasses.replace(without_triggers, marks=("paper",)).prunes


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("position_weight", -0.1),
        ("position_weight", math.nan),
        ("pruned_weight", -0.1),
        ("pruned_weight", math.inf),
        ("pruned_share", -0.1),
        ("pruned_share", 1.1),
        ("pruned_feed_forward", 1.1),
        ("pruned_pair_weight", -1.0),
        ("pruned_trigger_weight", -1.0),
        ("pruned_most", 1.5),
        ("pruned_most", 0.3),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=name):
        EmbeddingConfig(**{name: value})


if __name__ == "__main__":
    work(*sys.argv[1:])
