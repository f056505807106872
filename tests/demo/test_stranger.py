from __future__ import annotations

import numpy as np
import pytest

from conftest import make_identity
from nsmark.api import verify
from nsmark.demo.stranger import steal_key
from nsmark.identity import OwnershipClaim
from nsmark.keyfile import WatermarkKey, read_key, write_key
from nsmark.verification import check_derivations


@pytest.fixture(scope="module")
def stolen_key(tiny_marked) -> WatermarkKey:
    claim = OwnershipClaim.make("Stranger", "I trained this", "2026-02-01T00:00:00Z")
    return steal_key(tiny_marked.key, make_identity(9), claim)


def test_the_stolen_key_passes_every_check_of_the_file(stolen_key, tmp_path):
    write_key(stolen_key, tmp_path / "wrong.nsmark")
    found = read_key(tmp_path / "wrong.nsmark")
    assert found.has_valid_seal()
    assert check_derivations(found) == []
    assert found.signed_claim.claim.owner == "Stranger"


def test_it_holds_the_owners_extractor_and_outputs_under_another_signature(stolen_key, tiny_marked):
    own = tiny_marked.key
    np.testing.assert_array_equal(stolen_key.owner_triggered, own.owner_triggered)
    np.testing.assert_array_equal(stolen_key.extractor[0][0], own.extractor[0][0])
    assert stolen_key.signature != own.signature
    assert stolen_key.verification_texts != own.verification_texts
    assert stolen_key.key_id != own.key_id


def test_measuring_unmasks_it(stolen_key, tiny_marked, tiny_st):
    for suspect in (tiny_marked.model_folder, tiny_st):
        report = verify(stolen_key, suspect)
        assert report.verdict == "not_shown"
        assert report.exit_code == 1
        assert report.to_mapping()["derived_p_value"] > 1e-3
