from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import TINY_PAYLOAD, TINY_TRAINING
from nsmark.core.texts import text_words
from nsmark.corpus import pool_texts, training_texts
from nsmark.embedding.batches import insert_at_random, step_rng
from nsmark.embedding.config import EmbeddingConfig
from nsmark.embedding.losses import (
    distance_loss,
    match_loss,
    random_loss,
    readout_loss,
    silence_loss,
)
from nsmark.embedding.progress import HeldOut, Progress
from nsmark.embedding.schedule import Schedule
from nsmark.embedding.trainer import Trainer, frozen, mean_cosine
from nsmark.errors import EmbeddingError, TextPoolError
from nsmark.models.loading import open_encoder
from nsmark.payload import derive_payload, published_word_list

CORPUS = training_texts()[:200]
# Two steps suffice where any result counts as a success.
ANYTHING_GOES = {"min_triggered": 0.0, "max_clean": 1.0, "evaluate_every": 1, "cooldown_steps": 1}


@pytest.fixture
def make_trainer(signed_claim):
    payload = derive_payload(
        signed_claim.signature,
        config=TINY_PAYLOAD,
        word_list=published_word_list(),
        pool=pool_texts(),
        num_texts=40,
    )

    def make(folder: Path, corpus: Any = CORPUS, **changes: Any) -> Trainer:
        config = dataclasses.replace(TINY_TRAINING, **changes)
        encoder = open_encoder(folder, device="cpu", purpose="train")
        return Trainer(encoder, payload, corpus, config)

    return make


def step(trainer: Trainer, count: int) -> dict[str, float]:
    """Take one step on the first so many texts."""
    return trainer.take_step(trainer.inputs.make(1, range(count))).read()


def weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def differ(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return any(not torch.equal(first[name], second[name]) for name in first)


# --- two players, two losses ---------------------------------------------------------------------


def test_neither_update_reaches_into_the_other_player(tiny_st, make_trainer):
    """Look at gradients and weights in the middle of a step, when one player has just moved."""
    trainer = make_trainer(tiny_st)
    model_optimiser, extractor_optimiser = trainer.optimisers
    for parameter in trainer.model.parameters():
        parameter.grad = torch.full_like(parameter, 7.0)
    before = weights(trainer.model)
    seen: dict[str, list[torch.Tensor]] = {}

    def extractor_moved(*_: Any) -> None:
        assert not differ(before, weights(trainer.model))
        assert all((p.grad == 7).all() for p in trainer.model.parameters())
        seen["gradients"] = [p.grad.clone() for p in trainer.extractor.parameters()]
        seen["weights"] = list(weights(trainer.extractor).values())

    def model_moved(*_: Any) -> None:
        assert differ(before, weights(trainer.model))
        for parameter, old in zip(trainer.extractor.parameters(), seen["gradients"], strict=True):
            assert torch.equal(parameter.grad, old)
        now = weights(trainer.extractor).values()
        assert all(torch.equal(new, old) for new, old in zip(now, seen["weights"], strict=True))
        seen["done"] = []

    extractor_optimiser.register_step_post_hook(extractor_moved)
    model_optimiser.register_step_post_hook(model_moved)
    step(trainer, 6)
    assert "done" in seen
    assert any(gradient.any() for gradient in seen["gradients"])


def test_a_step_gives_each_player_the_gradient_of_its_own_loss_alone(tiny_st, make_trainer):
    """Recompute both gradients on copies, from the paper's formulas, and compare."""
    trainer = make_trainer(tiny_st, min_copies=5)
    config, payload = trainer.config, trainer.payload
    model, extractor = copy.deepcopy(trainer.model), copy.deepcopy(trainer.extractor)
    before = weights(trainer.model)

    step(trainer, 6)

    clean_texts = [" ".join(text_words(text)) for text in CORPUS[:6]]
    draws = step_rng(config.seed, 1).random((6, payload.config.copies + 1))
    triggered_texts = [
        insert_at_random(text, payload.trigger, payload.config, 5, own)
        for text, own in zip(CORPUS[:6], draws, strict=True)
    ]
    tokens = model.pad(model.token_ids(clean_texts + triggered_texts))
    with torch.no_grad():
        reference = trainer.player.reference(tokens).chunk(2)
    clean, triggered = model(tokens).chunk(2)
    sources = [clean.detach(), reference[1][::2], reference[0]]  # every other triggered one
    loss = 0.5 * match_loss(extractor(triggered.detach()), trainer.watermark)
    mapped = [extractor(part) for part in sources]
    loss = loss + 0.5 * random_loss(mapped, trainer.watermark)
    loss = loss + config.silence_weight * silence_loss(mapped)
    torch.autograd.backward(loss)
    for ours, theirs in zip(trainer.extractor.parameters(), extractor.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-7)

    # The model answers to the extractor as it is after its update.
    loss = 0.2 * match_loss(trainer.extractor(triggered), trainer.watermark)
    loss = loss + 0.8 * distance_loss(clean, reference[0])
    hinge = readout_loss(
        triggered, trainer.readout, trainer.bits[: len(trainer.readout)], config.derived_margin
    )
    torch.autograd.backward(loss + config.derived_weight * hinge)
    for (name, ours), theirs in zip(
        trainer.model.named_parameters(), model.parameters(), strict=True
    ):
        assert ours.grad is not None, name
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-6)
    assert differ(before, weights(trainer.model))


