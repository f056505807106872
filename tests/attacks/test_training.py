from __future__ import annotations

import math
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="needs the torch extra")

import torch
from torch import nn

from attack_runs import small_material
from easy_task import easy_task
from nsmark.attacks.recipes.ll_lfea import read_head
from nsmark.attacks.stolen import Stolen
from nsmark.attacks.training import (
    HEAD_FILE,
    Plan,
    accuracy,
    batches,
    check_task_settings,
    descend,
    fit_head,
    plan_for,
    train_on_task,
)
from nsmark.errors import ConfigError, EmbeddingError
from nsmark.models.loading import open_encoder
from nsmark.transforms.changes import Linear, Signs, UnitLength
from nsmark.transforms.filters import RareWords

TASK = easy_task()


def plan(**changes) -> Plan:
    return Plan(**({"steps": 6, "batch_size": 4, "learning_rate": 1e-3, "seed": 0} | changes))


def task_settings(**changes) -> SimpleNamespace:
    usual = {"epochs": 1.0, "steps": 0, "learning_rate": 1e-3, "batch_size": 32, "seed": 0}
    return SimpleNamespace(**(usual | changes))


def material(**changes):
    return small_material(task=TASK, **changes)


def vector_of(encoder) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in encoder.parameters()])


@pytest.fixture
def encoder(tiny_st):
    return open_encoder(tiny_st, device="cpu")


@pytest.fixture
def loss_of(encoder):
    """Outputs are pulled towards the first axis."""
    sequences = encoder.token_ids(TASK.train_texts[:12])
    return lambda rows: -encoder(encoder.pad([sequences[row] for row in rows]))[:, 0].mean()


# --- how long -------------------------------------------------------------------------------------


