"""What a claimant gets who has only some of a key."""

from __future__ import annotations

import pytest

from handmade_keys import make_key
from many_keys import WordModel, code_of
from nsmark.attacks.wrong_keys import with_wrong_parts
from nsmark.core import expected_matching_degree
from nsmark.payload import PairConfig
from nsmark.suspects import open_suspect


@pytest.fixture(scope="module")
def rows(tiny_marked):
    suspect = open_suspect(str(tiny_marked.model_folder), device="cpu")
    return {row.part: row for row in with_wrong_parts(tiny_marked.key, suspect)}


def test_the_whole_key_reads_the_mark(rows):
    assert rows["nothing"].extraction_rate > 0.95
    assert rows["nothing"].matching_degree < 0.1


def test_a_wrong_trigger_gives_neither(rows):
    for part in ("trigger", "trigger and signature"):
        assert rows[part].extraction_rate < 0.5
        assert rows[part].matching_degree > 10 * rows["nothing"].matching_degree


def test_a_wrong_signature_agrees_by_chance_and_leaves_the_null_space(rows):
    # 16 bits of a tiny key: half of them by chance.
    assert 0.1 < rows["signature's bits"].extraction_rate < 0.9
    assert rows["signature"].extraction_rate < 0.7
    assert rows["signature"].matching_degree == rows["nothing"].matching_degree


def test_a_wrong_extractor_reads_little(rows):
    for part in ("extractor: random", "extractor: its outputs in another order"):
        assert rows[part].extraction_rate < 0.8
        assert rows[part].matching_degree == rows["nothing"].matching_degree


def test_a_wrong_null_space_is_far_and_making_it_small_does_not_help(rows):
    uniform, small = rows["null space: entries from U[0, 1]"], rows["null space: small entries"]
    assert uniform.matching_degree > 100 * rows["nothing"].matching_degree
    # By the paper's formula it does; here columns of N are brought to length 1 first.
    assert small.matching_degree == pytest.approx(uniform.matching_degree, rel=0.05)
    orthonormal = rows["null space: orthonormal at random"]
    null_dim = 96 - 32
    assert orthonormal.matching_degree > 0.3 * expected_matching_degree(96, null_dim)


def test_the_same_seed_draws_the_same(tiny_marked, tiny_st):
    suspect = open_suspect(str(tiny_st), device="cpu")
    first, second = (with_wrong_parts(tiny_marked.key, suspect, seed=3) for _ in range(2))
    assert first == second
    assert first[0].extraction_rate < 0.5


def test_without_a_pair_code_none_is_read(rows):
    assert all(row.pair_code_rate is None for row in rows.values())
    assert rows["nothing"].derived_extraction_rate == 1
    assert rows["trigger"].derived_extraction_rate < 1
    assert rows["extractor: random"].derived_extraction_rate is None


def test_another_signatures_pair_code_is_read_by_chance():
    key = make_key(pairs=PairConfig(size=12, repeats=3))
    suspect = WordModel([code_of(key)], output_dim=16)
    rows = {row.part: row for row in with_wrong_parts(key, suspect)}
    assert rows["nothing"].pair_code_rate > 0.9
    assert 0.3 < rows["signature"].pair_code_rate < 0.7
    assert rows["trigger"].pair_code_rate is None