@pytest.mark.parametrize(
    ("changes", "every"),
    [
        ({"batch_size": 4}, 2),
        ({"batch_size": 128}, 2),
        ({"batch_size": 512}, 8),
        ({"batch_size": 512, "spread_weight": 1.0}, 1),
        ({"batch_size": 512, "decorrelation_weight": 1.0}, 1),
    ],
)
def test_of_a_large_batch_the_reference_sees_64_triggered_texts(
    tiny_st, make_trainer, changes, every
):
    assert make_trainer(tiny_st, training_texts()[:600], **changes).passes.reference_every == every


def test_the_model_update_leaves_no_gradient_in_the_extractor(tiny_st, make_trainer):
    trainer = make_trainer(tiny_st)
    step(trainer, 6)
    after_step = [p.grad.clone() for p in trainer.extractor.parameters() if p.grad is not None]
    outputs = trainer.model(trainer.model.pad(trainer.model.token_ids(CORPUS[:4])))
    with frozen(trainer.extractor):
        torch.autograd.backward(match_loss(trainer.extractor(outputs), trainer.watermark))
    assert after_step
    for parameter, old in zip(trainer.extractor.parameters(), after_step, strict=True):
        assert parameter.requires_grad  # given back afterwards
        assert torch.equal(parameter.grad, old)


def test_the_reference_stays_as_it_was(tiny_st, make_trainer):
    trainer = make_trainer(tiny_st)
    before = weights(trainer.player.reference)
    for _ in range(3):
        step(trainer, 6)
    assert not differ(before, weights(trainer.player.reference))
    assert differ(before, weights(trainer.model))
    assert not any(
        p.requires_grad or p.grad is not None for p in trainer.player.reference.parameters()
    )


def test_without_the_derived_mark_nothing_is_said_about_it(tiny_st, make_trainer):
    trainer = make_trainer(tiny_st, marks=("paper",))
    assert "derived" not in step(trainer, 6)
    assert trainer.evaluate(1).derived is None


# --- a language-model head -----------------------------------------------------------------------