@given(
    count=st.integers(1, 50),
    size=st.integers(1, 60),
    steps=st.integers(1, 40),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_batches_go_through_all_texts_before_any_comes_again(count, size, steps, seed):
    own = plan(steps=steps, batch_size=size, seed=seed)
    found = list(batches(count, own))
    assert len(found) == steps
    assert found == list(batches(count, own))
    a_pass = math.ceil(count / size)
    for start in range(0, steps - a_pass + 1, a_pass):
        assert sorted(chain(*found[start : start + a_pass])) == list(range(count))


def test_every_pass_has_another_order_and_so_has_every_seed():
    found = list(batches(20, plan(steps=2, batch_size=20)))
    assert found[0] != found[1]
    assert found[0] != next(batches(20, plan(batch_size=20, seed=1)))


def test_steps_go_by_passes_unless_they_are_given():
    assert plan_for(task_settings(epochs=2.0), 100).steps == 2 * 4
    assert plan_for(task_settings(epochs=0.5), 100).steps == 2
    assert plan_for(task_settings(epochs=0.001), 100).steps == 1
    assert plan_for(task_settings(epochs=9.0, steps=5), 100).steps == 5
    assert plan_for(task_settings(batch_size=4096), 10).batch_size == 10


# --- training -------------------------------------------------------------------------------------


def test_the_learning_rate_falls_linearly_to_zero(encoder):
    # A gradient that is always the same makes Adam go exactly the learning rate in every step.
    weight, places = nn.Parameter(torch.zeros(3)), []

    def loss_of(rows):
        return (weight * torch.tensor([0.1, -0.2, 0.3])).sum()

    descend(
        encoder,
        loss_of,
        8,
        plan(steps=10, learning_rate=0.01),
        weights=[weight],
        after_step=lambda: places.append(weight.detach().clone()),
    )
    moves = torch.diff(torch.stack([torch.zeros(3), *places]), dim=0).abs()
    wanted = 0.01 * (1 - torch.arange(10) / 10)
    torch.testing.assert_close(moves, wanted[:, None].expand(10, 3), rtol=5e-3, atol=1e-6)


def test_the_model_learns_and_answers_afterwards_as_a_served_model_does(encoder, loss_of):
    before, told = loss_of(list(range(12))).item(), []
    descend(encoder, loss_of, 12, plan(), on_step=lambda done, total: told.append((done, total)))
    assert told == [(step, 6) for step in range(1, 7)]
    assert loss_of(list(range(12))).item() < before - 0.01
    assert not any(module.training for module in encoder.modules())
    assert not any(weight.requires_grad for weight in encoder.parameters())
    assert all(weight.grad is None for weight in encoder.parameters())


@pytest.mark.parametrize("dropout", [True, False])
def test_dropout_is_on_meanwhile_if_it_is_wanted(encoder, loss_of, dropout):
    seen = []

    def watched(rows):
        seen.append(encoder.network.embeddings.dropout.training)
        return loss_of(rows)

    descend(encoder, watched, 12, plan(), dropout=dropout)
    assert seen == [dropout] * 6
    assert not encoder.training


def test_only_chosen_weights_change(encoder, loss_of):
    before = {name: weight.clone() for name, weight in encoder.named_parameters()}
    chosen = "network.encoder.layer.1.output.dense.weight"
    descend(encoder, loss_of, 12, plan(), weights=[dict(encoder.named_parameters())[chosen]])
    changed = [n for n, weight in encoder.named_parameters() if not weight.equal(before[n])]
    assert changed == [chosen]


def test_an_interrupted_training_leaves_a_model_that_answers(encoder, loss_of):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        descend(encoder, loss_of, 12, plan(), on_step=interrupt)
    assert not encoder.training
    assert not any(weight.requires_grad for weight in encoder.parameters())


def test_a_training_that_diverges_is_an_error(encoder, loss_of):
    with pytest.raises(EmbeddingError, match="diverged") as caught:
        descend(encoder, lambda rows: loss_of(rows) * math.nan, 12, plan())
    assert "learning_rate" in caught.value.hint


def test_seeds_decide_and_the_callers_random_numbers_do_not(tiny_st):
    def trained(seed: int, outside: int) -> torch.Tensor:
        stolen = Stolen.open(tiny_st, device="cpu")
        torch.manual_seed(outside)
        state = torch.random.get_rng_state()
        train_on_task(stolen, task_settings(steps=3, seed=seed), material())
        assert torch.random.get_rng_state().equal(state)
        return vector_of(stolen.encoder)

    first = trained(0, 1)
    assert first.equal(trained(0, 2))
    assert not first.equal(trained(1, 1))


# --- heads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_a_fitted_head_reads_outputs_of_any_size(size):
    rng = np.random.default_rng(0)
    labels = torch.tensor(rng.integers(0, 3, 90))
    centres = rng.standard_normal((3, 8)) * 4
    outputs = torch.tensor(size * (centres[labels] + rng.standard_normal((90, 8))))
    head = fit_head(outputs[:60], labels[:60], 3)
    assert accuracy(head, outputs[60:], labels[60:]) > 0.95
    assert accuracy(head, outputs[60:], (labels[60:] + 1) % 3) < 0.05


def test_a_fitted_head_does_not_invent_what_is_not_there():
    rng = np.random.default_rng(0)
    labels = torch.tensor(rng.integers(0, 2, 800))
    outputs = torch.tensor(rng.standard_normal((800, 4)))
    assert accuracy(fit_head(outputs[:400], labels[:400], 2), outputs[400:], labels[400:]) < 0.6


def test_the_task_is_learned_and_the_head_that_is_kept_reads_the_answers(tiny_st, tmp_path):
    stolen = Stolen.open(tiny_st, device="cpu")
    facts = train_on_task(stolen, task_settings(epochs=10.0), material())
    assert facts["steps"] == 50
    assert facts["accuracy_of_head"] > 0.9
    assert facts["accuracy_after"] > 0.9
    assert facts["loss"] < math.log(2)
    (tmp_path / HEAD_FILE).write_bytes(stolen.extras[HEAD_FILE])
    logits = read_head(tmp_path / HEAD_FILE).logits(stolen.outputs(TASK.test_texts))
    found = (logits.argmax(axis=1) == np.array(TASK.test_labels)).mean()
    assert found == pytest.approx(facts["accuracy_of_head"])


def test_a_model_is_trained_through_the_maps_behind_it(tiny_st, tmp_path):
    """A map before training is another attack than the same map afterwards (Tab. lfeafine)."""
    dim = open_encoder(tiny_st, device="cpu").output_dim
    rng = np.random.default_rng(0)
    matrix = rng.uniform(0.0, 1.0, (dim + 3, dim))
    plain, mapped = (Stolen.open(tiny_st, device="cpu") for _ in range(2))
    mapped.add_change(Linear(matrix, rng.standard_normal(dim + 3)))
    mapped.add_change(UnitLength())
    facts = [
        train_on_task(each, task_settings(epochs=10.0), material()) for each in (plain, mapped)
    ]
    assert facts[1]["accuracy_of_head"] > 0.9
    first, second = (each.encoder.encode(TASK.test_texts) for each in (plain, mapped))
    assert not np.allclose(first, second, rtol=1e-3)
    # The head that is kept reads the mapped answers, not the encoder's outputs.
    (tmp_path / HEAD_FILE).write_bytes(mapped.extras[HEAD_FILE])
    logits = read_head(tmp_path / HEAD_FILE).logits(mapped.outputs(TASK.test_texts))
    found = (logits.argmax(axis=1) == np.array(TASK.test_labels)).mean()
    assert found == pytest.approx(facts[1]["accuracy_of_head"])
    assert all(isinstance(change, Linear | UnitLength) for change in mapped.serving.changes)


def test_where_answers_are_changed_no_head_is_kept_that_would_not_fit(tiny_st):
    stolen = Stolen.open(tiny_st, device="cpu")
    stolen.add_change(UnitLength())
    stolen.add_change(Signs())
    facts = train_on_task(stolen, task_settings(steps=1), material())
    assert facts["head"] is None
    assert stolen.extras == {}


def test_texts_are_learned_as_filters_leave_them(tiny_st):
    # Only words without meaning for the task stay: nothing can be learned.
    words = "every text begins alike"
    task = easy_task()
    own = type(task)(
        task.name,
        [f"{words} {text}" for text in task.train_texts],
        task.train_labels,
        [f"{words} {text}" for text in task.test_texts],
        task.test_labels,
    )
    stolen = Stolen.open(tiny_st, device="cpu")
    stolen.serving.filters.append(RareWords(frozenset(words.split())))
    facts = train_on_task(stolen, task_settings(steps=20), small_material(task=own))
    most = max(np.bincount(own.test_labels)) / len(own.test_labels)
    assert facts["accuracy_of_head"] <= most


def test_begin_and_finish_are_called_around_the_steps(tiny_st):
    calls = []
    train_on_task(
        Stolen.open(tiny_st, device="cpu"),
        task_settings(steps=2),
        material(on_step=lambda done, total: calls.append(done)),
        begin=lambda: calls.append("begin"),
        finish=lambda: calls.append("finish"),
    )
    assert calls == ["begin", 1, 2, "finish"]


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0.0),
        ("epochs", math.nan),
        ("epochs", math.inf),
        ("steps", -1),
        ("steps", 10**9),
        ("learning_rate", 0.0),
        ("learning_rate", math.nan),
        ("learning_rate", 2.0),
        ("batch_size", 0),
        ("seed", -1),
        ("seed", 2**63),
    ],
)
def test_settings_out_of_range_are_refused_by_name(name, value):
    check_task_settings(task_settings())
    with pytest.raises(ConfigError, match=name):
        check_task_settings(task_settings(**{name: value}))
