"""Changes as records: what is written is what is read, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as array_of

from nsmark.errors import ModelError
from nsmark.transforms.changes import (
    Bfloat16,
    Linear,
    Noise,
    OutputChange,
    Rounded,
    ScaleAndSign,
    Signs,
    UnitLength,
    apply_changes,
    read_changes,
    write_changes,
)

numbers = st.floats(-1e6, 1e6)
sizes = st.floats(1e-6, 1e3)
seeds = st.integers(0, 2**63 - 1)
ROWS = np.random.default_rng(0).standard_normal((7, 4)) * 3


def per_dimension(dim: int) -> st.SearchStrategy[np.ndarray]:
    return st.sampled_from([1, dim]).flatmap(lambda n: array_of(np.float64, n, elements=sizes))


def linear(dim: int) -> st.SearchStrategy[Linear]:
    def of(new_dim: int) -> st.SearchStrategy[Linear]:
        offset = st.none() | array_of(np.float64, new_dim, elements=numbers)
        matrix = array_of(np.float64, (new_dim, dim), elements=st.floats(-10, 10))
        return st.builds(Linear, matrix, offset)

    return st.integers(1, 6).flatmap(of)


@st.composite
def change_lists(draw: st.DrawFn) -> list[OutputChange]:
    """Changes that fit one another, for outputs of four dimensions."""
    dim, changes = 4, []
    for _ in range(draw(st.integers(0, 6))):
        change = draw(
            linear(dim)
            | st.sampled_from([UnitLength(), Bfloat16(), Signs()])
            | st.builds(ScaleAndSign, seeds, st.booleans())
            | st.builds(Noise, per_dimension(dim), seeds)
            | st.builds(Rounded, per_dimension(dim), st.integers(2, 4096))
        )
        dim = len(change.matrix) if isinstance(change, Linear) else dim
        changes.append(change)
    return changes


def through_a_file(changes: list[OutputChange]) -> list[OutputChange]:
    entries, arrays = write_changes(changes)
    assert all(array.dtype == np.float64 for array in arrays.values())
    return read_changes(json.loads(json.dumps(entries)), arrays, 4)


@given(changes=change_lists())
@settings(max_examples=150, deadline=None)
def test_what_is_written_is_read(changes):
    found = through_a_file(changes)
    assert [type(change) for change in found] == [type(change) for change in changes]
    for one, other in zip(changes, found, strict=True):
        for each in fields(one):
            if each.init:
                np.testing.assert_equal(getattr(other, each.name), getattr(one, each.name))
    # Also what is drawn: the seed is kept, and nothing was drawn from either before.
    np.testing.assert_array_equal(apply_changes(found, ROWS), apply_changes(changes, ROWS))


@pytest.mark.parametrize(
    "change",
    [
        Linear(np.arange(8.0).reshape(4, 2).T),  # not in the order of memory
        Linear(np.eye(4), np.ones(4)),
        UnitLength(),
        ScaleAndSign(5),
        ScaleAndSign(2**63 - 1, flips=False),
        Noise(np.array(0.5), 3),
        Noise(np.ones(4), 3),
        Rounded(np.array([0.25]), 15),
        Bfloat16(),
        Signs(),
    ],
    ids=lambda change: change.kind,
)
def test_every_kind_does_the_same_after_reading(change):
    found = through_a_file([change])
    assert [each.kind for each in found] == [change.kind]
    np.testing.assert_array_equal(found[0](ROWS), change(ROWS))


def test_a_list_is_applied_in_order():
    changes = [Linear(2 * np.eye(4), np.ones(4)), UnitLength(), Signs()]
    np.testing.assert_array_equal(
        apply_changes(changes, ROWS), np.where(2 * ROWS + 1 >= 0, 1.0, -1.0)
    )
    assert apply_changes([], ROWS) is ROWS


# --- bfloat16 ------------------------------------------------------------------------------------


@given(rows=array_of(np.float32, (3, 5), elements=st.floats(width=32, allow_nan=False)))
@settings(max_examples=200, deadline=None)
def test_bfloat16_is_torchs(rows):
    expected = torch.from_numpy(rows).to(torch.bfloat16).double().numpy()
    np.testing.assert_array_equal(Bfloat16()(rows.astype(np.float64)), expected)


def test_bfloat16_rounds_ties_to_even_and_keeps_what_it_can():
    exact = [0.0, -0.0, 1.0, -2.5, 2.0**-126, 2.0**100, np.inf, -np.inf]
    np.testing.assert_array_equal(Bfloat16()(np.array([exact])), [exact])
    step = 2.0**-7  # between neighbours next to 1
    ties = np.array([[1 + step / 2, 1 + 3 * step / 2, -(1 + step / 2)]])
    np.testing.assert_array_equal(Bfloat16()(ties), [[1.0, 1 + 2 * step, -1.0]])
    above = np.array([[np.nextafter(np.float32(1 + step / 2), np.float32(2))]])
    np.testing.assert_array_equal(Bfloat16()(above), [[1 + step]])


# --- what each does ------------------------------------------------------------------------------


def test_a_zero_answer_stays_zero_at_unit_length():
    rows = np.array([[0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(UnitLength()(rows), [[0, 0], [0.6, 0.8]])


def test_what_is_drawn_goes_on_and_does_not_repeat():
    for change in (ScaleAndSign(1), Noise(np.ones(1), 1)):
        first, second = change(ROWS), change(ROWS)
        assert np.abs(first - second).max() > 0.1


def test_rounding_clips_beyond_the_last_level():
    found = Rounded(np.array([0.5]), 5)(np.array([[0.2, 0.3, -0.74, 9.0, -9.0]]))
    np.testing.assert_array_equal(found, [[0.0, 0.5, -0.5, 1.0, -1.0]])


# --- files of others -----------------------------------------------------------------------------

ONES = np.ones(4)
SEED = {"seed": 1}


@pytest.mark.parametrize(
    ("entry", "arrays"),
    [
        # no record at all
        (None, {}),
        ("signs", {}),
        (["signs"], {}),
        ({}, {}),
        ({"kind": "sign"}, {}),
        ({"kind": None}, {}),
        ({"kind": ["signs"]}, {}),
        ({"kind": {"signs": 1}}, {}),
        # fields that are missing
        ({"kind": "linear"}, {}),
        ({"kind": "scale-and-sign"}, {}),
        ({"kind": "noise"}, {"0.sizes": ONES}),
        ({"kind": "noise", **SEED}, {}),
        ({"kind": "noise", **SEED}, {"1.sizes": ONES}),  # another change's
        ({"kind": "rounded"}, {"0.step": ONES}),
        ({"kind": "rounded", "levels": 5}, {}),
        # numbers that are none, or out of range
        ({"kind": "scale-and-sign", "seed": -1}, {}),
        ({"kind": "scale-and-sign", "seed": 2**63}, {}),
        ({"kind": "scale-and-sign", "seed": 1.0}, {}),
        ({"kind": "scale-and-sign", "seed": True}, {}),
        ({"kind": "scale-and-sign", "seed": "1"}, {}),
        ({"kind": "scale-and-sign", "seed": None}, {}),
        ({"kind": "scale-and-sign", "seed": [1]}, {}),
        ({"kind": "scale-and-sign", **SEED, "flips": 1}, {}),
        ({"kind": "scale-and-sign", **SEED, "flips": "yes"}, {}),
        ({"kind": "noise", "seed": -1}, {"0.sizes": ONES}),
        ({"kind": "rounded", "levels": 1}, {"0.step": ONES}),
        ({"kind": "rounded", "levels": -5}, {"0.step": ONES}),
        ({"kind": "rounded", "levels": 5.5}, {"0.step": ONES}),
        # numbers instead of arrays, arrays instead of numbers
        ({"kind": "linear", "matrix": [[1, 0, 0, 0]]}, {}),
        ({"kind": "linear", "matrix": 1}, {}),
        ({"kind": "linear", "offset": [1.0] * 4}, {"0.matrix": np.eye(4)}),
        ({"kind": "noise", **SEED, "sizes": 0.5}, {}),
        ({"kind": "rounded", "levels": 5, "step": 0.5}, {}),
        ({"kind": "scale-and-sign"}, {"0.seed": np.array([1.0])}),
        ({"kind": "rounded"}, {"0.step": ONES, "0.levels": np.array(5.0)}),
        # shapes
        ({"kind": "linear"}, {"0.matrix": ONES}),
        ({"kind": "linear"}, {"0.matrix": np.ones((4, 3))}),
        ({"kind": "linear"}, {"0.matrix": np.ones((0, 4))}),
        ({"kind": "linear"}, {"0.matrix": np.ones((2, 2, 4))}),
        ({"kind": "linear"}, {"0.matrix": np.array(2.0)}),
        ({"kind": "linear"}, {"0.matrix": np.ones((65537, 4))}),
        ({"kind": "linear"}, {"0.matrix": np.ones((3, 4)), "0.offset": ONES}),
        ({"kind": "linear"}, {"0.matrix": np.ones((1, 4)), "0.offset": np.ones((1, 1))}),
        ({"kind": "noise", **SEED}, {"0.sizes": np.ones(3)}),
        ({"kind": "noise", **SEED}, {"0.sizes": np.ones((1, 4))}),
        ({"kind": "rounded", "levels": 5}, {"0.step": np.ones((7, 4))}),
        ({"kind": "rounded", "levels": 5}, {"0.step": np.ones(0)}),
        # values
        ({"kind": "linear"}, {"0.matrix": np.full((4, 4), np.nan)}),
        ({"kind": "linear"}, {"0.matrix": np.diag([1, 1, 1, np.inf])}),
        ({"kind": "linear"}, {"0.matrix": np.eye(4), "0.offset": ONES * np.nan}),
        ({"kind": "noise", **SEED}, {"0.sizes": np.array([1, 1, 1, np.nan])}),
        ({"kind": "rounded", "levels": 5}, {"0.step": np.array([np.inf])}),
        ({"kind": "rounded", "levels": 5}, {"0.step": np.array([0.0])}),
        ({"kind": "rounded", "levels": 5}, {"0.step": np.array([1, 1, -1, 1.0])}),
    ],
)
def test_what_is_no_change_is_refused(entry, arrays):
    with pytest.raises(ModelError, match="serving file is malformed"):
        read_changes([entry], arrays, 4)


@pytest.mark.parametrize("entries", [None, {}, "[]", 3, {"kind": "signs"}])
def test_what_is_no_list_is_refused(entries):
    with pytest.raises(ModelError, match="no list of changes"):
        read_changes(entries, {}, 4)


def test_a_list_has_an_end():
    assert len(read_changes([{"kind": "signs"}] * 64, {}, 4)) == 64
    with pytest.raises(ModelError, match="no list of changes"):
        read_changes([{"kind": "signs"}] * 65, {}, 4)


def test_shapes_are_those_of_the_outputs_at_that_place():
    cut = {"kind": "linear"}
    noise = {"kind": "noise", **SEED}
    arrays = {"0.matrix": np.ones((2, 4)), "1.sizes": np.ones(2)}
    assert len(read_changes([cut, noise], arrays, 4)) == 2
    with pytest.raises(ModelError, match="change 1, noise: sizes"):
        read_changes([cut, noise], arrays | {"1.sizes": ONES}, 4)
    with pytest.raises(ModelError, match="change 0, linear: matrix"):
        read_changes([cut, noise], arrays, 5)


# What JSON can hold, so that reading a file of anybody's ends in changes or in this one error.
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["kind", "seed", "flips", "levels", "step"]), inner)
    ),
    max_leaves=8,
)
kinds = st.sampled_from(
    ["linear", "unit-length", "scale-and-sign", "noise", "rounded", "bfloat16", "signs"]
)
names = st.sampled_from(["seed", "flips", "levels", "step", "sizes", "matrix", "offset", "_rng"])
records = st.builds(
    lambda kind, values: {**values, "kind": kind}, kinds, st.dictionaries(names, anything)
)
any_array = array_of(
    np.float64,
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    elements=st.floats(-10, 10) | st.sampled_from([np.nan, np.inf]),
)
places = st.builds(lambda place, name: f"{place}.{name}", st.integers(0, 2), names)


@given(
    entries=st.lists(records | anything, max_size=3) | anything,
    arrays=st.dictionaries(places, any_array, max_size=4),
)
@settings(max_examples=300, deadline=None)
def test_anything_is_read_or_refused(entries, arrays):
    try:
        found = read_changes(entries, arrays, 4)
    except ModelError:
        return
    with np.errstate(over="ignore"):  # by the smallest step there is, an entry is infinitely many
        assert np.isfinite(apply_changes(found, ROWS)).all()
