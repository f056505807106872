from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import TINY_PAYLOAD, TINY_TRAINING
from nsmark.corpus import pool_texts, training_texts
from nsmark.embedding.kept import KeptOutputs
from nsmark.embedding.trainer import Trainer
from nsmark.models.loading import open_encoder
from nsmark.payload import derive_payload, published_word_list

CPU = torch.device("cpu")
numbers_of_texts = st.lists(st.integers(0, 9), unique=True, max_size=10)


def make_kept(num_texts: int = 10, output_dim: int = 3, max_bytes: int = 10**6) -> KeptOutputs:
    return KeptOutputs(num_texts, output_dim, CPU, max_bytes)


def outputs_of(numbers: list[int], offset: float = 0.0) -> torch.Tensor:
    """Outputs that name their text."""
    return torch.tensor(numbers, dtype=torch.float32)[:, None].expand(-1, 3) + offset


# --- what is kept --------------------------------------------------------------------------------


@given(batches=st.lists(numbers_of_texts, max_size=5), asked=numbers_of_texts)
@settings(max_examples=80, deadline=None)
def test_known_outputs_complete_those_that_are_missing(batches, asked):
    kept, known = make_kept(), set()
    for batch in batches:
        missing = kept.missing(batch)
        assert [batch[place] for place in missing] == [n for n in batch if n not in known]
        kept.put(batch, outputs_of(batch))
        known |= set(batch)
    missing = kept.missing(asked)
    assert [asked[place] for place in missing] == [n for n in asked if n not in known]
    computed = outputs_of([asked[place] for place in missing], offset=0.5)
    found = kept.completed(asked, missing, computed)
    expected = [n if n in known else n + 0.5 for n in asked]
    assert found[:, 0].tolist() == expected
    assert found.shape == (len(asked), 3)


def test_what_is_known_stays_as_it_is():
    """Computed again in other company, an output differs in its last bits."""
    kept = make_kept()
    kept.put([1, 2], outputs_of([1, 2]))
    kept.put([2, 3], outputs_of([2, 3], offset=0.5))
    assert kept.completed([1, 2, 3], [], outputs_of([])).tolist() == [[1] * 3, [2] * 3, [3.5] * 3]


def test_completing_does_not_change_what_is_kept():
    kept = make_kept()
    kept.put([1], outputs_of([1]))
    found = kept.completed([0, 1], [0], outputs_of([0], offset=0.5))
    found += 100
    assert kept.completed([1], [], outputs_of([])).tolist() == [[1] * 3]
    assert kept.missing([0]) == [0]


@pytest.mark.parametrize(("max_bytes", "enabled"), [(119, False), (120, True)])
def test_nothing_is_kept_where_all_would_take_too_much(max_bytes, enabled):
    kept = make_kept(max_bytes=max_bytes)  # ten texts of three numbers of four bytes
    kept.put([1, 2], outputs_of([1, 2]))
    assert kept.enabled is enabled
    assert kept.missing([2, 1, 3]) == ([2] if enabled else [0, 1, 2])
    assert len(kept.tensors()["numbers"]) == (2 if enabled else 0)
    if not enabled:
        given_outputs = outputs_of([2, 1, 3])
        assert kept.completed([2, 1, 3], [0, 1, 2], given_outputs) is given_outputs


# --- to and from a checkpoint --------------------------------------------------------------------


@given(numbers=numbers_of_texts)
@settings(max_examples=40, deadline=None)
def test_what_was_kept_comes_back_bit_by_bit(numbers):
    kept, twin = make_kept(), make_kept()
    kept.put(numbers, torch.rand(len(numbers), 3, generator=torch.Generator().manual_seed(0)))
    tensors = kept.tensors()
    assert tensors["numbers"].tolist() == sorted(numbers)
    twin.restore(**tensors)
    again = twin.tensors()
    assert all(torch.equal(tensors[name], again[name]) for name in ("numbers", "outputs"))
    assert twin.missing(range(10)) == kept.missing(range(10))


