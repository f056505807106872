"""A step is cut to fit the memory, and gives the same however it is cut."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import TINY_PAYLOAD, TINY_TRAINING
from nsmark.corpus import pool_texts, training_texts
from nsmark.embedding.memory import MemoryPlan, candidate_plans, first_that_fits, peak_memory
from nsmark.embedding.trainer import Trainer
from nsmark.errors import EmbeddingError
from nsmark.models.loading import open_encoder
from nsmark.payload import derive_payload, published_word_list
from tiny_models import build_family

# --- plans ---------------------------------------------------------------------------------------


@given(
    data=st.data(), batch_size=st.integers(1, 300), recompute=st.sampled_from([None, False, True])
)
@settings(max_examples=150, deadline=None)
def test_plans_go_from_the_fastest_to_the_leanest(data, batch_size, recompute):
    pieces = data.draw(st.none() | st.integers(1, batch_size))
    plans = list(candidate_plans(batch_size, pieces, recompute))
    assert plans[0] == MemoryPlan(pieces or 1, recompute or False)
    assert all(1 <= plan.pieces <= batch_size for plan in plans)
    # Each is leaner than the one before: more pieces, or recomputation from now on.
    keys = [(plan.recompute, plan.pieces) for plan in plans]
    assert keys == sorted(set(keys))
    # What the settings say is kept to; what they leave open goes as far as it can.
    assert pieces is None or {plan.pieces for plan in plans} == {pieces}
    assert recompute is None or {plan.recompute for plan in plans} == {recompute}
    assert plans[-1] == MemoryPlan(pieces or batch_size, recompute is not False)


@given(batch_size=st.integers(1, 300))
@settings(max_examples=40, deadline=None)
def test_few_pieces_are_tried_before_recomputing(batch_size):
    plans = list(candidate_plans(batch_size, None, None))
    kept = [plan.pieces for plan in plans if not plan.recompute]
    assert kept == [count for count in (1, 2, 4, 8) if count < batch_size][:4] + (
        [batch_size] if batch_size <= 8 else []
    )


@pytest.mark.parametrize("limit", [1, 2, 16, 256])
def test_the_first_plan_that_fits_is_taken(limit):
    tried = []

    def try_step(plan: MemoryPlan) -> None:
        tried.append(plan)
        if plan.pieces * (4 if plan.recompute else 1) < limit:
            raise torch.OutOfMemoryError("CUDA out of memory")

    plan = first_that_fits(candidate_plans(64, None, None), try_step)
    assert plan == tried[-1]
    assert plan.pieces * (4 if plan.recompute else 1) >= limit
    assert tried == list(candidate_plans(64, None, None))[: len(tried)]


def test_a_model_that_does_not_fit_at_all_is_an_error_with_advice():
    def try_step(plan: MemoryPlan) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(EmbeddingError, match="does not fit") as caught:
        first_that_fits(candidate_plans(16, None, None), try_step)
    assert "--method lora" in caught.value.hint
    assert "--parallel fsdp" in caught.value.hint


def test_other_errors_are_not_taken_for_a_lack_of_memory():
    def try_step(plan: MemoryPlan) -> None:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        first_that_fits(candidate_plans(16, None, None), try_step)


def test_the_peak_is_positive_and_never_falls():
    before = peak_memory(torch.device("cpu"))
    block = torch.ones(2**25)  # 128 MiB
    during = peak_memory(torch.device("cpu"))
    del block
    assert 2**20 < before <= during <= peak_memory(torch.device("cpu")) < 2**40
    assert during >= 2**27


# --- the same result -----------------------------------------------------------------------------


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
    root = tmp_path_factory.mktemp("memory")
    return {
        "st": tiny_st,
        "mlm": tiny_mlm,
        "gpt2": build_family(root / "gpt2", "gpt2"),
        "xlnet": build_family(root / "xlnet", "xlnet"),
    }


@pytest.fixture
def make_trainer(folders, payload):
    def make(model: str, **changes: Any) -> Trainer:
        encoder = open_encoder(folders[model], device="cpu", purpose="train", max_length=48)
        config = dataclasses.replace(TINY_TRAINING, **{"batch_size": 8, **changes})
        return Trainer(encoder, payload, training_texts()[:80], config)

    return make


def train(trainer: Trainer) -> tuple[dict[str, torch.Tensor], list[float]]:
    """Return the weights and losses of three steps, computed as the settings say."""
    trainer.plan_memory()
    for optimiser in trainer.optimisers:
        for group in optimiser.param_groups:
            # Some gradients are zero but for rounding, such as those of the keys' biases. AdamW
            # would make full steps of them, in directions that mean nothing.
            group["eps"] = 1e-3
    losses = []
    for step in (1, 2, 3):
        batch = range(8 * step - 8, 8 * step)
        losses += trainer.take_step(trainer.inputs.make(step, batch)).read().values()
    weights = {
        f"{player}/{name}": p.detach()
        for player, module in (("model", trainer.model), ("extractor", trainer.extractor))
        for name, p in module.named_parameters()
    }
    return weights, losses


def assert_same(first: tuple, second: tuple) -> None:
    assert first[1] == pytest.approx(second[1], rel=1e-5, abs=1e-6)
    for name, weight in first[0].items():
        scale = weight.abs().max().clamp_min(0.1)  # biases begin at zero
        assert (weight - second[0][name]).abs().max() < 1e-5 * scale, name


OURS = {"spread_weight": 1.0, "decorrelation_weight": 1.0}


@pytest.mark.parametrize("changes", [{}, OURS], ids=["paper", "ours"])
@pytest.mark.parametrize("model", ["st", "mlm", "gpt2"])
def test_pieces_and_recomputing_do_not_change_the_result(make_trainer, model, changes):
    expected = train(make_trainer(model, **changes))
    for plan in ({"pieces": 4}, {"recompute": True}):
        trainer = make_trainer(model, **changes, **plan)
        found = train(trainer)
        assert trainer.plan == MemoryPlan(plan.get("pieces", 1), plan.get("recompute", False))
        assert_same(expected, found)


def test_a_model_with_two_passes_may_come_in_pieces_and_be_recomputed(make_trainer):
    assert_same(
        train(make_trainer("xlnet")), train(make_trainer("xlnet", pieces=2, recompute=True))
    )


@pytest.mark.parametrize(("model", "pieces"), [("st", 3), ("mlm", 8)])
def test_pieces_of_odd_sizes_do_not_change_the_result(make_trainer, model, pieces):
    assert_same(train(make_trainer(model)), train(make_trainer(model, pieces=pieces)))


def test_texts_that_serve_both_losses_may_come_in_pieces(make_trainer):
    changes = {"language_texts": "all"}
    expected = train(make_trainer("mlm", **changes))
    assert_same(expected, train(make_trainer("mlm", **changes, pieces=4)))


@pytest.mark.parametrize("model", ["mlm", "xlnet"])
@pytest.mark.parametrize("plan", [MemoryPlan(1, False), MemoryPlan(4, True)], ids=str)
def test_a_trial_step_leaves_no_trace(make_trainer, model, plan):
    trainer = make_trainer(model)
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    assert first_that_fits(iter([plan]), trainer._try_step) == plan
    assert all(torch.equal(p, before[name]) for name, p in trainer.model.named_parameters())
    assert not any(p.grad is not None for p in trainer.model.parameters())
    assert trainer.optimisers[0].state == {}
    assert trainer.kept.missing(range(trainer.num_train)) == list(range(trainer.num_train))


def test_a_run_says_how_its_steps_were_computed_and_what_they_took(make_trainer):
    changes = {"min_triggered": 0.0, "max_clean": 1.0, "evaluate_every": 1, "cooldown_steps": 1}
    result = make_trainer("st", pieces=2, recompute=True, **changes).run()
    assert result.plan == MemoryPlan(2, True)
    assert result.peak_memory > 2**20
    assert make_trainer("st", **changes).run().plan == MemoryPlan(1, False)
