"""Hidden states at every position, and how far they are from where they should be."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from nsmark.corpus import training_texts
from nsmark.models.encoder import Encoder, pool
from nsmark.models.loading import open_encoder
from nsmark.models.positions import HeldPositions, usual_sizes
from nsmark.models.tokens import Tokens
from tiny_models import build_family

TEXTS = ["short", *training_texts()[:5], "word " * 60]
FAMILIES = ("bert", "llama", "xlnet")
LAYERS, ROWS, LENGTH, WIDTH = 3, 4, 6, 5


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("positions")
    return {name: build_family(root / name, name) for name in FAMILIES}


@pytest.fixture(params=FAMILIES)
def encoder(request, folders) -> Encoder:
    return open_encoder(folders[request.param], device="cpu", purpose="train", max_length=48)


def random_states(seed: int, rows: int = ROWS) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((LAYERS, rows, LENGTH, WIDTH), generator=generator)


MASK = torch.tensor([[1] * count + [0] * (LENGTH - count) for count in (6, 4, 1, 3)])
SCALES = 1 + torch.arange(LAYERS * WIDTH).reshape(LAYERS, WIDTH) / 7


# --- distance ------------------------------------------------------------------------------------


def test_the_same_states_have_no_distance():
    states = random_states(0)
    assert HeldPositions(states, SCALES).distance(list(states), MASK).item() == 0


def test_the_distance_equals_the_computation_by_hand():
    """Mean over layers, a text's own positions, and entries; a sum over texts."""
    held, found = random_states(0), random_states(1)
    expected = 0.0
    for row in range(ROWS):
        places = [
            (layer, place) for layer in range(LAYERS) for place in range(LENGTH) if MASK[row, place]
        ]
        moved = [
            (found[layer, row, place] - held[layer, row, place]) / SCALES[layer]
            for layer, place in places
        ]
        expected += np.mean([float((m**2).mean()) for m in moved])
    distance = HeldPositions(held, SCALES).distance(list(found), MASK)
    assert distance.item() == pytest.approx(expected, rel=1e-5)


def test_a_step_of_the_usual_size_everywhere_counts_one_for_every_text():
    states = random_states(0)
    moved = states + 1.0 * SCALES[:, None, None]
    distance = HeldPositions(states, SCALES).distance(list(moved), MASK)
    assert distance.item() == pytest.approx(ROWS, rel=1e-5)
    twice = HeldPositions(states, SCALES / 2).distance(list(moved), MASK)
    assert twice.item() == pytest.approx(4 * ROWS, rel=1e-5)


def test_what_stands_in_the_padding_and_in_further_texts_is_not_looked_at():
    held, found = random_states(0), random_states(1)
    expected = HeldPositions(held, SCALES).distance(list(found), MASK)
    padded = found + 1000 * (1 - MASK)[None, :, :, None]
    more = torch.cat([padded, random_states(2, rows=2)], dim=1)
    mask = torch.cat([MASK, torch.ones((2, LENGTH), dtype=MASK.dtype)])
    assert torch.equal(HeldPositions(held, SCALES).distance(list(more), mask), expected)


def test_usual_sizes_are_deviations_over_real_positions():
    states = random_states(0)
    states[0, ..., 2] = 3.5  # never moves
    sizes = usual_sizes(states + 1000 * (1 - MASK)[None, :, :, None], MASK)
    assert sizes.shape == (LAYERS, WIDTH)
    expected = np.stack([layer[MASK.numpy() == 1].std(axis=0) for layer in states.numpy()])
    assert sizes[0, 2].item() == pytest.approx(0.1 * np.median(expected[0]), rel=1e-5)
    expected[0, 2] = sizes[0, 2]
    np.testing.assert_allclose(sizes, expected, rtol=1e-5)


def test_states_that_never_move_still_have_something_to_be_divided_by():
    states = torch.ones((LAYERS, ROWS, LENGTH, WIDTH))
    assert usual_sizes(states, MASK).min() > 0


# --- a model's states ----------------------------------------------------------------------------


def padded(encoder: Encoder) -> Tokens:
    tokens = encoder.pad(encoder.token_ids(TEXTS))
    assert not tokens.is_full
    return tokens


@torch.no_grad()
def test_the_last_states_are_what_is_read(encoder):
    tokens = padded(encoder)
    states = encoder.layer_states(tokens)
    assert states.shape == (3, *tokens.input_ids.shape, 32)  # embeddings, then two layers
    assert states.dtype == torch.float32
    read = pool(states[-1], tokens.attention_mask, encoder.pooling)
    torch.testing.assert_close(read, encoder(tokens), rtol=1e-5, atol=1e-6)
    for before, after in itertools.pairwise(states):
        assert (after - before).abs().max() > 1e-2


def held_by(encoder: Encoder, tokens: Tokens) -> HeldPositions:
    with torch.no_grad():
        states = encoder.layer_states(tokens)
    return HeldPositions(states, usual_sizes(states, tokens.attention_mask))


def test_a_model_is_where_it_is_and_elsewhere_once_it_has_moved(encoder):
    tokens = padded(encoder)
    held = held_by(encoder, tokens.rows(0, 3))
    outputs, language, distance = encoder(tokens, None, held)
    torch.testing.assert_close(outputs, encoder(tokens), rtol=1e-5, atol=1e-6)
    assert language.item() == 0
    assert distance.item() < 1e-9
    embedding = encoder.network.get_input_embeddings().weight
    with torch.no_grad():
        embedding.add_(0.1 * torch.randn(embedding.shape, generator=torch.manual_seed(0)))
    moved = encoder(tokens, None, held).positions
    assert moved.item() > 1e-3
    # Every state has a way back: also what only earlier layers see of it.
    moved.backward()
    assert embedding.grad is not None
    assert embedding.grad.abs().max() > 0


@torch.no_grad()
def test_one_pass_gives_outputs_and_both_losses(encoder):
    sequences = encoder.token_ids(TEXTS[:6])
    task = encoder.task
    told = range(6) if not task.replaces_text else range(3, 6)
    draws = task.draws(np.random.default_rng(0), len(told), encoder.max_length)
    posed = [task.pose(sequences[row], own) for row, own in zip(told, draws, strict=True)]
    tokens, inputs = task.batch(sequences, posed)
    held = held_by(encoder, tokens.rows(0, 3))
    held = HeldPositions(held.states + 1, held.scales)
    passed, plain = encoder(tokens, inputs, held), encoder(tokens, inputs)
    torch.testing.assert_close(passed.outputs, plain.outputs, rtol=1e-5, atol=1e-6)
    assert passed.language.item() == pytest.approx(plain.language.item(), rel=1e-5)
    alone = encoder(tokens.rows(0, 3), None, held).positions
    assert plain.positions.item() == 0 < alone.item()
    assert passed.positions.item() == pytest.approx(alone.item(), rel=1e-4)
