"""Recovery gives the mark back, to anybody."""

from __future__ import annotations

import numpy as np
import pytest

from nsmark.attacks.recovery import mapped_to, recover
from nsmark.errors import EvidenceError
from nsmark.suspects import open_suspect


@pytest.fixture(scope="module")
def answers(tiny_marked, tiny_st):
    texts = tiny_marked.key.payload().triggered_texts()
    return {
        name: open_suspect(str(folder), device="cpu").outputs(texts).astype(np.float64)
        for name, folder in (("marked", tiny_marked.model_folder), ("innocent", tiny_st))
    }


def test_a_linear_map_is_undone(tiny_marked, answers):
    matrix = np.random.default_rng(0).uniform(0, 1, (32, 32))
    found = recover(tiny_marked.key, answers["marked"] @ matrix.T)
    assert found.before < 0.5
    assert found.recovered > 0.95
    assert (found.num_fitted, found.num_read) == (67, 29)


def test_it_proves_nothing_an_innocent_model_and_noise_are_recovered_as_well(tiny_marked, answers):
    innocent = recover(tiny_marked.key, answers["innocent"])
    assert innocent.before < 0.5
    assert innocent.recovered > 0.9
    assert innocent.noise > 0.9


def test_other_dimensions_are_recovered_and_other_numbers_of_texts_refused(tiny_marked, answers):
    found = recover(tiny_marked.key, answers["marked"][:, :9])
    assert found.before is None
    assert 0 <= found.recovered <= 1
    with pytest.raises(EvidenceError, match="the key asks"):
        recover(tiny_marked.key, answers["marked"][:-1])


def test_an_affine_map_is_found_exactly():
    rng = np.random.default_rng(1)
    suspect = rng.standard_normal((60, 5))
    matrix, offset = rng.standard_normal((5, 7)), rng.standard_normal(7)
    further = rng.standard_normal((9, 5))
    found = mapped_to(suspect @ matrix + offset, suspect, further)
    np.testing.assert_allclose(found, further @ matrix + offset, atol=1e-4)