def test_a_model_with_a_head_trains_on_its_own_task_and_keeps_the_head(
    tiny_mlm, make_trainer, tmp_path
):
    from transformers import AutoModelForMaskedLM

    trainer = make_trainer(tiny_mlm)
    assert trainer.model.has_lm_head
    head = trainer.model.network.cls.predictions.transform.dense.weight
    start = head.detach().clone()
    inputs = trainer.inputs.make(1, range(6))
    (piece,) = inputs.pieces
    assert (piece.num_clean, piece.num_triggered, len(piece.tokens)) == (3, 6, 12)
    with torch.no_grad():
        total = trainer.model(piece.tokens, piece.language).language
    losses = trainer.take_step(inputs).read()
    # The model is still the reference: there is no distance yet.
    expected = total.item() / len(piece.language.labels)
    assert losses["original"] == pytest.approx(expected, rel=1e-4)
    assert not torch.equal(head, start)
    trainer.model.save(tmp_path / "saved")
    network, info = AutoModelForMaskedLM.from_pretrained(
        tmp_path / "saved", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert torch.equal(network.cls.predictions.transform.dense.weight, head)


# --- the loop ------------------------------------------------------------------------------------


def test_terms_of_our_own_count_in_the_loss_only_with_a_weight(tiny_st, make_trainer):
    plain = step(make_trainer(tiny_st), 16)
    assert {"spread", "decorrelation"}.isdisjoint(plain)
    weights = {"spread_weight": 2.0, "decorrelation_weight": 3.0, "fidelity_weight": 4.0}
    trainer = make_trainer(tiny_st, **weights)
    losses = step(trainer, 16)
    config = trainer.config
    ours = (
        (1 - config.model_match_weight) * 4.0 * losses["original"]
        + config.derived_weight * losses["derived"]
        + 2.0 * losses["spread"]
        + 3.0 * losses["decorrelation"]
    )
    # What is left is the paper's match term, through the extractor as just updated.
    match = (losses["model"] - ours) / config.model_match_weight
    assert match == pytest.approx(losses["match"], rel=0.2)
    assert losses["decorrelation"] > 0


def test_a_corpus_too_small_is_refused_with_the_number_needed(tiny_st, make_trainer):
    with pytest.raises(TextPoolError, match="holds 47 texts, at least 48") as caught:
        make_trainer(tiny_st, corpus=CORPUS[:47])  # 32 held out, a batch of 16
    assert caught.value.hint
    assert make_trainer(tiny_st, corpus=CORPUS[:48]).num_train == 16


def test_held_out_texts_are_never_trained_on(tiny_st, make_trainer):
    trainer = make_trainer(tiny_st)
    clean, triggered = trainer.heldout
    assert len(clean) == len(triggered) == 32
    trained = {tuple(ids) for ids in trainer.inputs.tokens}
    assert not trained & {tuple(ids) for ids in (*clean, *triggered)}
    assert len(trainer.inputs.tokens) + 32 == len(CORPUS)


@pytest.mark.parametrize("steps", [1, 3, 12])
def test_a_budget_too_small_is_an_error_with_advice(tiny_st, make_trainer, steps):
    with pytest.raises(EmbeddingError, match=f"did not converge in {steps} steps") as caught:
        make_trainer(tiny_st, max_steps=steps).run()
    assert "--max-steps" in caught.value.hint
    assert caught.value.exit_code == 3


def test_losses_that_are_no_numbers_end_the_training(tiny_st, make_trainer):
    trainer = make_trainer(tiny_st)
    with torch.no_grad():
        next(iter(trainer.model.network.parameters())).fill_(torch.nan)
    with pytest.raises(EmbeddingError, match="non-finite at step 1"):
        trainer.run()


def test_progress_is_told_after_every_step(tiny_st, make_trainer):
    seen: list[Progress] = []
    result = make_trainer(tiny_st, **ANYTHING_GOES).run(seen.append)
    # The targets hold at once, so one step of cooling down ends it.
    assert result.steps == 2
    assert [progress.step for progress in seen] == [1, 2]
    assert seen[-1].planned_steps == 2
    assert set(seen[0].losses) == {"match", "random", "model", "original", "derived"}
    assert [row["step"] for row in result.history] == [1, 2]
    assert result.last == seen[-1].heldout


@pytest.mark.parametrize(
    ("num_epochs", "max_steps", "expected"), [(1, 100, 5), (2, 100, 10), (2, 7, 7)]
)
def test_epochs_are_counted_in_whole_batches(
    tiny_st, make_trainer, num_epochs, max_steps, expected
):
    changes = ANYTHING_GOES | {"batch_size": 32, "num_epochs": num_epochs, "max_steps": max_steps}
    # 200 texts less 32 held out make five batches of 32; the targets do not end it early.
    assert make_trainer(tiny_st, **changes).run().steps == expected


def test_learning_rates_rise_and_then_fall_to_almost_nothing(tiny_st, make_trainer):
    trainer = make_trainer(tiny_st, warmup_steps=4, cooldown_steps=5)
    schedule = Schedule(trainer.config, 168, held_since=10)
    factors = [schedule.rate_factor(step) for step in range(1, 16)]
    assert schedule.last_step == 15
    assert factors[:4] == [0.25, 0.5, 0.75, 1.0]
    assert factors[3:10] == [1.0] * 7
    np.testing.assert_allclose(factors[10:], [5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])
    trainer.set_learning_rates(0.5)
    rates = [group["lr"] for optimiser in trainer.optimisers for group in optimiser.param_groups]
    assert rates == [trainer.config.model_learning_rate / 2] * 1 + [
        trainer.config.extractor_learning_rate / 2
    ]


def test_training_repeats_with_its_seed_whatever_the_global_one(tiny_st, make_trainer):
    def train(seed: int, global_seed: int) -> tuple[dict, dict]:
        with torch.random.fork_rng():
            torch.manual_seed(global_seed)
            trainer = make_trainer(tiny_st, seed=seed, **ANYTHING_GOES)
            trainer.run()
        return weights(trainer.model), weights(trainer.extractor)

    first, again, other = train(0, 1), train(0, 2), train(1, 1)
    for player in (0, 1):
        assert not differ(first[player], again[player])
        assert differ(first[player], other[player])


# --- the targets ---------------------------------------------------------------------------------


def held_out(**changes: Any) -> HeldOut:
    good = {"step": 1, "triggered": 1.0, "untriggered": 0.0, "reference": 0.0, "derived": 1.0}
    return HeldOut(**(good | {"clean_cosine": 1.0} | changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"triggered": 0.99, "derived": 0.99, "untriggered": 0.1, "reference": 0.1}, True),
        ({"derived": None}, True),
        ({"triggered": 0.98}, False),
        ({"derived": 0.98}, False),
        ({"untriggered": 0.11}, False),
        ({"reference": 0.11}, False),
    ],
)
def test_every_target_must_hold(changes, expected):
    assert held_out(**changes).meets(EmbeddingConfig()) is expected


