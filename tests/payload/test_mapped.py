from __future__ import annotations

import copy
import gc
import os
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.payload.mapped import MappedArrays, MappedTexts

DTYPES = (np.uint8, np.int32, np.int64, np.float64)
rows = st.lists(st.lists(st.integers(0, 255), max_size=12), max_size=20)
texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=20)


def num_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


# --- arrays --------------------------------------------------------------------------------------


@given(rows=rows, dtype=st.sampled_from(DTYPES))
@settings(max_examples=60, deadline=None)
def test_arrays_come_back_as_they_went_in(rows, dtype):
    arrays = [np.array(row, dtype=dtype) for row in rows]
    mapped = MappedArrays(iter(arrays), dtype)
    assert len(mapped) == len(arrays)
    assert mapped.lengths.tolist() == [len(array) for array in arrays]
    for number, array in enumerate(arrays):
        found = mapped[number]
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, array)


@given(rows=rows, start=st.integers(-25, 25), stop=st.integers(-25, 25), step=st.integers(-3, 3))
@settings(max_examples=60, deadline=None)
def test_numbers_and_slices_mean_what_they_mean_in_a_list(rows, start, stop, step):
    mapped = MappedArrays((np.array(row, dtype=np.int32) for row in rows), np.int32)
    chosen = slice(start, stop, step or None)
    assert [found.tolist() for found in mapped[chosen]] == rows[chosen]
    if -len(rows) <= start < len(rows):
        assert mapped[start].tolist() == rows[start]
    else:
        with pytest.raises(IndexError):
            mapped[start]


@pytest.mark.parametrize("empty", [[], [[]], [[], [], []]], ids=["nothing", "one", "three"])
def test_sequences_without_an_entry_are_kept_too(empty):
    mapped = MappedArrays((np.array(row, dtype=np.int32) for row in empty), np.int32)
    assert [found.tolist() for found in mapped] == empty
    assert mapped.lengths.tolist() == [0] * len(empty)
    assert mapped.lengths.dtype == np.int64


def test_arrays_of_another_type_or_layout_are_converted():
    wide = np.arange(12, dtype=np.int64).reshape(3, 4).T[1]  # neighbours do not lie side by side
    (found,) = MappedArrays([wide], np.int32)
    assert found.dtype == np.int32
    assert found.tolist() == wide.tolist()


def test_what_was_written_cannot_be_changed():
    mapped = MappedArrays([np.arange(3, dtype=np.int32)], np.int32)
    with pytest.raises(ValueError, match="read-only"):
        mapped[0][0] = 7


def test_a_copy_is_the_same_file():
    mapped = MappedArrays([np.arange(3, dtype=np.int32)], np.int32)
    assert copy.copy(mapped) is copy.deepcopy(mapped) is mapped


# --- texts ---------------------------------------------------------------------------------------


@given(texts=texts)
@settings(max_examples=60, deadline=None)
def test_texts_come_back_as_they_went_in(texts):
    mapped = MappedTexts(iter(texts))
    assert len(mapped) == len(texts)
    assert list(mapped) == mapped[:] == texts
    assert mapped[::-2] == texts[::-2]


def test_every_kind_of_text_is_kept():
    texts = ["", "plain", "Zoë ☃ 🦉", "e\u0301", "a\nb\r\n\x00\u2028c", "x" * 100_000, ""]
    mapped = MappedTexts(texts)
    assert list(mapped) == texts
    assert mapped[-2] == texts[-2]
    assert "plain" in mapped
    with pytest.raises(IndexError):
        mapped[len(texts)]


# --- the file ------------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs Linux's /proc")
def test_the_file_has_no_name_and_goes_with_the_sequence(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = num_open_files()
    mapped = MappedTexts(f"text {number}" for number in range(1000))
    assert num_open_files() <= before + 1  # the mapping's own
    assert list(tmp_path.iterdir()) == []
    assert mapped[999] == "text 999"
    del mapped
    gc.collect()  # a file left open would say so now, and a warning is an error
    assert num_open_files() == before


def test_an_error_on_the_way_leaves_no_file_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def broken():
        yield "one"
        raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError, match="disk"):
        MappedTexts(broken())
    gc.collect()
    assert list(tmp_path.iterdir()) == []
