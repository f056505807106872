"""Bytes and ±1 vectors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsmark.core.bits import bytes_to_signs, signs_to_bytes
from nsmark.errors import ConfigError


def test_the_most_significant_bit_comes_first_and_one_is_plus() -> None:
    signs = bytes_to_signs(b"\x80\x03")

    assert signs.tolist() == [1] + [-1] * 7 + [-1] * 6 + [1, 1]
    assert signs.dtype == np.int64


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=100))
def test_bytes_survive_the_way_to_signs_and_back(octets: bytes) -> None:
    signs = bytes_to_signs(octets)

    assert signs.shape == (8 * len(octets),)
    assert set(signs.tolist()) <= {-1, 1}
    assert "".join("1" if s > 0 else "0" for s in signs) == "".join(f"{b:08b}" for b in octets)
    assert signs_to_bytes(signs) == octets


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([-1, 1]), max_size=8).map(lambda row: row * 8))
def test_signs_survive_the_way_to_bytes_and_back(row: list[int]) -> None:
    signs = np.array(row, dtype=np.int64)

    assert bytes_to_signs(signs_to_bytes(signs)).tolist() == row


def test_a_length_that_fills_no_byte_is_refused() -> None:
    with pytest.raises(ConfigError, match="multiple of 8"):
        signs_to_bytes(np.ones(9, dtype=np.int64))


def test_a_table_of_signs_is_refused() -> None:
    with pytest.raises(ConfigError, match="one row"):
        signs_to_bytes(np.ones((2, 8), dtype=np.int64))


@pytest.mark.parametrize("entry", [0, 2, -3])
def test_an_entry_that_is_no_sign_is_refused(entry: int) -> None:
    signs = np.ones(8, dtype=np.int64)
    signs[3] = entry

    with pytest.raises(ConfigError, match=r"\+1 or -1"):
        signs_to_bytes(signs)