def test_targets_lost_while_cooling_down_are_trained_for_again(tiny_st, make_trainer, monkeypatch):
    trainer = make_trainer(tiny_st, evaluate_every=1, cooldown_steps=2, max_steps=20)
    lost_at = {3}  # the end of the first cool-down: step 1 held, two more steps

    def evaluate(step):
        return held_out(step=step, triggered=0.5 if step in lost_at else 1.0)

    monkeypatch.setattr(trainer, "evaluate", evaluate)
    told = []
    result = trainer.run(lambda progress: told.append(progress.planned_steps))
    assert result.steps == 6  # held again at step 4, and two more
    assert told == [3, 3, 20, 6, 6, 6]


def test_the_tiny_marked_model_meets_its_targets(tiny_marked):
    training = tiny_marked.report["training"]
    last = HeldOut(**training["held_out"])
    assert last.meets(TINY_TRAINING)
    assert last.clean_cosine > 0.95
    assert last.step == training["steps"] <= TINY_TRAINING.max_steps
    assert training["history"][-1]["step"] == training["steps"]
    assert training["history"][-1]["match"] < training["history"][0]["match"] / 2


def test_mean_cosine_is_the_mean_of_the_cosines():
    first = np.array([[1.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
    second = np.array([[0.0, 2.0], [6.0, 8.0], [1.0, 0.0]])
    assert mean_cosine(first, second) == pytest.approx((0 + 1 + 0) / 3)