@pytest.mark.parametrize(
    ("numbers", "outputs"),
    [
        (torch.tensor([10]), torch.zeros(1, 3)),
        (torch.tensor([-1]), torch.zeros(1, 3)),
        (torch.tensor([1, 2]), torch.zeros(1, 3)),
        (torch.tensor([1]), torch.zeros(2, 3)),
        (torch.tensor([1]), torch.zeros(1, 4)),
        (torch.tensor([1]), torch.zeros(3)),
        (torch.tensor([1]), torch.zeros(1, 3, dtype=torch.float64)),
        (torch.tensor([1]), torch.zeros(1, 3, dtype=torch.int64)),
    ],
    ids=["beyond", "negative", "more-numbers", "more-rows", "wide", "flat", "double", "integers"],
)
def test_outputs_that_do_not_fit_are_refused_and_change_nothing(numbers, outputs):
    kept = make_kept()
    kept.put([4], outputs_of([4]))
    with pytest.raises(ValueError, match="other texts"):
        kept.restore(numbers, outputs)
    assert kept.tensors()["numbers"].tolist() == [4]


@pytest.mark.parametrize(
    "numbers",
    [torch.tensor([[1]]), torch.tensor(1), torch.tensor([1.0]), torch.tensor([True])],
    ids=["matrix", "scalar", "fractions", "truths"],
)
def test_numbers_that_are_no_list_of_integers_are_refused(numbers):
    kept = make_kept()
    with pytest.raises(ValueError, match="other texts"):
        kept.restore(numbers, torch.zeros(1, 3))
    assert len(kept.tensors()["numbers"]) == 0


def test_a_run_that_keeps_nothing_can_be_resumed():
    kept, twin = make_kept(max_bytes=0), make_kept(max_bytes=0)
    kept.put([1], outputs_of([1]))
    twin.restore(**kept.tensors())
    assert len(twin.tensors()["numbers"]) == 0


# --- in a training -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def payload(signed_claim):
    return derive_payload(
        signed_claim.signature,
        config=TINY_PAYLOAD,
        word_list=published_word_list(),
        pool=pool_texts(),
        num_texts=40,
    )


@pytest.mark.parametrize("model", ["tiny_st", "tiny_mlm"])
@pytest.mark.parametrize("pieces", [1, 2])
def test_texts_that_come_round_again_give_what_they_would_without(request, payload, model, pieces):
    """Thirty-two texts in batches of sixteen: every other step the same come again."""
    config = dataclasses.replace(TINY_TRAINING, pieces=pieces)

    def train(keeping: bool) -> tuple[list[dict[str, float]], list[int]]:
        encoder = open_encoder(request.getfixturevalue(model), device="cpu", purpose="train")
        trainer = Trainer(encoder, payload, training_texts()[:64], config)
        assert trainer.kept.enabled
        trainer.kept.enabled = keeping
        trainer.follow(trainer.plan)
        computed: list[int] = []
        real = trainer.player.reference_outputs

        def counting(tokens: Any) -> torch.Tensor:
            computed.append(len(tokens))
            return real(tokens)

        trainer.player.reference_outputs = counting
        batches = [range(16), range(16, 32)] * 2
        steps = [trainer.inputs.make(step, batch) for step, batch in enumerate(batches, 1)]
        return [trainer.take_step(inputs).read() for inputs in steps], computed

    (losses, computed), (plain_losses, all_computed) = train(True), train(False)
    for kept, plain in zip(losses, plain_losses, strict=True):
        assert kept == pytest.approx(plain, rel=1e-4, abs=1e-6)
    # Eight triggered texts a step, every other one; clean ones only the first time.
    half = len(computed) // 2
    assert sum(computed[half:]) == 2 * 8
    assert sum(all_computed[half:]) == sum(computed[:half]) == sum(all_computed[:half])
